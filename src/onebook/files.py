"""Files that people and other programs write, read within a bound."""

import errno
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

TEXT_BYTES_MAX: Final = 1 << 20  # of settings, keys, certificates and environment files


def read_bounded(path: Path, bytes_max: int = TEXT_BYTES_MAX) -> bytes:
    """Read a whole file.

    Raises:
        OSError: It cannot be read, or is longer than `bytes_max` (EFBIG).
    """
    with path.open("rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"it is longer than {bytes_max:,} bytes", str(path))
    return content


def read_toml(path: Path, *, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        OSError: It cannot be read, or is too long.
        ValueError: It is not TOML, or nested too deeply; the message says where.
    """
    try:
        return tomllib.loads(read_bounded(path).decode(), parse_float=parse_float)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ArithmeticError:  # of `parse_float`
        raise ValueError("a number in it is out of range") from None
