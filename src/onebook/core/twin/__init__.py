"""Reference implementation of the compiled core in Python: the fallback, and its tests' oracle.

`text` reads and prints numbers and level text, `book` keeps one book, `view` merges some;
`canonical` prints the numbers and times of accounts. Nothing here does I/O or knows an exchange.
"""

from onebook.core.twin.book import Book
from onebook.core.twin.canonical import canonical, canonicals, iso, texts
from onebook.core.twin.view import View

__all__ = ["Book", "View", "canonical", "canonicals", "iso", "texts"]
