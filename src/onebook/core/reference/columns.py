"""Levels of many messages as columns of integers, for files."""

from array import array
from typing import Final

from onebook.core.reference.levels import read_levels
from onebook.core.reference.text import MANTISSA_END
from onebook.core.types import Bytes, LevelError, LevelShape

NO_SIDE: Final = 2  # of a message without levels


class LevelColumns:
    """Collects the levels of messages as columns of integers.

    A row has the number of its message since the last `take`, its side (0: bid, 1: ask), its price
    and its amount. A message without levels has one row of side 2, so that every message has a row.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._messages, self._sides = array("i"), bytearray()
        self._prices, self._amounts = array("q"), array("q")
        self._message = 0

    def add(
        self, bids: Bytes, asks: Bytes, shape: LevelShape, price_scale: int, amount_scale: int
    ) -> None:
        """Append a message's levels at these scales, or one empty row if it has none.

        Raises:
            LevelError: A level is invalid or cannot be written at its scale; nothing is appended.
        """
        rows = []
        for side, levels in enumerate(read_levels(bids, asks, shape)):
            for price, amount in levels:
                if price.scale > price_scale or amount.scale > amount_scale:
                    raise LevelError("A price or amount has too many digits for its book.")
                row = side, price.at(price_scale), amount.at(amount_scale)
                if max(row) >= MANTISSA_END:
                    raise LevelError("A price or amount has too many digits for its book.")
                rows.append(row)
        self._put(rows or [(NO_SIDE, 0, 0)])

    def skip(self) -> None:
        """Append a message without levels."""
        self._put([(NO_SIDE, 0, 0)])

    def _put(self, rows: list[tuple[int, int, int]]) -> None:
        for side, price, amount in rows:
            self._messages.append(self._message)
            self._sides.append(side)
            self._prices.append(price)
            self._amounts.append(amount)
        self._message += 1

    def take(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Return the columns as bytes and start again: messages, sides, prices, amounts.

        Messages are 32-bit, sides 8-bit, prices and amounts 64-bit integers of this machine.
        """
        taken = (
            self._messages.tobytes(),
            bytes(self._sides),
            self._prices.tobytes(),
            self._amounts.tobytes(),
        )
        self._begin()
        return taken
