"""A whole node for the tests of the clients: two simulated exchanges and a simulated account."""

import time
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

from e2e.service import key_of, node_on
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.model import DAY_MS
from onebook.simulator import SimulatedExchanges
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit, SimulatedKey
from onebook.simulator.accounts.bybit.server import DemoAccount
from onebook.simulator.accounts.serving import serving
from onebook.store import AuditedChange
from onebook.transactions.credentials import Credentials, Vault, master_keys

NAMES = ["okx", "kraken"]
KEEP_DAYS = 36_500  # of a history that was recorded with a clock of the test
ACCOUNT = SimulatedKey("account000000000", "secret0000000000000000000000000000")


class Place:
    """A node, its exchanges, its account and one key."""

    def __init__(self, node, simulated, bybit, key):
        self.node = node
        self.simulated = simulated
        self.bybit = bybit
        self.key = key

    @property
    def url(self):
        return self.node.url

    async def move_key(self, action):
        """Apply an operator's change from another process, and poll."""
        now_ms = time.time_ns() // 1_000_000
        admin = Admin(self.node.store, load_pepper(self.node.settings.store.pepper_file))
        await admin.move_key(self.key, action, AuditedChange(now_ms, "tests", action))
        await self.node.accounts.poll(now_ms)


@asynccontextmanager
async def small_account(days: int = 20, executions: int = 300):
    """Serve an account of this age."""
    now_ms = time.time_ns() // 1_000_000
    bybit = SimulatedBybit(
        Account(History(now_ms - days * DAY_MS, now_ms, executions=executions)), [ACCOUNT]
    )
    async with serving(bybit) as url:
        yield DemoAccount(url, ACCOUNT, bybit)


@asynccontextmanager
async def place(folder: Path, *, rate_hz: float = 20, account: DemoAccount | None = None, **tables):
    """Run a node; `settings` names a table of settings, and an account can be served."""
    now_ms = time.time_ns() // 1_000_000
    async with (
        SimulatedExchanges(NAMES, rate_hz=rate_hz) as simulated,
        nullcontext(account) if account else small_account() as served,
        node_on(
            simulated.urls,
            folder,
            transactions={
                "overrides": {"bybit": {"mainnet_url": served.url, "testnet_url": served.url}},
                "master_key_file": str(folder / "master_key"),
            },
            **tables,
        ) as node,
    ):
        vault = Vault(node.store.credentials, master_keys(node.settings.transactions))
        credentials = Credentials(served.key.api_key, served.key.secret)
        await vault.put("bybit", "mainnet", credentials, now_ms=now_ms)
        yield Place(node, simulated, served.exchange, await key_of(node))
