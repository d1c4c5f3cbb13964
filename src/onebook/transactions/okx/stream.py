"""OKX's private streams, which announce fills, changes of the trading account, and funds.

- Login, heartbeat, errors: https://www.okx.com/docs-v5/en/#overview-websocket
- Orders: https://www.okx.com/docs-v5/en/#order-book-trading-trade-ws-order-channel
- Balances: https://www.okx.com/docs-v5/en/#trading-account-websocket-balance-and-position-channel
- Deposits, withdrawals: https://www.okx.com/docs-v5/en/#funding-account-websocket-deposit-info-channel

The replies to requests are events, one per channel, and pushes name their channel:

    {"event":"login","code":"0","msg":"","connId":"a4d3ae55"}
    {"event":"subscribe","arg":{"channel":"orders","instType":"ANY"},"connId":"a4d3ae55"}
    {"event":"error","code":"60009","msg":"Login failed.","connId":"a4d3ae55"}
    {"arg":{"channel":"balance_and_position","uid":"77982378738415879"},"data":[{"eventType":
     "filled","balData":[...],"posData":[...],"trades":[...]}]}

Two connections are needed: the funding account is announced under another path, and only its
deposits and withdrawals. Other changes of the trading account are announced as a change of its
balance, without a type. Unconfirmed: whether `filled` covers every kind of trade.
"""

from typing import Any, Final

from msgspec import MsgspecError, Struct, json

from onebook.model import SECOND_MS
from onebook.transactions.adapter import KEY_FIELD, PASSPHRASE_FIELD, SECRET_FIELD, Environment
from onebook.transactions.credentials import Credentials
from onebook.transactions.okx.api import signature_of
from onebook.transactions.okx.endpoints import EEA, US
from onebook.transactions.okx.words import (
    CONVERSIONS,
    DEPOSITS,
    EARN,
    FEES,
    FUTURES,
    LEDGER,
    LOANS,
    OTHERS,
    TRADES,
    TRANSFERS,
    WITHDRAWALS,
)
from onebook.transactions.private import (
    PrivateStream,
    StreamAccepted,
    StreamHint,
    StreamMessage,
    StreamRefused,
)

LOGIN_PATH: Final = "/users/self/verify"  # the path to sign; it exists on no host
ORDERS, BALANCES, ACCOUNT = "orders", "balance_and_position", "account"
DEPOSIT_INFO, WITHDRAWAL_INFO = "deposit-info", "withdrawal-info"
TRADING_CHANNELS: Final[tuple[dict[str, str], ...]] = (
    {"channel": ORDERS, "instType": "ANY"},
    {"channel": BALANCES},
    # Only changes: the periodic pushes contain nothing new.
    {"channel": ACCOUNT, "extraParams": '{"updateInterval": "0"}'},
)
FUNDING_CHANNELS: Final[tuple[dict[str, str], ...]] = (
    {"channel": DEPOSIT_INFO},
    {"channel": WITHDRAWAL_INFO},
)
ENDINGS: Final = frozenset({"error", "channel-conn-count-error", "unsubscribe"})
SPOT_KINDS: Final = frozenset({"SPOT", "MARGIN"})
QUIET_EVENTS: Final = frozenset({"snapshot", "set_leverage"})
_CONTRACTS: Final = StreamHint(frozenset({FUTURES, LEDGER}))
_FILLED: Final = StreamHint(frozenset({TRADES, FUTURES, LEDGER}))
# The types of each change of balances; a change without a row can be of any type.
EVENTS: Final = {
    "filled": _FILLED,
    "delivered": _CONTRACTS,
    "exercised": _CONTRACTS,
    "liquidation": _CONTRACTS,
    "claw_back": _CONTRACTS,
    "adl": _CONTRACTS,
    "funding_fee": _CONTRACTS,
    "settlement": _CONTRACTS,
    "transferred": StreamHint(frozenset({TRANSFERS, LEDGER})),
    "adjust_margin": StreamHint(frozenset({TRANSFERS, LEDGER})),
    "interest_deduction": StreamHint(frozenset({LOANS, LEDGER})),
}
# The account is also pushed with every order, so it announces nothing that other channels do.
_OTHER: Final = StreamHint(frozenset({CONVERSIONS, EARN, LOANS, TRANSFERS, FEES, OTHERS, LEDGER}))
_FUNDS: Final = {
    DEPOSIT_INFO: StreamHint(frozenset({DEPOSITS, LEDGER})),
    WITHDRAWAL_INFO: StreamHint(frozenset({WITHDRAWALS, LEDGER})),
}


