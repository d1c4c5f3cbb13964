"""The exchanges of the transaction interface; a new one is one line here."""

from typing import Final

from onebook.config import TransactionSettings
from onebook.transactions.bybit import BYBIT
from onebook.transactions.exchange import ExchangeAdapter, ExchangeDefinition

EXCHANGES: Final[dict[str, ExchangeDefinition]] = {
    each.entry.name: each
    for each in (
        BYBIT,
    )
}  # fmt: skip


def adapters_of(settings: TransactionSettings) -> list[ExchangeAdapter]:
    """A new adapter of every exchange."""
    return [ExchangeAdapter(each, settings) for each in EXCHANGES.values()]
