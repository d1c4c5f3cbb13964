"""Frames in, in pure Python: msgspec alone, which the compiled reader is measured by."""

from collections.abc import Callable
from types import UnionType
from typing import Any, Generic, TypeVar, overload

import msgspec

T = TypeVar("T")


class Reader(Generic[T]):
    """Reads frames of one Struct type, or of a union of them."""

    @overload
    def __init__(self, kind: type[T]) -> None: ...
    @overload
    def __init__(self: "Reader[Any]", kind: UnionType) -> None: ...
    def __init__(self, kind: Any) -> None:
        self.read: Callable[[bytes], T] = msgspec.json.Decoder(kind).decode
