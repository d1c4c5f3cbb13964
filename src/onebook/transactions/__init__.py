"""Transactions of exchange accounts in one exact, complete, repeatable form.

From a request to records: `request` and `query` describe what is asked for, `service` and `run`
execute it, `walk`, `reading` and `windows` read each source, `ordering` and `merge` make one
sequence, `answer` and `cursor` describe it, `verify` and `proof` prove it, `export` and `taxes`
write it.

An exchange is an adapter (`adapter`, `registry`) over neutral parts: `client`, `host` and `budget`
send its requests, `upstream` defines requests and replies, `markets` holds its instruments,
`fanout` queries by symbol, `bookkeeping` describes how it books events. `bybit` is one.
"""
