"""Logging: JSON or text lines with keys and tokens masked, written by a background thread.

Lines pass through a bounded queue, because a slow disk or an unread pipe would block the event loop
in `write`. When the queue is full, lines are dropped and counted.
"""

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any, Final, TextIO

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from onebook.clock import iso_ms

QUEUE_BYTES_MAX: Final = 8 << 20
# Size of one write: whole lines that a pipe does not mix with other processes' lines (pipe(7)).
WRITE_BYTES: Final = 4_096
FLUSH_S: Final = 2.0  # at the end of the process

LOGGER = "onebook"
ACCESS = "onebook.access"  # one line for each answered request and each ended connection
FIELDS = "onebook_fields"
# `obs_` ends other words too (`jobs_total`): in the middle of one only a whole token is masked.
_SECRET = re.compile(r"(ob_live_|\bobs_|obs_(?=[0-9a-z]{40}))[0-9a-z]{4,}", re.IGNORECASE)


# Control characters, line separators and marks that change the direction of text.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def escaped(text: str) -> str:
    """Escape control characters, which texts of exchanges may contain."""
    return _UNSAFE.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def redact(text: str) -> str:
    """Mask everything that looks like an API key or token, as a safety net."""
    return _SECRET.sub(r"\1...", text)


class TextFormatter(logging.Formatter):
    """Formats a record as one human-readable line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, part, message and fields."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        line = f"{at} {record.levelname.lower():7} {record.name.removeprefix('onebook.')}: "
        line += escaped(record.getMessage())
        for name, value in _fields(record).items():
            line += f" {name}={escaped(str(value))}"
        if record.exc_info:
            trace = self.formatException(record.exc_info).split("\n")
            line += "\n" + "\n".join(map(escaped, trace))
        return redact(line)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The common fields, and the traceback of an exception."""
        line = {
            "time": iso_ms(int(record.created * 1_000)),
            "level": record.levelname.lower(),
            "part": record.name,
            "message": record.getMessage(),
        }
        line |= _fields(record)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return redact(json.dumps(line, ensure_ascii=False))


def fields(**values: Any) -> dict[str, Any]:
    """The `extra` of a log call with additional fields; None and empty values are omitted."""
    return {FIELDS: {name: each for name, each in values.items() if each not in (None, "")}}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = getattr(record, FIELDS, {})
    return found


class DroppedRecords(Collector):
    """Counts dropped log records, without a lock because a finalizer may log at any point."""

    def __init__(self) -> None:
        self.full = 0  # counted by the logging threads
        self.unwritten = 0  # counted by the writer

    @property
    def count(self) -> int:
        """Total of dropped records."""
        return self.full + self.unwritten

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The metric."""
        yield CounterMetricFamily(
            "onebook_log_records_dropped",
            "Log records dropped because the log output was too slow or failed.",
            value=self.count,
        )


DROPPED: Final = DroppedRecords()
REGISTRY.register(DROPPED)
NOTHING: Final = threading.Event()  # no item is queued


class LineWriter:
    """Writes lines to a stream in a background thread.

    Writes to the file descriptor: a thread blocked in `sys.stderr.write` would hold its lock, which
    the interpreter needs to exit.

    Args:
        stream: The output.
        bytes_max: Bytes of queued lines; further lines are dropped.
    """

    def __init__(self, stream: TextIO, *, bytes_max: int = QUEUE_BYTES_MAX) -> None:
        self.stream = stream
        self.formatter = logging.Formatter()  # for the line that reports dropped lines
        self._bytes_max = bytes_max
        self._fd = _descriptor(stream)
        # Reentrant, unlike `queue.Queue`: a finalizer that logs may run while a line is put.
        self._queue: SimpleQueue[bytes | threading.Event | None] = SimpleQueue()
        self._put_bytes = self._done_bytes = 0  # each changed by one side
        self._reported = DROPPED.count
        self.thread = threading.Thread(target=self._run, name="log", daemon=True)
        self.thread.start()

    def put(self, line: str) -> None:
        """Queue a line, or drop it."""
        encoded = (line + "\n").encode("utf-8", "backslashreplace")
        if self._put_bytes - self._done_bytes + len(encoded) > self._bytes_max:
            DROPPED.full += 1
            return
        self._put_bytes += len(encoded)
        self._queue.put(encoded)

    def flush(self, within_s: float = FLUSH_S) -> bool:
        """Wait until all queued lines are written; returns False on timeout."""
        written = threading.Event()
        self._queue.put(written)
        return written.wait(within_s)

    def end(self) -> None:
        """End the thread once everything is written, without waiting for it."""
        self._queue.put(None)

    def _run(self) -> None:
        item = self._queue.get()
        while item is not None:
            if isinstance(item, threading.Event):
                item.set()
                item = self._queue.get()
                continue
            lines, size = [item], len(item)
            item = self._waiting()
            while isinstance(item, bytes) and size + len(item) <= WRITE_BYTES:
                lines.append(item)
                size += len(item)
                item = self._waiting()
            self._write_lines(lines)
            self._done_bytes += size
            if item is NOTHING:
                item = self._queue.get()

    def _waiting(self) -> "bytes | threading.Event | None":
        """The next item, or NOTHING if none is queued; only this thread removes items."""
        return NOTHING if self._queue.empty() else self._queue.get()

    def _write_lines(self, lines: list[bytes]) -> None:
        try:
            self._write(b"".join(lines))
        except (OSError, ValueError):  # the disk is full, the reader is gone, or it is closed
            DROPPED.unwritten += len(lines)
            return
        dropped = DROPPED.count - self._reported
        if dropped:
            self._report(dropped)

    def _report(self, dropped: int) -> None:
        message = "%d log records dropped."
        record = logging.LogRecord(LOGGER, logging.WARNING, "", 0, message, (dropped,), None)
        with suppress(OSError, ValueError):
            self._write((self.formatter.format(record) + "\n").encode())
            self._reported += dropped

    def _write(self, data: bytes) -> None:
        if self._fd is None:
            self.stream.write(data.decode())
            self.stream.flush()
            return
        while data:
            data = data[os.write(self._fd, data) :]


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


class QueuedHandler(logging.Handler):
    """Queues the lines of records; formats at the call, because arguments may change later."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self.writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record."""
        try:
            line = self.format(record)
        except Exception as error:
            # `logging` would print the trace to stderr, from this thread.
            line = self._unreadable(record, error)
        self.writer.put(line)

    def _unreadable(self, record: logging.LogRecord, error: Exception) -> str:
        message = "A log record of %s line %d cannot be formatted: %s"
        return self.format(
            logging.LogRecord(
                record.name,
                logging.ERROR,
                record.pathname,
                record.lineno,
                message,
                (record.filename, record.lineno, error),
                None,
            )
        )

    def flush(self) -> None:
        """Wait for the writer for at most `FLUSH_S`; `logging.shutdown` calls it."""
        self.writer.flush()


