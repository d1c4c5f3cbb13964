"""Signs requests to OKX and interprets the answers; pure.

- Authentication: https://www.okx.com/docs-v5/en/#overview-rest-authentication; the time stamp, the
  method, and path and query in their final form are signed
- Errors: https://www.okx.com/docs-v5/en/#error-code; codes are text, with HTTP 200 or another
  status. An answer that refuses the headers has no `data`
- Limits: https://www.okx.com/docs-v5/en/#overview-rate-limits: a private path is limited by user
  and path, a public one by address, and no header reports the state

The region in which an account was opened determines its host; a key is unknown on all others.
"""

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from msgspec import MsgspecError, Struct, json
from msgspec.structs import replace

from onebook.clock import s_of_http_date
from onebook.core import iso
from onebook.model import SECOND_MS
from onebook.transactions.adapter import (
    KEY_FIELD,
    PASSPHRASE_FIELD,
    SECRET_FIELD,
    Environment,
    FailureReason,
)
from onebook.transactions.client import Call, ExchangeApi, Outcome, Reply, Then
from onebook.transactions.credentials import Credentials
from onebook.transactions.pools import CostLimit, PoolScope, PoolState

ROOT: Final = "/api/v5/"
SUCCESS: Final = "0"
STOP_S: Final = 60.0
CODE_CHARS_MAX: Final = 8

# Paths
BILLS: Final = f"{ROOT}account/bills"
BILLS_ARCHIVE: Final = f"{ROOT}account/bills-archive"
EXPORT: Final = f"{ROOT}account/bills-history-archive"
FUNDING_BILLS: Final = f"{ROOT}asset/bills"
FUNDING_HISTORY: Final = f"{ROOT}asset/bills-history"
DEPOSIT_HISTORY: Final = f"{ROOT}asset/deposit-history"
WITHDRAWAL_HISTORY: Final = f"{ROOT}asset/withdrawal-history"
FIAT_DEPOSITS: Final = f"{ROOT}fiat/deposit-order-history"
FIAT_WITHDRAWALS: Final = f"{ROOT}fiat/withdrawal-order-history"
CONVERT_HISTORY: Final = f"{ROOT}asset/convert/history"
FILLS_HISTORY: Final = f"{ROOT}trade/fills-history"
TRADING_BALANCE: Final = f"{ROOT}account/balance"
FUNDING_BALANCES: Final = f"{ROOT}asset/balances"
SAVINGS_BALANCE: Final = f"{ROOT}finance/savings/balance"
STAKING_ORDERS: Final = f"{ROOT}finance/staking-defi/orders-active"
CONFIG: Final = f"{ROOT}account/config"
INSTRUMENTS: Final = f"{ROOT}public/instruments"
EXPORT_REQUESTS: Final = f"POST {EXPORT}"  # the pool of requests for exports

LIMITS: Final = {
    BILLS: CostLimit(5, 1.0, scope=PoolScope.USER),
    BILLS_ARCHIVE: CostLimit(5, 2.0, scope=PoolScope.USER),
    EXPORT: CostLimit(10, 2.0, scope=PoolScope.USER),
    EXPORT_REQUESTS: CostLimit(1, 10.0, scope=PoolScope.USER),  # and 12 a day: see `exports`
    FUNDING_BILLS: CostLimit(6, 1.0, scope=PoolScope.USER),
    FUNDING_HISTORY: CostLimit(1, 1.0, scope=PoolScope.USER),
    DEPOSIT_HISTORY: CostLimit(6, 1.0, scope=PoolScope.USER),
    WITHDRAWAL_HISTORY: CostLimit(6, 1.0, scope=PoolScope.USER),
    FIAT_DEPOSITS: CostLimit(3, 1.0, scope=PoolScope.USER),
    FIAT_WITHDRAWALS: CostLimit(3, 1.0, scope=PoolScope.USER),
    CONVERT_HISTORY: CostLimit(6, 1.0, scope=PoolScope.USER),
    FILLS_HISTORY: CostLimit(10, 2.0, scope=PoolScope.USER),
    TRADING_BALANCE: CostLimit(10, 2.0, scope=PoolScope.USER),
    FUNDING_BALANCES: CostLimit(6, 1.0, scope=PoolScope.USER),
    SAVINGS_BALANCE: CostLimit(6, 1.0, scope=PoolScope.USER),
    STAKING_ORDERS: CostLimit(3, 1.0, scope=PoolScope.USER),
    CONFIG: CostLimit(5, 2.0, scope=PoolScope.USER),
    INSTRUMENTS: CostLimit(20, 2.0, scope=PoolScope.ADDRESS),
}


