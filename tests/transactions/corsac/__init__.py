"""Corsac, an invented exchange with the features that Fennec lacks.

Its history is one list for each wallet, newest first and without times, and a conversion is a row
in each of two wallets; grants are shown at most five a window, without a cursor. A key belongs to a
region with its own host; the vault has another host and another key; demo is a header; one product
was never opened. Its limit is a weight that answers state. `account` is the exchange, `adapter`
reads it; they share no code.
"""
