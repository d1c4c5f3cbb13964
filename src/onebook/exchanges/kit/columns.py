"""Members of JSON objects by their paths: what is read of an object is data, and nothing else is.

msgspec decodes an object to a type that is made of the paths; no dict is built.
"""

import re
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

Kinds = dict[tuple[str, ...], tuple[Any, bool]]  # the type of each path, and whether it is optional

_MEMBER: Final = re.compile(r"([^.\[]+)(?:\[(\w+)=(\w+)\])?(?:\.|$)")


class PathStep(NamedTuple):
    """A step of a path: a member, and which object of it where it is a list of them."""

    name: str
    key: str = ""
    value: str = ""


@cache
def members_of(path: str) -> tuple[PathStep, ...]:
    """Read a path such as `priceFilter.tickSize` or `filters[filterType=LOT_SIZE].stepSize`."""
    return tuple(PathStep(*each.groups("")) for each in _MEMBER.finditer(path))


class Columns:
    """The members of a JSON object that are read, by the names they have there.

    A member of a member is written with a point, and one of the objects of a list by what it says
    (`members_of`). What is not needed is not decoded. A member that is optional reads as None where
    it is absent or null; an object that lacks another, or has a value of another type, cannot be
    read.
    """

    def __init__(self) -> None:
        self._kinds: Kinds = {}
        self._lists: set[tuple[str, ...]] = set()
        self._attributes: dict[tuple[str, ...], str] = {}

    def need(self, path: str, kind: Any, *, optional: bool) -> None:
        """Read a member of this type; a member that is needed twice may have either."""
        members = members_of(path)
        names = tuple(member.name for member in members)
        for depth, member in enumerate(members, start=1):
            if member.key:
                self._lists.add(names[:depth])
                self._kinds[(*names[:depth], member.key)] = (str, True)
        known, absent = self._kinds.get(names, (kind, True))
        self._kinds[names] = (known | kind, absent and optional)

    def shape(self) -> type[Struct]:
        """Return the type that an object is decoded to."""
        return self._shape(self._kinds, ())

    def value(self, row: Any, path: str) -> Any:
        """Return a member of a decoded object."""
        names: tuple[str, ...] = ()
        for member in members_of(path):
            names = (*names, member.name)
            row = getattr(row, self._attributes[names], None)
            if member.key:
                key = self._attributes[(*names, member.key)]
                row = next((one for one in row or () if getattr(one, key) == member.value), None)
        return row

    def _shape(self, kinds: Kinds, path: tuple[str, ...]) -> type[Struct]:
        """Make the type of an object whose attributes are numbered: names may be no identifiers."""
        heads: dict[str, Kinds] = {}
        for (head, *rest), wanted in kinds.items():
            heads.setdefault(head, {})[tuple(rest)] = wanted
        names: dict[str, str] = {}
        required: list[tuple[str, Any]] = []
        optional: list[tuple[str, Any, None]] = []
        for number, (head, below) in enumerate(heads.items()):
            attribute, here = f"member{number}", (*path, head)
            names[attribute] = head
            self._attributes[here] = attribute
            kind = below[()][0] if () in below else self._shape(below, here)
            kind = _list_of(kind) if here in self._lists else kind
            if all(absent for _, absent in below.values()):
                optional.append((attribute, kind | None, None))
            else:
                required.append((attribute, kind))
        return msgspec.defstruct("Members", [*required, *optional], rename=names)


def _list_of(kind: Any) -> Any:
    return list[kind]
