"""Simulated LBank, spot socket (V2): `depth`, whole books of 100 levels.

A request has one pair. A subscription is answered by the book, an invalid request by an error that
does not close the connection. The server sends JSON pings, disconnects a client that does not
answer within a minute, and answers the client's pings. Numbers are JSON numbers, times are
Beijing's without a zone. Our choice, since the page does not say: the error messages and how often
it pings.
https://www.lbank.com/docs/index.html
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from onebook.simulator.kit import (
    ChannelKey,
    Dialect,
    Dropped,
    ExchangeBoard,
    ExchangeRules,
    ListedSymbol,
    Now,
    Profile,
    PublishedBook,
    RestReply,
    SimulatedSession,
    TextChanges,
    TextLevels,
    answered,
    dumped,
    loaded,
)

DEPTHS: Final = ("10", "50", "100")
BEIJING: Final = timedelta(hours=8)
PING_S: Final = 20.0
PONG_MAX_S: Final = 60.0


class Lbank(Dialect):
    """The protocol of www.lbkex.net and api.lbkex.com."""

    profile = Profile(depth=110, spread_ppm=25, offset_ppm_max=20)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "btc_usdt", 2, 4),
        ListedSymbol("ETH/USDT", "eth_usdt", 2, 4),
        ListedSymbol("SOL/USDT", "sol_usdt", 2, 3),
        ListedSymbol("DOGE/USDT", "doge_usdt", 6, 1),
        ListedSymbol("ETH/BTC", "eth_btc", 6, 4),
    )
    rules = ExchangeRules(
        clock=("/v2/timestamp.do", lambda now: {"result": "true", "data": now.ms, "error_code": 0}),
        silence_max_s=60.0,
        traffic_counts=False,
        heartbeat_s=PING_S,
    )

    def __init__(self, board: ExchangeBoard) -> None:
        super().__init__(board)
        self._pings = 0

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer pings, pongs, subscriptions and unsubscriptions."""
        request = loaded(frame) or {}
        match request:
            case {"action": "ping", "ping": str(word)}:
                return [dumped({"action": "pong", "pong": word})]
            case {"action": "pong", "pong": str(word)}:
                session.heartbeats.pop(word, None)
                return []
            case {"action": "subscribe" | "unsubscribe", "subscribe": "depth"}:
                return self._books(session, request, now)
        return [_error("Invalid request", now)]

    def _books(self, session: SimulatedSession, request: dict[str, Any], now: Now) -> list[str]:
        missing = next((each for each in ("depth", "pair") if each not in request), None)
        if missing:
            return [_error(f"Missing parameter ['{missing}']", now)]
        pair, depth = str(request["pair"]), str(request["depth"])  # ccxt sends a number
        if self._board.limits(session, now):
            return [_error("Too many requests", now)]
        if depth not in DEPTHS or not self._board.lists(pair):
            about = "" if self._board.nameless else f": {pair}"
            return [_error(f"Invalid pair or depth{about}", now)]
        if request["action"] == "unsubscribe":
            session.topics.pop(pair, None)
            return []
        window = self._board.subscribe(session, pair, ChannelKey(pair, int(depth)))
        return [] if window is None else [_frame(window, window.snapshot(), now)]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the whole book after a change."""
        return _frame(channel, channel.whole(changes), now)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return a ping; a client that leaves one unanswered for a minute is disconnected."""
        if any(now.s - asked_s > PONG_MAX_S for asked_s in session.heartbeats.values()):
            raise Dropped("A ping was not answered.")
        self._pings += 1
        word = f"0ca8f854-7ba7-4341-9d86-{self._pings:012d}"
        session.heartbeats[word] = now.s
        return [dumped({"action": "ping", "ping": word})]

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of pairs with their decimals."""
        if path != "/v2/accuracy.do":
            return None
        rows = [
            {
                "symbol": listing.native,
                "quantityAccuracy": str(listing.amount_decimals),
                "minTranQua": listing.lot,
                "priceAccuracy": str(listing.price_decimals),
            }
            for listing in self._board.listings.values()
        ]
        return answered({"result": "true", "data": rows, "error_code": 0, "ts": now.ms})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the pair of a `depth` frame."""
        message = loaded(frame) or {}
        return message.get("pair") if message.get("type") == "depth" else None


def _frame(channel: PublishedBook, book: TextChanges, now: Now) -> str:
    sides = f'"asks":{_rows(book.asks)},"bids":{_rows(book.bids)}'
    about = dumped(
        {
            "count": channel.key.depth,
            "type": "depth",
            "pair": channel.listing.native,
            "SERVER": "V2",
            "TS": _time(now),
        }
    )
    return f'{{"depth":{{{sides}}},{about[1:]}'


def _rows(levels: TextLevels) -> str:
    return "[" + ",".join(f"[{price},{amount}]" for price, amount in levels) + "]"


def _time(now: Now) -> str:
    at = datetime.fromtimestamp(now.ms / 1000, UTC) + BEIJING
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds")


def _error(message: str, now: Now) -> str:
    return dumped({"SERVER": "V2", "message": message, "status": "error", "TS": _time(now)})


DIALECT: Final[type[Dialect]] = Lbank
