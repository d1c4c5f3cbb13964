"""Fills of a stream: the cost of sizes against its books, in each update (`onebook.fill`)."""

from collections.abc import Iterable, Sequence
from functools import partial
from struct import Struct
from typing import Annotated, Final

import msgspec

from onebook.core import DEPTH_MAX, LEVEL_FORM, Book, Levels, View
from onebook.fill import (
    AMOUNT,
    BUY,
    NOTIONAL,
    SELL,
    BookEnds,
    Direction,
    Fill,
    FillSide,
    decimal_text,
    fills,
    size_texts,
)

FILL_SIZES_MAX: Final = 8  # amounts and notionals of one subscription
FILL_LEVELS_MAX: Final = DEPTH_MAX  # levels a side that a fill may use, whatever is delivered

_LEVEL: Final = Struct(LEVEL_FORM)
_PART: Final = "q"  # PART_FORM in native byte order
_json = msgspec.json.encode


class FillSizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes whose cost of buying and selling is in each update.

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


def fill_sizes(amounts: Iterable[str], notionals: Iterable[str]) -> FillSizes:
    """Check sizes and convert them to canonical form.

    Raises:
        ValueError: No size, too many, or one that is not a positive decimal number.
    """
    sizes = FillSizes(size_texts(AMOUNT, amounts), size_texts(NOTIONAL, notionals))
    count = len(sizes.amounts) + len(sizes.notionals)
    if not 1 <= count <= FILL_SIZES_MAX:
        raise ValueError(f"name 1 to {FILL_SIZES_MAX} amounts and notionals, not {count}.")
    return sizes


def fill_side(levels: Levels, direction: Direction) -> FillSide:
    """Return the side that a direction takes, of levels that were merged with `split`.

    Levels are unpacked only as far as they are read.
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
    """The fills of one stream: its own merge of whole books, priced when it is read.

    Its levels are neither cut to the depth nor binned to the step of the stream.
    """

    __slots__ = ("_json", "_names", "_sizes", "_view")

    def __init__(self, names: Sequence[str], sizes: FillSizes) -> None:
        self._names = names
        self._sizes = sizes
        self._view = View(names, depth=FILL_LEVELS_MAX, split=True)
        self._json = b""

    @property
    def json(self) -> bytes:
        """The fills of the last merge, as the member `fill` of an update."""
        return self._json

    def merge(self, books: Sequence[Book | None], ends: Sequence[BookEnds]) -> bool:
        """Price the sizes against these books; returns whether any fill changed."""
        self._view.merge(books)
        levels = self._view.levels()
        chosen = self._sizes.amounts, self._sizes.notionals
        sides = (
            (name, fills(fill_side(levels, name), name, *chosen, self._names, ends))
            for name in (BUY, SELL)
        )
        written = b"{%b}" % b",".join(
            b'"%b":[%b]' % (name.encode(), b",".join(map(_fill_json, found)))
            for name, found in sides
        )
        changed, self._json = written != self._json, written
        return changed


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
