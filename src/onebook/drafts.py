"""Folders for the parts of a backup that is made or restored, locked while their process lives.

They hold secrets: what a killed process left is removed by the next backup or restore to the same
folder, and found by `onebook doctor` beside the files of the service.
"""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PREFIX: Final = ".onebook-backup-"
LOCK: Final = "lock"


@contextmanager
def draft(folder: Path) -> Iterator[Path]:
    """A new folder in `folder`, removed at the end."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=folder) as name:
        place = Path(name)
        with (place / LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield place


def abandoned(folder: Path) -> list[Path]:
    """The drafts in a folder whose process has ended, as far as they can be read."""
    return [each for each in sorted(folder.glob(f"{PREFIX}*")) if _unlocked(each / LOCK)]


def remove_abandoned(folder: Path) -> None:
    """Remove them: they hold secrets and take disk space."""
    for each in abandoned(folder):
        with suppress(OSError):
            shutil.rmtree(each)


def _unlocked(path: Path) -> bool:
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True  # killed before it had one
    except OSError:
        return False
    return True
