"""Encodes updates of a view as protobuf, by `onebook.proto`, in pure Python.

https://protobuf.dev/programming-guides/encoding/. A field without a value is not sent.
"""

from collections.abc import Iterable
from typing import Final

from onebook.core.reference.view import MergedLevel, MergedState, View

BITS: Final = 64
NUMBER: Final = 2
ELAPSED: Final = 3
CHECKSUM: Final = 4
LISTS: Final = (5, 8, 10)  # levels, parts and prices before fees of the bids; the asks' are next
TIME: Final = 12
SCALES: Final = 13  # the first of three
DELIMITED: Final = 2  # wire type
FOUR_BYTES: Final = 5  # wire type


class Packer:
    """Encodes updates of a view as protobuf: its whole book, or the changes of the last merge.

    Their other fields are an argument, `rest`, which is encoded already.
    """

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def scales(self) -> tuple[int, int] | None:
        """Decimals of prices and of amounts."""
        return self._view.price_scale, self._view.amount_scale

    def changes(self, number: int, elapsed_us: int, rest: bytes) -> bytes | None:
        """Return an update with the changed levels, at the present scales, and their checksum.

        None after the first merge, or if a number is too large.
        """
        sides = self._view.changes()
        levels = None if sides is None else self._levels(sides)
        if levels is None:
            return None
        head = uint(NUMBER, number) + sint(ELAPSED, elapsed_us) + self._checksum()
        return head + levels + rest

    def whole(self, number: int, time_us: int, rest: bytes, *, checked: bool) -> bytes | None:
        """Return an update with every level and the scales; None if a number is too large.

        `checked`: with the checksum.
        """
        view = self._view
        levels = self._levels(view.sides)
        if levels is None:
            return None
        scales = [view.price_scale, view.amount_scale]
        if view.gross:
            scales.append(view.price_scale - view.fee_scale)
        head = uint(NUMBER, number) + (self._checksum() if checked else b"") + uint(TIME, time_us)
        encoded = (uint(SCALES + at, scale) for at, scale in enumerate(scales))
        return b"".join((head, *encoded, levels, rest))

    def _checksum(self) -> bytes:
        return varint(CHECKSUM << 3 | FOUR_BYTES) + self._view.checksum().to_bytes(4, "little")

    def _levels(self, sides: MergedState) -> bytes | None:
        """Return the fields of both sides; None if a number is too large."""
        lists = [self._lists(side, at) for at, side in enumerate(sides)]
        prices = [level.price // self._view.price_unit for side in sides for level in side]
        if any(number >> BITS for numbers in (prices, *lists[0], *lists[1]) for number in numbers):
            return None
        return b"".join(
            field(at + side, b"".join(map(varint, numbers)))
            for side, found in enumerate(lists)
            for at, numbers in zip(LISTS, found, strict=True)
            if numbers
        )

    def _lists(self, levels: Iterable[MergedLevel], side: int) -> list[list[int]]:
        """Return levels, parts and prices before fees of a side."""
        view, last = self._view, 0
        rows, parts, gross = list[int](), list[int](), list[int]()
        for level in levels:
            price = level.price // view.price_unit
            members = sum(1 << at for at, _ in level.parts)
            rows += (abs(price - last), level.amount // view.amount_unit)
            if level.amount:
                rows.append(members)
            last = price
            if view.split:
                parts += (part // view.amount_unit for _, part in level.parts)
            if view.gross:
                gross += (view.gross_price(level, at, side) for at, _ in level.parts)
        return [rows, parts, gross]


def varint(value: int) -> bytes:
    """Encode a number below 2^64."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def uint(at: int, value: int) -> bytes:
    """Encode a `uint32` or `uint64`; nothing for 0, which is the default."""
    return varint(at << 3) + varint(value) if value else b""


def sint(at: int, value: int) -> bytes:
    """Encode an optional `sint64`."""
    return varint(at << 3) + varint(value << 1 if value >= 0 else ~(value << 1))


def field(at: int, text: bytes) -> bytes:
    """Encode a length-delimited field."""
    return varint(at << 3 | DELIMITED) + varint(len(text)) + text
