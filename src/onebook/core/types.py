"""What the compiled core and its twin share: the named limits and the one error."""

from typing import Final

from msgspec import Raw

Bytes = bytes | bytearray | memoryview | Raw

DIGITS_MAX: Final = 18  # decimal digits of a price or amount, at the book's scale
SCALE_MAX: Final = 18  # decimals of a price or amount
MEMBERS_MAX: Final = 64  # books that one view merges
DEPTH_MAX: Final = 500  # levels a side that one view shows
LEVELS_MAX: Final = 20_000  # levels a side that one book keeps; the worst go first
VALUE_DECIMALS: Final = 10  # price x amount is cut to so many decimals
CHECKSUM_LEVELS: Final = 25  # levels a side under a view's checksum


class LevelError(ValueError):
    """Level text that cannot be trusted or cannot be held exactly; the book is unchanged."""
