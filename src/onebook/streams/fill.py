"""Fills and routes of a stream: the cost of sizes against its books, in each update.

`onebook.fill` has the arithmetic before fees, `onebook.routes` the arithmetic after fees.
"""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from struct import Struct
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from onebook.core import DEPTH_MAX, LEVEL_FORM, MEMBERS_MAX, Levels, View
from onebook.fees import exchange_of, fee_factors
from onebook.fill import (
    AMOUNT,
    BUY,
    NOTIONAL,
    SELL,
    Direction,
    Fill,
    FillSide,
    bits,
    decimal_text,
    fills,
    size_of,
    size_texts,
)
from onebook.routes import Order, Route, RouteSide, Rules, routes
from onebook.streams.members import StreamMembers

FILL_SIZES_MAX: Final = 8  # amounts and notionals of one subscription
FILL_LEVELS_MAX: Final = DEPTH_MAX  # levels a side that a fill may use, whatever is delivered

_LEVEL: Final = Struct(LEVEL_FORM)
_PART: Final = "q"  # PART_FORM in native byte order
_json = msgspec.json.encode


class FillSizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes to price in each update, for buying and for selling.

    `fill_sizes` makes them canonical: shortest decimal texts in ascending order, each once.
    """

    amounts: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="In the base currency, as decimal text.", examples=[["0.5"]]),
    ] = ()
    notionals: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="In the quote currency, as decimal text.", examples=[["10000"]]),
    ] = ()
    limit: Annotated[
        str | UnsetType | None,
        msgspec.Meta(
            description="With `fees`: the worst price, before fees, that any order may take.",
            examples=["97350"],
        ),
    ] = UNSET
    exclude: Annotated[
        Annotated[tuple[str, ...], msgspec.Meta(max_length=MEMBERS_MAX)] | UnsetType,
        msgspec.Meta(
            description="With `fees`: exchanges to leave out.",
            examples=[["kraken"]],
        ),
    ] = UNSET
    max_exchanges: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=MEMBERS_MAX)] | UnsetType | None,
        msgspec.Meta(
            description="With `fees`: the maximum number of exchanges in one split.",
            examples=[3],
        ),
    ] = UNSET

    @property
    def of_routes(self) -> bool:
        """Whether the request has options that only routes support."""
        return bool(self.limit or self.exclude or self.max_exchanges)


def fill_sizes(
    amounts: Iterable[str],
    notionals: Iterable[str],
    *,
    limit: str | None = None,
    exclude: Iterable[str] = (),
    max_exchanges: int | None = None,
) -> FillSizes:
    """Check sizes and convert them to canonical form.

    Raises:
        ValueError: No size, too many, or one that is not a positive decimal number.
    """
    sizes = FillSizes(
        size_texts(AMOUNT, amounts),
        size_texts(NOTIONAL, notionals),
        decimal_text(size_of("limit", limit).normalize()) if limit else UNSET,
        tuple(sorted(set(exclude))) or UNSET,
        max_exchanges or UNSET,
    )
    count = len(sizes.amounts) + len(sizes.notionals)
    if not 1 <= count <= FILL_SIZES_MAX:
        raise ValueError(f"name 1 to {FILL_SIZES_MAX} amounts and notionals, not {count}.")
    return sizes


def fill_side(levels: Levels, direction: Direction) -> FillSide:
    """Return the side that a buy or sell takes from levels merged with `split`.

    Levels are unpacked only when they are read.
    """
    buys = direction == BUY
    rows = levels.asks if buys else levels.bids
    parts = levels.ask_parts if buys else levels.bid_parts
    return FillSide(
        partial(_LEVEL.iter_unpack, rows) if isinstance(rows, bytes) else partial(iter, rows),
        memoryview(parts).cast(_PART) if isinstance(parts, bytes) else parts,
        levels.price_scale,
        levels.amount_scale,
    )


class FillView:
    """The fills of one stream, from a separate merge of whole books that is priced when read.

    Its levels are neither cut to the depth nor binned to the step of the stream.
    """

    __slots__ = ("_found", "_names", "_sizes", "_view")

    def __init__(self, names: Sequence[str], sizes: FillSizes) -> None:
        self._names = names
        self._sizes = sizes
        self._view = View(names, depth=FILL_LEVELS_MAX, split=True)
        self._found: tuple[list[Fill], ...] = ()

    def merge(self, members: StreamMembers) -> bool:
        """Price the sizes against these books; returns whether any fill changed."""
        self._view.merge(members.cores)
        levels, ends = self._view.levels(), members.ends()
        sizes = self._sizes
        found = tuple(
            fills(fill_side(levels, name), name, sizes.amounts, sizes.notionals, self._names, ends)
            for name in (BUY, SELL)
        )
        changed, self._found = found != self._found, found
        return changed

    @property
    def found(self) -> tuple[list[Fill], ...]:
        """The fills of the last merge: buys, sells."""
        return self._found

    def json(self, members: StreamMembers, now: float) -> bytes:
        """Encode the fills of the last merge, as the member `fill` of an update."""
        return _sides_json([map(_fill_json, side) for side in self._found])


class RouteView:
    """The routes of one stream, from a separate merge of whole books, routed when read."""

    __slots__ = ("_factors", "_fee_scale", "_found", "_limit", "_names", "_sizes", "_view")

    def __init__(self, names: Sequence[str], sizes: FillSizes, percents: Sequence[str]) -> None:
        self._names = names
        self._sizes = sizes
        self._limit = Decimal(sizes.limit) if sizes.limit else None
        self._fee_scale, self._factors = fee_factors(percents)
        self._view = View(names, depth=FILL_LEVELS_MAX, split=True, fees=percents)
        self._found: tuple[list[Route], ...] = ()

    def merge(self, members: StreamMembers) -> bool:
        """Route the sizes through these books; returns whether any route changed."""
        exclude, sizes = self._sizes.exclude or (), self._sizes
        cores = members.cores
        if exclude:
            cores = [
                None if exchange_of(name) in exclude else core
                for name, core in zip(self._names, cores, strict=True)
            ]
        self._view.merge(cores)
        levels, ends = self._view.levels(), members.ends()
        # The minimum notional of a converted order is in another currency.
        rules = {
            name: order_rules(
                each.lot, each.least_amount, "" if ":" in name else each.least_notional
            )
            for name, each in zip(members.names, members.instruments, strict=True)
            if each
        }
        found = tuple(
            routes(
                route_side(levels, name, self._factors, self._fee_scale, self._limit),
                name,
                sizes.amounts,
                sizes.notionals,
                self._names,
                [end for end in ends if exchange_of(end.exchange) not in exclude],
                rules,
                sizes.max_exchanges or None,
            )
            for name in (BUY, SELL)
        )
        changed, self._found = found != self._found, found
        return changed

    @property
    def found(self) -> tuple[list[Route], ...]:
        """The routes of the last merge: buys, sells."""
        return self._found

    def json(self, members: StreamMembers, now: float) -> bytes:
        """Encode the routes of the last merge, as the member `fill` of an update."""
        return _sides_json(
            [(_route_json(each, members, now) for each in side) for side in self._found]
        )


@lru_cache(maxsize=1_024)
def order_rules(lot: str, least_amount: str, least_notional: str) -> Rules:
    """Return the order rules of an instrument, given as texts of its list; "" means unknown."""
    return Rules(*map(_number, (lot, least_amount, least_notional)))


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:  # "" too
        return None
    return number if number.is_finite() and number >= 0 else None


def route_side(
    levels: Levels,
    direction: Direction,
    factors: Sequence[tuple[int, int]],
    fee_scale: int,
    limit: Decimal | None = None,
) -> RouteSide:
    """Return the side that a buy or sell takes from levels merged with `split` by net price.

    Args:
        levels: The levels of a net view.
        direction: "buy" or "sell".
        factors: The factors of its fees; see `fee_factors`.
        fee_scale: Decimals that fees add.
        limit: The worst price to take, before fees.
    """
    buys = direction == BUY
    own = [pair[buys] for pair in factors]
    orders = _orders(fill_side(levels, direction))
    if limit is not None:
        end = limit.scaleb(levels.price_scale - fee_scale)
        orders = (
            each
            for each in orders
            if (each[0] // own[each[2]] <= end if buys else each[0] // own[each[2]] >= end)
        )
    return RouteSide(orders, own, fee_scale, levels.price_scale, levels.amount_scale)


def _orders(side: FillSide) -> Iterator[Order]:
    """Return the parts of levels, the largest first, as single orders."""
    amounts = iter(side.parts)
    for price, amount, members in side.rows():
        if members & (members - 1):
            parts = sorted(zip(bits(members), amounts, strict=False), key=_largest_first)
            for member, part in parts:
                yield price, part, member
        else:
            next(amounts)
            yield price, amount, members.bit_length() - 1


def _largest_first(part: tuple[int, int]) -> tuple[int, int]:
    return -part[1], part[0]


def _sides_json(sides: Sequence[Iterable[bytes]]) -> bytes:
    return b'{"buy":[%b],"sell":[%b]}' % tuple(map(b",".join, sides)) if sides else b"{}"


def oldest_ms(route: Route, members: StreamMembers, now: float) -> int | None:
    """Milliseconds since the last data of the exchanges of a route, of the oldest."""
    return max((members.age_ms(name, now) for name in route.split), default=None)


def _route_json(route: Route, members: StreamMembers, now: float) -> bytes:
    """Encode one route for updates; numbers are printed from exact decimals."""
    split = ",".join(
        f'{{"exchange":{_json(name).decode()},"amount":{decimal_text(part.amount)},'
        f'"notional":{decimal_text(part.notional)},"fee":{decimal_text(part.fee)},'
        f'"limit":{decimal_text(part.limit)}}}'
        for name, part in route.split.items()
    )
    oldest = oldest_ms(route, members, now)
    figures = ",".join(
        f'"{name}":{decimal_text(getattr(route, name))}'
        for name in (
            "size",
            "amount",
            "notional",
            "average",
            "fees",
            "net",
            "net_average",
            "worst",
            "extra",
            "unplaced",
        )
    )
    return (
        f'{{"by":"{route.by}",{figures},"complete":{_bool(route.complete)},'
        f'"exact":{_bool(route.exact)},"oldest_ms":{_json(oldest).decode()},'
        f'"unknown_rules":{_json(route.unknown_rules).decode()},'
        f'"uncovered":{_json(route.uncovered).decode()},"split":[{split}]}}'
    ).encode()


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _fill_json(fill: Fill) -> bytes:
    """Encode one fill for updates; numbers are printed from exact decimals."""
    split = ",".join(
        f'{{"exchange":{_json(name).decode()},"amount":{decimal_text(part.amount)},'
        f'"notional":{decimal_text(part.notional)}}}'
        for name, part in fill.split.items()
    )
    return (
        f'{{"by":"{fill.by}","size":{decimal_text(fill.size)},"amount":{decimal_text(fill.amount)},'
        f'"notional":{decimal_text(fill.notional)},"average":{decimal_text(fill.average)},'
        f'"worst":{decimal_text(fill.worst)},"levels":{fill.levels},'
        f'"complete":{"true" if fill.complete else "false"},'
        f'"uncovered":{_json(fill.uncovered).decode()},"split":[{split}]}}'
    ).encode()
