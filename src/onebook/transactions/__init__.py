"""Transactions of exchange accounts in one exact, complete, repeatable form.

`request` defines and checks a request, `service` and `run` execute it, `walk` reads and merges the
sources, `cursor` continues the sequence on the next page, `verify` and `reconciliation` prove the
records, `export` and `taxes` write them to files.

An exchange is a definition (`exchange`, `registry`) of facts and functions, in the types of
`adapter`, over neutral parts: `client` and `limits` send its requests, `markets` holds its
instruments and reads sources by symbol. `bybit` is an example. `availability` says whether an
exchange can be queried now.
"""
