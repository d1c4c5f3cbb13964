"""The simulated Bybit of the demo: an account of ninety days behind a key made for the moment."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from onebook.clock import SYSTEM_CLOCK
from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit.account import Account
from onebook.simulator.accounts.bybit.history import History
from onebook.simulator.accounts.bybit.keys import SimulatedKey
from onebook.simulator.accounts.bybit.server import SimulatedBybit
from onebook.simulator.accounts.serving import serving

DEMO_DAYS: Final = 90


class DemoAccount(NamedTuple):
    """Where it is, and a key that opens it."""

    url: str
    key: SimulatedKey
    exchange: SimulatedBybit


@asynccontextmanager
async def demo() -> AsyncIterator[DemoAccount]:
    """An account of ninety days behind a key made for this moment."""
    now_ms = SYSTEM_CLOCK.wall_ms()
    key = SimulatedKey(f"demo{secrets.token_hex(8)}", secrets.token_hex(18))
    account = Account(History(now_ms - DEMO_DAYS * DAY_MS, now_ms))
    exchange = SimulatedBybit(account, [key])
    async with serving(exchange) as url:
        yield DemoAccount(url, key, exchange)
