"""Encodes the levels of a view as protobuf, by `onebook.proto`, in pure Python.

https://protobuf.dev/programming-guides/encoding/. A field without a value is not sent.
"""

from collections.abc import Iterable
from typing import Final

from onebook.core.reference.view import MergedLevel, View

BITS: Final = 64
SCALES: Final = 5  # the first of three fields with scales
BIDS: Final = 8  # the asks are next
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
        if any(number >> BITS for side in lists for numbers in side for number in numbers):
            return None
        bodies = [b"".join(map(_packed, range(1, len(side) + 1), side)) for side in lists]
        text = b"".join(field(BIDS + at, body) for at, body in enumerate(bodies) if body)
        if changes:
            return text
        scales = [view.price_scale, view.amount_scale]
        if view.gross:
            scales.append(view.price_scale - view.fee_scale)
        return b"".join((*(number(SCALES + at, scale) for at, scale in enumerate(scales)), text))

    def _lists(self, levels: Iterable[MergedLevel], side: int) -> list[list[int]]:
        """Return prices, amounts, members, parts and gross prices of a side."""
        view, last = self._view, 0
        prices, amounts, members = list[int](), list[int](), list[int]()
        parts, gross = list[int](), list[int]()
        for level in levels:
            price = level.price // view.price_unit
            prices.append(abs(price - last))
            amounts.append(level.amount // view.amount_unit)
            last = price
            if view.shows_members:
                members.append(sum(1 << at for at, _ in level.parts))
            if view.split:
                parts += (part // view.amount_unit for _, part in level.parts)
            if view.gross:
                gross += (view.gross_price(level, at, side) for at, _ in level.parts)
        return [prices, amounts, members, parts, gross]


def varint(value: int) -> bytes:
    """Encode a number below 2^64."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> int:
    """Map a signed number to an unsigned one, as `sint64` is sent."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def number(at: int, value: int) -> bytes:
    """Encode a field with a number; nothing for the default 0."""
    return varint(at << 3) + varint(value) if value else b""


def field(at: int, text: bytes) -> bytes:
    """Encode a length-delimited field."""
    return varint(at << 3 | DELIMITED) + varint(len(text)) + text


def _packed(at: int, numbers: list[int]) -> bytes:
    return field(at, b"".join(map(varint, numbers))) if numbers else b""
