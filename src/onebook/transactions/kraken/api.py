"""Signs requests to Kraken, spot and futures, and interprets the answers; pure.

- Spot: https://docs.kraken.com/api/docs/guides/spot-rest-auth; the body, which contains the nonce,
  is signed in its final form
- Futures: https://docs.kraken.com/api/docs/guides/futures-rest; the signature covers the query
  string in its final form (since 2025-10-01), and the path without `/derivatives`
- Errors: https://docs.kraken.com/api/docs/guides/spot-errors; texts without numbers, at HTTP 200:
  `E<category>:<text>`, sometimes followed by a detail. `W...` are warnings: the result is valid
- Limits: https://docs.kraken.com/api/docs/guides/spot-rest-ratelimits: one counter per key, raised
  by calls and decaying with time, without headers. The account's tier is unknown, so the lowest one
  is assumed. The history of futures has a pool per ten minutes:
  https://docs.kraken.com/api/docs/guides/futures-rate-limits
"""

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final
from urllib.parse import parse_qs

from msgspec import MsgspecError, Struct, json
from msgspec.structs import replace

from onebook.clock import s_of_http_date
from onebook.transactions.adapter import KEY_FIELD, SECRET_FIELD, FailureReason, SourceFailed
from onebook.transactions.client import FORM, Call, ExchangeApi, Outcome, Reply, Then
from onebook.transactions.credentials import Credentials
from onebook.transactions.pools import CostLimit, PoolScope, PoolState

SPOT_HOST, FUTURES_HOST = "spot", "futures"
FUTURES_KEY, FUTURES_SECRET = "futures_key", "futures_secret"  # names of fields
DERIVATIVES: Final = "/derivatives"
HISTORY: Final = "/api/history/"
PRIVATE: Final = "/0/private/"
LOCKOUT_S: Final = 15 * 60.0  # "Temporary lockout": further requests prolong it
THROTTLED_S: Final = 5.0  # if a throttle does not state its end
THROTTLED_S_MAX: Final = 60.0
CODE_CHARS_MAX: Final = 80

# Pools, and the costs of calls.
COUNTER, PUBLIC_POOL, DERIVATIVES_POOL, HISTORY_POOL = "counter", "public", "derivatives", "history"
LIMITS: Final = {
    COUNTER: CostLimit(15, sinks=0.33),  # the Starter tier; Pro decays by 1 per second
    PUBLIC_POOL: CostLimit(1, 1.0, scope=PoolScope.ADDRESS),
    DERIVATIVES_POOL: CostLimit(500, 10.0),
    HISTORY_POOL: CostLimit(100, 600.0),
}
BALANCES: Final = "/0/private/BalanceEx"
DEAR: Final = frozenset({"Ledgers", "QueryLedgers", "TradesHistory", "QueryTrades"})
LOG_COSTS: Final = ((25, 1), (50, 2), (1_000, 3), (5_000, 6), (100_000, 10))  # maximum rows, units


def costs(call: Call) -> Mapping[str, float]:
    """Units that a call costs in its pool."""
    if call.host != FUTURES_HOST:
        if not call.path.startswith(PRIVATE):
            return {PUBLIC_POOL: 1}
        return {COUNTER: 2 if call.path.removeprefix(PRIVATE) in DEAR else 1}
    if call.path.startswith(HISTORY):
        rows = int(parse_qs(call.query).get("count", ["500"])[0])
        return {HISTORY_POOL: next((units for most, units in LOG_COSTS if rows <= most), 10)}
    return {DERIVATIVES_POOL: 2}


def sign(call: Call, credentials: Credentials, stamp: int) -> Call:
    """Add the authentication to a call."""
    if call.host == FUTURES_HOST:
        return _signed_futures(call, credentials)
    nonce = str(stamp)
    body = f"nonce={nonce}&".encode() + call.body if call.body else f"nonce={nonce}".encode()
    secret = credentials.field(SECRET_FIELD.name)
    headers = {
        "API-Key": credentials.field(KEY_FIELD.name),
        "API-Sign": spot_signature(secret, call.path, nonce, body),
    }
    return replace(call, method="POST", body=body, headers=FORM | headers)


def _signed_futures(call: Call, credentials: Credentials) -> Call:
    path = call.path.removeprefix(DERIVATIVES)
    headers = {
        "APIKey": credentials.field(FUTURES_KEY),
        "Authent": futures_signature(credentials.field(FUTURES_SECRET), path, call.query),
    }
    return replace(call, headers=headers)


def spot_signature(secret: str, path: str, nonce: str, body: bytes) -> str:
    """HMAC-SHA512 of the path and the SHA-256 of nonce and body, in base64."""
    digest = hashlib.sha256(nonce.encode() + body).digest()
    return _hmac(secret, path.encode() + digest)


