"""Live connections to exchanges: opens them, keeps them up, and applies their frames to books.

`catalogue` holds the instruments, `supervisor` decides which feeds exist, `feed` owns one socket,
and `session` is the sans-I/O state machine of one connection. `ccxt` connects the exchanges without
a connector of ours.
"""

from onebook.feeds.catalogue import Catalogue, read_list
from onebook.feeds.ccxt import Library
from onebook.feeds.supervisor import Supervisor, enabled

__all__ = ["Catalogue", "Library", "Supervisor", "enabled", "read_list"]
