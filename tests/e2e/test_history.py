"""A recording node is killed and restarted: the history equals what its client saw."""

import asyncio
import json
import signal
import time
from decimal import Decimal

import pytest
from websockets.asyncio.client import connect

import onebook
from e2e.service import settings_in
from e2e.test_process import ended, listening, process
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.model import Tier
from onebook.orderbook import HistoryMissing
from onebook.simulator import SimulatedExchanges
from onebook.store import AuditedChange, Store
from steady import PATIENCE_S

NAMES = ("okx", "kraken", "binance")
SYMBOL = "BTC/USDT"
DEPTH = 20
SEEN = 20  # updates of each life of the node
LOST_MAX_US = 1_000_000


async def key_in(folder):
    settings = settings_in(folder)
    async with Store(settings.store.url) as store:
        await store.database.upgrade(create=True)
        admin = Admin(store, load_pepper(settings.store.pepper_file))
        change = AuditedChange(time.time_ns() // 1_000_000, "tests", "a test's key")
        await admin.create_account("alice", change)
        return (await admin.create_key("alice", Tier.PREMIUM, change)).text


def environment(folder, urls):
    return {
        "ONEBOOK_SERVER__PORT": "0",
        "ONEBOOK_STORE__URL": f"sqlite+aiosqlite:///{folder / 'onebook.db'}",
        "ONEBOOK_STORE__PEPPER_FILE": str(folder / "pepper"),
        "ONEBOOK_TRANSACTIONS__MASTER_KEY_FILE": str(folder / "master_key"),
        "ONEBOOK_HISTORY__DIR": str(folder / "history"),
        "ONEBOOK_FEEDS__EXCHANGES": json.dumps([*urls]),
        "ONEBOOK_FEEDS__OVERRIDES": json.dumps(
            {name: {"ws_url": each.ws, "rest_url": each.rest} for name, each in urls.items()}
        ),
        "XDG_DATA_HOME": str(folder),
    }


def levels_of(side):
    return [(Decimal(price), Decimal(amount)) for price, amount, *_ in side]


async def seen(port, key, count):
    """The updates of a client: merge time and levels."""
    found = []
    async with asyncio.timeout(PATIENCE_S), connect(f"ws://127.0.0.1:{port}/api/v1/ws") as client:
        await client.send(json.dumps({"type": "authenticate", "api_key": key}))
        asked = {"type": "subscribe_aggregated", "symbol": SYMBOL, "depth": DEPTH}
        await client.send(json.dumps({**asked, "levels": "array", "times": True}))
        while len(found) < count:
            message = json.loads(await client.recv(), parse_float=Decimal)
            if message["type"] == "aggregated_orderbook_update":
                book = message["data"]
                sides = levels_of(book["bids"]), levels_of(book["asks"])
                found.append((book["times"]["merged"], sides))
    return found


@pytest.mark.timeout(180)
async def test_what_clients_saw_is_in_the_history_of_a_killed_node(tmp_path):
    key = await key_in(tmp_path)
    async with SimulatedExchanges(NAMES, rate_hz=20) as simulated:
        words = environment(tmp_path, simulated.urls)
        async with process("serve", **words) as node:
            first = await seen(await listening(node), key, SEEN)
            killing_us = time.time_ns() // 1_000
            node.send_signal(signal.SIGKILL)
            await node.wait()
            killed_us = time.time_ns() // 1_000
        async with process("serve", **words) as node:
            second = await seen(await listening(node), key, SEEN)
            node.send_signal(signal.SIGTERM)
            code, _, errors = await ended(node)
            assert code == 0, errors
    equal = 0
    for at_us, (bids, asks) in first + second:
        try:
            past = onebook.history(tmp_path / "history", SYMBOL, at=at_us, depth=DEPTH)
        except HistoryMissing:
            assert killing_us - LOST_MAX_US < at_us < killed_us
            continue
        assert [(level.price, level.amount) for level in past.bids] == bids, at_us
        assert [(level.price, level.amount) for level in past.asks] == asks, at_us
        equal += 1
    assert equal > 1.5 * SEEN
    with pytest.raises(HistoryMissing, match="recorded until"):
        onebook.history(tmp_path / "history", SYMBOL, at=killed_us)
