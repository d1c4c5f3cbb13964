"""Bybit's half of the transaction interface."""
