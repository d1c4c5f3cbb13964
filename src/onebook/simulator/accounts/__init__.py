"""Parts of simulated exchange accounts, whatever the exchange.

`stamps` checks timestamps, `limits` counts requests, `faults` draws what goes wrong, `tables` holds
rows and pages through them in either direction, `ledger` keeps the identity of a wallet's book,
`amounts` calculates exactly, `transport` and `serving` connect clients. An exchange adds its
history, its rows and its envelope: `accounts.bybit` is the model.
"""
