"""Copies closed hours from a folder to a store, in the order of the proof's chain.

The last entry in the store says what the store has, so that an interrupted upload continues and no
hour is marked as copied in two places. Readers find an hour by its manifest or its coverage, which
are copied after its books.
"""

from collections.abc import Callable, Collection
from pathlib import Path

from onebook.archive.proof import ProofChain
from onebook.archive.stores import FileStore


class Uploader:
    """Copies closed hours to a store, each after the ones before it.

    Args:
        folder: The history.
        store: The store.
    """

    def __init__(self, folder: Path, store: FileStore) -> None:
        self._folder, self.store = folder, store
        self._next: int | None = None  # number of the entry that the store lacks

    def pending(self, hours: Collection[int]) -> set[int]:
        """Return the hours that the store lacks; all of them until the store was listed."""
        entries = ProofChain(FileStore(self._folder)).entries(self._next or 0)
        lacking = {each.hour_us for each in entries if each.hour_us is not None}
        return {each for each in hours if each in lacking}

    def upload(self, cancelled: Callable[[], bool]) -> int:
        """Copy what the store lacks; return the number of hours.

        Raises:
            OSError: The store refuses; the next call continues.
            ValueError: The store has the hours of another history.
        """
        local = ProofChain(FileStore(self._folder))
        if self._next is None:
            numbers = ProofChain(self.store).numbers()
            self._next = numbers[-1] + 1 if numbers else 0
            if numbers and not local.has(numbers[-1], self.store.read(local.path(numbers[-1]))):
                self._next = None
                raise ValueError("it has the hours of another history")
        entries = local.entries(self._next)
        latest = {each.hour_us: each.number for each in entries}
        copied = 0
        for entry in entries:
            if entry.hour_us is not None and latest[entry.hour_us] == entry.number:
                paths = FileStore(self._folder).files(entry.folder)
                for path in sorted(paths, key=lambda each: (each.count("/"), each), reverse=True):
                    if cancelled():
                        return copied
                    self.store.copy_from(self._folder, path)
                copied += 1
            if entry.signed:
                self.store.copy_from(self._folder, local.path(entry.number, ".sig"))
            self.store.copy_from(self._folder, local.path(entry.number))
            self._next = entry.number + 1
        return copied
