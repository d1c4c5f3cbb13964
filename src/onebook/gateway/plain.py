"""Validation errors of client messages as sentences for the client.

What a field must be is read from the Structs that validate it (`commands`), so that message and
validation cannot differ.
"""

import re
import types
from functools import cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, UnsetType, ValidationError

MUST_BE: Final = "must_be"  # in the metadata of a field whose type does not describe it well enough
NAME_SHOWN_MAX: Final = 64
NOT_NAMED: Final = (type(None), UnsetType)  # of a union: both are a field that is left out
_MISSING = re.compile(r"Object missing required field `(.*?)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.\w+`)?\Z", re.DOTALL)
_FIELD = re.compile(r" - at `\$\.([A-Za-z_]+)")


def sentence(error: ValidationError, body: type[Struct]) -> str:
    """Name the invalid field of a message and what it must be."""
    text = str(error)
    if found := _UNKNOWN.match(text):
        return f"Unknown field {shown(found[1])}."
    if found := _MISSING.match(text):
        return f"{found[1]}: is required; it must be {must_be(body, found[1])}."
    if found := _FIELD.search(text):
        return f"{found[1]}: must be {must_be(body, found[1])}."
    return "A message must be a JSON object."


def shown(text: str) -> str:
    """A client's text as messages quote it, truncated where it is long."""
    cut = text if len(text) <= NAME_SHOWN_MAX else text[:NAME_SHOWN_MAX] + "..."
    return f'"{cut}"'


@cache
def must_be(body: type[Struct], field: str) -> str:
    """What a field must be, in words."""
    hints = get_type_hints(body, include_extras=True)
    if field not in hints:  # the type of the message, which is there twice
        return f'"{body.__struct_config__.tag}", and only once'
    return _words(hints[field])


def _words(hint: Any) -> str:
    kind, limits = hint, dict[str, int]()
    while get_origin(kind) is Annotated:
        kind, *metas = get_args(kind)
        for meta in (each for each in metas if isinstance(each, Meta)):
            if meta.extra and MUST_BE in meta.extra:
                return str(meta.extra[MUST_BE])
            found = {name: getattr(meta, name) for name in ("ge", "le", "max_length")}
            limits |= {name: value for name, value in found.items() if value is not None}
    if get_origin(kind) is Literal:
        return " or ".join(f'"{value}"' for value in get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        parts = [_words(each) for each in get_args(kind) if each not in NOT_NAMED]
        return " or ".join(dict.fromkeys(parts))
    return _plain(kind, limits)


def _plain(kind: Any, limits: dict[str, int]) -> str:
    if kind is bool:
        return "true or false"
    if kind is int and {"ge", "le"} <= limits.keys():
        return f"a whole number from {limits['ge']:,} to {limits['le']:,}"
    if kind in (int, float):
        return "a number"
    if kind is str:
        longest = limits.get("max_length")
        return f"text of at most {longest} characters" if longest else "text"
    return "JSON"
