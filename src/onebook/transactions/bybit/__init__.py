"""Bybit v5: requests, responses, and their mapping to transaction records.

Exchange pages: https://bybit-exchange.github.io/docs/v5/intro. `endpoints` holds the facts of every
path, `api` signs requests and interprets answers, `pages` writes queries and reads their pages,
`instruments` knows the markets, `trades`, `funds` and `ledger` map rows to records. `adapter` reads
an account with them and defines the exchange for `transactions.exchange`.
"""

from onebook.transactions.bybit.adapter import BYBIT
from onebook.transactions.bybit.endpoints import ENTRY

__all__ = ["BYBIT", "ENTRY"]
