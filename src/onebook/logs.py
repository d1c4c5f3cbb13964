"""Log formatting: JSON or text, with keys and tokens masked."""

import json
import logging
import re
import sys
import threading
from datetime import UTC, datetime
from typing import Any, TextIO

from onebook.times import iso_ms

LOGGER = "onebook"
ACCESS = "onebook.access"  # one line for each answered request and each ended connection
FIELDS = "onebook_fields"
# `obs_` ends other words too (`jobs_total`): in the middle of one only a whole token is masked.
_SECRET = re.compile(r"(ob_live_|\bobs_|obs_(?=[0-9a-z]{40}))[0-9a-z]{4,}", re.IGNORECASE)


# Control characters, line separators and marks that change the direction of text.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def escaped(text: str) -> str:
    """Write control characters as escapes: an exchange's texts may hold any."""
    return _UNSAFE.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def redact(text: str) -> str:
    """Mask everything that looks like an API key or token, as a second safeguard."""
    return _SECRET.sub(r"\1...", text)


class TextFormatter(logging.Formatter):
    """One line for a person."""

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
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The fields every line has, and the trace of a defect."""
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
    """The `extra` of a log call with fields of its own; what is None or empty is left out."""
    return {FIELDS: {name: each for name, each in values.items() if each not in (None, "")}}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = getattr(record, FIELDS, {})
    return found


def configure(level: str, style: str, stream: TextIO | None = None, *, access: bool = True) -> None:
    """Send the log of every part to one stream.

    Args:
        level: The least level written.
        style: `json`, `text`, or `auto`: text on a terminal, JSON elsewhere.
        stream: Where to; None is standard error.
        access: Whether answered requests and ended connections are logged.
    """
    out = stream or sys.stderr
    text = style == "text" or (style == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    # Libraries log through the same handler, or their lines would reach stderr unformatted.
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


def capture() -> None:
    """Log what Python would write to standard error: warnings and unraisable exceptions."""
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
