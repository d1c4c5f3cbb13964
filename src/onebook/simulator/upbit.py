"""Simulated Upbit: `orderbook`, whole books of 30 levels, in binary messages.

A request is a list of its ticket, the books and the format. It replaces the previous one; the only
answer is a snapshot of each book, or an error, after which the connection is closed. Numbers are
printed like Java doubles. https://docs.upbit.com/kr/reference/websocket-guide
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from itertools import zip_longest
from typing import Any, Final

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
    TextChanges,
    answered,
    dumped,
    loaded,
)

NORMAL: Final = 1000
LEAVING: Final = "leaving"
ABSENT: Final = ("0", "0")
PLAIN_FROM: Final = Decimal("0.001")  # smaller numbers, and those from 10^7, have an exponent
PLAIN_BELOW: Final = 10_000_000


class Upbit(Dialect):
    """The protocol of api.upbit.com."""

    profile = Profile(depth=32, spread_ppm=30, offset_ppm_max=20)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "USDT-BTC", 2, 8),
        ListedSymbol("ETH/USDT", "USDT-ETH", 2, 8),
        ListedSymbol("SOL/USDT", "USDT-SOL", 3, 8),
        ListedSymbol("DOGE/USDT", "USDT-DOGE", 5, 8),
        ListedSymbol("ETH/BTC", "BTC-ETH", 8, 8),
    )
    depth = 30
    formats: tuple[str | None, ...] = ("SIMPLE",)  # None if a request may omit it
    rules = ExchangeRules(
        messages=(Most(5), Most(100, 60.0)),
        connects=(Most(5, per_address=True),),
        silence_max_s=60.0,
        heartbeat_s=1.0,
    )

    def opened(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return no frame."""
        session.binary = True
        return []

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer PING, or a request that replaces the previous one."""
        if frame == "PING":
            return ['{"status":"UP"}']
        parts = _parts(frame)
        wanted = next((part for part in parts if "type" in part), {})
        codes = wanted.get("codes")
        refusal = self._refusal(session, parts, wanted, now)
        if refusal:
            session.marks.add(LEAVING)
            return [dumped({"error": {"name": refusal, "message": "The request is refused."}})]
        session.topics.clear()
        known = [code for code in codes or () if self._board.lists(code)]
        windows = [
            self._board.subscribe(session, code, ChannelKey(code, self.depth)) for code in known
        ]
        return [
            self._frame(window, window.snapshot(), "SNAPSHOT", now)
            for window in windows
            if window is not None
        ]

    def _refusal(
        self,
        session: SimulatedSession,
        parts: list[dict[str, Any]],
        wanted: dict[str, Any],
        now: Now,
    ) -> str | None:
        if not parts:
            return "WRONG_FORMAT"
        if "ticket" not in parts[0]:
            return "NO_TICKET"
        if not wanted:
            return "NO_TYPE"
        if not wanted.get("codes"):
            return "NO_CODES"
        form = next((part["format"] for part in parts if "format" in part), None)
        if wanted["type"] != "orderbook" or form not in self.formats:
            return "INVALID_PARAM"  # other parts are not simulated
        return "TOO_MANY_REQUESTS" if self._board.limits(session, now) else None

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the whole book after a change."""
        return self._frame(channel, channel.whole(changes), "REALTIME", now)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing, but disconnect a client after an error."""
        if LEAVING in session.marks:
            raise Dropped("A request was refused.", NORMAL)
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of markets."""
        if path != "/v1/market/all":
            return None
        return answered(
            [
                {"market": listing.native, "korean_name": listing.base, "english_name": "Coin"}
                for listing in self._board.listings.values()
            ]
        )

    @staticmethod
    def _frame(channel: PublishedBook, book: TextChanges, kind: str, now: Now) -> str:
        units = ",".join(
            f'{{"ap":{_double(ask)},"bp":{_double(bid)},"as":{_double(asked)},"bs":{_double(size)}}}'
            for (bid, size), (ask, asked) in zip_longest(book.bids, book.asks, fillvalue=ABSENT)
        )
        about = f'"cd":"{channel.listing.native}","tms":{now.ms},"tas":1.5,"tbs":2.5'
        return f'{{"ty":"orderbook",{about},"obu":[{units}],"st":"{kind}","lv":0}}'

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the code of an `orderbook` frame."""
        message = loaded(frame) or {}
        return message.get("cd") if message.get("ty") == "orderbook" else None


def _parts(frame: str) -> list[dict[str, Any]]:
    try:
        parts = json.loads(frame)
    except ValueError:
        return []
    sound = isinstance(parts, list) and all(isinstance(part, dict) for part in parts)
    return parts if sound else []


def _double(text: str) -> str:
    number = Decimal(text)
    if not number.is_finite() or not number or PLAIN_FROM <= abs(number) < PLAIN_BELOW:
        return text
    return f"{number.normalize():E}".replace("E+", "E")


DIALECT: Final[type[Dialect]] = Upbit
