"""Bybit v5: requests, responses, and their mapping to transaction records.


Exchange pages: https://bybit-exchange.github.io/docs/v5/intro. `endpoints` holds the facts of every
path, `client` signs and asks, `instruments` knows the markets, `trades`, `closings`, `funds` and
`ledger` map rows to records, `adapter` puts them behind the protocol of `transactions.adapter`.
"""

from onebook.transactions.bybit.adapter import BybitAdapter
from onebook.transactions.bybit.endpoints import ENTRY

__all__ = ["ENTRY", "BybitAdapter"]
