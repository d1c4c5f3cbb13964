"""One book in pure Python: a dict of mantissas with a sorted list of its prices.

`checksum_text` is the input of its checksum: levels in a `ChecksumLayout`.
"""

from binascii import crc32
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, dropwhile, groupby, islice, takewhile, zip_longest
from operator import itemgetter
from typing import Final

from onebook.core.reference.levels import Row, read_levels
from onebook.core.reference.tape import BookTape, Ends, TapeMessage, TapeRow
from onebook.core.reference.text import MANTISSA_END, Number, decimal_text
from onebook.core.types import (
    ABSURD,
    ABSURD_FACTOR,
    CROSSED,
    LEVELS_MAX,
    PAIRS,
    SCALE_MAX,
    Bytes,
    ChecksumLayout,
    ChecksumNumber,
    ChecksumOrder,
    LevelError,
    LevelShape,
    TapeKind,
)

LEVEL_BYTES: Final = 120  # approximate memory of a level: two ints, a dict and a list entry
UNKNOWN: Final = (None, None)  # prices of a message
NO_TOP: Final = (0, 0)  # an overlaid side that is empty
TOO_LONG: Final = "A price or amount has too many digits for its book."
PLAIN_FROM: Final = 6  # JavaScript prints an exponent below 10^-6


Level = tuple[int, int]  # mantissas of price and amount
Levels = list[tuple[int, int]]  # (price, amount) mantissas, best first


