"""Bybit's private stream, which announces fills, orders and changes of the unified wallet.

- Connection, authentication, heartbeat: https://bybit-exchange.github.io/docs/v5/ws/connect
- Topics: https://bybit-exchange.github.io/docs/v5/websocket/private/execution, `order`, `wallet`

The reply to each request names its `op`:

    {"success":true,"ret_msg":"","op":"auth","conn_id":"cejreaspqfh3sjdnldmg-p"}
    {"success":true,"ret_msg":"","conn_id":"cejreaspqfh3sjdnldmg-p","req_id":"","op":"subscribe"}
    {"req_id":"","op":"pong","args":["1675418560633"],"conn_id":"cfcb4ocsvfriu23r3er0-1b"}

and a message of a topic contains its rows, of which only the category is read:

    {"id":"...","topic":"execution","creationTime":1672364174455,"data":[{"category":"linear",...}]}

No topic announces the funding wallet: its deposits, withdrawals and transfers are found by reading
the lists. The wallet changes with every event of the unified account, so it announces any type.
Unconfirmed: that `execution` has funding payments, as the list of executions does.
"""

from typing import Final

from msgspec import MsgspecError, Struct, json

from onebook.transactions.adapter import Environment
from onebook.transactions.bybit.api import signature
from onebook.transactions.credentials import Credentials
from onebook.transactions.private import (
    PrivateStream,
    StreamAccepted,
    StreamHint,
    StreamMessage,
    StreamRefused,
)

TOPICS: Final = ("execution", "order", "wallet")
EXPIRES_MS: Final = 10_000  # from the request to the expiry of the signature
TYPES: Final = {
    "spot": "spot_orders",
    "linear": "futures_linear",
    "inverse": "futures_inverse",
}
REQUESTS: Final = ("auth", "subscribe")


class _CategorisedRow(Struct, frozen=True):
    category: str = ""


class _BybitFrame(Struct, frozen=True):
    op: str = ""
    success: bool | None = None
    topic: str = ""
    data: list[_CategorisedRow] = []


_decoder: Final = json.Decoder(_BybitFrame)


def opening(credentials: Credentials, now_ms: int, token: str) -> tuple[str, ...]:
    """The messages that authenticate a connection and subscribe to the topics."""
    expires = now_ms + EXPIRES_MS
    signed = signature(credentials.secret, f"GET/realtime{expires}".encode())
    messages = (
        {"op": "auth", "args": [credentials.api_key, expires, signed]},
        {"op": "subscribe", "args": list(TOPICS)},
    )
    return tuple(json.encode(each).decode() for each in messages)


def read(frame: str | bytes) -> StreamMessage:
    """Interpret a message."""
    try:
        message = _decoder.decode(frame)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if message.op in REQUESTS:
        return StreamAccepted() if message.success else StreamRefused()
    if message.topic not in TOPICS:
        return None
    categories = {row.category for row in message.data}
    if message.topic == "wallet" or not categories <= TYPES.keys():
        return StreamHint()
    return StreamHint(frozenset({TYPES[each] for each in categories} | {"ledger"}))


STREAM: Final = PrivateStream(
    urls={
        Environment.MAINNET: "wss://stream.bybit.com",
        Environment.TESTNET: "wss://stream-testnet.bybit.com",
    },
    path="/v5/private",
    types=frozenset(TYPES.values()),
    opening=opening,
    read=read,
    ping='{"op":"ping"}',
)
