"""Tests of the adapter of OKX."""