def costs(call: Call) -> Mapping[str, float]:
    """OKX counts requests, by path."""
    return {_pool(call): 1}


def _pool(call: Call) -> str:
    return EXPORT_REQUESTS if call.method == "POST" else call.path


def sign(call: Call, credentials: Credentials, stamp: int) -> Call:
    """A call with its authentication headers."""
    target = f"{call.path}?{call.query}" if call.query else call.path
    at = iso(stamp)
    signature = signature_of(
        credentials.field(SECRET_FIELD.name), f"{at}{call.method}{target}".encode() + call.body
    )
    headers = {
        "OK-ACCESS-KEY": credentials.field(KEY_FIELD.name),
        "OK-ACCESS-SIGN": signature,
        "OK-ACCESS-TIMESTAMP": at,
        "OK-ACCESS-PASSPHRASE": credentials.field(PASSPHRASE_FIELD.name),
        "Content-Type": "application/json",
    }
    return replace(call, headers=headers)


def signature_of(secret: str, text: bytes) -> str:
    """HMAC-SHA256 in base64."""
    return b64encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()).decode()


# Answers ------------------------------------------------------------------------------------------

_BUSY = Outcome(FailureReason.EXCHANGE_ERROR, "OKX did not answer in time.", retryable=True)
_REFUSED = Outcome(FailureReason.EXCHANGE_ERROR, "OKX refused the request.")
_LIMITED = Outcome(FailureReason.RATE_LIMITED, "OKX's rate limit is used up.", retryable=True)
_BAD_KEY = Outcome(
    FailureReason.AUTHENTICATION_FAILED,
    "OKX does not recognise the API key: it was deleted, or created on the site of another region.",
    fatal=True,
)
_BAD_SIGNATURE = Outcome(
    FailureReason.AUTHENTICATION_FAILED,
    "OKX rejected the signature: the secret does not belong to the API key.",
    fatal=True,
)
_BAD_PASSPHRASE = Outcome(
    FailureReason.AUTHENTICATION_FAILED,
    "OKX rejected the passphrase, which was set when the API key was created.",
    fatal=True,
)
_WRONG_ENVIRONMENT = Outcome(
    FailureReason.AUTHENTICATION_FAILED,
    "The API key is for demo trading and the request for the real account, or vice versa.",
    fatal=True,
)
_CLOCK_OFF = Outcome(
    FailureReason.AUTHENTICATION_FAILED,
    "OKX rejected the time of the request: the clock of this server is wrong.",
    fatal=True,
)
_ADDRESS = Outcome(
    FailureReason.AUTHENTICATION_FAILED,
    "The API key is bound to other addresses; add this server's address to it.",
    fatal=True,
)
_ACCOUNT = Outcome(
    FailureReason.AUTHENTICATION_FAILED,
    "OKX has blocked or frozen this account or API key; its owner must contact OKX.",
    fatal=True,
)
_DENIED = Outcome(FailureReason.PERMISSION_DENIED, "The API key has no permission for this.")
_RESTRICTED = Outcome(FailureReason.PERMISSION_DENIED, "OKX does not let this account read it.")
_NOT_OPENED = Outcome(FailureReason.NOT_OPENED, "OKX does not offer this in the account's mode.")
_NOT_OFFERED = Outcome(FailureReason.NOT_OFFERED, "OKX does not offer this here.")
_LOCATION = Outcome(
    FailureReason.LOCATION_REFUSED, "OKX does not serve this server's address.", fatal=True
)
_NOT_JSON = Outcome(FailureReason.UNREADABLE, "OKX's answer is not JSON.", retryable=True)
NO_DATA = Outcome(FailureReason.UNREADABLE, "OKX's answer has no data.", retryable=True)
UNKNOWN_KEY: Final = "50119"  # on this site

