"""Recordings of connections: one line per frame, for replay.

The format is that of cryptofeed's raw data files, so that cryptofeed's recordings work too:

    wss://url <-> 1618678132.35               a connection was opened
    wss://url <- 1618678132.35: {json}        the client sent a frame
    1618678132.35: payload                    a frame arrived: text, or a bytes literal `b'...'`
    https://url -> 1618678132.35: body        a REST body arrived; ` header: {json}` may follow

Blank lines are skipped; a REST body may span several lines. Text that would not survive as one line
is written as a bytes literal and read as binary with the same bytes. `Recorder` has no clock; it
adds `epoch_s` to given times to get Unix seconds.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self, TextIO
from urllib.parse import urlsplit

RECORDING_BYTES_MAX: Final = 1 << 30
FILE_CHARACTERS_MAX: Final = 4 << 30  # longest readable file
LINE_CHARACTERS_MAX: Final = 160 << 20  # more than the longest REST body with every byte escaped
TIME_MAX_S: Final = 32_503_680_000.0  # the year 3000; times in milliseconds exceed it
BUFFER_CHARACTERS_MAX: Final = 1 << 16
EXCERPT_CHARACTERS: Final = 60

_TIME: Final = r"(?P<at>\d+(?:\.\d+)?)"
_OPENED: Final = re.compile(rf"(?P<url>wss?://\S+) <-> {_TIME}")
_SENT: Final = re.compile(rf"(?P<url>wss?://\S+) <- {_TIME}: ?(?P<payload>.*)")
_FETCHED: Final = re.compile(rf"(?P<url>https?://\S+) -> {_TIME}: ?(?P<payload>.*)")
_RECEIVED: Final = re.compile(rf"{_TIME}: ?(?P<payload>.*)")
_HEADER: Final = " header: "
_LITERALS: Final = ("b'", 'b"')
_ESCAPE: Final = r"""\\(?:[\\'"abfnrtv]|x[0-9a-fA-F]{2}|[0-3]?[0-7]{1,2})"""
# A literal as written by `repr`, so that Python's parser gets nothing else.
_LITERAL: Final = re.compile(
    rf"b'(?:[\t !-&(-\[\]-~]++|{_ESCAPE})*+'|b\"(?:[\t !#-\[\]-~]++|{_ESCAPE})*+\""
)


class RecordingError(ValueError):
    """A file that is not a recording; the message includes the line."""


class ConnectionOpened(NamedTuple):
    """A connection was opened."""

    at: float
    url: str


class Sent(NamedTuple):
    """The client sent a frame."""

    at: float
    url: str
    frame: bytes
    binary: bool = False


class Received(NamedTuple):
    """The exchange sent a frame on the connection opened last."""

    at: float
    frame: bytes
    binary: bool = False


class Fetched(NamedTuple):
    """The exchange answered a REST request; `header` is JSON text, "" if not recorded."""

    at: float
    url: str
    body: bytes
    header: str = ""


Entry = ConnectionOpened | Sent | Received | Fetched


def parse(lines: Iterable[str], *, name: str = "recording") -> Iterator[Entry]:
    """Read a recording line by line.

    Args:
        lines: Text lines, with or without line endings.
        name: Name of the recording in errors, such as the file name.

    Raises:
        RecordingError: A line does not match the format.
    """
    body: Fetched | None = None  # a REST response whose body may continue on the next lines
    rest: list[Fetched] = []  # the continuation of the body
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if not line.strip():
            continue
        try:
            entry = _entry(line)
            if entry is None and body is not None:
                rest.append(_continued(body, line))
                continue
            if entry is None:
                raise ValueError("not a line of a recording")
        except ValueError as error:
            where = f"{name}, line {number}"
            raise RecordingError(f"{where}: {error}: {line[:EXCERPT_CHARACTERS]!r}.") from None
        if body is not None:
            yield _joined(body, rest)
        body, rest = (entry, []) if isinstance(entry, Fetched) else (None, [])
        if body is None:
            yield entry
    if body is not None:
        yield _joined(body, rest)


def read(path: Path) -> list[Entry]:
    """Read a recording from disk.

    Raises:
        RecordingError: The file does not exist, or is not a recording.
    """
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            return list(parse(_bounded(lines, path.name), name=path.name))
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise RecordingError(f"{path} cannot be read: it is not UTF-8: {error.reason}.") from None


def _bounded(file: TextIO, name: str) -> Iterator[str]:
    """Yield the lines of a file; raise if a line or the file is too long."""
    left = FILE_CHARACTERS_MAX
    while line := file.readline(LINE_CHARACTERS_MAX + 1):
        left -= len(line)
        if len(line) > LINE_CHARACTERS_MAX:
            raise RecordingError(f"{name}: a line is longer than {LINE_CHARACTERS_MAX:,}.")
        if left < 0:
            raise RecordingError(f"{name} is longer than {FILE_CHARACTERS_MAX:,} characters.")
        yield line


def _entry(line: str) -> Entry | None:
    """Parse one line; None if it can only continue a body."""
    if found := _RECEIVED.fullmatch(line):
        return Received(_time(found["at"]), *_payload(found["payload"]))
    if found := _SENT.fullmatch(line):
        return Sent(_time(found["at"]), _url(found["url"]), *_payload(found["payload"]))
    if found := _OPENED.fullmatch(line):
        return ConnectionOpened(_time(found["at"]), _url(found["url"]))
    if found := _FETCHED.fullmatch(line):
        text, header = _headed(found["payload"])
        return Fetched(_time(found["at"]), _url(found["url"]), _payload(text)[0], header)
    return None


def _time(text: str) -> float:
    at = float(text)
    if not at < TIME_MAX_S:
        raise ValueError("a time that is not in Unix seconds")
    return at


def _url(text: str) -> str:
    """Check that an address can be parsed."""
    parts = urlsplit(text)
    if not parts.hostname or parts.port == 0:
        raise ValueError("an address without a host")
    return text


def _continued(body: Fetched, line: str) -> Fetched:
    """Return a line as a continuation of a body."""
    text, header = _headed(line)
    return body._replace(body=_payload(text)[0], header=header)


def _joined(body: Fetched, rest: Sequence[Fetched]) -> Fetched:
    """Join a body with its continuation lines, and keep the last header."""
    if not rest:
        return body
    parts = [each.body for each in rest]
    headers = [each.header for each in (body, *rest) if each.header]
    content = b"\n".join([body.body, *parts] if body.body else parts)
    return body._replace(body=content, header=headers[-1] if headers else "")


def _headed(text: str) -> tuple[str, str]:
    """Split a body and its header; text that only looks like a header stays in the body."""
    body, mark, header = text.rpartition(_HEADER)
    if not mark:
        return text, ""
    try:
        json.loads(header)
    except (ValueError, RecursionError):
        return text, ""
    return body, header


def _payload(text: str) -> tuple[bytes, bool]:
    """Return the bytes of a payload, and whether it was a bytes literal."""
    if not text.startswith(_LITERALS):
        return text.encode(), False
    if not _LITERAL.fullmatch(text):
        raise ValueError("not a bytes literal")
    value: bytes = ast.literal_eval(text)
    return value, True


def _text(payload: bytes, *, binary: bool) -> str:
    """Format a payload as one line."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return repr(payload)
    plain = text.isprintable() and not text.startswith(_LITERALS) and text == text.strip()
    return text if plain and not binary and _HEADER not in text else repr(payload)


class Recorder:
    """Writes the received and sent frames of a feed to a file, until `bytes_max` is reached.

    A full disk ends the recording, not the feed: `problem` has the reason, and the file ends with
    the last complete line.

    Args:
        path: The file; it must not exist yet.
        bytes_max: Maximum size of the file.
        epoch_s: Added to every time: Unix time minus the feed's clock.
        failed: Called once with `problem`.
    """

    def __init__(
        self,
        path: Path,
        *,
        bytes_max: int = RECORDING_BYTES_MAX,
        epoch_s: float = 0.0,
        failed: Callable[[str], None] = lambda problem: None,
    ) -> None:
        self.frames = 0
        self.bytes = 0
        self.full = False
        self.problem = ""
        self._path = path
        self._failed = failed
        self._written = 0
        self._epoch_s = epoch_s
        self._bytes_max = bytes_max
        self._buffer: list[str] = []
        self._buffered = 0
        try:
            self._file = path.open("xb", buffering=0)
        except OSError as error:
            raise RecordingError(f"{path} cannot be written: {error.strerror}.") from None

    @property
    def ended(self) -> bool:
        """Whether the recording has ended, because the file or the disk is full."""
        return self.full or bool(self.problem)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def opened(self, url: str, t: float) -> None:
        """Record that a connection was opened."""
        self._write(f"{url} <-> {self._epoch_s + t!r}")

    def frame_out(self, url: str, t: float, frame: bytes) -> None:
        """Record a frame that the client sent."""
        self._write(f"{url} <- {self._epoch_s + t!r}: {_text(frame, binary=False)}")

    def frame_in(self, url: str, t: float, frame: bytes, *, binary: bool = False) -> None:
        """Record a frame that arrived."""
        self.frames += 1
        self._write(f"{self._epoch_s + t!r}: {_text(frame, binary=binary)}")

    def http(self, url: str, t: float, body: bytes) -> None:
        """Record a REST body that arrived."""
        self._write(f"{url} -> {self._epoch_s + t!r}: {_text(body, binary=False)}")

    def flush(self) -> None:
        """Flush the buffer to the operating system."""
        rest = data = "".join(self._buffer).encode()
        self._buffer.clear()
        self._buffered = 0
        try:
            while rest and not self.problem:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self.problem = f"{self._path} cannot be written: {error.strerror}."
            written = data[: len(data) - len(rest)]
            rest = data[written.rfind(b"\n") + 1 :]
            with suppress(OSError):
                self._file.truncate(self._written + len(data) - len(rest))
            self._failed(self.problem)
        self._written += len(data) - len(rest)

    def close(self) -> None:
        """Flush and close."""
        if not self._file.closed:
            self.flush()
            self._file.close()

    def _write(self, line: str) -> None:
        """Write whole lines only, so that a full recording ends with one."""
        if self._file.closed or self.problem:
            return
        size = len(line.encode()) + 1
        if self.full or self.bytes + size > self._bytes_max:
            self.full = True
            return
        self.bytes += size
        self._buffer.append(line + "\n")
        self._buffered += len(line)
        if self._buffered > BUFFER_CHARACTERS_MAX:
            self.flush()