def configure(level: str, style: str, stream: TextIO | None = None, *, access: bool = True) -> None:
    """Configure logging to one stream, through a background thread.

    Args:
        level: The lowest level written.
        style: `json`, `text`, or `auto`: text on a terminal, JSON elsewhere.
        stream: The output; None is standard error.
        access: Whether answered requests and ended connections are logged.
    """
    out = stream or sys.stderr
    text = style == "text" or (style == "auto" and out.isatty())
    writer = _writer_of(out)
    writer.formatter = TextFormatter() if text else JsonFormatter()
    handler = QueuedHandler(writer)
    handler.setFormatter(writer.formatter)
    # Libraries log through the same handler; otherwise their lines would be unformatted on stderr.
    logging.getLogger().handlers = [handler]
    logging.getLogger().setLevel(logging.WARNING)
    for name in (LOGGER, "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    logging.getLogger(ACCESS).disabled = not access
    logging.getLogger("sqlalchemy").setLevel(logging.CRITICAL)  # the store logs outages itself
    # Below errors it logs a line for each unreadable request, as many as clients send.
    debug = logging.getLogger(LOGGER).isEnabledFor(logging.DEBUG)
    logging.getLogger("uvicorn").setLevel(logging.WARNING if debug else logging.ERROR)
    logging.getLogger("uvicorn.access").setLevel(logging.CRITICAL)  # it would log keys in paths


def _writer_of(stream: TextIO) -> LineWriter:
    """The current writer, if it writes to this stream, because SIGHUP reconfigures logging."""
    for handler in logging.getLogger(LOGGER).handlers:
        if isinstance(handler, QueuedHandler):
            if handler.writer.stream is stream:
                return handler.writer
            handler.writer.end()
    return LineWriter(stream)


def flush() -> bool:
    """Wait at most `FLUSH_S` until every line is written; returns False on timeout."""
    handlers = logging.getLogger(LOGGER).handlers
    return all(each.writer.flush() for each in handlers if isinstance(each, QueuedHandler))


def capture() -> None:
    """Log warnings and unraisable exceptions instead of printing them to standard error."""
    logging.captureWarnings(True)
    sys.unraisablehook = _unraisable
    threading.excepthook = _in_thread


def _unraisable(what: "sys.UnraisableHookArgs") -> None:
    error = what.exc_value
    logging.getLogger(LOGGER).error(
        "%s: %s", what.err_msg or "An exception was ignored", error, exc_info=error
    )


def _in_thread(what: threading.ExceptHookArgs) -> None:
    if what.exc_type is SystemExit:
        return
    error = what.exc_value
    logging.getLogger(LOGGER).error("A thread ended with an exception: %s", error, exc_info=error)
