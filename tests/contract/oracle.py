"""A book as plain dicts, and a reader that turns a connector's outputs into books."""

from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache

from onebook.core import LEVELS_MAX, Book, ChecksumLayout
from onebook.exchanges.kit import Delta, Exchange, Gap, Output, Snapshot, Verify
from onebook.model import Instrument

Side = dict[Decimal, Decimal]
Sides = tuple[Side, Side]

# Most levels of a book are compared after every change, and few of them have changed.
decimal = lru_cache(100_000)(Decimal)


class Dicts:
    """Two dicts of Decimals, too simple to be wrong."""

    def __init__(self, depth: int | None = None) -> None:
        self.depth = depth
        self.sides: Sides = ({}, {})

    def replace(self, bids: Iterable[Iterable[str]], asks: Iterable[Iterable[str]]) -> None:
        self.sides = ({}, {})
        self.apply(bids, asks)

    def apply(self, bids: Iterable[Iterable[str]], asks: Iterable[Iterable[str]]) -> None:
        for side, rows in zip(self.sides, (bids, asks), strict=True):
            for price, amount, *_ in rows:
                side[Decimal(price)] = Decimal(amount)
                if not Decimal(amount):
                    del side[Decimal(price)]
        self.sides = (
            dict(sorted(self.sides[0].items(), reverse=True)[: self.depth]),
            dict(sorted(self.sides[1].items())[: self.depth]),
        )


class Reader:
    """Executes outputs as the books layer does; keeps only live books."""

    def __init__(self, exchange: Exchange) -> None:
        self.levels_max = exchange.depth if exchange.truncate else LEVELS_MAX
        self.live: dict[Instrument, Book] = {}
        self.invalidated: list[tuple[Instrument, str]] = []

    def read(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            match output:
                case Snapshot(instrument, bids, asks, shape, levels_asked):
                    book = self.live[instrument] = Book(self.levels_max)
                    book.replace(bids, asks, shape, levels_asked)
                case Delta(instrument, bids, asks, shape):
                    if instrument in self.live:
                        self.live[instrument].apply(bids, asks, shape)
                case Verify(instrument, layout, expected):
                    self._verify(instrument, layout, expected)
                case Gap(instrument, reason):
                    self.invalidate(instrument, reason)
            self._check_uncrossed(output)

    def invalidate(self, instrument: Instrument, reason: str) -> None:
        self.live.pop(instrument, None)
        self.invalidated.append((instrument, reason))

    def sides(self, instrument: Instrument) -> Sides | None:
        book = self.live.get(instrument)
        if book is None:
            return None
        bids, asks = book.top(LEVELS_MAX)
        return (
            {decimal(price): decimal(amount) for price, amount in bids},
            {decimal(price): decimal(amount) for price, amount in asks},
        )

    def _verify(self, instrument: Instrument, layout: ChecksumLayout, expected: int) -> None:
        book = self.live.get(instrument)
        if book is None:
            return
        if book.crc(layout) != expected & 0xFFFFFFFF:
            self.invalidate(instrument, "checksum")

    def _check_uncrossed(self, output: Output) -> None:
        """Called after a checksum, if there is one: until then the book is not live."""
        book = self.live.get(getattr(output, "instrument", None))  # type: ignore[arg-type]
        if not isinstance(output, Delta) and book is not None:
            assert not book.crossed, f"{output.instrument.native} is crossed while live"  # type: ignore[union-attr]
