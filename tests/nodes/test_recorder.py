"""A feeds node, a gateway and a recorder as processes: the recorder's past is what clients saw."""

import asyncio
import json
from decimal import Decimal

import httpx
import pytest
from websockets.asyncio.client import connect

import onebook
from nodes.processes import cluster
from onebook.archive.folder import HistoryFolder
from onebook.archive.format import integers
from onebook.errors import ConfigError
from onebook.ops import preflight
from onebook.orderbook import HistoryMissing
from steady import PATIENCE_S

pa = pytest.importorskip("pyarrow")
SYMBOL = "BTC/USDT"
EXCHANGE = "okx"
DEPTH = 20
SEEN = 40
YEAR_US = 365 * 86_400_000_000


async def seen(url, key):
    """The levels of each update of one book on the gateway."""
    found = []
    async with asyncio.timeout(PATIENCE_S), connect(url) as client:
        await client.send(json.dumps({"type": "authenticate", "api_key": key}))
        asked = {"type": "subscribe_aggregated", "symbol": SYMBOL, "exchanges": [EXCHANGE]}
        await client.send(json.dumps({**asked, "depth": DEPTH, "levels": "array"}))
        while len(found) < SEEN:
            message = json.loads(await client.recv(), parse_float=Decimal)
            if message["type"] == "aggregated_orderbook_update" and message["data"]["bids"]:
                book = message["data"]
                found.append(tuple(levels_of(book[side]) for side in ("bids", "asks")))
    return found


def levels_of(side):
    return tuple((Decimal(price), Decimal(amount)) for price, amount, *_ in side)


def recorded(folder):
    """The best levels of the book after each recorded moment."""
    history = HistoryFolder(folder)
    rows = history.rows(history.hours(), SYMBOL, 0, 100 * YEAR_US, (EXCHANGE,))[EXCHANGE]
    found = set()
    for at_us in sorted(set(integers(rows["received"], pa.int64()))):
        try:
            past = onebook.history(folder, SYMBOL, at=at_us, exchanges=[EXCHANGE], depth=DEPTH)
        except HistoryMissing:
            continue
        found.add(
            tuple(
                tuple((level.price, level.amount) for level in side)
                for side in (past.bids, past.asks)
            )
        )
    return found


async def metric(nodes, name, metric):
    async with httpx.AsyncClient() as http:
        page = (await http.get(f"http://{nodes.places[name]}/metrics")).text
    return next(
        float(line.split()[-1]) for line in page.splitlines() if line.startswith(f"{metric} ")
    )


@pytest.mark.timeout(180)
async def test_a_recorder_follows_books_without_clients_and_its_past_is_what_clients_saw(tmp_path):
    history = {
        "ONEBOOK_HISTORY__DIR": str(tmp_path / "history"),
        "ONEBOOK_HISTORY__SYMBOLS": json.dumps([SYMBOL, "NO/SUCH"]),
    }
    async with cluster(tmp_path, exchanges=(EXCHANGE, "kraken")) as (nodes, simulated, key):
        await nodes.start("f1", "feeds")
        await nodes.start("recorder", "recorder", **history)
        async with asyncio.timeout(PATIENCE_S):  # no client has subscribed to anything
            while any(simulated[name].followers(SYMBOL) != 1 for name in simulated.urls):
                await asyncio.sleep(0.02)
            while not await metric(nodes, "recorder", "onebook_history_messages_total"):
                await asyncio.sleep(0.05)
        assert await metric(nodes, "recorder", "onebook_history_kept_books") == 2
        await nodes.start("g1", "gateway", **history)  # the same settings, and it does not record
        updates = await seen(nodes.urls["g1"], key)
        assert "Books are not recorded" not in "".join(nodes.logs["g1"])
        assert await nodes.stop("recorder") == 0
        log = "".join(nodes.logs["recorder"])
    assert "Recording 2 books" in log
    assert "No exchange lists NO/SUCH (history.symbols)." in log
    past = await asyncio.to_thread(recorded, tmp_path / "history")
    assert [each for each in updates if each not in past] == []


def test_a_recorder_needs_a_folder_and_pairs(tmp_path):
    path = tmp_path / "onebook.toml"
    path.write_text("[node]\nrole = 'recorder'\n")
    with pytest.raises(ConfigError, match=r"history\.dir must be set") as raised:
        preflight.require(preflight.load(path))
    assert "history.symbols must name the pairs" in str(raised.value)
