"""Protobuf messages of exchanges, stated in code by field number: no .proto, no generated module.

A connector states the fields that it reads and nothing else; the library skips the others. What
the core scans (`LevelShape.protobuf`) is stated as `BYTES`: a sub-message is on the wire what bytes
are, so its levels never become objects. https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

TEXT: Final = FieldDescriptorProto.TYPE_STRING  # invalid UTF-8 is an error
BYTES: Final = FieldDescriptorProto.TYPE_BYTES  # bytes, or an undecoded sub-message
INT64: Final = FieldDescriptorProto.TYPE_INT64


def reader(**fields: tuple[int, int]) -> Callable[[bytes], Any]:
    """Make the function that reads messages with these fields: name=(number, type).

    An absent field reads as empty, of a repeated one the last counts. What is no such message
    raises `DecodeError`, one of `frames.UNREADABLE`.
    """
    message = DescriptorProto(name="Message")
    for name, (number, kind) in fields.items():
        message.field.add(
            name=name, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL
        )
    file = FileDescriptorProto(name="message.proto", syntax="proto3", message_type=[message])
    pool = DescriptorPool()
    pool.Add(file)
    read: Callable[[bytes], Any] = GetMessageClass(pool.FindMessageTypeByName("Message")).FromString
    return read
