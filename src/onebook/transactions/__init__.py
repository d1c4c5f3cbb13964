"""Transactions of exchange accounts in one exact, complete, repeatable form.

From a request to records: `request` defines and checks it, `service` and `run` execute it, `walk`
reads the sources and merges them, `cursor` continues the sequence, `verify` and `reconciliation`
prove it, `export` and `taxes` write it.

An exchange is a definition (`exchange`, `registry`) of facts and functions, in the types of
`adapter`, over neutral parts: `client` and `limits` send its requests, `markets` holds its
instruments and reads sources by symbol. `bybit` is one. `availability` says whether an exchange can
be asked now.
"""
