"""Log lines: JSON for machines, text for people, and never a key or a token in either."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TextIO

LOGGER = "onebook"
_SECRET = re.compile(r"\b(ob_live_|obs_)[0-9A-Za-z]{4,}")


def redact(text: str) -> str:
    """Replace whatever looks like one of our keys or tokens: a second net, not the first."""
    return _SECRET.sub(r"\1...", text)


class TextFormatter(logging.Formatter):
    """One line for a person."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, part and message."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        line = f"{at} {record.levelname.lower():7} {record.name.removeprefix('onebook.')}: "
        line += record.getMessage()
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return redact(line)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The fields every line has, and the trace of a defect."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "part": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return redact(json.dumps(fields, ensure_ascii=False))


def configure(level: str, style: str, stream: TextIO | None = None) -> None:
    """Send the log of every part to one stream.

    Args:
        level: The least level written.
        style: `json`, `text`, or `auto`: text on a terminal, JSON elsewhere.
        stream: Where to; None is standard error.
    """
    out = stream or sys.stderr
    text = style == "text" or (style == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    for name in (LOGGER, "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # the node says itself that it listens
    logging.getLogger("uvicorn.access").setLevel(logging.CRITICAL)  # it would log keys in paths
