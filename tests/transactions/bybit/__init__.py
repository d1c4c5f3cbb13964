"""Tests of the adapter of Bybit."""
