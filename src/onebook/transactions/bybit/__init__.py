"""Bybit v5: requests, responses, and their mapping to transaction records.

Exchange pages: https://bybit-exchange.github.io/docs/v5/intro. `endpoints` contains the facts of
every path, `api` signs requests and interprets answers, `pages` builds queries and reads their
pages, `instruments` describes the markets, and `trades`, `funds` and `ledger` map rows to records.
`adapter` uses them to read an account, and defines the exchange for `transactions.exchange`.
"""

from onebook.transactions.bybit.adapter import BYBIT
from onebook.transactions.bybit.endpoints import ENTRY

__all__ = ["BYBIT", "ENTRY"]
