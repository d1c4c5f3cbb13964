"""The HTTP server: listening sockets, socket limits, and uvicorn with deadlines."""

from onebook.http.connection import TIMEOUTS, HttpTimeouts
from onebook.http.server import EmbeddedServer, listening, reserve_files, serving, sharing

__all__ = [
    "TIMEOUTS",
    "EmbeddedServer",
    "HttpTimeouts",
    "listening",
    "reserve_files",
    "serving",
    "sharing",
]
