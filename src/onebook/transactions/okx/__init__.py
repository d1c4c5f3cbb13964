"""The adapter of OKX: a trading and a funding account, each with a ledger of its own."""

from onebook.transactions.okx.adapter import OKX

__all__ = ["OKX"]