def futures_signature(secret: str, path: str, query: str, nonce: str = "") -> str:
    """HMAC-SHA512 of the SHA-256 of query, nonce and path, in base64."""
    return _hmac(secret, hashlib.sha256(f"{query}{nonce}{path}".encode()).digest())


def _hmac(secret: str, text: bytes) -> str:
    try:
        key = b64decode(secret, validate=True)
    except (binascii.Error, ValueError):
        raise SourceFailed(
            FailureReason.AUTHENTICATION_FAILED,
            "The private key is not base64, as Kraken's keys are; copy it again.",
            fatal=True,
        ) from None
    return b64encode(hmac.new(key, text, hashlib.sha512).digest()).decode()


# Answers ------------------------------------------------------------------------------------------

_BUSY = Outcome(FailureReason.EXCHANGE_ERROR, "Kraken did not answer in time.", retryable=True)
_REFUSED = Outcome(FailureReason.EXCHANGE_ERROR, "Kraken refused the request.")
_BAD_KEY = Outcome(
    FailureReason.AUTHENTICATION_FAILED, "Kraken does not recognise the API key.", fatal=True
)
_BAD_SIGNATURE = Outcome(
    FailureReason.AUTHENTICATION_FAILED,
    "Kraken rejected the signature: the private key does not belong to the API key.",
    fatal=True,
)
_BAD_NONCE = Outcome(
    FailureReason.AUTHENTICATION_FAILED,
    "Kraken rejected the nonce: another program uses this API key, or has used it with a faster "
    "clock. Create a key that only Onebook uses.",
    fatal=True,
)
_DENIED = Outcome(FailureReason.PERMISSION_DENIED, "The API key has no permission for this.")
_NOT_OPENED = Outcome(
    FailureReason.NOT_OPENED, "Kraken does not offer this to this account, or in its country."
)
_LIMITED = Outcome(FailureReason.RATE_LIMITED, "Kraken's rate limit is used up.", retryable=True)
_LOCKED_OUT = Outcome(
    FailureReason.CIRCUIT_OPEN,
    "Kraken has locked this API key for about fifteen minutes; requests are paused.",
    retryable=True,
)
_ACCOUNT = Outcome(
    FailureReason.AUTHENTICATION_FAILED,
    "Kraken has disabled or not yet confirmed this account; its owner must contact Kraken.",
    fatal=True,
)
_LOCATION = Outcome(
    FailureReason.LOCATION_REFUSED,
    "Kraken does not serve this server's address.",
    fatal=True,
)
_NOT_JSON = Outcome(FailureReason.UNREADABLE, "Kraken's answer is not JSON.", retryable=True)
NO_RESULT = Outcome(FailureReason.UNREADABLE, "Kraken's answer has no result.", retryable=True)

# Meanings of errors by prefix; the longest matching prefix applies.
ERRORS: Final[Mapping[str, Outcome]] = {
    "EAPI:Invalid key": _BAD_KEY,
    "EAPI:Invalid signature": _BAD_SIGNATURE,
    "EAPI:Invalid nonce": _BAD_NONCE,
    "EAPI:Rate limit exceeded": _LIMITED,
    "EAPI Rate limit exceeded": _LIMITED,
    "EAPI:Invalid permissions": _NOT_OPENED,
    "EAccount:Invalid permissions": _NOT_OPENED,
    "EGeneral:Permission denied": _DENIED,
    "EGeneral:Temporary lockout": _LOCKED_OUT,
    "EGeneral:Too many requests": _LIMITED,
    "EGeneral:Internal error": _BUSY,
    "EDatabase:": _BUSY,
    "EService:": _BUSY,
    "EAuth:": _ACCOUNT,
    "EAuth:Rate limit exceeded": _LIMITED,
    "EAuth:Too many requests": _LIMITED,
    "ETrade:User Locked": _ACCOUNT,
    "ESession:Invalid session": _ACCOUNT,
    # Futures
    "apiLimitExceeded": _LIMITED,
    "authenticationError": Outcome(
        FailureReason.AUTHENTICATION_FAILED, "Kraken Futures does not accept the futures key."
    ),
    "insufficientPrivileges": Outcome(
        FailureReason.PERMISSION_DENIED, "The futures key has no permission for this."
    ),
    "accountInactive": Outcome(
        FailureReason.NOT_OPENED, "The account has never used Kraken Futures."
    ),
    "nonceBelowThreshold": _BAD_NONCE,
    "nonceDuplicate": _BAD_NONCE,
    "unavailable": _BUSY,
    "Unavailable": _BUSY,
    "marketUnavailable": _BUSY,
    "Server Error": _BUSY,
    "unknownError": _BUSY,
    "Json Parse Error": _BUSY,
}
_THROTTLED = re.compile(r"EService: ?Throttled: ?(\d{9,12})")


