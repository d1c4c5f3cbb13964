"""Binary updates of order books: the message classes of `onebook.proto`, without generated code.

`onebook.proto` is the published schema. It is read here when the module is imported; a test
compares the result with protoc's. Figures, its decimal numbers, are written and read here too.
"""

import re
from collections.abc import Iterable, Iterator
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

SCHEMA: Final = "onebook.proto"
SCHEMA_FILE: Final = Path(__file__).with_name(SCHEMA)
PACKAGE: Final = "onebook"

FIGURE_BITS: Final = 128
FIGURE_DECIMALS_MAX: Final = 100
_WORD: Final = 64
_EXACT: Final = Context(prec=FIGURE_DECIMALS_MAX)
_FIELD: Final = re.compile(r"(?:(repeated|optional) )?(\w+) (\w+) = (\d+);")
_SCALARS: Final = {"bool", "bytes", "fixed32", "sint64", "string", "uint32", "uint64"}


# The schema


def _file() -> FileDescriptorProto:
    """Describe the file: its messages and enumerations have one member a line."""
    file = FileDescriptorProto(name=SCHEMA, package=PACKAGE, syntax="proto3")
    for line in map(str.strip, SCHEMA_FILE.read_text().splitlines()):
        kind, _, name = line.removesuffix(" {").partition(" ")
        if kind == "message":
            message = file.message_type.add(name=name)
        elif kind == "enum":
            file.enum_type.add(name=name)
        elif found := _FIELD.fullmatch(line):
            _add_field(message, {each.name for each in file.enum_type}, *found.groups())
        elif (value := re.fullmatch(r"(\w+) = (\d+);", line)) is not None:
            file.enum_type[-1].value.add(name=value[1], number=int(value[2]))
    return file


def _add_field(
    message: DescriptorProto, enums: set[str], label: str | None, kind: str, name: str, number: str
) -> None:
    proto = FieldDescriptorProto
    field = message.field.add(
        name=name, number=int(number), label=proto.LABEL_OPTIONAL, json_name=_camel(name)
    )
    if label == "repeated":
        field.label = proto.LABEL_REPEATED
    elif label == "optional":  # in proto3: a union of one
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    if kind in _SCALARS:
        field.type = proto.Type.Value(f"TYPE_{kind.upper()}")
    else:
        field.type = proto.TYPE_ENUM if kind in enums else proto.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


FILE: Final = _file()
_pool = DescriptorPool()
_pool.Add(FILE)


def _class(name: str) -> Any:
    return GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


Update: Final = _class("Update")
Fill: Final = _class("Fill")
Crossing: Final = _class("Crossing")
Times: Final = _class("Times")
ExchangeTimes: Final = _class("ExchangeTimes")
LayerTimes: Final = _class("LayerTimes")
Conversion: Final = _class("Conversion")


# Figures


def figures(numbers: Iterable[Decimal | None]) -> list[int]:
    """Encode decimal numbers.

    Raises:
        OverflowError: A number has more digits than `FIGURE_BITS`.
    """
    found: list[int] = []
    for number in numbers:
        if number is None:
            found.append(0)
            continue
        whole, _, fraction = f"{number:f}".lstrip("-").partition(".")
        fraction = fraction.rstrip("0")
        digits = int(whole + fraction)
        if digits >> FIGURE_BITS:
            raise OverflowError(f"{number} has more than {FIGURE_BITS} bits")
        high = digits >> _WORD
        found += 1 + 4 * len(fraction) + 2 * (number < 0) + (high > 0), digits & (1 << _WORD) - 1
        if high:
            found.append(high)
    return found


def decimals(numbers: Iterable[int]) -> Iterator[Decimal | None]:
    """Decode figures.

    Raises:
        ValueError: They are invalid.
    """
    rest = iter(numbers)
    for form in rest:
        if not form:
            yield None
            continue
        scale, negative, wide = form - 1 >> 2, form - 1 & 2, form - 1 & 1
        digits = next(rest, None)
        high = next(rest, None) if wide else 0
        if digits is None or high is None or scale > FIGURE_DECIMALS_MAX:
            raise ValueError("has a figure that is cut off or too long")
        value = high << _WORD | digits
        yield Decimal(-value if negative else value).scaleb(-scale, _EXACT)
