"""The adapter of Kraken: spot and futures, each made of its own ledger."""

from onebook.transactions.kraken.adapter import KRAKEN

__all__ = ["KRAKEN"]
