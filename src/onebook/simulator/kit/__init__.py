"""Shared parts of simulated exchanges, available to dialects with one import statement.

`board` has the published books, the rules and the base class `Dialect`; `market` makes the books;
`loopback` serves clients; `server` runs simulated exchanges, `replay` recorded ones.
"""

from onebook.simulator.kit.board import (
    CONNECTION_ID,
    TOP,
    ChannelKey,
    Dialect,
    Dropped,
    ExchangeBoard,
    ExchangeRules,
    Frame,
    Most,
    Now,
    PublishedBook,
    RestReply,
    SimulatedSession,
    Spelling,
    TextChanges,
    TextLevels,
    answered,
    dumped,
    loaded,
)
from onebook.simulator.kit.market import ListedSymbol, Profile, units

__all__ = [
    "CONNECTION_ID",
    "TOP",
    "ChannelKey",
    "Dialect",
    "Dropped",
    "ExchangeBoard",
    "ExchangeRules",
    "Frame",
    "ListedSymbol",
    "Most",
    "Now",
    "Profile",
    "PublishedBook",
    "RestReply",
    "SimulatedSession",
    "Spelling",
    "TextChanges",
    "TextLevels",
    "answered",
    "dumped",
    "loaded",
    "units",
]