# The last one: exponents that a decimal cannot represent.
UNDECODABLE: Final = (MsgspecError, UnicodeDecodeError, RecursionError, ArithmeticError)


class SpotAnswer(Struct, frozen=True):
    """The envelope of spot answers."""

    error: Any = None
    result: Any = None


def read(call: Call, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """Interpret an answer."""
    if call.host == FUTURES_HOST:
        return _read_futures(call, status, headers, body)
    if status != 200:
        return _of_status(status)
    try:
        envelope = _decoder.decode(body)
    except UNDECODABLE:
        return _NOT_JSON.reply()
    said = envelope.error if isinstance(envelope.error, list) else [envelope.error or ""]
    errors = [str(each) for each in said if each and not str(each).startswith("W")]
    if errors:
        return _of_error(errors[0], COUNTER, headers)
    # A result is only absent from the balance of an account that never held anything
    # (https://github.com/rotki/rotki/issues/946): anywhere else, no rows would end a history.
    if envelope.result is None and call.path != BALANCES:
        return NO_RESULT.reply()
    return Reply(value=envelope.result)


def _read_futures(call: Call, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """Interpret a futures answer: `/derivatives` has a result, the history only an HTTP status."""
    pool = HISTORY_POOL if call.path.startswith(HISTORY) else DERIVATIVES_POOL
    if status == 429:
        wait_s = _seconds(headers.get("rate-limit-reset", ""))
        state = PoolState(refused=True, blocked_s=wait_s or 0.0)
        return Reply(failure=_LIMITED.failure(429), then=Then.RETRY_NOW, pools={pool: state})
    if status in (401, 403) and pool == HISTORY_POOL:
        return ERRORS["authenticationError"].reply(status)
    if status != 200:
        return _of_status(status)
    try:
        answer = _any.decode(body)
    except UNDECODABLE:
        return _NOT_JSON.reply()
    if not isinstance(answer, dict):
        return _NOT_JSON.reply()
    if answer.get("result") == "error" or answer.get("errors"):
        return _of_error(str(answer.get("error") or ""), pool, headers)
    return Reply(value=answer)


def _of_status(status: int) -> Reply:
    """The meaning of an HTTP status other than 200; the body is a Cloudflare page."""
    if status == 403:
        return _LOCATION.reply(status)
    return (_BUSY if status == 429 or status >= 500 else _REFUSED).reply(status)


def _of_error(said: str, pool: str, headers: Mapping[str, str]) -> Reply:
    """The meaning of an error; an unknown one is a refusal that is not retried."""
    known = max((start for start in ERRORS if said.startswith(start)), key=len, default="")
    outcome = ERRORS.get(known, _REFUSED)
    failure = outcome.failure(code_of(said))
    if (throttled := _THROTTLED.match(said)) is not None:
        state = PoolState(blocked_s=_until_s(int(throttled[1]), headers))
        return Reply(failure=_LIMITED.failure(known), then=Then.RETRY_NOW, pools={pool: state})
    if outcome is _LIMITED:
        return Reply(failure=failure, then=Then.RETRY_NOW, pools={pool: PoolState(refused=True)})
    if outcome is _LOCKED_OUT:
        return Reply(failure=failure, then=Then.STOP, stop_s=LOCKOUT_S, stops=PoolScope.KEY)
    if outcome is _BAD_NONCE:
        return Reply(failure=failure, then=Then.RETRY_ONCE)
    return Reply(failure=failure, then=Then.RETRY if outcome.retryable else Then.RAISE)


def code_of(said: str) -> str | None:
    """The category and text of an error, without its detail."""
    code = ":".join(said.split(":")[:2]).strip()[:CODE_CHARS_MAX]
    return code if code.isascii() and code.isprintable() and code else None


def _until_s(unix_s: int, headers: Mapping[str, str]) -> float:
    """Seconds until a time by Kraken's clock, which is read from the answer's Date header."""
    try:
        now_s = s_of_http_date(headers.get("date", ""))
    except ValueError:
        return THROTTLED_S
    return min(max(unix_s - now_s, 1.0), THROTTLED_S_MAX)


def _seconds(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 <= found <= 3_600 else None


_decoder = json.Decoder(SpotAnswer, float_hook=Decimal)
_any = json.Decoder(float_hook=Decimal)
API: Final = ExchangeApi(
    limits=LIMITS,
    costs=costs,
    circuit_s=LOCKOUT_S,
    sign=sign,
    read=read,
    rising=True,
    body_bytes_max=16 * 1024 * 1024,  # 5,000 rows of futures are about 2.5 MB
)
