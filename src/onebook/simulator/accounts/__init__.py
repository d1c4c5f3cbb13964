"""Simulated exchange accounts: what all have in common, and one package per exchange.

`history` holds rows, pages, balances and exact amounts, `admission` checks requests, `serving`
connects clients. An exchange adds its history, its rows and its envelope; `accounts.bybit` is the
model. `DEMO_ACCOUNTS` lists the accounts of `onebook demo`; a new one is one line here.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from onebook.simulator.accounts import bybit


class ServedKey(Protocol):
    """The key of a served account."""

    @property
    def api_key(self) -> str:
        """Its public part."""

    @property
    def secret(self) -> str:
        """Its secret part."""


class ServedAccount(Protocol):
    """A simulated account that is served: its address and a valid key."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def key(self) -> ServedKey:
        """A key that it accepts."""


DEMO_ACCOUNTS: Final[dict[str, Callable[[], AbstractAsyncContextManager[ServedAccount]]]] = {
    "bybit": bybit.demo,
}
