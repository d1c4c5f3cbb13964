"""Binary updates of order books: the message classes of `onebook.proto`, without generated code.

`onebook.proto` is the published schema; a test compares it with these fields.
"""

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

# Fields by number: a name, its type, and whether it is a list or may be absent.
_SIDE: Final = {
    1: ("prices", "uint64", "repeated"),
    2: ("amounts", "uint64", "repeated"),
    3: ("members", "uint64", "repeated"),
    4: ("parts", "uint64", "repeated"),
    5: ("gross", "uint64", "repeated"),
}
_UPDATE: Final = {
    1: ("subscription", "uint32", ""),
    2: ("update_number", "uint64", ""),
    3: ("time_us", "uint64", ""),
    4: ("elapsed_us", "sint64", "optional"),
    5: ("price_scale", "uint32", ""),
    6: ("amount_scale", "uint32", ""),
    7: ("gross_scale", "uint32", ""),
    8: ("bids", "Side", ""),
    9: ("asks", "Side", ""),
    10: ("checksum", "fixed32", "optional"),
    11: ("stale", "uint32", "repeated"),
    12: ("skipped", "uint32", ""),
    13: ("ages_ms", "sint64", "repeated"),
    14: ("more", "bytes", ""),
    15: ("json", "bytes", ""),
    16: ("exchanges", "string", "repeated"),
    17: ("symbol", "string", ""),
    18: ("id", "string", ""),
    19: ("view", "string", ""),
}


def _field(at: int, name: str, kind: str, label: str) -> FieldDescriptorProto:
    proto = FieldDescriptorProto
    field = proto(name=name, number=at, label=proto.LABEL_OPTIONAL, json_name=_camel(name))
    if label == "repeated":
        field.label = proto.LABEL_REPEATED
    if kind == "Side":
        field.type, field.type_name = proto.TYPE_MESSAGE, ".onebook.Side"
    else:
        field.type = proto.Type.Value(f"TYPE_{kind.upper()}")
    return field


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def _message(name: str, fields: dict[int, tuple[str, str, str]]) -> DescriptorProto:
    message = DescriptorProto(name=name)
    for at, (field, kind, label) in fields.items():
        described = _field(at, field, kind, label)
        if label == "optional":  # in proto3: a union of one
            described.proto3_optional = True
            described.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field}")
        message.field.append(described)
    return message


FILE: Final = FileDescriptorProto(
    name=SCHEMA,
    package="onebook",
    syntax="proto3",
    message_type=[_message("Update", _UPDATE), _message("Side", _SIDE)],
)
_pool = DescriptorPool()
_pool.Add(FILE)
_descriptor = _pool.FindMessageTypeByName("onebook.Update")
Update: Final[Any] = GetMessageClass(_descriptor)
