"""Simulated accounts of `onebook demo`, by exchange; a new one is one line here."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from onebook.simulator.accounts import bybit
from onebook.simulator.accounts.bybit.demo import DemoAccount

DEMO_ACCOUNTS: Final[dict[str, Callable[[], AbstractAsyncContextManager[DemoAccount]]]] = {
    "bybit": bybit.demo,
}
