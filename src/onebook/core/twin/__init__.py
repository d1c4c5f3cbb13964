"""The exact pure-Python twin of the compiled core: the fallback, and the oracle of its tests.

`text` reads and prints numbers and level text, `book` keeps one book, `view` merges some;
`canonical` prints the numbers and times of accounts. Nothing here does I/O or knows an exchange.
"""

from onebook.core.twin.book import Book
from onebook.core.twin.canonical import canonical, canonicals, iso, texts
from onebook.core.twin.view import View

__all__ = ["Book", "View", "canonical", "canonicals", "iso", "texts"]
