"""What simulated exchanges share: one import statement gives a dialect all that it needs."""

from onebook.simulator.kit.board import (
    CONNECTION_ID,
    BoardDialect,
    ChannelKey,
    Dialect,
    Dropped,
    ExchangeBoard,
    ExchangeRules,
    Frame,
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
from onebook.simulator.kit.listings import ListedSymbol, Profile
from onebook.simulator.kit.market import units
from onebook.simulator.kit.windows import Most

__all__ = [
    "CONNECTION_ID",
    "BoardDialect",
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
