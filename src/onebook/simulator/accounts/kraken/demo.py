"""The Kraken account of `onebook demo`: both hosts on loopback ports, with new keys."""

import secrets
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, NamedTuple

from onebook.clock import SYSTEM_CLOCK
from onebook.model import DAY_MS
from onebook.simulator.accounts.kraken.account import KrakenAccount
from onebook.simulator.accounts.kraken.facts import KrakenHistory
from onebook.simulator.accounts.kraken.futures_server import SimulatedKrakenFutures
from onebook.simulator.accounts.kraken.keys import SimulatedFuturesKey, SimulatedKrakenKey
from onebook.simulator.accounts.kraken.server import SimulatedKraken
from onebook.simulator.accounts.serving import serving
from onebook.simulator.accounts.streams import living

DEMO_DAYS: Final = 1_600  # back to when staking had separate rows
DEMO_ROWS: Final = 1_500
DEMO_ACTS: Final = {"order": 6, "conversion": 1, "coin deposit": 1, "earn rewards": 1}


class DemoKraken(NamedTuple):
    """A served account: the address and a valid key of each host."""

    url: str
    key: SimulatedKrakenKey
    exchange: SimulatedKraken
    futures_url: str
    futures_key: SimulatedFuturesKey
    futures: SimulatedKrakenFutures

    @property
    def hosts(self) -> Mapping[str, str]:
        """Addresses of its other hosts, by name."""
        return {"futures": self.futures_url}

    @property
    def fields(self) -> Mapping[str, str]:
        """Valid credentials of both hosts."""
        return {
            "api_key": self.key.api_key,
            "secret": self.key.secret,
            "futures_key": self.futures_key.api_key,
            "futures_secret": self.futures_key.secret,
        }


@asynccontextmanager
async def demo() -> AsyncIterator[DemoKraken]:
    """Serve an account with years of trading; without limits, so that a demo is quick to read."""
    now_ms = SYSTEM_CLOCK.wall_ms()
    account = KrakenAccount(KrakenHistory(now_ms - DEMO_DAYS * DAY_MS, now_ms, rows=DEMO_ROWS))
    key = SimulatedKrakenKey(f"demo{secrets.token_hex(26)}", _secret())
    futures_key = SimulatedFuturesKey(f"demo{secrets.token_hex(26)}", _secret())
    exchange = SimulatedKraken(account, [key], limited=False)
    futures = SimulatedKrakenFutures(account, [futures_key], limited=False)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving(exchange))
        futures_url = await stack.enter_async_context(serving(futures))
        await stack.enter_async_context(living(exchange.act, DEMO_ACTS))
        yield DemoKraken(url, key, exchange, futures_url, futures_key, futures)


def _secret() -> str:
    return b64encode(secrets.token_bytes(64)).decode()
