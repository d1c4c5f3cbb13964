"""API keys: text, digest and status transitions.

A key is `ob_live_`, 43 base62 characters for 256 random bits, and a checksum of 6, so that a
typing error is refused without a database query. Format after GitHub's
(https://github.blog/2021-04-05-behind-githubs-new-authentication-token-formats/). Keys are not
stored, only their `digest`.
"""

import hmac
import re
import secrets
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from onebook.errors import ApiKeyDisabled, InvalidRequest
from onebook.fees import NO_FEES, TakerFees, fee_table
from onebook.model import KeyStatus, Tier
from onebook.store import KeyRow

PREFIX: Final = "ob_live_"
SECRET_BITS: Final = 256
SECRET_LENGTH: Final = 43  # 62 ** 43 > 2 ** 256
CHECKSUM_LENGTH: Final = 6  # 62 ** 6 > 2 ** 32
SHOWN_LENGTH: Final = 12  # of a key in lists and replies: the prefix and four characters

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SHAPE = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{SECRET_LENGTH + CHECKSUM_LENGTH}}}", re.ASCII)

# Transitions of a key's status by an operator's action. Expired is final.
KEY_MOVES: Final = {
    (KeyStatus.ACTIVE, "suspend"): KeyStatus.SUSPENDED,
    (KeyStatus.SUSPENDED, "resume"): KeyStatus.ACTIVE,
    (KeyStatus.ACTIVE, "expire"): KeyStatus.EXPIRED,
    (KeyStatus.SUSPENDED, "expire"): KeyStatus.EXPIRED,
}
ACCOUNT_MOVES: Final = {
    (KeyStatus.ACTIVE, "suspend"): KeyStatus.SUSPENDED,
    (KeyStatus.SUSPENDED, "resume"): KeyStatus.ACTIVE,
}


class Key(Struct, frozen=True):
    """An API key with its account and permissions, without its text.

    `account_id` is the `user_id` of the interface; `status` includes the account's; `prefix` is
    the first 12 characters, the only part shown in replies; `suspensions` rises each time the key
    becomes unusable, so that a key that was suspended and resumed is distinguished from one that
    was not. `allowance_bytes` is the key's monthly allowance; None means the configured default.
    `fees` are its taker fees in percent by exchange, empty if none were set.
    """

    key_id: str
    account_id: str
    username: str
    tier: Tier
    status: KeyStatus
    prefix: str
    created_at_ms: int
    expires_at_ms: int | None
    suspensions: int = 0
    allowance_bytes: int | None = None
    fees: TakerFees = NO_FEES

    def allowance_of(self, default_bytes: int) -> int:
        """Return the key's allowance per period: its own, or `default_bytes`."""
        return default_bytes if self.allowance_bytes is None else self.allowance_bytes


def base62(number: int, length: int) -> str:
    """Write a number in base62, padded to a length."""
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(ALPHABET[digit])
    assert number == 0
    return "".join(reversed(digits))


def new_key() -> str:
    """Create a key. Its text is never stored."""
    body = PREFIX + base62(secrets.randbits(SECRET_BITS), SECRET_LENGTH)
    return body + checksum(body)


def checksum(body: str) -> str:
    """Return the checksum of a key without its last 6 characters."""
    return base62(zlib.crc32(body.encode()), CHECKSUM_LENGTH)


def well_formed(text: str) -> bool:
    """Return whether a text could be a key: valid format and checksum."""
    if _SHAPE.fullmatch(text) is None:
        return False
    return text[-CHECKSUM_LENGTH:] == checksum(text[:-CHECKSUM_LENGTH])


def digest(pepper: bytes, text: str) -> bytes:
    """Return the digest that is stored instead of a key or token.

    HMAC-SHA-256 instead of a slow hash: 256 random bits cannot be guessed, and a slow hash would
    let any client exhaust the CPU by reconnecting.
    """
    return hmac.digest(pepper, text.encode(), "sha256")


def key_of(row: KeyRow) -> Key:
    """Convert a row to a key; a suspended account suspends its keys."""
    status = row.status
    if row.account_status is not KeyStatus.ACTIVE and status is KeyStatus.ACTIVE:
        status = KeyStatus.SUSPENDED
    return Key(
        key_id=row.key_id,
        account_id=row.account_id,
        username=row.username,
        tier=row.tier,
        status=status,
        prefix=row.prefix[:SHOWN_LENGTH],
        created_at_ms=row.created_at_ms,
        expires_at_ms=row.expires_at_ms,
        suspensions=row.suspensions,
        allowance_bytes=row.allowance_bytes,
        fees=fees_from(row.fees),
    )


@lru_cache(maxsize=1_000)
def fees_from(text: str) -> TakerFees:
    """Decode a stored table."""
    return TakerFees(msgspec.json.decode(text, type=dict[str, str]))


def stored_fees(fees: Mapping[str, str]) -> str:
    """Check a table of taker fees and return its stored form; names must be ours.

    Raises:
        InvalidRequest: A fee is invalid, or there are too many.
    """
    try:
        return msgspec.json.encode(fee_table(fees)).decode()
    except ValueError as error:
        raise InvalidRequest(f"fees: {error}") from None


def status_at(key: Key | KeyRow, now_ms: int) -> KeyStatus:
    """Return a key's status at a time: expired after its date, whatever its row states."""
    if key.expires_at_ms is not None and now_ms >= key.expires_at_ms:
        return KeyStatus.EXPIRED
    return key.status


def require_enabled(key: Key, now_ms: int) -> None:
    """Raise if a key may not be used now.

    Raises:
        ApiKeyDisabled: The key is suspended or expired.
    """
    status = status_at(key, now_ms)
    if status is not KeyStatus.ACTIVE:
        raise ApiKeyDisabled(f"This API key is {status}; ask the operator.")


def following(
    moves: dict[tuple[KeyStatus, str], KeyStatus], status: KeyStatus, action: str, subject: str
) -> KeyStatus:
    """Return the status of `subject` after an operator's action.

    Raises:
        InvalidRequest: The table does not allow the transition.
    """
    try:
        return moves[status, action]
    except KeyError:
        raise InvalidRequest(f"{subject} is {status}; {action} does not apply.") from None
