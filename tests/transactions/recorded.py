"""Recorded response bodies of exchanges."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from transactions.accounting import EXACT


class Samples:
    """The recorded bodies of an exchange.

    Attributes:
        folder: Where they are; None if this machine lacks them.
        needed: Marks tests that need them.
    """

    def __init__(self, exchange: str) -> None:
        root = Path(__file__).resolve().parents[2]
        folders = Path(os.environ.get("ONEBOOK_SAMPLES") or root.parent / "shared" / "samples")
        folder = folders / exchange
        self.folder = folder if folder.is_dir() else None
        self.needed = pytest.mark.skipif(
            self.folder is None, reason="the recorded samples are not here"
        )
        self.body = cache(self._body)

    def names(self, pattern: str = "*.json") -> list[str]:
        """The names of an exchange's files."""
        return sorted(each.name for each in self.folder.glob(pattern)) if self.folder else []

    def _body(self, name: str) -> Any:
        assert self.folder is not None
        return EXACT((self.folder / name).read_bytes())
