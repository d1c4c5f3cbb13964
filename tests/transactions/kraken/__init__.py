"""Tests of the adapter of Kraken."""
