"""What the compiled core and its twin share: the shapes, the named limits and the one error.

Level text is one JSON array of rows, in ASCII and without escapes. A number is a JSON number, bare
or as a string; it is above zero for a price and at least zero for an amount, where zero in any
spelling means "gone". Nothing here scans or counts.
"""

from typing import Final

from msgspec import Raw

Bytes = bytes | bytearray | memoryview | Raw

# Shapes of rows. `exchanges.contract` states the same numbers, and a test compares them.
PAIRS: Final = 0  # ["price","amount",...]; what follows the amount is ignored
OBJECTS: Final = 1  # {"price":...,"qty":...}; other members are ignored
# Both sides in one list: ["buy"|"bid"|"sell"|"ask"|"offer","price","amount",...], or the object
# {"side":...,"price_level":...,"new_quantity":...} of Coinbase's Advanced Trade.
SIDED: Final = 2

DIGITS_MAX: Final = 18  # decimal digits of a price or amount, at the book's scale
SCALE_MAX: Final = 18  # decimals of a price or amount
NUMBER_BYTES_MAX: Final = 64  # text of one price or amount
NESTING_MAX: Final = 8  # arrays and objects inside each other, in what a row has to ignore
FRAME_LEVELS_MAX: Final = 200_000  # rows of one level text
MEMBERS_MAX: Final = 64  # books that one view merges
DEPTH_MAX: Final = 500  # levels a side that one view shows
LEVELS_MAX: Final = 20_000  # levels a side that one book keeps; the worst go first
VALUE_DECIMALS: Final = 10  # price x amount is cut to so many decimals
PERCENT_DECIMALS: Final = 4  # decimals of a view's spread in percent
CHECKSUM_LEVELS: Final = 25  # levels a side under a view's checksum
CHARS_MAX: Final = 200  # of an exchange's number; the longest seen are 40 (18 decimals of a volume)
EXPONENT_MAX: Final = 60  # of one: "1E9999" would otherwise be ten thousand characters
ABSURD_FACTOR: Final = 10  # a best price so many times through the mid before is not believed

# Why a book that was just changed must not be shown, in the words that clients read.
CROSSED: Final = "crossed"
ABSURD: Final = "absurd price"


class LevelError(ValueError):
    """Level text that cannot be trusted or cannot be held exactly; the book is unchanged."""


class NumberError(ValueError):
    """Text where a number must be; the message holds no more of it than `CHARS_MAX`."""
