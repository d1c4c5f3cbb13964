"""Kraken's half of the transaction interface."""
