"""Live connections to exchanges: which to have, how to keep them, what their frames do to books.

`catalogue` knows what can be asked for, `supervisor` decides which feeds exist, `feed` owns one
socket, and `session` is the thinking of one connection without I/O. `ccxt` is the long tail.
"""

from onebook.feeds.catalogue import Catalogue
from onebook.feeds.ccxt import Library
from onebook.feeds.lists import read_list
from onebook.feeds.supervisor import Supervisor, enabled

__all__ = ["Catalogue", "Library", "Supervisor", "enabled", "read_list"]
