"""Frames that are not of a book, read leniently: acknowledgements, errors, greetings, heartbeats.

They decide what is asked for and never what a book holds, so that a strange member must not cost
the connection: one that is null or of another type counts as absent. Frames of books are decoded
strictly by their connectors.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import fields

from onebook.exchanges.kit.channel import Accepted
from onebook.exchanges.kit.frames import UNREADABLE, ErrorBody, texts_of

NOT_THERE: Final = Raw(b"")

T = TypeVar("T", bound=Struct)


def control_reader(kind: type[T]) -> Callable[[bytes], T]:
    """Make the decoder of control frames of one exchange.

    Args:
        kind: Its attributes are the members that are read; each needs a default.

    A number and its text count as each other, as ids and codes are written either way. An error
    (`ErrorBody`) may be a text or a code of its own. What is no JSON object raises one of
    `frames.UNREADABLE`.
    """
    members = [(each.name, _member(each.type)) for each in fields(kind)]
    envelope = msgspec.defstruct(
        "Envelope",
        [(each.name, Raw, NOT_THERE) for each in fields(kind)],
        rename={each.name: each.encode_name for each in fields(kind)},
    )
    decode = msgspec.json.Decoder(envelope).decode

    def read(frame: bytes) -> T:
        found = decode(frame)
        values = {}
        for name, member in members:
            raw = getattr(found, name)
            if raw is not NOT_THERE:
                with suppress(*UNREADABLE):
                    values[name] = member(raw)
        return kind(**values)

    return read


def accepted_of(items: object, number: int | str | None) -> Accepted:
    """Accept what the answer to a request lists; all of the request where it is no list of names.

    What an answer omits is refused (`Accepted.lists_all`), so that a strange list must not decide.
    """
    names = texts_of(items)
    whole = isinstance(items, list) and len(names) == len(items)
    return Accepted(names, number, lists_all=whole)


def _member(kind: Any) -> Callable[[Raw], Any]:
    """Make the decoder of one member; what it raises on is absent."""
    if kind == ErrorBody | None:
        return _error
    decode = msgspec.json.Decoder(kind, strict=False).decode
    return _text if kind in (str, str | None) else decode


def _text(raw: Raw) -> str:
    value = _any(raw)
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("it is no text")
    return bytes(raw).decode()


def _error(raw: Raw) -> ErrorBody | None:
    value = _any(raw)
    if isinstance(value, dict):
        return _error_object(raw)
    if isinstance(value, str):
        return ErrorBody(message=value) if value else None
    if isinstance(value, int) and value is not True:
        return ErrorBody(code=value) if value else None
    return ErrorBody() if value else None


_any: Final = msgspec.json.Decoder().decode
_error_object: Final = control_reader(ErrorBody)
