"""An oracle of random accounts: rows, an exchange that serves them, and the expected records.

Nothing here uses our simulator or our mapping: what it states is taken from Bybit's pages.
"""
