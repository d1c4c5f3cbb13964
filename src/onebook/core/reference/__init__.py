"""Reference implementation of the compiled core in pure Python: fallback, and oracle of the tests.

`text` parses and formats numbers, `levels` parses level text, `book` keeps one book, `view` merges
several, `tape` records, merges and plays what books apply, `conversion` converts books into another
currency, `packed` encodes views as protobuf and `unpacked` decodes them; `canonical` formats the
numbers and times of account records. No I/O, and nothing depends on an exchange.
"""

from onebook.core.reference.book import Book
from onebook.core.reference.canonical import canonical, canonicals, difference, iso, texts
from onebook.core.reference.conversion import Conversion
from onebook.core.reference.packed import Packer
from onebook.core.reference.tape import BookTape, TapeMerger, TapePlayer
from onebook.core.reference.unpacked import PackedLevels
from onebook.core.reference.view import View

__all__ = [
    "Book",
    "BookTape",
    "Conversion",
    "PackedLevels",
    "Packer",
    "TapeMerger",
    "TapePlayer",
    "View",
    "canonical",
    "canonicals",
    "difference",
    "iso",
    "texts",
]
