"""The hot path: exact books, their merge and their encoding.

Two implementations with one interface (`_core.pyi`) and, by property tests, the same bytes out:
the compiled `_core.pyx` and the pure-Python `twin`, which is the fallback where nothing could be
compiled and the oracle of the tests.
"""
