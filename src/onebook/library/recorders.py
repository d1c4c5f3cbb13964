"""Recordings of the traffic with exchanges: a folder with one file per exchange."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from onebook.exchanges.kit import Exchange
from onebook.feeds.recording import RECORDING_BYTES_MAX, Recorder, RecordingError

SUFFIX: Final = ".rec"

log = logging.getLogger("onebook.library")


def require_recordable(exchanges: Iterable[Exchange], symbols: int) -> None:
    """Check that a recording needs only one connection per exchange, as a replay does.

    Raises:
        RecordingError: An exchange needs several connections for this many symbols.
    """
    for exchange in exchanges:
        name, most = exchange.name, exchange.limits.topics
        if symbols > most:
            raise RecordingError(
                f"{name} allows {most} book{'s' if most > 1 else ''} per connection, and a "
                "recording has only one connection: record the other symbols separately, or "
                f"without {name}."
            )


class Recorders:
    """Files `<folder>/<exchange>.rec` in the usual format, by exchange.

    A full disk ends a recording, which is logged, but not the books.

    Args:
        folder: Created if missing; none of the files may exist yet.
        names: The exchanges in use.
        epoch_s: Unix time minus monotonic time.
        bytes_max: Maximum size of each file.

    Raises:
        RecordingError: A file cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        names: Iterable[str],
        *,
        epoch_s: float,
        bytes_max: int = RECORDING_BYTES_MAX,
    ) -> None:
        self.files: dict[str, Recorder] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordingError(f"{folder} cannot be created: {error.strerror}.") from None
        try:
            for name in names:
                self.files[name] = Recorder(
                    folder / f"{name}{SUFFIX}",
                    bytes_max=bytes_max,
                    epoch_s=epoch_s,
                    failed=_failed,
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Flush and close every file."""
        for file in self.files.values():
            file.close()


def _failed(problem: str) -> None:
    log.error("The recording ended: %s", problem)
