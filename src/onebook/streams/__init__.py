"""Streams: live books of a symbol merged at their own pace, encoded once for all clients."""

from onebook.streams.ports import BookSupervisor, Clock, Handle, InstrumentLookup, Publisher
from onebook.streams.stream import ARRAY, DELTA, FULL, OBJECT, Stream, StreamKey
from onebook.streams.streams import Streams
from onebook.times import iso_us

__all__ = [
    "ARRAY",
    "DELTA",
    "FULL",
    "OBJECT",
    "BookSupervisor",
    "Clock",
    "Handle",
    "InstrumentLookup",
    "Publisher",
    "Stream",
    "StreamKey",
    "Streams",
    "iso_us",
]
