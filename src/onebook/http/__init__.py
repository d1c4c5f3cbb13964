"""The HTTP side of the one port: listening sockets, their limits, and uvicorn with deadlines."""

from onebook.http.embedded import EmbeddedServer
from onebook.http.listeners import listening, reserve_files, sharing
from onebook.http.server import serving

__all__ = ["EmbeddedServer", "listening", "reserve_files", "serving", "sharing"]
