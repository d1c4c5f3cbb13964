"""Streams: live books of a symbol, merged at an interval and encoded once for all clients."""

from onebook.clock import iso_us
from onebook.streams.options import ViewOptions, about
from onebook.streams.stream import Stream, StreamKey
from onebook.streams.streams import BookSupervisor, InstrumentLookup, Publisher, Streams

__all__ = [
    "BookSupervisor",
    "InstrumentLookup",
    "Publisher",
    "Stream",
    "StreamKey",
    "Streams",
    "ViewOptions",
    "about",
    "iso_us",
]