ERRORS: Final[Mapping[str, Outcome]] = {
    "404": _NOT_OFFERED,  # the site of this region does not have the path
    "50001": _BUSY,
    "50004": _BUSY,
    "50005": _NOT_OFFERED,  # discontinued
    "50007": _ACCOUNT,
    "50009": _ACCOUNT,
    "50011": _LIMITED,
    "50013": _BUSY,
    "50026": _BUSY,
    "50027": _RESTRICTED,
    "50030": _RESTRICTED,
    "50038": _NOT_OPENED,  # not available in demo trading
    "50061": _LIMITED,
    "50100": _ACCOUNT,
    "50101": _WRONG_ENVIRONMENT,
    "50102": _CLOCK_OFF,
    "50105": _BAD_PASSPHRASE,
    "50110": _ADDRESS,
    "50111": _BAD_KEY,
    "50112": _CLOCK_OFF,
    "50113": _BAD_SIGNATURE,
    "50114": Outcome(FailureReason.AUTHENTICATION_FAILED, "OKX rejected the API key.", fatal=True),
    UNKNOWN_KEY: _BAD_KEY,
    "50120": _DENIED,
    "51010": _NOT_OPENED,
    "51024": _RESTRICTED,
    "58004": _ACCOUNT,
    "58007": _BUSY,
}
_STATUSES: Final[Mapping[int, Outcome]] = {401: _BAD_KEY, 403: _LOCATION, 404: _NOT_OFFERED}


# The last one: exponents that a decimal cannot represent.
UNDECODABLE: Final = (MsgspecError, UnicodeDecodeError, RecursionError, ArithmeticError)


class OkxAnswer(Struct, frozen=True):
    """The envelope of answers; its time is in microseconds."""

    code: Any = None
    data: Any = None
    inTime: Any = None  # noqa: N815  # OKX's name


def read(call: Call, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """Interpret an answer: by its code, or without one by its status."""
    try:
        answer = _decoder.decode(body)
    except UNDECODABLE:
        return _NOT_JSON.reply() if status == 200 else _of_status(status)
    code = code_of(answer.code)
    if code is None:
        return NO_DATA.reply() if status == 200 else _of_status(status)
    if code != SUCCESS:
        return _of_code(call, code, headers)
    # A missing list would end a history.
    if not isinstance(answer.data, list):
        return NO_DATA.reply()
    return Reply(
        value=answer.data, server_ms=_ms_of(answer.inTime), user=_user_of(call, answer.data)
    )


def _of_status(status: int) -> Reply:
    """The meaning of an answer from the edge: a Cloudflare page."""
    if status == 429 or status >= 500:
        return _BUSY.reply(status)
    return _STATUSES.get(status, _REFUSED).reply(status)


def _of_code(call: Call, code: str, headers: Mapping[str, str]) -> Reply:
    """The meaning of a code; unknown ones are refusals that are not retried."""
    outcome = ERRORS.get(code, _REFUSED)
    failure = outcome.failure(code)
    if outcome is _LIMITED:
        limit = LIMITS.get(_pool(call))
        blocked = PoolState(refused=True, blocked_s=limit.period_s if limit else 0.0)
        return Reply(failure=failure, then=Then.RETRY_NOW, pools={_pool(call): blocked})
    if outcome is _CLOCK_OFF:
        return Reply(failure=failure, then=Then.RETRY_ONCE, clock_ms=_clock_ms(headers))
    return outcome.reply(code)


def code_of(said: Any) -> str | None:
    """The code of an answer."""
    code = str(said) if isinstance(said, int | str) else ""
    known = code.isascii() and code.isdigit() and len(code) <= CODE_CHARS_MAX
    return code if known else None


def _clock_ms(headers: Mapping[str, str]) -> int | None:
    """OKX's clock, to the second."""
    try:
        return round(s_of_http_date(headers.get("date", "")) * SECOND_MS) + SECOND_MS // 2
    except ValueError:
        return None


def _ms_of(microseconds: Any) -> int:
    text = str(microseconds or "")
    return int(text) // 1_000 if text.isascii() and text.isdigit() and len(text) <= 16 else 0


def _user_of(call: Call, data: list[Any]) -> str:
    """The id of the user, by which limits are counted."""
    if call.path != CONFIG or not data or not isinstance(data[0], dict):
        return ""
    return str(data[0].get("uid") or "")


_decoder = json.Decoder(OkxAnswer, float_hook=Decimal)
API: Final = ExchangeApi(
    limits=LIMITS,
    costs=costs,
    circuit_s=STOP_S,
    sign=sign,
    read=read,
    headers={Environment.DEMO: {"x-simulated-trading": "1"}},
)
