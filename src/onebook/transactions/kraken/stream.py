"""Kraken's private stream, which announces each row of the spot ledger.

- Token, permitted by the key permission "WebSocket interface"; it need not be renewed while the
  connection lasts: https://docs.kraken.com/api/docs/guides/spot-ws-auth
- Channel: https://docs.kraken.com/api/docs/websocket-v2/balances

    {"method":"subscribe","result":{"channel":"balances","snapshot":false},"success":true,...}
    {"channel":"balances","type":"update","data":[{"ledger_id":"ADKKFF-WEA5A-CNUBHG","type":
     "deposit","asset":"BTC","amount":0.01,...}],"sequence":2}

A fill is two rows of the ledger, so the channel executions would add nothing. Kraken Futures is not
announced: if its key is set, the types that it shares with spot are read at intervals.
"""

from typing import Any, Final

from msgspec import MsgspecError, Struct, json

from onebook.transactions.adapter import Environment, FailureReason, SourceFailed
from onebook.transactions.client import Call
from onebook.transactions.credentials import Credentials
from onebook.transactions.exchange import AccountSession
from onebook.transactions.kraken.api import SPOT_HOST
from onebook.transactions.kraken.words import (
    DEPOSITS,
    EARN,
    LEDGER,
    MARGIN,
    TRADES,
    WITHDRAWALS,
)
from onebook.transactions.private import (
    PrivateStream,
    StreamAccepted,
    StreamHint,
    StreamMessage,
    StreamRefused,
)

TOKEN: Final = "/0/private/GetWebSocketsToken"  # noqa: S105  # a path
CHANNEL: Final = "balances"
# The types of these rows; rows without an entry can be of any type.
TYPES: Final = {
    "trade": frozenset({TRADES, MARGIN, LEDGER}),
    "deposit": frozenset({DEPOSITS, LEDGER}),
    "withdrawal": frozenset({WITHDRAWALS, LEDGER}),
    "rollover": frozenset({MARGIN, LEDGER}),
}


class _KrakenFrame(Struct, frozen=True):
    method: str = ""
    success: bool | None = None
    channel: str = ""
    type: str = ""
    data: Any = None


_decoder: Final = json.Decoder(_KrakenFrame)


def opening(credentials: Credentials, now_ms: int, token: str) -> tuple[str, ...]:
    """The message that subscribes to the channel."""
    params = {"channel": CHANNEL, "snapshot": False, "token": token}
    return (json.encode({"method": "subscribe", "params": params}).decode(),)


def read(frame: str | bytes) -> StreamMessage:
    """Interpret a message."""
    try:
        message = _decoder.decode(frame)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if message.method == "subscribe":
        return StreamAccepted() if message.success else StreamRefused()
    if message.channel != CHANNEL or message.type != "update":
        return None
    rows = message.data if isinstance(message.data, list) else []
    kinds = [str(each.get("type")) for each in rows if isinstance(each, dict)]
    if not kinds or not TYPES.keys() >= set(kinds):
        return StreamHint()
    return StreamHint(frozenset[str]().union(*(TYPES[each] for each in kinds)))


async def token_of(account: AccountSession) -> str:
    """Request the token of a connection.

    Raises:
        SourceFailed: The key may not use WebSockets, or Kraken does not answer.
    """
    reply = await account.ask(Call(TOKEN, method="POST", host=SPOT_HOST))
    token = reply.value.get("token") if isinstance(reply.value, dict) else None
    if not isinstance(token, str):
        raise SourceFailed(FailureReason.UNREADABLE, "Kraken gave no token for its stream.")
    return token


STREAM: Final = PrivateStream(
    urls={Environment.MAINNET: "wss://ws-auth.kraken.com"},
    path="/v2",
    types=frozenset({DEPOSITS, WITHDRAWALS, TRADES, MARGIN, EARN}),
    opening=opening,
    read=read,
    ping='{"method":"ping"}',
)
