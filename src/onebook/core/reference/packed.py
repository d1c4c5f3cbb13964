"""Encodes the levels of a view as protobuf, by `onebook.proto`, in pure Python.

https://protobuf.dev/programming-guides/encoding/. A field without a value is not sent.
"""

from collections.abc import Iterable
from typing import Final

from onebook.core.reference.view import MergedLevel, View

BITS: Final = 64
LISTS: Final = (5, 8, 10)  # levels, parts and prices before fees of the bids; the asks' are next
SCALES: Final = 13  # the first of three
DELIMITED: Final = 2  # wire type


class Packer:
    """Encodes the levels of a view as protobuf: in full, or as the changes of the last merge."""

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def scales(self) -> tuple[int, int] | None:
        """Decimals of prices and of amounts."""
        return self._view.price_scale, self._view.amount_scale

    def pack(self, changes: bool) -> bytes | None:
        """Return the levels, with their scales unless only changes; None if a number is too large.

        Changes are also None after the first merge. They are at the present scales.
        """
        view = self._view
        sides = view.changes() if changes else view.sides
        if sides is None:
            return None
        lists = [self._lists(side, at) for at, side in enumerate(sides)]
        prices = [level.price // view.price_unit for side in sides for level in side]
        if any(number >> BITS for numbers in (prices, *lists[0], *lists[1]) for number in numbers):
            return None
        fields = [
            field(at + side, b"".join(map(varint, numbers)))
            for side, found in enumerate(lists)
            for at, numbers in zip(LISTS, found, strict=True)
            if numbers
        ]
        if changes:
            return b"".join(fields)
        scales = [view.price_scale, view.amount_scale]
        if view.gross:
            scales.append(view.price_scale - view.fee_scale)
        return b"".join([*(number(SCALES + at, scale) for at, scale in enumerate(scales)), *fields])

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


def number(at: int, value: int) -> bytes:
    """Encode a field with a number; nothing for the default 0."""
    return varint(at << 3) + varint(value) if value else b""


def field(at: int, text: bytes) -> bytes:
    """Encode a length-delimited field."""
    return varint(at << 3 | DELIMITED) + varint(len(text)) + text
