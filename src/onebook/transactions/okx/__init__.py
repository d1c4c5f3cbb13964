"""The adapter of OKX: a trading and a funding account, each with its own ledger."""

from onebook.transactions.okx.adapter import OKX

__all__ = ["OKX"]
