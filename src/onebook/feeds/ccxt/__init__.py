"""Books of exchanges without a connector, through ccxt.pro.

Off unless `feeds.ccxt.exchanges` names some and the extra `onebook[ccxt]` is installed. ccxt runs
in a thread with its own event loop (`worker`), because it parses lists of megabytes and leaves
tasks behind, which must not delay or outlive the node. `client` owns one ccxt client and writes
frames, `connection` passes them to the same sessions that native connections use, and
`exchanges.kit.through_ccxt` parses them.
"""

from onebook.feeds.ccxt.library import Library, enabled, faults

__all__ = ["Library", "enabled", "faults"]
