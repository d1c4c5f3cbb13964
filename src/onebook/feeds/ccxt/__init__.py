"""Books of exchanges without a connector, through ccxt.pro.

Off unless `feeds.ccxt.exchanges` names some and the extra `onebook[ccxt]` is installed. ccxt runs
in a thread with its own event loop (`worker`), so that parsing large lists does not delay the node
and all of ccxt's tasks can be ended. `client` owns one ccxt client and writes frames, `connection`
passes them to the sessions that native connections use too, and `exchanges.kit.through_ccxt` parses
them.
"""

from onebook.feeds.ccxt.library import Library, enabled, faults

__all__ = ["Library", "enabled", "faults"]
