"""Base of the generators of an account's history."""

from typing import NamedTuple

from onebook.simulator.accounts.bybit.books import AccountBooks
from onebook.simulator.accounts.bybit.history import History
from onebook.simulator.accounts.bybit.modes import Modes
from onebook.simulator.accounts.bybit.positions import Positions
from onebook.simulator.accounts.bybit.tables import AccountTables
from onebook.simulator.accounts.bybit.timeline import Timeline


class HistoryParts(NamedTuple):
    """The account under generation: what all of its generators share."""

    history: History
    timeline: Timeline
    tables: AccountTables
    books: AccountBooks
    modes: Modes
    positions: Positions


class HistoryGenerator:
    """Schedules events of one kind and books them."""

    def __init__(self, parts: HistoryParts) -> None:
        self._history = parts.history
        self._timeline = parts.timeline
        self._tables = parts.tables
        self._books = parts.books
        self._modes = parts.modes
        self._positions = parts.positions
