"""A small disk that tests can fill."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MiB = 1 << 20


@contextmanager
def small_disk(folder: Path, *, size_bytes: int = MiB) -> Iterator[Path]:
    """A folder on a disk of this size; skips if this account cannot create one."""
    folder.mkdir()
    words = ("-t", "tmpfs", "-o", f"size={size_bytes}", "onebook-test", str(folder))
    try:
        subprocess.run(("mount", *words), check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this account cannot mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(("umount", "--lazy", str(folder)), check=True)


@contextmanager
def filled(disk: Path, *, left_bytes: int = 0) -> Iterator[None]:
    """Fill a disk except for some bytes."""
    fill = disk / "fill"
    with fill.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4_096)):
                pass
        except OSError:
            file.truncate(file.tell() - left_bytes)
    try:
        yield
    finally:
        fill.unlink()
