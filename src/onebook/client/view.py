"""Client-side copy of one view: applies full updates and deltas and verifies the checksum.

No I/O: messages in, books out. Numbers are `Decimal`, exactly as the service printed them.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from time import time_ns
from typing import Any, Final, NamedTuple

from onebook.client.packed import PackedBook, PackedState
from onebook.client.shapes import transferable_of
from onebook.clock import iso_us
from onebook.crossings import Crossing, CrossingReport
from onebook.fees import PublishedFee
from onebook.fill import BUY, DECIMALS_MAX, BookEnds, Direction, Fill, FillPart, FillSide
from onebook.health import Health, Reason
from onebook.orderbook import (
    EPOCH,
    EXACT,
    NEEDS_GROSS,
    NEEDS_SPLIT,
    BookLevel,
    BookLevels,
    BookProblem,
    BookTimes,
    ConversionReport,
    ExchangeHealth,
    ExchangeTimes,
    Horizon,
    LayerTimes,
    NetLevel,
    OrderBookState,
    decimals_of,
    only_exchange,
)
from onebook.routes import Route, RoutePart

CHECKSUM_LEVELS = 25  # `core.CHECKSUM_LEVELS`
LAYERS = ("top", "depth")
MADE_WHEN_READ = ("bids", "asks", "market_stats", "timestamp")  # unset by a binary update
NEEDS_AGES = "The age of each exchange's data is not in this view: request it with ages=True."
NEEDS_COVERAGE = "This view lacks the known range of each exchange's book: request coverage=True."


class ViewSide(list[BookLevel], BookLevels):
    """The bids or the asks of a view, best first: a list of `BookLevel`."""

    __slots__ = ("_other",)

    def __init__(self, levels: Iterable[BookLevel] = ()) -> None:
        super().__init__(levels)
        self._other: Sequence[BookLevel] = ()

    @classmethod
    def pair(cls, bids: list[BookLevel], asks: list[BookLevel]) -> tuple["ViewSide", "ViewSide"]:
        """Both sides of a view; they have the same scales."""
        sides = cls(bids), cls(asks)
        sides[0]._other, sides[1]._other = asks, bids  # not each other: no cycle to collect
        return sides

    @property
    def price_scale(self) -> int:
        """Decimals of the integer prices of `ints`."""
        return max((decimals_of(each.price) for each in (*self, *self._other)), default=0)

    @property
    def amount_scale(self) -> int:
        """Decimals of the integer amounts of `ints`."""
        return max((decimals_of(each.amount) for each in (*self, *self._other)), default=0)

    def ints(self) -> list[tuple[int, int]]:
        """Return (price, amount) as integers at `price_scale` and `amount_scale`."""
        prices, amounts = self.price_scale, self.amount_scale
        return [
            (int(each.price.scaleb(prices, EXACT)), int(each.amount.scaleb(amounts, EXACT)))
            for each in self
        ]

    def decimals(self) -> list[list[Decimal]]:
        """Return `[[price, amount], ...]`, exact."""
        return [[each.price, each.amount] for each in self]

    def floats(self) -> list[list[float]]:
        """Return `[[price, amount], ...]` as ccxt gives it: the nearest floats."""
        return [[float(each.price), float(each.amount)] for each in self]

    def attributions(self) -> list[tuple[str, ...]]:
        """Return the exchanges at each level."""
        return [each.exchanges for each in self]


class StatusReport(NamedTuple):
    """The content of an `exchange_status` for an exchange."""

    state: Health
    reason: Reason | None
    detail: str


@dataclass(slots=True)
class BookView(OrderBookState):
    """The latest merged book of one symbol, best levels first, as an `OrderBookState`.

    From a lost connection until the next full update, `live` is False, the view is empty and
    `problem` has the reason. A live view may have no levels, or only one side: `stale_exchanges`
    lists the exchanges that are not live, `rejected` the requested exchanges that are not served,
    with the reason. `ages` (milliseconds) and `coverage` ({"bids": price, "asks": price}, None for
    a completely known side) are by exchange, and empty unless requested; `fills` ({"buy": [...],
    "sell": [...]}) is the cost of each size requested with the option `fill`:
    a `Fill`, or with the option `fees` a `Route`. `crossings` are `CrossingReport`s, empty unless
    requested. `timestamp` is the service's time of the update; for a lost view, this machine's time
    of the loss. `view` is the client's name of a second view of the symbol. `members` are the
    exchanges that are merged. `skipped` is the number of states that the service had between this
    update and the previous one, because this client did not read. With `on` and `mode="delta"`, an
    update after the first has neither a `timestamp` nor `market_stats`. `times` is None unless
    requested. `conversions` are `ConversionReport`s, with the option `quotes`. `published_fees` are
    the fees of the view with the option `fees="published"`. `past` is whether the update is one of
    the service's history: with the option `start`, until the present is reached.
    """

    symbol: str
    live: bool = False
    problem: BookProblem | None = None
    bids: ViewSide = field(default_factory=ViewSide)
    asks: ViewSide = field(default_factory=ViewSide)
    market_stats: dict[str, Any] = field(default_factory=dict)
    stale_exchanges: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    published_fees: tuple[PublishedFee, ...] = ()
    states: dict[str, str] = field(default_factory=dict)
    ages: dict[str, int] = field(default_factory=dict)
    coverage: dict[str, dict[str, Decimal | None]] = field(default_factory=dict)
    fills: dict[str, list[Any]] = field(default_factory=dict)
    crossings: tuple[CrossingReport, ...] = ()
    timestamp: str = ""
    update_number: int = 0
    view: str = ""
    members: tuple[str, ...] = ()
    skipped: int = 0
    times: BookTimes | None = None
    conversions: tuple[ConversionReport, ...] = ()
    past: bool = False
    reports: dict[str, StatusReport] = field(default_factory=dict, repr=False)
    _fees: Mapping[str, str] | None = field(default=None, repr=False, compare=False)
    _packed: PackedState | None = field(default=None, repr=False, compare=False)
    _made: tuple[str, ...] = field(default=MADE_WHEN_READ, repr=False, compare=False)

    def __getattr__(self, name: str) -> Any:
        """Make what follows from a binary update, when it is first read."""
        state = self._packed if name in MADE_WHEN_READ else None
        if state is None:
            raise AttributeError(name)
        if name == "market_stats":
            self.market_stats = state.stats()
        elif name == "timestamp":
            self.timestamp = iso_us(state.time_us)
        else:
            self.bids, self.asks = ViewSide.pair(state.levels.levels(0), state.levels.levels(1))
            self._made += ("bids", "asks")
            return getattr(self, name)
        self._made += (name,)
        return getattr(self, name)

    @property
    def number(self) -> int:
        """The number of the update: each state of a book has a higher one."""
        return self.update_number

    @property
    def time_us(self) -> int:
        """`timestamp` in microseconds since 1970; 0 before the first update."""
        if not self.timestamp:
            return 0
        time = datetime.fromisoformat(self.timestamp)
        if time.tzinfo is None:  # from a service with `gateway.reference_compatible`
            time = time.replace(tzinfo=UTC)
        return (time - EPOCH) // timedelta(microseconds=1)

    @property
    def best_bid(self) -> BookLevel | None:
        """The highest bid; None if there are no bids."""
        if self._packed is not None:
            return self._packed.levels.best(0)
        return self.bids[0] if self.bids else None

    @property
    def best_ask(self) -> BookLevel | None:
        """The lowest ask; None if there are no asks."""
        if self._packed is not None:
            return self._packed.levels.best(1)
        return self.asks[0] if self.asks else None

    @property
    def stale(self) -> tuple[str, ...]:
        """The exchanges whose levels are not in the view."""
        left_out = self.stale_exchanges if self.live else self.members
        return (*left_out, *self.rejected)

    @property
    def exchange(self) -> str:
        """The exchange of a book of one exchange.

        Raises:
            ValueError: The book is of several exchanges.
        """
        return only_exchange([*self.members, *self.rejected])

    @property
    def exchanges(self) -> Mapping[str, ExchangeHealth]:
        """The health of each exchange, by name.

        Raises:
            ValueError: The view has no `ages`, or no `coverage`.
        """
        found = {name: self._health(name) for name in self.members}
        for name, why in self.rejected.items():
            reason = _REJECTIONS.get(why, Reason.UNAVAILABLE)
            found[name] = ExchangeHealth(name, Health.OFFLINE, False, reason, "", None, _NOTHING)
        return found

    @property
    def horizon(self) -> Horizon:
        """The prices within which the levels of all shown exchanges are known.

        Beyond them amounts are lower bounds: an exchange may have levels that it did not send.

        Raises:
            ValueError: The view has no `coverage`.
        """
        ends = [self._horizon(name) for name in self.members if self._shows(name)]
        bids = [end.bid for end in ends if end.bid is not None]
        asks = [end.ask for end in ends if end.ask is not None]
        return Horizon(max(bids, default=None), min(asks, default=None))

    def _shows(self, exchange: str) -> bool:
        return self.live and exchange not in self.stale_exchanges

    def _health(self, exchange: str) -> ExchangeHealth:
        shown = self._shows(exchange)
        state, reason, detail = self.reports.get(exchange) or StatusReport(
            Health.LIVE if shown else Health.SYNCING, None if shown else Reason.SUBSCRIBING, ""
        )
        if not shown:
            return ExchangeHealth(exchange, state, False, reason, detail, None, _NOTHING)
        age_ms = self.ages.get(exchange)
        if age_ms is None:
            raise ValueError(NEEDS_AGES)
        end = self._horizon(exchange)
        return ExchangeHealth(exchange, state, True, reason, detail, age_ms / 1_000, end)

    def _horizon(self, exchange: str) -> Horizon:
        end = self.coverage.get(exchange)
        if end is None:
            raise ValueError(NEEDS_COVERAGE)
        return Horizon(end["bids"], end["asks"])

    def copy(self) -> "BookView":
        """Return a copy that later messages do not change."""
        copied = object.__new__(BookView)
        for name in _FIELDS:
            if name in self._made or name not in MADE_WHEN_READ:
                setattr(copied, name, getattr(self, name))
        copied.states, copied.reports = dict(self.states), dict(self.reports)
        return copied

    def apply(self, message: dict[str, Any]) -> bool:
        """Apply an update, delta or status message.

        Returns:
            Whether the view is valid; if False, send `resync`.
        """
        if message["type"] == "exchange_status":
            name, state = message["exchange"], message["state"]
            self.states[name] = state
            self.reports[name] = StatusReport(
                _HEALTHS.get(state, Health.STALE),
                _REASONS.get(message.get("reason", ""), Reason.UNAVAILABLE),
                message.get("detail", ""),
            )
            return True
        if message["type"] in SHORT_UPDATES:
            self._take_best(message)
            return True
        if message["type"] == "aggregated_orderbook_delta":
            if message["previous_update_number"] != self.update_number:
                return False
            self._apply(message, changed=True)
            return bool(message["checksum"] == self.checksum())
        self._apply(message, changed=False)
        return True

    def apply_packed(self, update: Any, book: PackedBook) -> bool:
        """Apply a binary update to the book of its subscription, and show that.

        Returns:
            Whether the view is valid; if False, send `resync`.

        Raises:
            Unavailable: The update is invalid.
        """
        changed = update.HasField("elapsed_us")
        if changed and update.update_number != self.update_number + 1:
            return False
        self._packed = book.apply(update)
        for name in self._made:
            delattr(self, name)
        self._made = ()
        self.live = True
        self.problem = None
        self.stale_exchanges = book.names(update.stale)
        for name, value in book.extras(update).items():
            setattr(self, name, value)
        self.update_number = update.update_number
        self.skipped = update.skipped
        return not update.HasField("checksum") or update.checksum == self._packed.levels.checksum()

    def lose(self, problem: BookProblem) -> None:
        """Invalidate the view until the next full update."""
        self.live = False
        self.problem = problem
        self.bids, self.asks = ViewSide.pair([], [])
        self.market_stats, self.states, self.reports = {}, {}, {}
        self.stale_exchanges = []
        self._set_extras({})
        self.timestamp = iso_us(time_ns() // 1_000)
        self.update_number = self.skipped = 0
        self._packed, self._made = None, MADE_WHEN_READ

    def _apply(self, message: dict[str, Any], *, changed: bool) -> None:
        data = message["data"]
        bids, asks = map(_level, data["bids"]), map(_level, data["asks"])
        self.bids, self.asks = ViewSide.pair(
            sorted(_joined(self.bids if changed else [], bids), key=_price, reverse=True),
            sorted(_joined(self.asks if changed else [], asks), key=_price),
        )
        self.live = True
        self.problem = None
        self.market_stats = _decimals(data["market_stats"])
        self.stale_exchanges = data["stale_exchanges"]
        self._set_extras(data)
        self.timestamp = message["timestamp"]
        self.update_number = message["update_number"]
        self.skipped = message.get("skipped", 0)
        self._packed, self._made = None, MADE_WHEN_READ

    def _take_best(self, message: dict[str, Any]) -> None:
        """Apply a short update: only the best levels."""
        self.bids, self.asks = ViewSide.pair(
            *([_level(raw)] if (raw := message[side]) else [] for side in ("bid", "ask"))
        )
        self.market_stats = {}
        self._set_extras(message)
        self.timestamp = ""
        self.update_number += 1
        self.skipped = 0
        self._packed, self._made = None, MADE_WHEN_READ

    def _set_extras(self, data: Mapping[str, Any]) -> None:
        """Read the members that a view only has if they were requested."""
        self.ages = data.get("ages", {})
        self.coverage = {name: _decimals(ends) for name, ends in data.get("coverage", {}).items()}
        self.fills = {
            direction: [_fill(direction, each) for each in found]
            for direction, found in data.get("fill", {}).items()
        }
        self.crossings = tuple(map(_crossing, data.get("crossings", ())))
        self.conversions = tuple(map(_conversion, data.get("conversions", ())))
        times = data.get("times")
        self.times = None if times is None else _times(times)

    def _fill_side(self, direction: Direction) -> tuple[Sequence[str], FillSide]:
        if any(not level.amounts for level in (*self.bids, *self.asks)):
            raise ValueError(NEEDS_SPLIT)
        if any(isinstance(level, NetLevel) for level in (*self.bids, *self.asks)):
            raise ValueError(NEEDS_GROSS)
        return _side_of(self.asks if direction == BUY else self.bids)

    def _fill_ends(self) -> Iterator[BookEnds]:
        for name, ends in self.coverage.items():
            yield BookEnds(name, ends["bids"], ends["asks"])

    def checksum(self) -> int:
        """CRC-32 of the best levels' `price:amount` text, bids then asks, joined by colons."""
        best = self.bids[:CHECKSUM_LEVELS] + self.asks[:CHECKSUM_LEVELS]
        text = ":".join(f"{level.price:f}:{level.amount:f}" for level in best)
        return zlib.crc32(text.encode())


