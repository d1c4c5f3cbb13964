"""Files that people and other programs write, read within a bound; file locks."""

import errno
import fcntl
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

TEXT_BYTES_MAX: Final = 1 << 20  # of settings, keys, certificates and environment files
NAME_PARTS_MAX: Final = 32  # of `a.b.c`: tomllib takes the square of their number

_WORD_ENDS: Final = re.compile(r"[\s\"',\[\]{}=]+")


def read_bounded(path: Path, bytes_max: int = TEXT_BYTES_MAX) -> bytes:
    """Read a whole file.

    Raises:
        OSError: The file cannot be read, or is longer than `bytes_max` (EFBIG).
    """
    with path.open("rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"it is longer than {bytes_max:,} bytes", str(path))
    return content


def read_toml(path: Path, *, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        OSError: The file cannot be read, or is too long.
        ValueError: The file is not TOML, or nested too deeply; the message has the position.
    """
    text = read_bounded(path).decode()
    if _deeply_dotted(text):
        raise ValueError(f"a name in it has more than {NAME_PARTS_MAX} parts")
    try:
        return tomllib.loads(text, parse_float=parse_float)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ArithmeticError:  # of `parse_float`
        raise ValueError("a number in it is out of range") from None


def _deeply_dotted(text: str) -> bool:
    """Return whether a line may have a name of too many parts, quoted or not."""
    for line in text.splitlines():
        if line.count(".") > NAME_PARTS_MAX and not line.lstrip().startswith("#"):
            words = _WORD_ENDS.split(line)
            if words.count(".") > NAME_PARTS_MAX:
                return True
            if any(word.count(".") > NAME_PARTS_MAX for word in words):
                return True
    return False


def try_lock(descriptor: int) -> bool:
    """Lock an open file against other processes, without waiting; return whether it succeeded."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
