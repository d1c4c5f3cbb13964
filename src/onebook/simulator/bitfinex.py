"""Simulated Bitfinex, WebSocket 2 `book` channel: channel ids, signed amounts, numbered frames.

Each changed level is a separate frame. Depending on the flags in the client's `conf`, the frame's
number on this connection and its time are appended. Every channel gets a heartbeat every 15 s, and
every changed book a checksum a little more often than every 3 s.
https://docs.bitfinex.com/reference/ws-public-books, https://docs.bitfinex.com/docs/ws-general,
https://docs.bitfinex.com/docs/ws-websocket-checksum
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from itertools import chain, zip_longest
from typing import Any, Final
from zlib import crc32

from onebook.simulator.kit import (
    ChannelKey,
    Dialect,
    ExchangeBoard,
    ExchangeRules,
    ListedSymbol,
    Most,
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

LENGTHS: Final = ("1", "25", "100", "250")
PRECISIONS: Final = ("P0",)  # all others merge levels
CHANNELS_MAX: Final = 25
FIRST_CHANNEL_ID: Final = 10_092
CHECKSUM_LEVELS: Final = 25
HEARTBEAT_S: Final = 15.0
CHECKSUM_S: Final = 2.5
TIMESTAMP, SEQ_ALL, OB_CHECKSUM = 1 << 15, 1 << 16, 1 << 17
SMALLEST_PLAIN: Final = Decimal("0.000001")  # JavaScript prints smaller numbers with an exponent
CODES: Final = {"USDT": "UST"}  # from the usual code to the exchange's
PAIRS_PATH: Final = "/v2/conf/pub:list:pair:exchange"


def status(system: str) -> str:
    """Encode the event that announces the start or end of maintenance."""
    over = system == "online"
    words = "Maintenance ended" if over else "Entering in Maintenance mode"
    return _event("info", code=20_061 if over else 20_060, msg=words)


class Tail:
    """Appends number and time to the frames of a connection, as its flags require."""

    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.number = 0

    def __call__(self, frame: str) -> str:
        """Replace the time at the end of a frame with the fields of the client's flags."""
        self.number += 1
        head, _, at = frame.removesuffix("]").rpartition(",")
        if not at.strip().isdecimal():
            return frame  # truncated by a fault
        number = f",{self.number}" if self.flags & SEQ_ALL else ""
        return f"{head}{number}{f',{at}' if self.flags & TIMESTAMP else ''}]"


