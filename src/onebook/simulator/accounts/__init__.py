"""Simulated exchange accounts: shared parts, and one package per exchange.

`history` holds rows, pages, balances and exact amounts, `blocks` histories of any size, `admission`
checks requests, `serving` has the HTTP hosts. An exchange adds its history, its rows and its
envelope; `accounts.bybit` is the model. `DEMO_ACCOUNTS` lists the accounts of `onebook demo`; a new
one is one line here.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from onebook.simulator.accounts import bybit, kraken, okx


class ServedAccount(Protocol):
    """A simulated account that is served, with what a client needs to read it."""

    @property
    def url(self) -> str:
        """Address of the exchange."""

    @property
    def hosts(self) -> Mapping[str, str]:
        """Addresses of its other hosts, by name."""

    @property
    def fields(self) -> Mapping[str, str]:
        """Valid credentials: `api_key`, `secret` and what else it requires."""


DEMO_ACCOUNTS: Final[dict[str, Callable[[], AbstractAsyncContextManager[ServedAccount]]]] = {
    "bybit": bybit.demo,
    "kraken": kraken.demo,
    "okx": okx.demo,
}
