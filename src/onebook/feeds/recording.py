"""Recordings of connections: one line per frame, for replay.

The format is that of cryptofeed's raw data files, so that recordings of others work too:

    wss://url <-> 1618678132.35               a connection was opened
    wss://url <- 1618678132.35: {json}        the client sent a frame
    1618678132.35: payload                    a frame came, text or a bytes literal `b'...'`
    https://url -> 1618678132.35: body        a REST body came; ` header: {json}` may follow it

Blank lines are skipped; a REST body may stand on lines of its own. A text that would not survive
as one line is written as a bytes literal, and read as binary with the same bytes. Reading is
pure; `Recorder` writes, and knows no clock: times are Unix seconds once `epoch_s` is added.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self, TextIO
from urllib.parse import urlsplit

RECORDING_BYTES_MAX: Final = 1 << 30
FILE_CHARACTERS_MAX: Final = 4 << 30  # of a file that is read
LINE_CHARACTERS_MAX: Final = 160 << 20  # the longest REST body, each byte of it escaped, and more
TIME_MAX_S: Final = 32_503_680_000.0  # of the year 3000; times in milliseconds are beyond it
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
# One literal as `repr` writes it: Python's parser, which reads it, meets nothing else.
_LITERAL: Final = re.compile(
    rf"b'(?:[\t !-&(-\[\]-~]++|{_ESCAPE})*+'|b\"(?:[\t !#-\[\]-~]++|{_ESCAPE})*+\""
)


class RecordingError(ValueError):
    """A file that is not a recording; the message has the line."""


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
    """The exchange sent a frame, on the connection that was opened last."""

    at: float
    frame: bytes
    binary: bool = False


class Fetched(NamedTuple):
    """The exchange answered a REST request; `header` is JSON text, "" where none was recorded."""

    at: float
    url: str
    body: bytes
    header: str = ""


Entry = ConnectionOpened | Sent | Received | Fetched


def parse(lines: Iterable[str], *, name: str = "recording") -> Iterator[Entry]:
    """Read a recording line by line.

    Args:
        lines: Text lines, with or without their ends.
        name: What errors call it, such as the file's name.

    Raises:
        RecordingError: A line that does not match the format.
    """
    body: Fetched | None = None  # a REST answer whose body may go on in the next lines
    rest: list[Fetched] = []  # of the body
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
                raise ValueError("none of the forms of a recording")
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
        RecordingError: There is no such file, or it is no recording.
    """
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            return list(parse(_bounded(lines, path.name), name=path.name))
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise RecordingError(f"{path} cannot be read: it is not UTF-8: {error.reason}.") from None


def _bounded(file: TextIO, name: str) -> Iterator[str]:
    """The lines of a file, none of which is too long."""
    left = FILE_CHARACTERS_MAX
    while line := file.readline(LINE_CHARACTERS_MAX + 1):
        left -= len(line)
        if len(line) > LINE_CHARACTERS_MAX:
            raise RecordingError(f"{name}: a line is longer than {LINE_CHARACTERS_MAX:,}.")
        if left < 0:
            raise RecordingError(f"{name} is longer than {FILE_CHARACTERS_MAX:,} characters.")
        yield line


def _entry(line: str) -> Entry | None:
    """The entry of one line; None where it can only be the rest of a body."""
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
    """An address that can be taken apart."""
    parts = urlsplit(text)
    if not parts.hostname or parts.port == 0:
        raise ValueError("an address without a host")
    return text


def _continued(body: Fetched, line: str) -> Fetched:
    """The next part of a body."""
    text, header = _headed(line)
    return body._replace(body=_payload(text)[0], header=header)


def _joined(body: Fetched, rest: Sequence[Fetched]) -> Fetched:
    """A body with what stood on lines of its own, and the last header."""
    if not rest:
        return body
    parts = [each.body for each in rest]
    headers = [each.header for each in (body, *rest) if each.header]
    content = b"\n".join([body.body, *parts] if body.body else parts)
    return body._replace(body=content, header=headers[-1] if headers else "")


def _headed(text: str) -> tuple[str, str]:
    """Cut the header off a body; what only looks like one belongs to the body."""
    body, mark, header = text.rpartition(_HEADER)
    if not mark:
        return text, ""
    try:
        json.loads(header)
    except (ValueError, RecursionError):
        return text, ""
    return body, header


def _payload(text: str) -> tuple[bytes, bool]:
    """The bytes of a payload, and whether they were written as a literal."""
    if not text.startswith(_LITERALS):
        return text.encode(), False
    if not _LITERAL.fullmatch(text):
        raise ValueError("not a bytes literal")
    value: bytes = ast.literal_eval(text)
    return value, True


def _text(payload: bytes, *, binary: bool) -> str:
    """A payload as one line."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return repr(payload)
    plain = text.isprintable() and not text.startswith(_LITERALS) and text == text.strip()
    return text if plain and not binary and _HEADER not in text else repr(payload)


class Recorder:
    """Writes what a feed receives and sends to a file, until `bytes_max` is reached.

    A disk that is full ends the recording, not the feed: `problem` says why, and the file ends with
    the last line that fitted.

    Args:
        path: The file; it must not exist yet.
        bytes_max: The file never grows beyond this.
        epoch_s: Added to every time: what the feed's clock was short of Unix time.
        failed: Called with `problem`, once.
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
        """Whether it writes no more: the file or the disk is full."""
        return self.full or bool(self.problem)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def opened(self, url: str, t: float) -> None:
        """A connection was opened."""
        self._write(f"{url} <-> {self._epoch_s + t!r}")

    def frame_out(self, url: str, t: float, frame: bytes) -> None:
        """The client sent a frame."""
        self._write(f"{url} <- {self._epoch_s + t!r}: {_text(frame, binary=False)}")

    def frame_in(self, url: str, t: float, frame: bytes, *, binary: bool = False) -> None:
        """A frame arrived."""
        self.frames += 1
        self._write(f"{self._epoch_s + t!r}: {_text(frame, binary=binary)}")

    def http(self, url: str, t: float, body: bytes) -> None:
        """A REST body arrived."""
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
