"""A service over a simulated OKX account, in virtual time."""

from collections.abc import Callable
from typing import Any

import httpx

from onebook.clock import Clock
from onebook.config import TransactionSettings
from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkx, SimulatedOkxKey
from onebook.transactions.adapter import Environment
from onebook.transactions.credentials import Credentials
from onebook.transactions.okx import OKX
from transactions.bybit_support import (
    CLOCK,
    NOW_MS,
    SETTINGS,
    AccountWorld,
    SimulatedHosts,
    loop_now_ms,
)

UUID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
KEY = SimulatedOkxKey(UUID, "A0B1C2D3E4F5061728394A5B6C7D8E9F", "a passphrase")
SITES = {"global": "www.okx.com", "eea": "eea.okx.com", "us": "us.okx.com"}


class OkxWorld(AccountWorld):
    """A service over one simulated account of OKX.

    Args:
        account: What happened; a generated one of 60 days if absent.
        site: Options of the simulated sites.
        fields: More fields of the stored credentials, such as the region.
        around: Wraps the transport.
    """

    def __init__(
        self,
        account: OkxAccount | None = None,
        *,
        history: OkxHistory | None = None,
        key: SimulatedOkxKey = KEY,
        site: dict[str, Any] | None = None,
        fields: dict[str, str] | None = None,
        environment: Environment = Environment.MAINNET,
        latency_s: float = 0.05,
        clock: Clock = CLOCK,
        around: Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport] | None = None,
        settings: TransactionSettings = SETTINGS,
    ) -> None:
        past = history or OkxHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=600)
        self.account = account or OkxAccount(past)
        more = {"now_ms": loop_now_ms} | (site or {})
        self.exchanges = {
            region: SimulatedOkx(self.account, [key], region=region, **more) for region in SITES
        }
        self.exchange = self.exchanges["global"]
        self.transport = SimulatedHosts(
            {SITES[region]: exchange for region, exchange in self.exchanges.items()},
            latency_s=latency_s,
        )
        stored = {"passphrase": key.passphrase} | (fields or {})
        super().__init__(
            OKX,
            Credentials(key.api_key, key.secret, **stored),
            self.transport,
            environment=environment,
            settings=settings,
            clock=clock,
            around=around,
        )
