"""Merges books into one view, in pure Python.

A view keeps its levels as integers at one fixed scale, so that sums and comparisons are exact for
members of any scale, and formats them only when requested. With fees, levels are in the order of
net prices: what a buyer pays and a seller receives for each unit after the exchange's taker fee.
"""

import json
from binascii import crc32
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby, islice, takewhile
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from onebook.core.reference.text import Number, decimal_text, parse_number
from onebook.core.types import (
    CHECKSUM_LEVELS,
    DEPTH_MAX,
    LEVELS_MAX,
    MEMBERS_MAX,
    PERCENT_DECIMALS,
    SCALE_MAX,
    VALUE_DECIMALS,
    WITHIN_DECIMALS_MAX,
    WITHIN_MAX,
    LevelError,
    Levels,
)
from onebook.fees import fee_factors


class BookLike(Protocol):
    """Interface of a book for merging, which the compiled `Book` also has."""

    @property
    def price_scale(self) -> int:
        """Decimals of its price mantissas."""
        ...

    @property
    def amount_scale(self) -> int:
        """Decimals of its amount mantissas."""
        ...

    def bins(self, side: int, step: int, count: int) -> list[tuple[int, int]]:
        """Return up to `count` bids (0) or asks (1) binned by a price step, best first."""
        ...

    def horizon(self, window: int = 0) -> tuple[str | None, str | None]:
        """Return the outermost known bid and ask price."""
        ...


class MergedLevel(NamedTuple):
    """One merged level: total amount and each member's part, in the order of the members."""

    price: int
    amount: int
    parts: tuple[tuple[int, int], ...]


class MergedState(NamedTuple):
    """The merged levels of both sides, best first, at `SCALE_MAX`."""

    bids: list[MergedLevel]
    asks: list[MergedLevel]


UNIT: Final = 10**SCALE_MAX
EMPTY: Final = MergedState([], [])


def view_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the members' names as JSON text; ValueError if there are too many."""
    if len(names) > MEMBERS_MAX:
        raise ValueError(f"A view merges at most {MEMBERS_MAX} books, not {len(names)}.")
    return tuple(json.dumps(name) for name in names)


def view_depth(depth: int) -> int:
    """Return the depth; ValueError if it is out of range."""
    if not 1 <= depth <= DEPTH_MAX:
        raise ValueError(f"The depth of a view is 1 to {DEPTH_MAX}, not {depth}.")
    return depth


def view_step(group: str | None) -> Number:
    """Return the price step of the bins, zero for none; ValueError if it is invalid."""
    if group is None:
        return Number(0, 0, 0)
    try:
        step = parse_number(group)
    except LevelError:
        step = Number(0, 0, 0)
    if not step.mantissa:
        raise ValueError("The price step must be a decimal number above 0, such as 0.5.")
    return step


def view_within(within: str | None) -> Number | None:
    """Return the distance from the mid in basis points; ValueError if it is invalid."""
    if within is None:
        return None
    try:
        found = parse_number(within)
    except LevelError:
        found = Number(0, 0, 0)
    if not found.mantissa or found.scale > WITHIN_DECIMALS_MAX:
        found = Number(0, 0, 0)
    if not 0 < found.mantissa <= WITHIN_MAX * 10**found.scale:
        raise ValueError(
            f"The distance from the mid must be above 0 and at most {WITHIN_MAX:,} basis points, "
            f"with at most {WITHIN_DECIMALS_MAX} decimals, such as 25."
        )
    return found


class Fees(NamedTuple):
    """Taker fees as factors on prices, of the bids and the asks of each member: `fee_factors`."""

    scale: int
    factors: tuple[tuple[int, int], ...]


def view_fees(fees: Sequence[str] | None, names: Sequence[str]) -> Fees:
    """Return the factors of taker fees in percent, 1 if None; ValueError if one is invalid."""
    if fees is None:
        return Fees(0, ((1, 1),) * len(names))
    if len(fees) != len(names):
        raise ValueError(f"The view has {len(names)} fees, not {len(fees)}.")
    return Fees(*fee_factors(fees))


