"""The product under load: a whole node with real accounts, and books that the benchmark changes.

`app.running` as `onebook serve` runs it: SQLite, REST, pages, gateway, feeds. Its exchanges are
simulated ones that stand still in another process, so that the benchmark alone decides when a
book changes and by how much. Nothing of the node is replaced; three limits are raised that would
refuse so many clients of one address or end clients that answer no ping.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path

import load
from msgspec import Raw

import stream
from onebook import app, config
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.exchanges.kit import Delta, Snapshot
from onebook.gateway import GatewayLimits
from onebook.model import Instrument, Tier
from onebook.simulator.kit.market import PAIRS
from onebook.store import AuditedChange

CLIENTS_PER_KEY = 20  # what the premium tier allows
FILES_BESIDE = 2_000  # open files of a process beside its clients' sockets
LEVELS = 200
PING_S = 3_600.0
QUICK = GatewayLimits(close_timeout_s=0.0)  # ends without waiting for the clients
# More than two, so that a stream that sees every second change still sees one.
AMOUNTS = [f"{whole}.50001" for whole in range(1, 8)]
PRICES = {pair.symbol: float(pair.price) for pair in PAIRS}  # a book whose price jumps is rejected


@contextmanager
def still_exchanges() -> Iterator[dict[str, config.ExchangeSettings]]:
    """Where the simulated exchanges are."""
    script = Path(__file__).with_name("exchanges.py")
    process = subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    load.settle_on(1, process.pid)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        urls = json.loads(process.stdout.readline())
        yield {
            name: config.ExchangeSettings(ws_url=ws, rest_url=rest)
            for name, (ws, rest) in urls.items()
        }
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def files_in(folder: Path) -> dict[str, dict[str, object]]:
    """Tables of settings that keep a node's files in a folder, on a free port."""
    return {
        "server": {"port": 0},
        "store": {
            "url": f"sqlite+aiosqlite:///{folder / 'onebook.db'}",
            "pepper_file": str(folder / "pepper"),
        },
        "transactions": {"master_key_file": str(folder / "master_key")},
    }


@asynccontextmanager
async def running(
    clients: int,
    *,
    places: Mapping[str, config.ExchangeSettings] | None = None,
    limits: GatewayLimits = QUICK,
    **gateway: object,
) -> AsyncIterator[app.Node]:
    """A node with room for so many clients.

    Args:
        clients: How many.
        places: Where its exchanges are; by default simulated ones that stand still.
        limits: Of its connections.
        gateway: Settings of that table.
    """
    load.lift_file_limit(clients + FILES_BESIDE)
    standing = still_exchanges() if places is None else nullcontext(places)
    with tempfile.TemporaryDirectory() as name, standing as places:
        folder = Path(name)
        settings = config.load(
            overrides={
                **files_in(folder),
                "gateway": {
                    "connections_max": clients + 100,
                    "connects_per_minute": 0,
                    "ping_interval_s": PING_S,
                    "drain_s": 0,
                    **gateway,
                },
            }
        )
        async with app.running(settings, overrides=places, gateway_limits=limits) as node:
            while not all(node.catalogue.loaded(exchange) for exchange in places):
                await asyncio.sleep(0.05)
            yield node


async def keys_for(node: app.Node, clients: int) -> list[str]:
    """Keys enough for so many clients, each within its tier."""
    admin = Admin(node.store, load_pepper(node.settings.store.pepper_file))
    change = AuditedChange(time.time_ns() // 1_000_000, "bench", "a benchmark's key")
    await admin.create_account("bench", change)
    count = -(-clients // CLIENTS_PER_KEY)
    return [(await admin.create_key("bench", Tier.PREMIUM, change)).text for _ in range(count)]


def hello(key: str, *subscriptions: dict[str, object]) -> list[str]:
    """Messages of one client: authentication and subscriptions."""
    messages = [{"type": "authenticate", "api_key": key}]
    messages += [{"type": "subscribe_aggregated", **each} for each in subscriptions]
    return [json.dumps(message) for message in messages]


def hellos(keys: list[str], subscriptions: list[list[dict[str, object]]]) -> Iterator[list[str]]:
    """The hellos of clients in turn: each key serves its share, subscriptions go round."""
    wanted = itertools.cycle(subscriptions)
    for key in keys:
        for _ in range(CLIENTS_PER_KEY):
            yield hello(key, *next(wanted))


class Hand:
    """Changes books of a node as its feeds do."""

    def __init__(self, node: app.Node, exchanges: list[str], symbols: list[str]) -> None:
        self._books = node.books
        self._now = node.gateway.parts.clock.monotonic
        found = [
            node.catalogue.instrument(exchange, symbol)
            for exchange in exchanges
            for symbol in symbols
        ]
        self.instruments: list[Instrument] = [each for each in found if each is not None]
        assert len(self.instruments) == len(exchanges) * len(symbols)
        self._changes: list[Iterator[Delta]] = []
        self._best: list[str] = []

    def fill(self) -> None:
        """Give every book levels of its own, the same at each run."""
        for number, instrument in enumerate(self.instruments):
            mid = round(PRICES[instrument.symbol] * stream.TICKS)
            sides = stream.Stream(LEVELS, seed=100 + number, mid=mid).snapshot()
            self._apply(Snapshot(instrument, *(_levels(side) for side in sides)))
            best = stream.price(sides[0][0][0])
            self._best.append(best)
            deltas = [
                Delta(instrument, Raw(f'[["{best}","{amount}"]]'.encode()), Raw(b"[]"))
                for amount in AMOUNTS
            ]
            self._changes.append(itertools.cycle(deltas))

    def change(self, count: int | None = None) -> None:
        """Change the best bid of the first `count` books, of all by default."""
        for deltas in self._changes[:count]:
            self._apply(next(deltas))

    def change_next(self) -> None:
        """Change the best bid of one book, of each in turn."""
        self._changes.append(deltas := self._changes.pop(0))
        self._apply(next(deltas))

    def set_amount(self, amount: str) -> None:
        """Give the best bid of every book this amount."""
        for instrument, best in zip(self.instruments, self._best, strict=True):
            self._apply(Delta(instrument, Raw(f'[["{best}","{amount}"]]'.encode()), Raw(b"[]")))

    def _apply(self, output: Snapshot | Delta) -> None:
        books = self._books
        put = books.fill if isinstance(output, Snapshot) else books.change
        reason = put(output, self._now())  # type: ignore[arg-type]
        assert reason is None, reason


def _levels(side: stream.Side) -> Raw:
    return Raw(json.dumps([[stream.price(p), stream.amount(q)] for p, q in side]).encode())


async def subscribed(node: app.Node, sink: load.Sink, subscriptions: int) -> None:
    """Wait until every client is authenticated and has all its subscriptions."""
    gateway, deadline = node.gateway, time.monotonic() + load.PATIENCE_S + sink.clients / 100
    while True:
        sink.check()
        # Read from the clients themselves: the service has no reason to count this.
        ready = sum(
            len(each.processor.subscriptions) == subscriptions and each.processor.key is not None
            for each in gateway.connections
        )
        if ready == sink.clients:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{ready} of {sink.clients} clients are subscribed")
        await asyncio.sleep(0.1)
