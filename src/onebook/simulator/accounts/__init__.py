"""Simulated exchange accounts: shared parts, and one package per exchange.

`history` has rows, pages, balances and exact amounts, `blocks` has histories of any size,
`admission` checks requests, and `serving` has the HTTP hosts. Each exchange adds its history, its
rows and its envelope; `accounts.bybit` is the model. `DEMO_ACCOUNTS` lists the accounts of `onebook
demo`; adding one is one line here.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from onebook.simulator.accounts import bybit, kraken, okx


class ServedAccount(Protocol):
    """A served simulated account, with everything that a client needs to read it."""

    @property
    def url(self) -> str:
        """Address of the exchange."""

    @property
    def hosts(self) -> Mapping[str, str]:
        """Addresses of its other hosts, by name."""

    @property
    def fields(self) -> Mapping[str, str]:
        """Valid credentials: `api_key`, `secret`, and any others that it requires."""


DEMO_ACCOUNTS: Final[dict[str, Callable[[], AbstractAsyncContextManager[ServedAccount]]]] = {
    "bybit": bybit.demo,
    "kraken": kraken.demo,
    "okx": okx.demo,
}