class Bitfinex(Dialect):
    """The protocol of api-pub.bitfinex.com."""

    profile = Profile(depth=260, spread_ppm=20, offset_ppm_max=15)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "tBTCUST", 0, 8),
        ListedSymbol("ETH/USDT", "tETHUST", 1, 8),
        ListedSymbol("DOGE/USDT", "tDOGE:UST", 5, 8),
        ListedSymbol("SOL/USDT", "tSOLUST", 2, 8),
        ListedSymbol("BTC/USD", "tBTCUSD", 0, 8),
        ListedSymbol("ETH/USD", "tETHUSD", 1, 8),
        ListedSymbol("ETH/BTC", "tETHBTC", 6, 8),
    )
    rules = ExchangeRules(
        single_levels=True,
        signed_amounts=True,
        connects=(Most(20, 60.0),),
        silence_max_s=60.0,
        heartbeat_s=CHECKSUM_S,
        status=status,
    )

    def __init__(self, board: ExchangeBoard) -> None:
        super().__init__(board)
        self._ids = {native: FIRST_CHANNEL_ID + n for n, native in enumerate(board.listings)}
        self._natives = {each: native for native, each in self._ids.items()}

    def opened(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send the protocol version and the platform status."""
        session.form = Tail(0)
        platform = {"status": 1 if self._board.system == "online" else 0}
        return [_event("info", version=2, serverId="083bd8d4-aca7", platform=platform)]

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer ping, conf, subscribe and unsubscribe."""
        request = loaded(frame) or {}
        match request.get("event"):
            case "ping":
                return [_event("pong", ts=now.ms, cid=request.get("cid"))]
            case "conf":
                session.form = Tail(request.get("flags", 0))
                return [_event("conf", status="OK", flags=request.get("flags", 0))]
            case "subscribe":
                return self._subscribe(session, request, now)
            case "unsubscribe":
                return self._unsubscribe(session, request.get("chanId"))
        return [_event("error", msg="unknown event", code=10_000)]

    def _subscribe(self, session: SimulatedSession, request: dict[str, Any], now: Now) -> list[str]:
        asked = {name: each for name, each in request.items() if name != "event"}
        native, length = str(request.get("symbol")), str(request.get("len", "25"))
        if self._board.limits(session, now):
            return [_event("error", msg="ratelimit: error", code=11_010)]
        if request.get("channel") != "book":
            return [_event("error", **asked, msg="channel: unknown", code=10_302)]
        if not self._board.lists(native) and self._board.nameless:
            return [_event("error", msg="symbol: invalid", code=10_300)]
        if not self._board.lists(native) or length not in LENGTHS:
            what = "len" if self._board.lists(native) else "symbol"
            return [_event("error", **asked, msg=f"{what}: invalid", code=10_300)]
        if request.get("prec", "P0") not in PRECISIONS:
            return [_event("error", **asked, msg="prec: invalid", code=10_300)]
        if native in session.topics:
            return [_event("error", **asked, msg="subscribe: dup", code=10_301)]
        if len(session.topics) >= CHANNELS_MAX:
            return [_event("error", **asked, msg="subscribe: limit", code=10_305)]
        window = self._board.subscribe(session, native, ChannelKey(native, int(length)))
        answer = {"prec": "P0", "freq": "F0", "len": length} | asked
        ids = {"chanId": self._ids[native], "pair": native.removeprefix("t")}
        replies = [_event("subscribed", **answer, **ids)]
        if window is not None and isinstance(session.form, Tail):
            rows = ",".join(_rows(window.snapshot()))
            replies.append(session.form(f"[{self._ids[native]},[{rows}],{now.ms}]"))
        return replies

    def _unsubscribe(self, session: SimulatedSession, channel: object) -> list[str]:
        native = self._natives.get(channel) if isinstance(channel, int) else None
        if native is None or session.topics.pop(native, None) is None:
            return [_event("error", msg="unsubscribe: invalid", code=10_401, chanId=channel)]
        return [_event("unsubscribed", status="OK", chanId=channel)]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode one changed level; `Tail` may replace the time at the end."""
        bids = changes.bids[-1:]
        [row] = _rows(TextChanges(bids, [] if bids else changes.asks))
        return f"[{self._ids[channel.listing.native]},{row},{now.ms}]"

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send checksums of changed books, and heartbeats of all channels."""
        form = session.form
        if not isinstance(form, Tail):
            return []
        frames = []
        if form.flags & OB_CHECKSUM and _due(session, "cs", CHECKSUM_S, now):
            for native, key in session.topics.items():
                window = self._board.channel(key)
                if window is not None and session.heartbeats.get(native) != window.updates:
                    session.heartbeats[native] = window.updates
                    frames.append(f'[{self._ids[native]},"cs",{checksum(window)},{now.ms}]')
        if _due(session, "hb", HEARTBEAT_S, now):
            frames += [f'[{self._ids[native]},"hb",{now.ms}]' for native in session.topics]
        return [form(frame) for frame in frames]

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of pairs: a list with one list."""
        if path != PAIRS_PATH:
            return None
        return answered([[_pair(each) for each in self._board.listings.values()]])

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the native of a simulated channel; ids of recordings are unknown."""
        match _decoded(frame):
            case [int(channel), [int() | float(), *_] | [[*_], *_], *_]:
                rank = channel - FIRST_CHANNEL_ID
                if 0 <= rank < len(Bitfinex.listings):
                    return Bitfinex.listings[rank].native
        return None


def checksum(window: PublishedBook) -> int:
    """Return the signed CRC-32 of price and amount of the best 25 bids and asks in turn."""
    top = window.top(CHECKSUM_LEVELS)
    asks = [(price, f"-{amount}") for price, amount in top.asks]
    levels = chain.from_iterable(zip_longest(top.bids, asks))
    text = ":".join(_number(each) for level in levels if level for each in level)
    unsigned = crc32(text.encode())
    return unsigned - (1 << 32) if unsigned >> 31 else unsigned


def _rows(book: TextChanges) -> list[str]:
    """Format price, orders and amount; in a removal the sign of the amount is the side."""
    return [*_side(book.bids, ""), *_side(book.asks, "-")]


def _side(levels: TextLevels, sign: str) -> list[str]:
    rows = []
    for price, amount in levels:
        gone = not amount.strip("0.")
        number = f"{sign}{_number('1' if gone else amount)}".replace("--", "")
        rows.append(f"[{_number(price)},{0 if gone else 1},{number}]")
    return rows


def _number(text: str) -> str:
    """Format a number as JavaScript does: 0.0000015 stays, 0.00000015 becomes 1.5e-7."""
    if not text.lstrip("-").replace(".", "").isdecimal():
        return text
    value = Decimal(text)
    if not value or abs(value) >= SMALLEST_PLAIN:
        return text
    return f"{value.normalize():e}".replace("e-0", "e-")


def _pair(listing: ListedSymbol) -> str:
    base, quote = (CODES.get(code, code) for code in (listing.base, listing.quote))
    return f"{base}{quote}" if len(base) == len(quote) == 3 else f"{base}:{quote}"


def _decoded(frame: str) -> object:
    try:
        return json.loads(frame)
    except ValueError:
        return None


def _due(session: SimulatedSession, what: str, every_s: float, now: Now) -> bool:
    due = now.s >= session.heartbeats.get(what, session.opened_s) + every_s
    if due:
        session.heartbeats[what] = now.s
    return due


def _event(event: str, **members: object) -> str:
    return dumped({"event": event} | members)


DIALECT: Final[type[Dialect]] = Bitfinex
