"""Signs requests to Bybit v5 and interprets its responses; pure.

- Authentication: https://bybit-exchange.github.io/docs/v5/guide#authentication; the query string is
  signed in its final form
- Error codes: https://bybit-exchange.github.io/docs/v5/error
- Limits and their headers: https://bybit-exchange.github.io/docs/v5/rate-limit

Bybit's message texts are not passed on: 10004 repeats the API key.
"""

import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from msgspec import MsgspecError, Struct, json
from msgspec.structs import replace

from onebook.transactions.adapter import FailureReason, SourceFailed
from onebook.transactions.bybit.endpoints import ADDRESS, LIMITS
from onebook.transactions.client import Call, ExchangeApi, Outcome, Reply, Then
from onebook.transactions.credentials import Credentials
from onebook.transactions.pools import PoolState

RECV_WINDOW_MS: Final = 5_000  # Bybit's default; a larger one does not help if our clock is fast
CIRCUIT_S: Final = 600.0  # "terminate all sessions and wait for at least 10 minutes"
LIMIT_DIGITS_MAX: Final = 15  # of a number in a header


def signed(credentials: Credentials, query: str, *, at_ms: int) -> dict[str, str]:
    """The authentication headers for a query string."""
    text = f"{at_ms}{credentials.api_key}{RECV_WINDOW_MS}{query}".encode()
    return {
        "X-BAPI-API-KEY": credentials.api_key,
        "X-BAPI-TIMESTAMP": str(at_ms),
        "X-BAPI-RECV-WINDOW": str(RECV_WINDOW_MS),
        "X-BAPI-SIGN": signature(credentials.secret, text),
    }


