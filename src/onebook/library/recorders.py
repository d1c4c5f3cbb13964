"""Recordings of the traffic with exchanges: a folder with one file for each exchange."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from onebook.exchanges.contract import Exchange
from onebook.feeds.recording import RECORDING_BYTES_MAX, Recorder, RecordingError

SUFFIX: Final = ".rec"

log = logging.getLogger("onebook.library")


class Recorders:
    """Writes the frames of each exchange to `<folder>/<exchange>.rec`, in the usual format.

    A disk that is full ends the recording, not the books: that is logged and `problem` says why.

    Args:
        folder: Made if it is not there; none of the files may exist yet.
        exchanges: Those in use, with the addresses that feeds have.
        epoch_s: Unix time minus monotonic time.
        bytes_max: No file grows beyond this.

    Raises:
        RecordingError: A file cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        exchanges: Mapping[str, Exchange],
        *,
        epoch_s: float,
        bytes_max: int = RECORDING_BYTES_MAX,
    ) -> None:
        self.problem = ""
        self._files: dict[str, Recorder] = {}  # by address of the socket, and of REST
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordingError(f"{folder} cannot be made: {error.strerror}.") from None
        try:
            for name, exchange in exchanges.items():
                path = folder / f"{name}{SUFFIX}"
                file = Recorder(path, bytes_max=bytes_max, epoch_s=epoch_s)
                self._files[exchange.ws_url] = self._files[exchange.rest_url] = file
        except BaseException:
            self.close()
            raise

    def opened(self, url: str, t: float) -> None:
        """A connection is open."""
        self._write(url, lambda file: file.opened(url, t))

    def frame_in(self, url: str, t: float, frame: bytes) -> None:
        """A message came."""
        self._write(url, lambda file: file.frame_in(url, t, frame))

    def frame_out(self, url: str, t: float, frame: bytes) -> None:
        """A text frame was sent."""
        self._write(url, lambda file: file.frame_out(url, t, frame))

    def http(self, url: str, t: float, body: bytes) -> None:
        """A REST body came."""
        base = next(base for base in self._files if url.startswith(base))
        self._write(base, lambda file: file.http(url, t, body))

    def close(self) -> None:
        """Flush and close every file."""
        for file in dict.fromkeys(self._files.values()):
            file.close()
            self._check(file)

    def _write(self, url: str, write: Callable[[Recorder], object]) -> None:
        if not self.problem:
            file = self._files[url]
            write(file)
            self._check(file)

    def _check(self, file: Recorder) -> None:
        if file.problem and not self.problem:
            self.problem = f"The recording ended: {file.problem}"
            log.error("%s", self.problem)
