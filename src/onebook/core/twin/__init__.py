"""The exact pure-Python twin of the compiled core: the fallback, and the oracle of its tests.

`text` reads and prints numbers and level text, `book` keeps one book, `view` merges some. Nothing
here does I/O or knows an exchange.
"""

from onebook.core.twin.book import Book
from onebook.core.twin.reader import Reader
from onebook.core.twin.view import View

__all__ = ["Book", "Reader", "View"]
