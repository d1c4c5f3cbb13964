"""OKX's side of its v5 public protocol: `books`, chained by `prevSeqId`.

The checksum field is there and always 0, as on the wire since 2026. A client that neither
sends nor gets anything for 30 s is dropped; text `ping` is answered by text `pong`.
https://www.okx.com/docs-v5/en/#order-book-trading-market-data-ws-order-book-channel
"""

from collections.abc import Mapping
from typing import Any, Final

from onebook.simulator.board import (
    CONNECTION_ID,
    Answer,
    Board,
    Channel,
    Key,
    Now,
    Rules,
    Session,
    TextChanges,
    answered,
    dumped,
    loaded,
)

DEPTH: Final = 400
ARGUMENTS_BYTES_MAX: Final = 65_536
NO_PREVIOUS: Final = -1


class Okx:
    """The protocol of ws.okx.com and www.okx.com."""

    rules = Rules(silence_max_s=30.0)

    def __init__(self, board: Board) -> None:
        self._board = board

    def opened(self, session: Session, now: Now) -> list[str]:
        """OKX says nothing first."""
        return []

    def received(self, session: Session, frame: str, now: Now) -> list[str]:
        """`ping`, subscribe, unsubscribe."""
        if frame == "ping":
            return ["pong"]
        request = loaded(frame) or {}
        operation, args = request.get("op"), request.get("args")
        if operation not in ("subscribe", "unsubscribe") or not isinstance(args, list):
            return [_error("60012", f"Invalid request: {frame[:200]}")]
        if len(dumped(args)) > ARGUMENTS_BYTES_MAX:
            return [_error("60013", "Invalid args: longer than 64 KB")]
        act = {"subscribe": self._subscribe, "unsubscribe": self._unsubscribe}[operation]
        return [reply for arg in args for reply in act(session, arg, now)]

    def _subscribe(self, session: Session, arg: dict[str, Any], now: Now) -> list[str]:
        channel, native = arg.get("channel"), str(arg.get("instId"))
        if channel != "books" or not self._board.lists(native):
            text = f"Wrong URL or channel:{channel},instId:{native} doesn't exist."
            return [_error("60018", text)]
        window = self._board.subscribe(session, native, Key(native, DEPTH))
        ack = dumped({"event": "subscribe", "arg": arg, "connId": CONNECTION_ID})
        if window is None:
            return [ack]
        return [ack, _frame(window, "snapshot", window.snapshot(), NO_PREVIOUS, now)]

    def _unsubscribe(self, session: Session, arg: dict[str, Any], now: Now) -> list[str]:
        session.topics.pop(str(arg.get("instId")), None)
        return [dumped({"event": "unsubscribe", "arg": arg, "connId": CONNECTION_ID})]

    def delta(self, channel: Channel, changes: TextChanges, now: Now) -> str:
        """An update of `books`."""
        return _frame(channel, "update", changes, channel.previous, now)

    def heartbeat(self, session: Session, now: Now) -> list[str]:
        """None: the client pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> Answer | None:
        """The instruments."""
        if path != "/api/v5/public/instruments":
            return None
        rows = [
            {
                "instType": "SPOT",
                "instId": listing.native,
                "baseCcy": listing.base,
                "quoteCcy": listing.quote,
                "state": "live",
                "tickSz": listing.tick,
                "lotSz": listing.lot,
                "minSz": listing.lot,
            }
            for listing in self._board.listings.values()
        ]
        return answered({"code": "0", "data": rows, "msg": ""})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """The instrument of a `books` frame that carries data."""
        message = loaded(frame) or {}
        arg = message.get("arg") or {}
        return arg.get("instId") if arg.get("channel") == "books" and "data" in message else None


def _frame(channel: Channel, action: str, book: TextChanges, previous: int, now: Now) -> str:
    data = {
        "asks": [[price, amount, "0", _orders(amount)] for price, amount in book.asks],
        "bids": [[price, amount, "0", _orders(amount)] for price, amount in book.bids],
        "ts": str(now.ms),
        "checksum": 0,
        "prevSeqId": previous,
        "seqId": channel.sequence,
    }
    arg = {"channel": "books", "instId": channel.listing.native}
    return dumped({"arg": arg, "action": action, "data": [data]})


def _orders(amount: str) -> str:
    return "0" if amount == "0" else "1"


def _error(code: str, message: str) -> str:
    return dumped({"event": "error", "code": code, "msg": message, "connId": CONNECTION_ID})
