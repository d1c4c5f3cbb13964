"""Onebook: every exchange in one order book; every account in one ledger."""

__version__ = "0.1.0"
