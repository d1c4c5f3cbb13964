"""The hot path: exact order books, merging and encoding; canonical numbers, times and ids.

Two implementations have the same interface (`_core.pyi`) and produce the same bytes, as property
tests check: the compiled `_core.pyx`, and `reference` in pure Python, which is the fallback without
compiled extensions and the oracle of the tests. The choice is made once, at import.
"""

from onebook.core.reference.canonical import record_id, show
from onebook.core.types import (
    CHECKSUM_LEVELS,
    DEPTH_MAX,
    DIGITS_MAX,
    FRAME_LEVELS_MAX,
    LEVEL_FORM,
    LEVELS_MAX,
    MEMBERS_MAX,
    NESTING_MAX,
    NUMBER_BYTES_MAX,
    PAIRS,
    PART_FORM,
    SCALE_MAX,
    VALUE_DECIMALS,
    Bytes,
    ChecksumLayout,
    ChecksumNumber,
    ChecksumOrder,
    LevelError,
    LevelForm,
    Levels,
    LevelShape,
    NumberError,
    TapeColumns,
    TapeKind,
)

COMPILED: bool
try:
    from onebook.core._core import (
        Book,
        BookTape,
        Conversion,
        PackedLevels,
        Packer,
        TapeMerger,
        TapePlayer,
        View,
        canonical,
        canonicals,
        difference,
        iso,
        texts,
    )
except ModuleNotFoundError as error:
    if error.name != "onebook.core._core":
        raise
    from onebook.core.reference import (  # type: ignore[assignment]
        Book,
        BookTape,
        Conversion,
        PackedLevels,
        Packer,
        TapeMerger,
        TapePlayer,
        View,
        canonical,
        canonicals,
        difference,
        iso,
        texts,
    )

    COMPILED = False
else:
    COMPILED = True

__all__ = [
    "CHECKSUM_LEVELS",
    "COMPILED",
    "DEPTH_MAX",
    "DIGITS_MAX",
    "FRAME_LEVELS_MAX",
    "LEVELS_MAX",
    "LEVEL_FORM",
    "MEMBERS_MAX",
    "NESTING_MAX",
    "NUMBER_BYTES_MAX",
    "PAIRS",
    "PART_FORM",
    "SCALE_MAX",
    "VALUE_DECIMALS",
    "Book",
    "BookTape",
    "Bytes",
    "ChecksumLayout",
    "ChecksumNumber",
    "ChecksumOrder",
    "Conversion",
    "LevelError",
    "LevelForm",
    "LevelShape",
    "Levels",
    "NumberError",
    "PackedLevels",
    "Packer",
    "TapeColumns",
    "TapeKind",
    "TapeMerger",
    "TapePlayer",
    "View",
    "canonical",
    "canonicals",
    "difference",
    "iso",
    "record_id",
    "show",
    "texts",
]
