"""Streams: live books of a symbol merged at their own pace, encoded once for all clients."""

from onebook.clock import iso_us
from onebook.streams.ports import BookSupervisor, InstrumentLookup, Publisher
from onebook.streams.stream import ARRAY, DELTA, FULL, OBJECT, Stream, StreamKey
from onebook.streams.streams import Streams

__all__ = [
    "ARRAY",
    "DELTA",
    "FULL",
    "OBJECT",
    "BookSupervisor",
    "InstrumentLookup",
    "Publisher",
    "Stream",
    "StreamKey",
    "Streams",
    "iso_us",
]