_FIELDS = tuple(each.name for each in fields(BookView))
_NOTHING = Horizon(None, None)
_HEALTHS = {health.value: health for health in Health}
_REASONS = {reason.value: reason for reason in Reason} | {"": None}
_REJECTIONS = {
    "symbol_not_traded": Reason.NOT_LISTED,
    "exchange_unavailable": Reason.UNREACHABLE,
    "unknown_fee": Reason.UNKNOWN_FEE,
}


def _price(level: BookLevel) -> Decimal:
    return level.price


# Counts are not market quantities.
_COUNTS = frozenset(("participating_exchanges",))


def _decimals(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of an object as `Decimal`; whole numbers arrive as ints."""
    return {
        name: Decimal(value) if type(value) is int and name not in _COUNTS else value
        for name, value in numbers.items()
    }


def _fill(direction: Any, raw: Mapping[str, Any]) -> Fill | Route:
    """Parse the cost of a size: a route if the view has fees."""
    if "net" in raw:
        return _route(direction, raw)
    parts = {
        each["exchange"]: FillPart(Decimal(each["amount"]), Decimal(each["notional"]))
        for each in raw["split"]
    }
    return Fill(
        direction,
        raw["by"],
        size=Decimal(raw["size"]),
        amount=Decimal(raw["amount"]),
        notional=Decimal(raw["notional"]),
        average=None if raw["average"] is None else Decimal(raw["average"]),
        worst=None if raw["worst"] is None else Decimal(raw["worst"]),
        levels=raw["levels"],
        complete=raw["complete"],
        uncovered=tuple(raw["uncovered"]),
        split=parts,
    )


def stated_fee(raw: Mapping[str, Any]) -> PublishedFee:
    """Parse a published fee of a reply."""
    known = {name: raw[name] for name in PublishedFee._fields if name in raw}
    return PublishedFee(**known | {"date": date.fromisoformat(raw["date"])})


def _crossing(raw: Mapping[str, Any]) -> CrossingReport:
    named = (raw["phase"], raw["buy"], raw["sell"], raw["lasted_ms"])
    if "amount" not in raw:  # it ended
        return CrossingReport(*named, None, None, None)
    figures = (Decimal(raw[name]) for name in Crossing._fields[2:])
    crossing = Crossing(raw["buy"], raw["sell"], *figures)
    moved = raw.get("transferable")
    return CrossingReport(
        *named,
        crossing,
        raw["buy_age_ms"],
        raw["sell_age_ms"],
        None if moved is None else transferable_of(moved),
    )


def _conversion(raw: Mapping[str, Any]) -> ConversionReport:
    bid, ask = (
        None if raw[side] is None else (Decimal(raw[side][0]), Decimal(raw[side][1]))
        for side in ("bid", "ask")
    )
    return ConversionReport(
        raw["symbol"],
        tuple(raw["members"]),
        tuple(raw["exchanges"]),
        tuple(raw["stale_exchanges"]),
        bid,
        ask,
        raw["age_ms"],
        raw["reason"],
    )


def _times(raw: Mapping[str, Any]) -> BookTimes:
    exchanges = {name: _exchange_times(each) for name, each in raw["exchanges"].items()}
    return BookTimes(raw["merged"], raw["sent"], exchanges)


def _exchange_times(raw: Mapping[str, Any]) -> ExchangeTimes:
    top, depth = (LayerTimes(raw[layer]["exchange"], raw[layer]["received"]) for layer in LAYERS)
    return ExchangeTimes(top, depth, raw["offset"], raw["error"])


def _route(direction: Any, raw: Mapping[str, Any]) -> Route:
    found = _decimals({name: raw[name] for name in _ROUTE_NUMBERS})
    return Route(
        direction=direction,
        by=raw["by"],
        complete=raw["complete"],
        exact=raw["exact"],
        unknown_rules=tuple(raw["unknown_rules"]),
        uncovered=tuple(raw["uncovered"]),
        split={
            each["exchange"]: RoutePart(*(Decimal(each[name]) for name in RoutePart._fields))
            for each in raw["split"]
        },
        oldest_ms=raw["oldest_ms"],
        **found,
    )


SHORT_UPDATES: Final = ("best", "crossing")  # without levels, of `on` with `mode: "delta"`
_ROUTE_NUMBERS = (
    *("size", "amount", "notional", "fees", "net", "average", "net_average", "worst", "unplaced"),
    "extra",
)


def _joined(old: list[BookLevel], changes: Any) -> list[BookLevel]:
    levels = {level.price: level for level in old}
    for level in changes:
        if level.amount:
            levels[level.price] = level
        else:
            levels.pop(level.price, None)
    return list(levels.values())


def _level(raw: Any) -> BookLevel:
    """Parse an object level or an array level; whole numbers arrive as ints."""
    if isinstance(raw, dict):
        price, amount = raw["price"], raw["amount"]
        exchanges, amounts = raw["exchanges"], raw.get("amounts", ())
        gross = raw.get("gross", ())
    else:
        price, amount, *split = raw
        parts = split[0] if split else ()
        exchanges, amounts = [part[0] for part in parts], [part[1] for part in parts]
        gross = [part[2] for part in parts if len(part) > 2]
    kind = NetLevel if gross else BookLevel
    level = kind(Decimal(price), Decimal(amount), tuple(exchanges), tuple(map(Decimal, amounts)))
    if isinstance(level, NetLevel):
        level.gross = tuple(map(Decimal, gross))
    return level


def _side_of(levels: Iterable[BookLevel]) -> tuple[Sequence[str], FillSide]:
    """Levels with integer `amounts`, and the exchanges as bits."""
    levels = list(levels)
    names = sorted({name for level in levels for name in level.exchanges})
    bits = {name: bit for bit, name in enumerate(names)}
    prices = max((decimals_of(level.price) for level in levels), default=0)
    amounts = max((decimals_of(part) for level in levels for part in level.amounts), default=0)
    if max(prices, amounts) > DECIMALS_MAX:
        raise ValueError(f"The book has numbers of more than {DECIMALS_MAX} decimals.")
    rows, parts = [], list[int]()
    for level in levels:
        ordered = sorted(zip(level.exchanges, level.amounts, strict=True))
        own = [int(part.scaleb(amounts, EXACT)) for _, part in ordered]
        members = sum(1 << bits[name] for name, _ in ordered)
        rows.append((int(level.price.scaleb(prices, EXACT)), sum(own), members))
        parts += own
    return names, FillSide(lambda: iter(rows), parts, prices, amounts)