class Book:
    """The levels of one instrument, as exact integers at the book's two scales."""

    def __init__(self, levels_max: int = LEVELS_MAX) -> None:
        if not 1 <= levels_max <= LEVELS_MAX:
            raise ValueError(f"levels_max is {levels_max}, not 1 to {LEVELS_MAX}.")
        self.levels_max = levels_max
        self._mid = 0.0  # of the last accepted top, or 0
        self._tape: BookTape | None = None  # that records this book
        self._tape_number = 0
        self._tape_covered = False  # by the tape, a top is overlaid
        self.clear()

    def clear(self) -> None:
        """Drop all levels and both scales, but keep the mid for measuring jumps."""
        self.price_scale = self.amount_scale = 0
        self._price_decimals = self._amount_decimals = 0
        self._bounds: list[int | None] = [None, None]  # the outermost known price of each side
        self._overlay: tuple[Level, Level] | None = None
        self._empty()

    def replace(
        self, bids: Bytes, asks: Bytes, shape: LevelShape = PAIRS, levels_asked: int = 0
    ) -> str | None:
        """Replace the book, skipping levels without an amount; return what `apply` returns.

        A side with as many levels as were requested (0: without a limit) ends at its horizon:
        levels beyond its outermost price are unknown until the next whole book.

        Raises:
            LevelError: A level is invalid or cannot be stored exactly; the book is unchanged.
        """
        sides = read_levels(bids, asks, shape)
        prices, amounts = _columns(sides)
        price_scale = _fresh_scale(prices, self.price_scale)
        amount_scale = _fresh_scale(amounts, self.amount_scale)
        if (price_scale, amount_scale) != (self.price_scale, self.amount_scale):
            self._overlay = None
        self.price_scale, self.amount_scale = price_scale, amount_scale
        self._price_decimals, self._amount_decimals = _decimals(prices), _decimals(amounts)
        self._empty()
        self._bounds = [None, None]
        for side, (rows, worst) in enumerate(zip(sides, (min, max), strict=True)):
            if 0 < levels_asked <= len(rows):
                self._bounds[side] = worst(price.at(price_scale) for price, _ in rows)
        bids_held, asks_held = ([row for row in rows if row[1].mantissa] for rows in sides)
        self._put((bids_held, asks_held))
        return self._checked(sides)

    def apply(self, bids: Bytes, asks: Bytes, shape: LevelShape = PAIRS) -> str | None:
        """Set the amounts of these levels, in order; an amount of zero removes its level.

        Returns:
            Why the book must not be shown: `CROSSED` or `ABSURD`; None if it may be.

        Raises:
            LevelError: A level is invalid or cannot be stored exactly; the book is unchanged.
        """
        sides = read_levels(bids, asks, shape)
        prices, amounts = _columns(sides)
        self._grow(prices, amounts)
        self._price_decimals = max(self._price_decimals, _decimals(prices))
        self._amount_decimals = max(self._amount_decimals, _decimals(amounts))
        self._put(sides)
        return self._checked(sides)

    def fill(
        self,
        price_scale: int,
        amount_scale: int,
        sides: tuple[Levels, Levels],
        ends: Sequence[int | None],
    ) -> None:
        """Replace the book by levels as integers at these scales, and their outermost prices."""
        self.clear()
        self.price_scale, self.amount_scale = price_scale, amount_scale
        self._bounds = [*ends]
        for levels, prices, found in zip(self._levels, self._prices, sides, strict=True):
            levels.update(found)
            prices.extend(sorted(levels))

    def overlay(self, bids: Bytes, asks: Bytes, shape: LevelShape = PAIRS) -> str | None:
        """Show this best bid and ask over the levels in merged views, until `uncover`.

        For exchanges that send their best prices on a faster channel than their depth: a view
        shows the overlaid level of each side and then the levels that are strictly worse. A side
        without a level, or with an amount of zero, is shown empty. The levels themselves and all
        other properties of the book are unchanged. A new whole book that needs other scales drops
        the overlay.

        Returns:
            Why the top was refused, which drops the previous one: `CROSSED` (also if bid and ask
            are equal), or `ABSURD` compared with the last mid of the levels; None if it is shown.

        Raises:
            LevelError: The top is invalid, cannot be stored exactly, or has more than one level a
                side; the book is unchanged.
        """
        sides = read_levels(bids, asks, shape)
        if any(len(rows) > 1 for rows in sides):
            raise LevelError("A top has more than one level a side.")
        self._grow(*_columns(sides))
        self._overlay = None
        bid, ask = (
            (rows[0][0].at(self.price_scale), rows[0][1].at(self.amount_scale))
            if rows and rows[0][1].mantissa
            else NO_TOP
            for rows in sides
        )
        if bid != NO_TOP and ask != NO_TOP and bid[0] >= ask[0]:
            return CROSSED
        mid = self._mid * 10**self.price_scale
        if mid and (
            (bid != NO_TOP and float(bid[0]) > mid * ABSURD_FACTOR)
            or (ask != NO_TOP and float(ask[0]) * ABSURD_FACTOR < mid)
        ):
            return ABSURD
        self._overlay = bid, ask
        return None

    def uncover(self) -> None:
        """Drop the overlaid best bid and ask."""
        self._overlay = None

    def overlay_agrees(self) -> bool:
        """Return whether the overlaid best bid and ask equal the best levels.

        A price beyond the horizon is not compared, because the levels there are unknown.
        """
        if self._overlay is None:
            return False
        for side, (top, bound) in enumerate(zip(self._overlay, self._bounds, strict=True)):
            beyond = bound is not None and (top[0] > bound if side else top[0] < bound)
            if top != NO_TOP and beyond:
                continue
            if top != next(iter(self.ladder(side)), NO_TOP):
                return False
        return True

    @property
    def overlaid(self) -> bool:
        """Whether a best bid and ask are overlaid."""
        return self._overlay is not None

    @property
    def bid_count(self) -> int:
        """Number of bids."""
        return len(self._prices[0])

    @property
    def ask_count(self) -> int:
        """Number of asks."""
        return len(self._prices[1])

    @property
    def crossed(self) -> bool:
        """Whether the best bid is above the best ask."""
        bids, asks = self._prices
        return bool(bids and asks and bids[-1] > asks[0])

    @property
    def nbytes(self) -> int:
        """Approximate memory used by the levels, in bytes."""
        return LEVEL_BYTES * (self.bid_count + self.ask_count)

    def horizon(self, window: int = 0) -> tuple[str | None, str | None]:
        """Return the outermost known bid and ask price as text; None for a side known in full.

        `window` is the number of levels that the exchange keeps in sync: a full window ends at its
        worst level.
        """
        bid, ask = (self._horizon(side, window) for side in (0, 1))
        return bid, ask

    def reach(self, side: int) -> tuple[int, float] | None:
        """Return the number of levels within a side's horizon, and its distance from the best."""
        bound, prices = self._bounds[1 if side else 0], self._prices[1 if side else 0]
        if bound is None:
            return None
        if not prices:
            return 0, 0.0
        distance = bound - prices[0] if side else prices[-1] - bound
        return len(prices), float(distance) / float(10**self.price_scale)

    def best(self) -> tuple[str | None, str | None]:
        """Return the best bid and ask price as text."""
        bids, asks = self._prices
        return (
            decimal_text(bids[-1], self.price_scale) if bids else None,
            decimal_text(asks[0], self.price_scale) if asks else None,
        )

    def best_pairs(self) -> tuple[bytes, bytes]:
        """Return the best bid and ask as level text in the shape `PAIRS`."""
        bids, asks = (
            b'[["%b","%b"]]' % tuple(text.encode() for text in side[0]) if side else b"[]"
            for side in self.top(1)
        )
        return bids, asks

    def top(self, count: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Return up to `count` levels a side as (price, amount) text, best first."""
        bids, asks = ([*islice(self.ladder(side), max(0, count))] for side in (0, 1))
        return [self._texts(level) for level in bids], [self._texts(level) for level in asks]

    def ladder(self, side: int) -> Iterator[tuple[int, int]]:
        """Return the (price, amount) mantissas of bids (0) or asks (1), best first."""
        levels = self._levels[side]
        prices = self._prices[1] if side else reversed(self._prices[0])
        return ((price, levels[price]) for price in prices)

    def bins(self, side: int, step: int, count: int) -> list[tuple[int, int]]:
        """Return up to `count` bids (0) or asks (1) binned by a price step, best first.

        An overlaid top replaces the levels that are not strictly worse.

        Args:
            side: 0 or 1.
            step: In units of 10^-`SCALE_MAX`; prices are rounded to its multiples, away from the
                touch; bids below one step are dropped. With 0 each level is a bin.
            count: Maximum number of bins.

        Returns:
            The price of each bin at `SCALE_MAX` and its amount at the book's scale.
        """
        sign, unit = 1 if side else -1, 10 ** (SCALE_MAX - self.price_scale)

        def bin_of(level: tuple[int, int]) -> int:
            # Round up the key, whose smallest value is the best price.
            key: int = sign * level[0] * unit
            return -(-key // step) * step if step else key

        binned = takewhile(itemgetter(0), groupby(self._shown(side), bin_of))
        return [
            (sign * key, sum(amount for _, amount in levels))
            for key, levels in islice(binned, max(0, count))
        ]

    def crc(self, layout: ChecksumLayout) -> int:
        """Return the unsigned CRC-32 of the best levels, written in a `ChecksumLayout`."""
        if not isinstance(layout, ChecksumLayout):
            raise TypeError(f"Not a checksum layout: {layout!r}.")
        bids, asks = ([*islice(self.ladder(side), layout.levels)] for side in (0, 1))
        text = checksum_text(
            layout,
            bids,
            asks,
            (self.price_scale, self.amount_scale),
            (self._price_decimals, self._amount_decimals),
        )
        return crc32(text.encode())

    def record(self, tape: BookTape | None, number: int = 0) -> None:
        """Stage what is applied from now on for `commit`, under this number; None ends it."""
        self._tape = tape
        self._tape_number = number
        self._tape_covered = False

    def commit(self, kind: int, now: float, sequence: int = 0, at: int | str = 0) -> bool:
        """Append the message that was applied last to the tape.

        A delta that ends an overlay, and a snapshot with one, are followed by a message of it.

        Args:
            kind: Its `TapeKind`, but for a keyframe.
            now: Monotonic seconds.
            sequence: The exchange's number.
            at: The exchange's time.

        Returns:
            False if nothing was staged, as of a book that is not recorded, or the tape is full.
        """
        if self._tape is None:
            return False
        if kind == TapeKind.HEALTH:
            message = TapeMessage(self._tape_number, kind, now, 0, 0, 0, 0, UNKNOWN, UNKNOWN, ())
            return self._tape.put(message)
        if kind == TapeKind.TOP:
            return self._commit_top(now, sequence, at)
        rows = self._tape.staged(self)
        if rows is None or not self._commit(kind, now, sequence, at, rows):
            return False
        if kind == TapeKind.SNAPSHOT and self.overlaid:
            return self._commit_top(now, 0, at)
        return not self._tape_covered or self.overlaid or self._commit_top(now, 0, 0)

    def keyframe(self, now: float, at: int | str = 0) -> bool:
        """Append all levels to the tape, and the overlaid top; return False if it is full."""
        rows = [(side, *level) for side in (0, 1) for level in self.ladder(side)]
        self._tape_covered = False
        return self._commit(TapeKind.KEYFRAME, now, 0, at, rows) and (
            not self.overlaid or self._commit_top(now, 0, at)
        )

    def _commit(
        self, kind: int, now: float, sequence: int, at: int | str, rows: Sequence[TapeRow]
    ) -> bool:
        ends: Ends = UNKNOWN
        best: Ends = UNKNOWN
        if kind != TapeKind.TOP:
            bids, asks = self._prices
            best = bids[-1] if bids else None, asks[0] if asks else None
        if kind in (TapeKind.KEYFRAME, TapeKind.SNAPSHOT):
            ends = self._bounds[0], self._bounds[1]
        message = TapeMessage(self._tape_number, kind, now, sequence, at, self.price_scale,
                              self.amount_scale, ends, best, rows)  # fmt: skip
        return self._tape is not None and self._tape.put(message)

    def _commit_top(self, now: float, sequence: int, at: int | str) -> bool:
        """Append the overlaid top, its absence, or an amount of 0 if it has no levels."""
        self._tape_covered = self.overlaid
        if self._overlay is not None:
            tops = [(side, *top) for side, top in enumerate(self._overlay) if top != NO_TOP]
            return self._commit(TapeKind.TOP, now, sequence, at, tops or [(0, 1, 0)])
        message = TapeMessage(self._tape_number, TapeKind.TOP, now, sequence, at, 0, 0,
                              UNKNOWN, UNKNOWN, ())  # fmt: skip
        return self._tape is not None and self._tape.put(message)

    def play(
        self, kind: int, scales: tuple[int, int], ends: Ends, sides: tuple[Levels, Levels]
    ) -> None:
        """Apply a recorded message as it was applied (`TapePlayer.play`).

        Raises:
            LevelError: It has a smaller scale than the book, or does not fit it.
        """
        if kind == TapeKind.TOP and not any(sides):
            self._overlay = None
            return
        price_scale, amount_scale = scales
        rows = [
            [(Number(price, price_scale, 0), Number(amount, amount_scale, 0))
             for price, amount in side if amount or kind == TapeKind.DELTA]
            for side in sides
        ]  # fmt: skip
        if kind in (TapeKind.TOP, TapeKind.DELTA):
            if price_scale < self.price_scale or amount_scale < self.amount_scale:
                raise LevelError("A recorded message has a smaller scale than its book.")
            self._grow([Number(0, price_scale, 0)], [Number(0, amount_scale, 0)])
        else:
            self.clear()
            self.price_scale, self.amount_scale = scales
            self._bounds = [*ends]
        if kind != TapeKind.TOP:
            self._put((rows[0], rows[1]))
            return
        bid, ask = (side[0] if side and side[0][1] else NO_TOP for side in sides)
        self._overlay = bid, ask

    def _checked(self, sides: tuple[list[Row], list[Row]]) -> str | None:
        """Check the top; stage what was applied if the book is recorded and may be shown."""
        reason = self._check_top()
        if self._tape is not None:
            self._tape.unstage()
            if reason is None:
                rows = [
                    (side, price.at(self.price_scale), amount.at(self.amount_scale))
                    for side, levels in enumerate(sides)
                    for price, amount in levels
                ]
                self._tape.stage(self, rows)
        return reason

    def _check_top(self) -> str | None:
        """Check the top; reject a jump by `ABSURD_FACTOR` once, accept it if it repeats.

        A top is absurd if the bid is far above the previous mid or the ask far below it, which
        indicates an invalid whole book. A side that thins out in the other direction is normal in
        small markets. Floats are precise enough here, and identical in both implementations.
        """
        if self.crossed:
            return CROSSED
        bids, asks = self._prices
        unit = 10**self.price_scale
        before = self._mid * unit
        if before and (
            (bids and float(bids[-1]) > before * ABSURD_FACTOR)
            or (asks and float(asks[0]) * ABSURD_FACTOR < before)
        ):
            self._mid = 0.0
            return ABSURD
        if bids and asks:
            self._mid = (float(bids[-1]) + float(asks[0])) / 2 / unit
        return None

    def _shown(self, side: int) -> Iterator[Level]:
        """Yield the levels as views show them: the overlaid top, then strictly worse levels."""
        if self._overlay is None:
            return iter(self.ladder(side))
        top = self._overlay[side]
        if top == NO_TOP:
            return iter(())
        sign = 1 if side else -1
        worse = dropwhile(lambda level: sign * level[0] <= sign * top[0], self.ladder(side))
        return chain([top], worse)

    def _horizon(self, side: int, window: int) -> str | None:
        bound, prices = self._bounds[side], self._prices[side]
        if bound is None and 0 < window <= len(prices):
            bound = prices[-1] if side else prices[0]
        return None if bound is None else decimal_text(bound, self.price_scale)

    def _empty(self) -> None:
        self._levels: tuple[dict[int, int], dict[int, int]] = {}, {}
        self._prices: tuple[list[int], list[int]] = [], []

    def _texts(self, level: tuple[int, int]) -> tuple[str, str]:
        price, amount = level
        return decimal_text(price, self.price_scale), decimal_text(amount, self.amount_scale)

    def _grow(self, prices: list[Number], amounts: list[Number]) -> None:
        """Rescale the levels if numbers have more decimals.

        Raises:
            LevelError: The numbers do not fit one scale; the book is unchanged.
        """
        bounds = (bound for bound in self._bounds if bound is not None)
        price_scale = _grown_scale(prices, self.price_scale, chain(bounds, *self._levels))
        held = chain(*(levels.values() for levels in self._levels))
        amount_scale = _grown_scale(amounts, self.amount_scale, held)
        self._rescale(price_scale, amount_scale)

    def _rescale(self, price_scale: int, amount_scale: int) -> None:
        if (price_scale, amount_scale) == (self.price_scale, self.amount_scale):
            return
        prices = 10 ** (price_scale - self.price_scale)
        amounts = 10 ** (amount_scale - self.amount_scale)
        self.price_scale, self.amount_scale = price_scale, amount_scale
        bids, asks = (
            {price * prices: amount * amounts for price, amount in levels.items()}
            for levels in self._levels
        )
        self._levels = bids, asks
        self._prices = sorted(bids), sorted(asks)
        self._bounds = [None if bound is None else bound * prices for bound in self._bounds]
        if self._overlay is not None:
            bid, ask = ((price * prices, amount * amounts) for price, amount in self._overlay)
            fits = max(*bid, *ask) < MANTISSA_END
            self._overlay = (bid, ask) if fits else None

    def _put(self, sides: tuple[list[Row], list[Row]]) -> None:
        for side, rows in enumerate(sides):
            levels, prices, bound = self._levels[side], self._prices[side], self._bounds[side]
            for price, amount in rows:
                mantissa = price.at(self.price_scale)
                if bound is not None and (mantissa > bound if side else mantissa < bound):
                    continue  # beyond the horizon a level has no known neighbours
                self._set(levels, prices, mantissa, amount.at(self.amount_scale))
        bids, asks = self._prices
        self._drop(0, bids[: max(0, len(bids) - self.levels_max)])
        self._drop(1, asks[self.levels_max :])

    @staticmethod
    def _set(levels: dict[int, int], prices: list[int], price: int, amount: int) -> None:
        if amount:
            if price not in levels:
                insort(prices, price)
            levels[price] = amount
        elif levels.pop(price, None) is not None:
            del prices[bisect_left(prices, price)]

    def _drop(self, side: int, worst: list[int]) -> None:
        if not worst:
            return
        for price in worst:
            del self._levels[side][price]
        prices = self._prices[side]
        del prices[slice(self.levels_max, None) if side else slice(len(worst))]
        if self.levels_max == LEVELS_MAX:  # the exchange will not send these again
            self._bounds[side] = prices[-1] if side else prices[0]


def _columns(sides: tuple[list[Row], list[Row]]) -> tuple[list[Number], list[Number]]:
    rows = sides[0] + sides[1]
    return [price for price, _ in rows], [amount for _, amount in rows]


def _decimals(numbers: list[Number]) -> int:
    """Return the most decimals that a number above zero was written with."""
    return max((number.decimals for number in numbers), default=0)


def _least_scale(numbers: list[Number]) -> int:
    return max((number.scale for number in numbers), default=0)


def _fits(numbers: list[Number], scale: int) -> bool:
    return all(number.at(scale) < MANTISSA_END for number in numbers)


def _grown_scale(numbers: list[Number], scale: int, held: Iterable[int]) -> int:
    """Return the scale that holds these numbers beside the existing mantissas."""
    grown = max(scale, _least_scale(numbers))
    if not _fits(numbers, grown):
        raise LevelError(TOO_LONG)
    if grown > scale and max(held, default=0) * 10 ** (grown - scale) >= MANTISSA_END:
        raise LevelError(TOO_LONG)
    return grown


def _fresh_scale(numbers: list[Number], scale: int) -> int:
    """Return the scale of a new book: the current one if it fits."""
    least = _least_scale(numbers)
    for candidate in (max(scale, least), least):
        if _fits(numbers, candidate):
            return candidate
    raise LevelError(TOO_LONG)


def checksum_text(
    layout: ChecksumLayout,
    bids: Levels,
    asks: Levels,
    scales: tuple[int, int],
    decimals: tuple[int, int],
) -> str:
    """Format levels; `scales` and `decimals` are those of prices and of amounts."""

    def written(level: tuple[int, int], sign: str = "") -> str:
        price, amount = (
            _number(layout, mantissa, scale, spelled)
            for mantissa, scale, spelled in zip(level, scales, decimals, strict=True)
        )
        return f"{price}{layout.separator}{sign}{amount}"

    bid_texts = [written(level) for level in bids]
    ask_texts = [written(level, "-" * layout.negative_asks) for level in asks]
    if layout.order is ChecksumOrder.ASKS_BIDS:
        texts = ask_texts + bid_texts
    elif layout.order is ChecksumOrder.BIDS_ASKS:
        texts = bid_texts + ask_texts
    else:
        in_turn = chain.from_iterable(zip_longest(bid_texts, ask_texts))
        texts = [text for text in in_turn if text is not None]
    return layout.separator.join(texts)


def _number(layout: ChecksumLayout, mantissa: int, scale: int, spelled: int) -> str:
    if layout.number is ChecksumNumber.DIGITS:
        moved = (spelled if layout.decimals is None else layout.decimals) - scale
        return str(mantissa * 10**moved if moved >= 0 else mantissa // 10**-moved)
    if layout.number is ChecksumNumber.TEXT or mantissa * 10**PLAIN_FROM >= 10**scale:
        return decimal_text(mantissa, scale)
    digits = str(mantissa)
    power = scale - len(digits) + 1
    return f"{decimal_text(mantissa, len(digits) - 1)}e-{power}"
