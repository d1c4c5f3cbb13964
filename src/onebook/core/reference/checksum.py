"""Input text of a book's checksum, in pure Python: levels in a `ChecksumLayout`."""

from itertools import chain, zip_longest
from typing import Final

from onebook.core.reference.text import decimal_text
from onebook.core.types import ChecksumLayout, ChecksumNumber, ChecksumOrder

Levels = list[tuple[int, int]]  # (price, amount) mantissas, best first
PLAIN_FROM: Final = 6  # JavaScript prints an exponent below 10^-6


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