class View:
    """Merges books into one view, encoded as JSON: in full, or as a delta."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        depth: int,
        group: str | None = None,
        split: bool = False,
        arrays: bool = False,
        within: str | None = None,
        fees: Sequence[str] | None = None,
    ) -> None:
        self._fees = view_fees(fees, names)
        self._scale = SCALE_MAX + self._fees.scale  # of prices
        self._names = view_names(names)
        self._depth = view_depth(depth)
        self._within = view_within(within)
        step = view_step(group)
        self._step: int = step.at(SCALE_MAX) * 10**self._fees.scale
        self._gross = fees is not None and not self._step  # a bin has several prices before fees
        self._price_scale, self._amount_scale = step.scale, 0  # of `levels`; they only grow
        self._split = split
        self._arrays = arrays
        self._now = EMPTY
        self._before: MergedState | None = None
        self._merged = False

    def merge(self, books: Sequence[BookLike | None]) -> bool:
        """Merge these books, None for one that is not live; return whether the view changed."""
        if len(books) != len(self._names):
            raise ValueError(f"The view merges {len(self._names)} books, not {len(books)}.")
        members = [(index, book) for index, book in enumerate(books) if book is not None]
        for _, book in members:
            self._price_scale = max(self._price_scale, book.price_scale + self._fees.scale)
            self._amount_scale = max(self._amount_scale, book.amount_scale)
        state = self._trimmed(MergedState(self._side(members, 0), self._side(members, 1)))
        if not self._merged:
            self._merged, self._now = True, state
            return True
        if not self._differs(state):
            self._before = self._now
            return False
        self._before, self._now = self._now, state
        return True

    def restore(self, before: MergedState | None, now: MergedState) -> None:
        """Replace the states with those of another view."""
        self._merged, self._before, self._now = True, before, now

    def full(self, head: bytes, tail: bytes) -> bytes:
        """Return `head`, the JSON members of the whole view, and `tail`."""
        return self._document(head, self._now, tail)

    def delta(self, head: bytes, tail: bytes) -> bytes | None:
        """Return `head`, the changes of the last merge, and `tail`; None after the first merge."""
        changes = self.changes()
        return None if changes is None else self._document(head, changes, tail)

    def changes(self) -> MergedState | None:
        """Return the levels that the last merge changed; None after the first merge."""
        if self._before is None:
            return None
        bids = self._changes(self._before.bids, self._now.bids)
        bids.sort(key=_price, reverse=True)
        asks = self._changes(self._before.asks, self._now.asks)
        asks.sort(key=_price)
        return MergedState(bids, asks)

    # What `Packer` encodes

    @property
    def sides(self) -> MergedState:
        """The levels of the last merge."""
        return self._now

    @property
    def price_scale(self) -> int:
        """Decimals of delivered prices."""
        return self._price_scale

    @property
    def amount_scale(self) -> int:
        """Decimals of delivered amounts."""
        return self._amount_scale

    @property
    def fee_scale(self) -> int:
        """Decimals that fees add to prices."""
        return self._fees.scale

    @property
    def price_unit(self) -> int:
        """Divisor that converts a price of `sides` to `price_scale` decimals."""
        unit: int = 10 ** (self._scale - self._price_scale)
        return unit

    @property
    def split(self) -> bool:
        """Whether levels have the amount of each exchange."""
        return self._split

    @property
    def gross(self) -> bool:
        """Whether levels have the price of each exchange before its fee."""
        return self._gross

    def gross_price(self, level: MergedLevel, member: int, side: int) -> int:
        """Return the price of a member before its fee, of as many decimals as it has."""
        price = level.price // self._fees.factors[member][side]
        unit: int = 10 ** (SCALE_MAX - self._price_scale + self._fees.scale)
        return price // unit

    def top(self) -> bytes:
        """Return the best level of each side as JSON members, null for an empty side."""
        bid, ask = (
            f"[{self._price(side[0].price)},{_text(side[0].amount)}]" if side else "null"
            for side in self._now
        )
        return f'"bid":{bid},"ask":{ask}'.encode()

    def checksum(self) -> int:
        """Return the CRC-32 of the best levels as `price:amount`, bids before asks."""
        levels = self._now.bids[:CHECKSUM_LEVELS] + self._now.asks[:CHECKSUM_LEVELS]
        texts = (f"{self._price(level.price)}:{_text(level.amount)}" for level in levels)
        return crc32(":".join(texts).encode())

    def levels(self) -> Levels:
        """Return the merged levels as integers: see `Levels`."""
        prices, amounts = 10 ** (self._scale - self._price_scale), self.amount_unit
        bids, asks = ([_row(level, prices, amounts) for level in side] for side in self._now)
        bid_parts, ask_parts = ([*self._parts(side)] for side in self._now)
        best = (rows[0] if rows else None for rows in (bids, asks))
        return Levels(
            self._price_scale, self._amount_scale, bids, asks, bid_parts, ask_parts, *best
        )

    @property
    def amount_unit(self) -> int:
        """Divisor that converts an amount of `sides` to `amount_scale` decimals."""
        unit: int = 10 ** (SCALE_MAX - self._amount_scale)
        return unit

    def _parts(self, side: list[MergedLevel]) -> Iterator[int]:
        if self._split:
            for level in side:
                yield from (part // self.amount_unit for _, part in level.parts)

    def _side(self, members: list[tuple[int, BookLike]], side: int) -> list[MergedLevel]:
        """Merge a side; reads at most as many bins of each member as the view shows levels."""
        sign = 1 if side else -1

        def bins(index: int, book: BookLike) -> Iterator[tuple[int, int, int]]:
            amounts = 10 ** (SCALE_MAX - book.amount_scale)
            for price, amount in self._bins(book, side, self._fees.factors[index][side]):
                yield sign * price, index, amount * amounts

        rows = merge(*(bins(index, book) for index, book in members))
        grouped = islice(groupby(rows, itemgetter(0)), self._depth)
        return [_level_of(sign * key, level) for key, level in grouped]

    def _trimmed(self, state: MergedState) -> MergedState:
        """Drop the levels that are further from the mid than `within`.

        While a side is empty, the best price of the other is the reference.
        """
        best = [side[0].price for side in state if side]
        if self._within is None or not best:
            return state
        twice_mid = sum(best) * 2 // len(best)
        unit = 10_000 * 10**self._within.scale
        reach = self._within.mantissa * twice_mid
        return MergedState(
            [level for level in state.bids if (twice_mid - 2 * level.price) * unit <= reach],
            [level for level in state.asks if (2 * level.price - twice_mid) * unit <= reach],
        )

    def _bins(self, book: BookLike, side: int, factor: int) -> Iterable[tuple[int, int]]:
        """Return the best levels of a book, or its bins, at the scale of the view."""
        if not self._fees.scale:
            return book.bins(side, self._step, self._depth)
        if not self._step:
            return ((price * factor, amount) for price, amount in book.bins(side, 0, self._depth))
        return islice(self._net_bins(book, side, factor), self._depth)

    def _net_bins(self, book: BookLike, side: int, factor: int) -> Iterator[tuple[int, int]]:
        """Bin the net prices of a book, away from the touch."""

        def bin_of(level: tuple[int, int]) -> int:
            net = level[0] * factor
            steps: int = -(-net // self._step) if side else net // self._step
            return steps * self._step

        levels = book.bins(side, 0, LEVELS_MAX)
        for price, found in takewhile(itemgetter(0), groupby(levels, bin_of)):
            yield price, sum(amount for _, amount in found)

    def _shown(self, level: MergedLevel) -> object:
        """Return the parts of a level that this view shows, except its price."""
        if self._split:
            return level.parts
        if self._arrays:
            return level.amount
        return level.amount, [index for index, _ in level.parts]

    def _differs(self, state: MergedState) -> bool:
        return any(
            [level.price for level in new] != [level.price for level in old]
            or [*map(self._shown, new)] != [*map(self._shown, old)]
            for new, old in zip(state, self._now, strict=True)
        ) or _participants(state) != _participants(self._now)

    def _changes(self, before: list[MergedLevel], now: list[MergedLevel]) -> list[MergedLevel]:
        old = {level.price: self._shown(level) for level in before}
        changed = [level for level in now if old.pop(level.price, None) != self._shown(level)]
        kept = {level.price for level in now}
        return changed + [MergedLevel(price, 0, ()) for price in old if price not in kept]

    def _price(self, price: int) -> str:
        return decimal_text(price, self._scale)

    def _gross_texts(self, level: MergedLevel, side: int) -> list[str]:
        """Return the price of each exchange before its fee."""
        factors = (self._fees.factors[index][side] for index, _ in level.parts)
        return [_text(level.price // factor) for factor in factors]

    def _level(self, level: MergedLevel, side: int) -> str:
        price, amount = self._price(level.price), _text(level.amount)
        names = self._names
        gross = self._gross_texts(level, side) if self._gross else []
        if self._arrays:
            if not self._split:
                return f"[{price},{amount}]"
            rows = ([names[index], _text(part)] for index, part in level.parts)
            parts = zip(rows, gross, strict=True) if self._gross else ((row, "") for row in rows)
            texts = (",".join([*row, each] if each else row) for row, each in parts)
            return f"[{price},{amount},[{','.join(f'[{text}]' for text in texts)}]]"
        exchanges = ",".join(names[index] for index, _ in level.parts)
        cut = 10 ** (self._scale + SCALE_MAX - VALUE_DECIMALS)
        value = decimal_text(level.price * level.amount // cut, VALUE_DECIMALS)
        before_fees = f',"gross":[{",".join(gross)}]' if self._gross else ""
        text = (
            f'{{"price":{price},"amount":{amount},"exchanges":[{exchanges}],'
            f'"exchange_count":{len(level.parts)}{before_fees},"value":{value}'
        )
        if not self._split:
            return text + "}"
        return f'{text},"amounts":[{",".join(_text(part) for _, part in level.parts)}]}}'

    def _document(self, head: bytes, levels: MergedState, tail: bytes) -> bytes:
        bids, asks = (
            ",".join(self._level(level, side) for level in found)
            for side, found in enumerate(levels)
        )
        stats = market_stats(self._now, self._scale)
        body = f'"bids":[{bids}],"asks":[{asks}],"market_stats":{stats}'
        return b"".join((head, body.encode(), tail))


def market_stats(state: MergedState, scale: int) -> str:
    """Return the market_stats object of a view as JSON text, given the scale of its prices."""
    bid = state.bids[0].price if state.bids else None
    ask = state.asks[0].price if state.asks else None
    spread = percent = mid = "null"
    if bid is not None and ask is not None:
        spread = decimal_text(ask - bid, scale)
        percent = _percent(ask - bid, bid + ask)
        mid = decimal_text((bid + ask) * 5, scale + 1)
    crossed = bid is not None and ask is not None and bid >= ask
    return (
        f'{{"best_bid":{_text_or_null(bid, scale)},"best_ask":{_text_or_null(ask, scale)},'
        f'"spread":{spread},"spread_percent":{percent},"mid_price":{mid},'
        f'"total_bid_volume":{_total(state.bids)},"total_ask_volume":{_total(state.asks)},'
        f'"participating_exchanges":{_participants(state)},'
        f'"crossed":{"true" if crossed else "false"}}}'
    )


def _total(levels: list[MergedLevel]) -> str:
    """Return the volume of a side; null if it is empty."""
    return _text(sum(level.amount for level in levels)) if levels else "null"


def _percent(spread: int, twice_mid: int) -> str:
    """Return the spread in percent of the mid, rounded half up away from zero."""
    scaled = abs(spread) * 2 * 100 * 10**PERCENT_DECIMALS
    rounded = (2 * scaled + twice_mid) // (2 * twice_mid)
    return decimal_text(-rounded if spread < 0 else rounded, PERCENT_DECIMALS)


def _level_of(price: int, rows: Iterable[tuple[int, int, int]]) -> MergedLevel:
    parts: dict[int, int] = {}
    for _, index, amount in rows:
        parts[index] = parts.get(index, 0) + amount
    return MergedLevel(price, sum(parts.values()), tuple(sorted(parts.items())))


def _participants(state: MergedState) -> int:
    return len({index for side in state for level in side for index, _ in level.parts})


def _row(level: MergedLevel, prices: int, amounts: int) -> tuple[int, int, int]:
    members = sum(1 << index for index, _ in level.parts)
    return level.price // prices, level.amount // amounts, members


def _price(level: MergedLevel) -> int:
    return level.price


def _text(mantissa: int) -> str:
    return decimal_text(mantissa, SCALE_MAX)


def _text_or_null(mantissa: int | None, scale: int) -> str:
    return "null" if mantissa is None else decimal_text(mantissa, scale)
