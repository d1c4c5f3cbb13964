"""The adapter of Kraken: spot and futures, each read from its own ledger."""

from onebook.transactions.kraken.adapter import KRAKEN

__all__ = ["KRAKEN"]
