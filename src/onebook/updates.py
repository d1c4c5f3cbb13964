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
_FIELDS: Final = {
    1: ("subscription", "uint32", ""),
    2: ("update_number", "uint64", ""),
    3: ("elapsed_us", "sint64", "optional"),
    4: ("checksum", "fixed32", "optional"),
    5: ("bids", "uint64", "repeated"),
    6: ("asks", "uint64", "repeated"),
    7: ("stale", "uint32", "repeated"),
    8: ("bid_parts", "uint64", "repeated"),
    9: ("ask_parts", "uint64", "repeated"),
    10: ("bid_gross", "uint64", "repeated"),
    11: ("ask_gross", "uint64", "repeated"),
    12: ("time_us", "uint64", ""),
    13: ("price_scale", "uint32", ""),
    14: ("amount_scale", "uint32", ""),
    15: ("gross_scale", "uint32", ""),
    16: ("skipped", "uint32", ""),
    17: ("ages_ms", "sint64", "repeated"),
    18: ("more", "bytes", ""),
    19: ("json", "bytes", ""),
    20: ("exchanges", "string", "repeated"),
    21: ("symbol", "string", ""),
    22: ("id", "string", ""),
    23: ("view", "string", ""),
}


def _field(at: int, name: str, kind: str, label: str) -> FieldDescriptorProto:
    proto = FieldDescriptorProto
    field = proto(name=name, number=at, label=proto.LABEL_OPTIONAL, json_name=_camel(name))
    if label == "repeated":
        field.label = proto.LABEL_REPEATED
    field.type = proto.Type.Value(f"TYPE_{kind.upper()}")
    return field


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def _message() -> DescriptorProto:
    message = DescriptorProto(name="Update")
    for at, (name, kind, label) in _FIELDS.items():
        described = _field(at, name, kind, label)
        if label == "optional":  # in proto3: a union of one
            described.proto3_optional = True
            described.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
        message.field.append(described)
    return message


FILE: Final = FileDescriptorProto(
    name=SCHEMA, package="onebook", syntax="proto3", message_type=[_message()]
)
_pool = DescriptorPool()
_pool.Add(FILE)
_descriptor = _pool.FindMessageTypeByName("onebook.Update")
Update: Final[Any] = GetMessageClass(_descriptor)
