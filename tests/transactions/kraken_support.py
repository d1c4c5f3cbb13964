"""A service over a simulated Kraken account, spot and futures, in virtual time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from onebook.clock import Clock
from onebook.config import AccountUrls, TransactionSettings
from onebook.model import DAY_MS
from onebook.simulator.accounts.kraken import (
    KrakenAccount,
    KrakenHistory,
    SimulatedFuturesKey,
    SimulatedKraken,
    SimulatedKrakenFutures,
    SimulatedKrakenKey,
)
from onebook.transactions.credentials import Credentials
from onebook.transactions.exchange import ExchangeDefinition
from onebook.transactions.kraken import KRAKEN
from transactions.bybit_support import (
    CLOCK,
    NOW_MS,
    SETTINGS,
    AccountWorld,
    SimulatedHosts,
    loop_now_ms,
)

KEY = SimulatedKrakenKey("krakenkey0000000000", "a3Jha2VuLXNlY3JldC1vZi10aGUtdGVzdHM=")
FUTURES_KEY = SimulatedFuturesKey("futureskey000000000", "ZnV0dXJlcy1zZWNyZXQtb2YtdGhlLXRlc3Rz")
SPOT_URL, FUTURES_URL = "http://spot.simulated", "http://futures.simulated"


class KrakenWorld(AccountWorld):
    """A service over one simulated account of Kraken, spot and futures.

    Args:
        account: What happened; a generated one of 60 days if absent.
        spot, futures: Options of the simulated hosts.
        futures_key: Whether the operator has set the futures key.
        around: Wraps the transport.
    """

    def __init__(
        self,
        account: KrakenAccount | None = None,
        *,
        history: KrakenHistory | None = None,
        key: SimulatedKrakenKey = KEY,
        spot: dict[str, Any] | None = None,
        futures: dict[str, Any] | None = None,
        futures_key: bool = True,
        latency_s: float = 0.05,
        clock: Clock = CLOCK,
        nonces: Path = Path("/nonexistent/master.key"),
        around: Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport] | None = None,
        settings: TransactionSettings = SETTINGS,
        definition: ExchangeDefinition = KRAKEN,
    ) -> None:
        past = history or KrakenHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=600)
        self.account = account or KrakenAccount(past)
        now = {"now_ms": loop_now_ms}
        self.exchange = SimulatedKraken(self.account, [key], **(now | (spot or {})))
        self.derivatives = SimulatedKrakenFutures(
            self.account, [FUTURES_KEY], **(now | (futures or {}))
        )
        self.transport = SimulatedHosts(
            {"spot.simulated": self.exchange, "futures.simulated": self.derivatives},
            latency_s=latency_s,
        )
        stored = {"futures_key": FUTURES_KEY.api_key, "futures_secret": FUTURES_KEY.secret}
        hosts = AccountUrls(hosts={"spot": SPOT_URL, "futures": FUTURES_URL})
        super().__init__(
            definition,
            Credentials(key.api_key, key.secret, **(stored if futures_key else {})),
            self.transport,
            settings=settings,
            accounts=settings.model_copy(
                update={"overrides": {"kraken": hosts}, "master_key_file": nonces}
            ),
            clock=clock,
            around=around,
        )
