"""Simulated exchange accounts: what all have in common, and one package per exchange.

`history` holds rows, pages, balances and exact amounts, `admission` checks requests, `serving`
connects clients. An exchange adds its history, its rows and its envelope; `accounts.bybit` is the
model. `DEMO_ACCOUNTS` lists the accounts of `onebook demo`; a new one is one line here.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from onebook.simulator.accounts import bybit
from onebook.simulator.accounts.bybit.server import DemoAccount

DEMO_ACCOUNTS: Final[dict[str, Callable[[], AbstractAsyncContextManager[DemoAccount]]]] = {
    "bybit": bybit.demo,
}
