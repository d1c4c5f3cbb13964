"""At their own pace, the live books of a symbol become one encoded update for everyone."""

from onebook.streams.ports import Catalogue, Clock, Handle, Publisher, Supervisor
from onebook.streams.stream import ARRAY, DELTA, FULL, OBJECT, Stream, StreamKey
from onebook.streams.streams import Streams
from onebook.times import iso_us

__all__ = [
    "ARRAY",
    "DELTA",
    "FULL",
    "OBJECT",
    "Catalogue",
    "Clock",
    "Handle",
    "Publisher",
    "Stream",
    "StreamKey",
    "Streams",
    "Supervisor",
    "iso_us",
]
