"""The exchanges of the transaction interface: every adapter by its name."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from onebook.config import TransactionSettings
from onebook.transactions import bybit
from onebook.transactions.adapter import Adapter, ExchangeEntry


class Registration(Struct, frozen=True):
    """An exchange with transactions: its facts, and what makes its adapter from the settings."""

    entry: ExchangeEntry
    make: Callable[[TransactionSettings], Adapter]


ADAPTERS: Final[dict[str, Registration]] = {
    each.entry.name: each for each in (Registration(bybit.ENTRY, bybit.Bybit),)
}


def adapters_of(settings: TransactionSettings) -> list[Adapter]:
    """A new adapter of every exchange."""
    return [each.make(settings) for each in ADAPTERS.values()]