class _OkxChannel(Struct, frozen=True):
    channel: str = ""


class _OkxFrame(Struct, frozen=True):
    event: str = ""
    code: str = ""
    arg: _OkxChannel = _OkxChannel()
    eventType: str = ""  # noqa: N815  # OKX's name
    data: Any = None


_decoder: Final = json.Decoder(_OkxFrame)


def _opening(
    channels: tuple[dict[str, str], ...], credentials: Credentials, now_ms: int
) -> tuple[str, ...]:
    stamp = str(now_ms // SECOND_MS)
    secret = credentials.field(SECRET_FIELD.name)
    login = {
        "apiKey": credentials.field(KEY_FIELD.name),
        "passphrase": credentials.field(PASSPHRASE_FIELD.name),
        "timestamp": stamp,
        "sign": signature_of(secret, f"{stamp}GET{LOGIN_PATH}".encode()),
    }
    messages: list[dict[str, Any]] = [{"op": "login", "args": [login]}]
    messages += [{"op": "subscribe", "args": [each]} for each in channels]
    return tuple(json.encode(each).decode() for each in messages)


def trading_opening(credentials: Credentials, now_ms: int, token: str) -> tuple[str, ...]:
    """The messages that log in and subscribe to the channels of the trading account."""
    return _opening(TRADING_CHANNELS, credentials, now_ms)


def funding_opening(credentials: Credentials, now_ms: int, token: str) -> tuple[str, ...]:
    """The messages that log in and subscribe to deposits and withdrawals."""
    return _opening(FUNDING_CHANNELS, credentials, now_ms)


def read(frame: str | bytes) -> StreamMessage:
    """Interpret a message."""
    try:
        message = _decoder.decode(frame)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # such as "pong"
    if message.event in ENDINGS:
        return StreamRefused()
    if message.event == "login":
        return StreamAccepted() if message.code == "0" else StreamRefused()
    if message.event == "subscribe":
        return StreamAccepted()
    channel = message.arg.channel
    if channel in _FUNDS:
        return _FUNDS[channel]
    if channel == ACCOUNT:
        return None if message.eventType in QUIET_EVENTS else _OTHER
    if channel not in (ORDERS, BALANCES):
        return None
    data = message.data if isinstance(message.data, list) else [{}]
    rows = [each for each in data if isinstance(each, dict)]
    return _of_orders(rows) if channel == ORDERS else _of_balances(rows)


def _of_orders(rows: list[dict[str, Any]]) -> StreamMessage:
    """Interpret an order, which is pushed whenever it changes; with a trade id, it was filled."""
    filled = [str(each.get("instType")) for each in rows if each.get("tradeId")]
    types = {TRADES if kind in SPOT_KINDS else FUTURES for kind in filled}
    return StreamHint(frozenset(types | {LEDGER})) if types else None


def _of_balances(rows: list[dict[str, Any]]) -> StreamMessage:
    kinds = {str(each.get("eventType")) for each in rows} - QUIET_EVENTS
    if not kinds:
        return None
    if not kinds <= EVENTS.keys():
        return StreamHint()
    return StreamHint(frozenset[str]().union(*(EVENTS[each].types for each in kinds)))


def _hosts(name: str) -> dict[Environment, str]:
    """The host of a region, and its host for demo trading."""
    return {
        Environment.MAINNET: f"wss://ws{name}.okx.com:8443",
        Environment.DEMO: f"wss://ws{name}pap.okx.com:8443",
    }


TRADING_STREAM: Final = PrivateStream(
    urls=_hosts(""),
    regions={EEA: _hosts("eea"), US: _hosts("us")},
    path="/ws/v5/private",
    types=frozenset({TRADES, FUTURES}),
    opening=trading_opening,
    read=read,
    ping="ping",
)
FUNDING_STREAM: Final = PrivateStream(
    # Demo trading has no deposits and withdrawals.
    urls={Environment.MAINNET: _hosts("")[Environment.MAINNET]},
    regions={EEA: _hosts("eea"), US: _hosts("us")},
    path="/ws/v5/business",
    types=frozenset({DEPOSITS, WITHDRAWALS}),
    opening=funding_opening,
    read=read,
    ping="ping",
)
STREAMS: Final = (TRADING_STREAM, FUNDING_STREAM)
