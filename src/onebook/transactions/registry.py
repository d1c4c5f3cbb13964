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


def adapter_of(name: str, settings: TransactionSettings) -> ExchangeAdapter:
    """A new adapter of an exchange."""
    # Beside the master key, which the nodes and the commands of an installation have in common.
    return ExchangeAdapter(EXCHANGES[name], settings, shared=settings.master_key_file.parent)


def adapters_of(settings: TransactionSettings) -> list[ExchangeAdapter]:
    """A new adapter of every exchange."""
    return [adapter_of(name, settings) for name in EXCHANGES]
