"""ccxt's floats as decimal text, by ccxt's own precision rules; no ccxt is imported here.

A float that ccxt read from an exchange is rounded to the precision that ccxt names for the market
(`decimal_to_precision`): that undoes the noise of binary arithmetic, and nothing else, as long as
the precision is right. Where a market has none, where a number would become 0, and where two prices
of one side would become one, ccxt's `number_to_string` writes the shortest text of the float.
"""

from collections.abc import Callable, Sequence
from typing import Final

TEXTS_MAX: Final = 20_000  # numbers of one column of one book whose text is remembered

Number = float | int | str
Write = Callable[[Number], str]
Rows = list[tuple[Number, Number]]  # price and amount, best first


def rounding(round_to: Callable[[Number], str], plain: Write) -> Write:
    """Write a number at a precision, or plainly where it would vanish."""

    def write(number: Number) -> str:
        text = round_to(number)
        return text if text.strip("0.") else plain(number)

    return write


class Texts:
    """Cache of number texts of one column: most of a book is unchanged between updates."""

    __slots__ = ("_texts", "_write")

    def __init__(self, write: Write) -> None:
        self._write = write
        self._texts: dict[Number, str] = {}

    def of(self, number: Number) -> str:
        """Return the text of a number."""
        text = self._texts.get(number)
        if text is None:
            if len(self._texts) >= TEXTS_MAX:
                self._texts.clear()
            text = self._texts[number] = self._write(number)
        return text


class SideWriter:
    """Writes sides of one market's book as JSON: `[["price","amount"],...]`.

    Args:
        price: Writes a price at the market's precision.
        amount: The same of an amount.
        plain: Writes any number without a precision.
    """

    def __init__(self, price: Write, amount: Write, plain: Write) -> None:
        self._prices = Texts(price)
        self._amounts = Texts(amount)
        self._plain = plain
        self.coarse = False  # the precision that ccxt names is coarser than the book's prices

    def write(self, rows: Rows) -> bytes:
        """Write one side."""
        prices = self._price_texts(rows)
        if not self.coarse and len(set(prices)) < len(prices):
            self.coarse = True
            self._prices = Texts(self._plain)
            prices = self._price_texts(rows)
        levels = (
            f'["{price}","{self._amounts.of(row[1])}"]'
            for price, row in zip(prices, rows, strict=True)
        )
        return f"[{','.join(levels)}]".encode()

    def _price_texts(self, rows: Rows) -> list[str]:
        return [self._prices.of(row[0]) for row in rows]


def best(side: Sequence[Sequence[Number]], depth: int) -> Rows:
    """Copy the best levels of a side of ccxt's book, which ccxt continues to change."""
    return [(row[0], row[1]) for row in side[:depth]]
