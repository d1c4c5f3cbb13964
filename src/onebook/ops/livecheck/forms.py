"""Forms and redacted examples of frames for a report.

A form is the frame with numbers and free texts replaced by their types. Frames of one kind share a
form; a new or renamed member shows as a new form.
"""

import getpass
import re
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

EXAMPLE_CHARACTERS: Final = 300
FORM_CHARACTERS: Final = 400
FORM_BYTES_MAX: Final = 1 << 16  # longer frames are not decoded for their form
BINARY_BYTES: Final = 64  # of a binary frame shown in an example
MEMBERS_MAX: Final = 40
DEPTH_MAX: Final = 6
WORD_CHARACTERS_MIN: Final = 2  # a one-letter host or user name would match ordinary text

# A short text that names a kind of frame, such as "welcome" or "SUBSCRIBE".
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z_. @*-]{0,39}")
_PRIVATE_NAME: Final = (
    r"ip|clientIp|client_ip|address|[^\"]*(?:token|secret|signature|api_?key|user|session|"
    r"account|conn_?id)[^\"]*"
)
_PRIVATE_MEMBER: Final = re.compile(
    rf'("(?:{_PRIVATE_NAME})"\s*:\s*)("(?:[^"\\]|\\.)*"|-?[\d.]+)', re.IGNORECASE
)
_IS_PRIVATE: Final = re.compile(_PRIVATE_NAME, re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1f]")
_IPV4: Final = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b")
_IPV6: Final = re.compile(
    r"\[?\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{0,4}\b\]?|\[?::1\]?", re.IGNORECASE
)
_TOKEN: Final = re.compile(r"(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[A-Za-z0-9_+=-]{32,}")
_PATH: Final = re.compile(r"(?<![\w:/.])(?:/home|/Users|/root|/tmp|/var|/opt|[A-Z]:\\)[^\s\"',:;]*")


class Redactor:
    """Removes addresses, tokens, paths and the names of this host and user from text of exchanges.

    Args:
        hosts: Further hosts of the operator, such as those in `feeds.overrides`.
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        own = [*hosts, socket.gethostname(), str(Path.home())]
        with suppress(OSError, KeyError):
            own.append(getpass.getuser())
        words = sorted({each for each in own if len(each) >= WORD_CHARACTERS_MIN}, key=len)
        alternatives = "|".join(re.escape(each) for each in reversed(words))
        self._own = re.compile(rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])(?::\d+)?")

    def text(self, text: str, *, characters: int = EXAMPLE_CHARACTERS) -> str:
        """Redact a text and cut it to one line of at most `characters`."""
        text = text[: 4 * characters]
        text = _PRIVATE_MEMBER.sub(r'\1"<private>"', text)
        text = self._own.sub("<own>", text)
        text = _PATH.sub("<path>", text)
        text = _IPV4.sub("<address>", text)
        text = _IPV6.sub("<address>", text)
        text = _TOKEN.sub("<token>", text)
        text = "".join(each if each.isprintable() else " " for each in text)
        return text if len(text) <= characters else f"{text[: characters - 3]}..."

    def frame(self, frame: bytes) -> str:
        """Show the start of a frame, in hexadecimal if it is binary."""
        head = frame[: 4 * EXAMPLE_CHARACTERS]
        text = head.decode(errors="replace")
        if "\ufffd" not in text[:-1] and _CONTROL.search(text) is None:
            return self.text(text)
        more = "..." if len(frame) > BINARY_BYTES else ""
        return f"0x{frame[:BINARY_BYTES].hex()}{more} ({len(frame):,} bytes)"


def form_of(frame: bytes, names: Sequence[str] = ()) -> str:
    """Describe the form of a frame.

    Args:
        frame: The frame as received.
        names: Names of the followed instruments, which are shown as `*`.
    """
    if len(frame) > FORM_BYTES_MAX:
        return f"a frame of more than {FORM_BYTES_MAX:,} bytes"
    try:
        value = msgspec.json.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = frame[:FORM_CHARACTERS].decode(errors="replace")
        return _word(text, names) if text.isprintable() else "binary"
    form = _form(value, names, 0)
    return form if len(form) <= FORM_CHARACTERS else f"{form[: FORM_CHARACTERS - 3]}..."


def _form(value: Any, names: Sequence[str], depth: int) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "number"
        case str():
            return _word(value, names)
        case list() | dict() if depth >= DEPTH_MAX:
            return "..."
        case list():
            return f"[{_form(value[0], names, depth + 1)}]" if value else "[]"
        case dict():
            members = sorted(value.items())[:MEMBERS_MAX]
            forms = [
                f"{_named(name, names)}:{_member(name, each, names, depth)}"
                for name, each in members
            ]
            return f"{{{','.join(forms)}}}"
    return "unknown"


def _member(name: str, value: Any, names: Sequence[str], depth: int) -> str:
    return "private" if _IS_PRIVATE.fullmatch(name) else _form(value, names, depth + 1)


def _named(text: str, names: Sequence[str]) -> str:
    for name in names:
        text = text.replace(name, "*")
    return text


def _word(text: str, names: Sequence[str]) -> str:
    text = _named(text, names)
    return f'"{text}"' if _WORD.fullmatch(text) else "text"
