"""Connections to exchanges: opens them, keeps them open, and applies their frames to books.

`catalogue` holds the instruments, `supervisor` decides which feeds exist, `feed` keeps one
connection open, and `session` is its sans-I/O state machine. `ccxt` connects exchanges without a
connector.
"""

from onebook.feeds.catalogue import Catalogue, read_list
from onebook.feeds.ccxt import Library
from onebook.feeds.supervisor import Supervisor, enabled

__all__ = ["Catalogue", "Library", "Supervisor", "enabled", "read_list"]
