"""The HTTP side of the one port: listening sockets, their limits, and uvicorn with deadlines."""

from onebook.http.server import EmbeddedServer, listening, reserve_files, serving, sharing

__all__ = ["EmbeddedServer", "listening", "reserve_files", "serving", "sharing"]
