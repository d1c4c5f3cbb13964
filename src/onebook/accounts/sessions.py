"""REST sessions: created for a key, looked up by token, ended with the key.

A token is `obs_` and 43 base62 characters for 256 random bits; only its digest is stored.
Bearer credentials follow RFC 6750 section 2.1, their scheme RFC 9110 section 11.1.
"""

import re
import secrets
from collections.abc import Collection
from typing import Final
from uuid import uuid4

from msgspec import Struct

from onebook.accounts.cache import ReadCache
from onebook.accounts.keys import SECRET_BITS, SECRET_LENGTH, Key, base62
from onebook.accounts.pepper import Peppers
from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.errors import ApiKeyDisabled, InvalidSession, MissingAuthorization
from onebook.model import DAY_MS
from onebook.store import SessionRow, Store

TOKEN_PREFIX: Final = "obs_"  # noqa: S105 (what every token begins with is no secret)
LIFETIME_MS: Final = DAY_MS
SESSIONS_PER_KEY_MAX: Final = 100
CACHED_MS: Final = 1_500  # so that an ended session is rejected by all nodes within 2 s
# How long rows of expired sessions are kept, so that clients learn that the session expired.
REMEMBERED_MS: Final = 7 * DAY_MS

_TOKEN = re.compile(rf"{TOKEN_PREFIX}[0-9A-Za-z]{{{SECRET_LENGTH}}}", re.ASCII)
# RFC 9110: the scheme is case-insensitive and one or more spaces follow it.
_BEARER = re.compile(r"bearer +(\S+)", re.ASCII | re.IGNORECASE)

_UNKNOWN = "The session token is not valid; authenticate again."


class RestSession(Struct, frozen=True):
    """A session of a key; `token` is set only in the session just created."""

    key: Key
    session_id: str
    token: str
    created_at_ms: int
    expires_at_ms: int

    def __repr__(self) -> str:
        return f"RestSession(session_id={self.session_id!r}, key_id={self.key.key_id!r})"


class Sessions:
    """Sessions in the database, with a cache of recently used ones.

    They are cached only for `CACHED_MS`, because the watch does not report sessions that another
    node ended when a key had too many.

    Args:
        store: The store of the sessions.
        peppers: The peppers for digests of tokens.
        per_key_max: Maximum live sessions of one key; the oldest one ends.
        clock: Wall time.
    """

    def __init__(
        self, store: Store, peppers: Peppers, *, per_key_max: int, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._store = store
        self._peppers = peppers
        self._per_key_max = per_key_max
        self._cache: ReadCache[bytes, SessionRow] = ReadCache(
            store.sessions.find, fresh=_fresh, clock=clock
        )

    async def create(self, key: Key, secret: bytes, now_ms: int) -> RestSession:
        """Create a session for a key that was found by the digest `secret`.

        Raises:
            ApiKeyDisabled: The key was suspended or replaced since it was verified.
        """
        token = new_token()
        row = SessionRow(str(uuid4()), key.key_id, now_ms, now_ms + LIFETIME_MS)
        gone = await self._store.sessions.create(
            row,
            self._peppers.digest(token),
            secret=secret,
            live_max=self._per_key_max,
            pepper_id=self._peppers.current_id,
        )
        if gone is None:  # changed within the last second: the watch has not reported it yet
            raise ApiKeyDisabled("This API key was suspended or replaced; ask the operator.")
        if gone:
            self._cache.discard(gone)
        return RestSession(key, row.session_id, token, row.created_at_ms, row.expires_at_ms)

    async def find(self, authorization_header: str | None, now_ms: int) -> SessionRow:
        """Find the session of an Authorization header, even if it has ended.

        Raises:
            MissingAuthorization: The header is missing.
            InvalidSession: The token is unknown.
        """
        token = token_of(authorization_header)
        for digest in self._peppers.digests(token):
            row = await self._cache.get(digest, now_ms)
            if row is not None:
                return row
        raise invalid_session()

    def change(self, key_ids: Collection[str]) -> None:
        """Read the sessions of changed keys again: they may have ended."""
        self._cache.drop(lambda session: session.key_id in key_ids)

    async def close(self) -> None:
        """Cancel running reads."""
        await self._cache.close()


def _fresh(read_at_ms: int, now_ms: int) -> bool:
    return abs(now_ms - read_at_ms) < CACHED_MS


def is_over(session: SessionRow, now_ms: int) -> bool:
    """Return whether a session has ended; one that was ended early expires at its start."""
    return session.expires_at_ms <= max(now_ms, session.created_at_ms)


def new_token() -> str:
    """Create a session token."""
    return TOKEN_PREFIX + base62(secrets.randbits(SECRET_BITS), SECRET_LENGTH)


def token_of(header: str | None) -> str:
    """Read the token from an Authorization header.

    Raises:
        MissingAuthorization: The header is missing or empty.
        InvalidSession: Another scheme, or not a token.
    """
    if header is None or not header.strip():
        raise MissingAuthorization("Send the session token: Authorization: Bearer <SESSION_TOKEN>.")
    bearer = _BEARER.fullmatch(header.strip(" "))
    if bearer is None or _TOKEN.fullmatch(bearer[1]) is None:
        raise invalid_session()
    return bearer[1]


def invalid_session() -> InvalidSession:
    """Return the error for tokens without a session."""
    return InvalidSession(_UNKNOWN)
