"""Simulated BingX, spot feed: `$symbol@incrDepth`, every message in gzip.

A subscription is answered by the whole book, then by changes numbered by `lastUpdateId`; the
numbers skip, as on the real exchange. Sides are objects of amounts by price, asks of a change worst
first. The server pings every 5 s and closes after six pings without the matching pong. One topic
per request, 200 per connection. https://bingx-api.github.io/docs/#/en-us/spot/socket/market.html
"""

import re
from collections.abc import Mapping
from typing import Final

from onebook.simulator.kit import (
    ChannelKey,
    Dialect,
    Dropped,
    ExchangeRules,
    ListedSymbol,
    Most,
    Now,
    Profile,
    PublishedBook,
    RestReply,
    SimulatedSession,
    Spelling,
    TextChanges,
    answered,
    dumped,
    loaded,
)

DEPTH: Final = 1_000
TOPIC: Final = re.compile(r"(?P<native>[A-Z0-9]+-[A-Z0-9]+)@incrDepth")
TOPICS_MAX: Final = 200
PINGS_UNANSWERED_MAX: Final = 6
ABNORMAL: Final = 1011
UNSUPPORTED: Final = (80015, "dataType not support")
TOO_MANY_TOPICS: Final = (80403, "your topic num over max 200")
TOO_FREQUENT: Final = (100410, "rate limited")
ILLEGAL: Final = (100400, "code:100400:dataType is not supported")


class BingX(Dialect):
    """The protocol of open-api-ws.bingx.com and open-api.bingx.com."""

    profile = Profile(depth=300, spread_ppm=6, offset_ppm_max=12)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC-USDT", 2, 5),
        ListedSymbol("ETH/USDT", "ETH-USDT", 2, 4),
        ListedSymbol("SOL/USDT", "SOL-USDT", 3, 2),
        ListedSymbol("DOGE/USDT", "DOGE-USDT", 5, 0),
    )
    rules = ExchangeRules(
        spelling=Spelling(price_places=None, amount_places=None),
        messages=(Most(10),),
        silence_max_s=86_400.0,  # silent clients are detected by pings
        heartbeat_s=5.0,
        gzip=True,
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Handle a pong, or `sub` and `unsub` of one topic; anything else is not answered."""
        request = loaded(frame) or {}
        if "pong" in request:
            if request["pong"] in session.marks:
                session.marks.clear()
            return []
        number, topic = request.get("id"), request.get("dataType")
        if not isinstance(topic, str):
            return []
        if self._board.limits(session, now):
            return [_answer(number, *TOO_FREQUENT, now)]
        if request.get("reqType") == "unsub":
            session.topics.pop(topic, None)
            return [_answer(number, 0, "SUCCESS", now)]
        return self._subscribe(session, topic, number, now)

    def _subscribe(
        self, session: SimulatedSession, topic: str, number: object, now: Now
    ) -> list[str]:
        match = TOPIC.fullmatch(topic)
        if match is None or not self._board.lists(match["native"]):
            if self._board.nameless:
                return [dumped({"code": ILLEGAL[0], "msg": ILLEGAL[1], "timestamp": now.ms})]
            return [_answer(number, *UNSUPPORTED, now)]
        if len(session.topics) >= TOPICS_MAX and topic not in session.topics:
            return [_answer(number, *TOO_MANY_TOPICS, now)]
        window = self._board.subscribe(session, topic, ChannelKey(match["native"], DEPTH))
        accepted = _answer(number, 0, "SUCCESS", now)
        if window is None:
            return [accepted]
        return [accepted, _frame(window, "all", window.snapshot(), now)]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the changes, asks worst first."""
        backwards = TextChanges(changes.bids, changes.asks[::-1])
        return _frame(channel, "update", backwards, now)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return a ping, or disconnect a client after six pings without a pong."""
        if len(session.marks) >= PINGS_UNANSWERED_MAX:
            raise Dropped("", ABNORMAL)
        mark = f"{now.ms:032x}"
        session.marks.add(mark)
        return [dumped({"ping": mark, "time": now.rfc3339()})]

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of symbols, whose steps are numbers."""
        if path != "/openApi/spot/v1/common/symbols":
            return None
        rows = [_symbol(listing) for listing in self._board.listings.values()]
        return answered({"code": 0, "msg": "", "debugMsg": "", "data": {"symbols": rows}})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the symbol of an `incrDepth` frame."""
        match = TOPIC.fullmatch(str((loaded(frame) or {}).get("dataType")))
        return match["native"] if match else None


def _symbol(listing: ListedSymbol) -> dict[str, object]:
    return {
        "symbol": listing.native,
        "minNotional": 5,
        "maxNotional": 500_000,
        "status": 1,
        "tickSize": float(listing.tick),
        "stepSize": float(listing.lot),
        "apiStateSell": True,
        "apiStateBuy": True,
        "timeOnline": 0,
    }


def _frame(channel: PublishedBook, action: str, book: TextChanges, now: Now) -> str:
    data = {
        "action": action,
        "asks": dict(book.asks),
        "bids": dict(book.bids),
        "lastUpdateId": channel.sequence,
        "symbol": channel.listing.native,
        "timestamp": now.ms,
    }
    topic = f"{channel.listing.native}@incrDepth"
    return dumped({"code": 0, "data": data, "dataType": topic, "success": True})


def _answer(number: object, code: int, words: str, now: Now) -> str:
    return dumped({"id": number, "code": code, "msg": words, "timestamp": now.ms})


DIALECT: Final[type[Dialect]] = BingX
