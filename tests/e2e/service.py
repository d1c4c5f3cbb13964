"""A whole node for the end-to-end tests, and a plain WebSocket client."""

import asyncio
import json
import time
from contextlib import asynccontextmanager
from decimal import Decimal

import httpx
from websockets.asyncio.client import connect

from onebook import app, config
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.gateway import LIMITS
from onebook.gateway.upgrade import PATH
from onebook.http import TIMEOUTS
from onebook.model import Tier
from onebook.store import AuditedChange
from steady import PATIENCE_S


def settings_in(folder, **tables):
    """Settings with all files in `folder`, and a free port."""
    return config.load(
        overrides={
            "server": {"port": 0, **tables.pop("server", {})},
            "store": {
                "url": f"sqlite+aiosqlite:///{folder / 'onebook.db'}",
                "pepper_file": str(folder / "pepper"),
                **tables.pop("store", {}),
            },
            "transactions": {"master_key_file": str(folder / "master_key")},
            **tables,
        }
    )


def pointed_at(urls):
    """Feed overrides for simulated or replayed exchanges."""
    return {
        name: config.ExchangeSettings(ws_url=each.ws, rest_url=each.rest)
        for name, each in urls.items()
    }


@asynccontextmanager
async def node_on(urls, folder, *, gateway_limits=LIMITS, timeouts=TIMEOUTS, **tables):
    async with app.running(
        settings_in(folder, **tables),
        overrides=pointed_at(urls),
        gateway_limits=gateway_limits,
        timeouts=timeouts,
    ) as node:
        await node.catalogue.first_read()
        yield node


async def key_of(node, name="alice", tier=Tier.PREMIUM):
    """The text of a new key."""
    admin = Admin(node.store, load_pepper(node.settings.store.pepper_file))
    change = AuditedChange(time.time_ns() // 1_000_000, "tests", "a test's key")
    await admin.create_account(name, change)
    return (await admin.create_key(name, tier, change)).text


async def until_ready(url, expected=200, problem=""):
    """Wait for an answer of /readyz, which also names a problem.

    A node that had to wait for the processor is not ready until it has reached its database again.
    """
    last = None
    async with httpx.AsyncClient(base_url=url) as http:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    answer = await http.get("/readyz")
                    last = answer.status_code, answer.json().get("problems", [])
                    if last[0] == expected and problem in "\n".join(last[1]):
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"/readyz: {last}") from None


def ws_url(node):
    return node.url.replace("http", "ws", 1) + PATH


class Client:
    """A connected client: sends messages, keeps the last book of each symbol."""

    def __init__(self, socket):
        self.socket = socket
        self.received_bytes = 0

    async def say(self, **message):
        await self.socket.send(json.dumps(message))

    async def next(self):
        async with asyncio.timeout(PATIENCE_S):
            text = await self.socket.recv()
        self.received_bytes += len(text.encode())
        return json.loads(text, parse_float=Decimal)

    async def until(self, condition):
        """The first message that satisfies a condition."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition(message := await self.next()):
                pass
        return message

    async def kind(self, kind):
        return await self.until(lambda message: message["type"] == kind)


@asynccontextmanager
async def client_of(node, key, **options):
    """A client that has authenticated."""
    async with connect(ws_url(node), compression=None, close_timeout=1, **options) as socket:
        client = Client(socket)
        await client.kind("welcome")
        client.received_bytes = 0  # what came before the key is not charged
        await client.say(type="authenticate", api_key=key)
        await client.kind("welcome")
        yield client


def merged(books, depth):
    """The brute-force merge: all levels of all exchanges in one dict per side.

    Args:
        books: By exchange, (bids, asks) as {price text: amount text}.
        depth: Levels a side.

    Returns:
        Two lists of (price, amount, exchanges), best first.
    """
    sides = []
    for side in (0, 1):
        levels = {}
        for name in sorted(books):
            for price, amount in books[name][side].items():
                level = levels.setdefault(Decimal(price), [Decimal(0), []])
                level[0] += Decimal(amount)
                level[1].append(name)
        prices = sorted(levels, reverse=side == 0)[:depth]
        sides.append([(price, levels[price][0], levels[price][1]) for price in prices])
    return tuple(sides)


def shown(data):
    """The same for an update's `data`."""
    return tuple(
        [
            (Decimal(level["price"]), Decimal(level["amount"]), level["exchanges"])
            for level in data[side]
        ]
        for side in ("bids", "asks")
    )
