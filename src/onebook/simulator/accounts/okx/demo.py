"""The OKX account of `onebook demo`: the exchange and its file host on loopback ports."""

import secrets
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from onebook.clock import SYSTEM_CLOCK
from onebook.model import DAY_MS
from onebook.simulator.accounts.okx.account import OkxAccount
from onebook.simulator.accounts.okx.exports import SimulatedOkxFiles
from onebook.simulator.accounts.okx.facts import OkxHistory
from onebook.simulator.accounts.okx.keys import SimulatedOkxKey
from onebook.simulator.accounts.okx.server import SimulatedOkx
from onebook.simulator.accounts.serving import serving
from onebook.simulator.accounts.streams import living

DEMO_DAYS: Final = 1_600
DEMO_ROWS: Final = 1_500
DEMO_EXPORT_S: Final = 5.0
DEMO_ACTS: Final = {"order": 6, "position": 1, "deposit": 1}


class DemoOkx(NamedTuple):
    """A served account: the address of the site, its file host, and a valid key."""

    url: str
    key: SimulatedOkxKey
    exchange: SimulatedOkx

    @property
    def hosts(self) -> Mapping[str, str]:
        """Addresses of its other hosts, by name."""
        return {"files": self.exchange.files.url}

    @property
    def fields(self) -> Mapping[str, str]:
        """Its credentials."""
        key = self.key
        return {"api_key": key.api_key, "secret": key.secret, "passphrase": key.passphrase}


@asynccontextmanager
async def demo() -> AsyncIterator[DemoOkx]:
    """Serve an account with years of trading; without limits, so that a demo is quick to read."""
    now_ms = SYSTEM_CLOCK.wall_ms()
    account = OkxAccount(OkxHistory(now_ms - DEMO_DAYS * DAY_MS, now_ms, rows=DEMO_ROWS))
    key = SimulatedOkxKey(str(uuid.uuid4()), secrets.token_hex(16).upper(), secrets.token_hex(8))
    files = SimulatedOkxFiles(account, making_s=DEMO_EXPORT_S)
    exchange = SimulatedOkx(account, [key], files=files, limited=False)
    async with (
        serving(files) as files.url,
        serving(exchange) as url,
        living(exchange.act, DEMO_ACTS),
    ):
        yield DemoOkx(url, key, exchange)
