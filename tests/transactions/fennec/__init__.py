"""Fennec, an exchange that does not exist, as unlike Bybit as the neutral parts allow.

Its lists come oldest first (one has no times at all and a cursor that lasts), its requests are
POSTs with a nonce that must rise, its credentials have a passphrase, its limit is one for all
paths. `account` is the exchange, `adapter` reads it; they share no code.
"""