def signature(secret: str, text: bytes) -> str:
    """HMAC-SHA256 in hex; RSA-SHA256 in base64 if the secret is a private key (PEM)."""
    if not secret.startswith("-----BEGIN"):
        return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()
    try:
        key = load_pem_private_key(secret.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # damaged, encrypted or unknown
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise SourceFailed(
            FailureReason.AUTHENTICATION_FAILED,
            "The secret is not an unencrypted RSA private key.",
            fatal=True,
        )
    return b64encode(key.sign(text, PKCS1v15(), hashes.SHA256())).decode()


class Envelope(Struct, frozen=True):
    """The envelope of every answer; `retMsg` is never passed on."""

    retCode: int  # noqa: N815
    retMsg: str | None = None  # noqa: N815
    result: Any = None
    time: int = 0


_BAD_KEY = Outcome(
    FailureReason.AUTHENTICATION_FAILED, "Bybit does not recognise the API key.", fatal=True
)
_BUSY = Outcome(FailureReason.EXCHANGE_ERROR, "Bybit did not answer in time.", retryable=True)
_REGION = Outcome(
    FailureReason.AUTHENTICATION_FAILED, "Bybit does not serve this account here.", fatal=True
)
_EXPIRED = Outcome(
    FailureReason.AUTHENTICATION_FAILED, "The API key has expired at Bybit.", fatal=True
)
_REFUSED = Outcome(FailureReason.EXCHANGE_ERROR, "Bybit refused the request.")
_WRONG_MODE = Outcome(
    FailureReason.EXCHANGE_ERROR, "Bybit does not offer this in the account's mode."
)
_NOT_OFFERED = Outcome(
    FailureReason.NOT_OFFERED, "Bybit does not offer this to this kind of account."
)
_LOCATION = Outcome(
    FailureReason.LOCATION_REFUSED,
    "Bybit does not serve the country of this server's address.",
    fatal=True,
)
_CLOCK_OFF = Outcome(
    FailureReason.EXCHANGE_ERROR, "Bybit rejected the time of the request.", retryable=True
)
_NOT_JSON = Outcome(FailureReason.UNREADABLE, "Bybit's answer is not JSON.", retryable=True)
_STOP = Outcome(
    FailureReason.CIRCUIT_OPEN,
    "Bybit refuses this address after too many requests; paused for ten minutes.",
    retryable=True,
)

LIMITED: Final = 10006
CLOCK_OFF: Final = 10002
REQUEST_EXPIRED: Final = -1  # "request expired: o@0, now[] diff[]"
BAD_PARAMETER: Final = 10001
IP_LIMITED: Final = 10018  # since 2025-09 an HTTP 403
REFUSALS: Final[Mapping[int, Outcome]] = {
    429: _BUSY,
    10000: _BUSY,
    10016: _BUSY,
    131001: _BUSY,
    131003: _BUSY,
    131200: _BUSY,
    131201: _BUSY,
    131230: _BUSY,
    CLOCK_OFF: _CLOCK_OFF,
    REQUEST_EXPIRED: _CLOCK_OFF,
    LIMITED: Outcome(FailureReason.RATE_LIMITED, "Bybit's rate limit is used up.", retryable=True),
    10003: _BAD_KEY,
    10004: Outcome(
        FailureReason.AUTHENTICATION_FAILED, "Bybit rejected the signature.", fatal=True
    ),
    10007: _BAD_KEY,
    10008: _REGION,
    10009: _REGION,
    10024: _REGION,
    10027: _REGION,
    10010: Outcome(
        FailureReason.AUTHENTICATION_FAILED,
        "The API key is bound to other addresses; add this server's address to it.",
        fatal=True,
    ),
    10005: Outcome(FailureReason.PERMISSION_DENIED, "The API key has no permission for this."),
    10017: _NOT_OFFERED,
    10020: _WRONG_MODE,
    10028: _WRONG_MODE,
    100028: _NOT_OFFERED,
    182200: _WRONG_MODE,
    33004: _EXPIRED,
    -2015: _EXPIRED,
}
HTTP_FORBIDDEN, HTTP_NOT_FOUND, HTTP_UNAUTHORIZED, HTTP_TOO_MANY = 403, 404, 401, 429

_COUNTRY = re.compile(rb"from your country", re.IGNORECASE)  # the page of CloudFront
_TOO_OLD = re.compile(r"2 years", re.IGNORECASE)
_SERVER_TIME = re.compile(r"server_timestamp\[(\d{13})\]")


def sign(call: Call, credentials: Credentials, stamp: int) -> Call:
    """A call with its authentication headers."""
    return replace(call, headers=signed(credentials, call.query, at_ms=stamp))


def costs(call: Call) -> dict[str, float]:
    """The pools of a call: requests by path and user, and by address."""
    return {call.path: 1, ADDRESS: 1}


def read(call: Call, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """Interpret an answer."""
    if status != 200:
        return _of_status(status, body)
    try:
        envelope = _decoder.decode(body)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return _NOT_JSON.reply()
    return replace(
        _of_code(envelope),
        server_ms=envelope.time,
        pools={call.path: _pool_of(call, headers, envelope)},
    )


def _pool_of(call: Call, headers: Mapping[str, str], envelope: Envelope) -> PoolState:
    """The state of the path's pool, from the headers of an answer."""
    limit = LIMITS.get(call.path)
    by_second = limit is not None and limit.period_s <= 1  # the header uses this unit only
    return PoolState(
        units=_digits(headers, "x-bapi-limit") if by_second else None,
        blocked_s=_blocked_s(headers, envelope),
    )


def _of_status(status: int, body: bytes) -> Reply:
    """The meaning of an HTTP status other than 200."""
    if status == HTTP_FORBIDDEN and _COUNTRY.search(body):
        return _LOCATION.reply(status)
    if status == HTTP_FORBIDDEN:
        return _stop()
    if status == HTTP_TOO_MANY or status >= 500:
        return _BUSY.reply(status)
    return {HTTP_NOT_FOUND: _NOT_OFFERED, HTTP_UNAUTHORIZED: _BAD_KEY}.get(status, _REFUSED).reply(
        status
    )


def _of_code(envelope: Envelope) -> Reply:
    """The meaning of a `retCode`."""
    code, said = envelope.retCode, envelope.retMsg or ""
    if code == 0:
        return Reply(value=envelope.result)
    outcome = REFUSALS.get(code, _REFUSED)
    if code == BAD_PARAMETER and _TOO_OLD.search(said):
        return Reply(failure=outcome.failure(code), then=Then.TOO_OLD)
    if code == IP_LIMITED:
        return _stop()
    if code == CLOCK_OFF:
        found = _SERVER_TIME.search(said)
        server_ms = int(found[1]) if found else envelope.time
        return Reply(failure=outcome.failure(code), then=Then.RETRY_NOW, clock_ms=server_ms)
    if code == LIMITED:  # the limit itself waits, see `_blocked_s`
        return Reply(failure=outcome.failure(code), then=Then.RETRY_NOW)
    return outcome.reply(code)


def _stop() -> Reply:
    return Reply(failure=_STOP.failure(HTTP_FORBIDDEN), then=Then.STOP)


def _blocked_s(headers: Mapping[str, str], envelope: Envelope) -> float:
    """Seconds until the path's limit allows another request."""
    reset_ms = _digits(headers, "x-bapi-limit-reset-timestamp")
    # Both times are from the exchange, so our clock does not matter.
    wait_s = (reset_ms - envelope.time) / 1_000 if reset_ms and envelope.time else 0.0
    if envelope.retCode == LIMITED:
        return wait_s if wait_s > 0 else 1.0
    return max(0.0, wait_s) if _digits(headers, "x-bapi-limit-status") == 0 else 0.0


def _digits(headers: Mapping[str, str], name: str) -> int | None:
    value = headers.get(name, "")
    numeric = value.isascii() and value.isdigit() and len(value) <= LIMIT_DIGITS_MAX
    return int(value) if numeric else None


_decoder = json.Decoder(Envelope, float_hook=Decimal)
API: Final = ExchangeApi(limits=LIMITS, costs=costs, circuit_s=CIRCUIT_S, sign=sign, read=read)
