"""Recorded sessions, replayed, reach a client as the book that the recordings add up to."""

import json
import re
from contextlib import asynccontextmanager

import pytest

from e2e.service import client_of, key_of, merged, node_on, shown
from onebook.simulator.kit.replay import Replay

DEPTH = 100


def messages(path):
    """The JSON frames of a recording, read without our own reader."""
    for line in path.read_text().splitlines():
        if re.match(r"[\d.]+: \{", line):
            yield json.loads(line.partition(": ")[2])


def final_book(path, wanted):
    """A plain dict of each side after every order-book frame of a recording.

    `wanted` gives (kind, bids, asks) of a frame of the symbol, None of any other.
    """
    book = ({}, {})
    for message in messages(path):
        found = wanted(message)
        if found is None:
            continue
        kind, *sides = found
        for levels, changes in zip(book, sides, strict=True):
            if kind == "snapshot":
                levels.clear()
            for price, amount, *_ in changes:
                levels[price] = amount
                if not float(amount):
                    del levels[price]
    return book


def okx(message):
    arg = message.get("arg", {})
    if arg.get("channel") != "books" or arg.get("instId") != "BTC-USDT" or "data" not in message:
        return None
    data = message["data"][0]
    return message["action"], data["bids"], data["asks"]


def poloniex(message):
    if message.get("channel") != "book_lv2" or "data" not in message:
        return None
    data = message["data"][0]
    if data["symbol"] != "BTC_USDT":
        return None
    return message["action"], data["bids"], data["asks"]


@asynccontextmanager
async def playing(paths, folder):
    """A client of a node on replayed exchanges."""
    async with (
        Replay(paths, speed=None) as replay,
        node_on(replay.urls, folder) as node,
        client_of(node, await key_of(node)) as client,
    ):
        client.stats = node.supervisor.stats
        yield client


@pytest.fixture
def frames(samples):
    return samples / "exchange_frames"


async def test_okx_and_poloniex_replayed_together_are_one_merged_book(frames, tmp_path):
    expected = merged(
        {
            "okx": final_book(frames / "OKX.ws.1.0", okx),
            "poloniex": final_book(frames / "POLONIEX.ws.1.0", poloniex),
        },
        DEPTH,
    )
    assert all(len(side) == DEPTH for side in expected)
    paths = [frames / "OKX.ws.1.0", frames / "POLONIEX.ws.1.0"]
    async with playing(paths, tmp_path) as client:
        await client.say(
            type="subscribe_aggregated", symbol="BTC/USDT", exchanges="all",
            depth=DEPTH, interval_ms=10,
        )  # fmt: skip
        answer = await client.kind("aggregated_subscription_response")
        assert answer["exchanges"] == ["okx", "poloniex"]
        update = await client.until(
            lambda message: "data" in message and shown(message["data"]) == expected
        )
        assert update["data"]["stale_exchanges"] == []
        assert update["data"]["market_stats"]["participating_exchanges"] == 2


async def test_binance_replays_without_a_gap_through_the_service(frames, tmp_path):
    symbols = {
        "NKN/USDT": "NKNUSDT",
        "BLZ/ETH": "BLZETH",
        "LRC/BTC": "LRCBTC",
        "RUNE/EUR": "RUNEEUR",
    }
    paths = [frames / "BINANCE.ws.1.0", frames / "BINANCE.http.0.0"]
    async with playing(paths, tmp_path) as client:
        for symbol, native in symbols.items():
            expected = merged({"binance": binance_book(paths, native)}, DEPTH)
            await client.say(
                type="subscribe_aggregated", symbol=symbol, exchanges=["binance"],
                depth=DEPTH, interval_ms=10,
            )  # fmt: skip
            await client.until(
                lambda message, want=expected: "data" in message and shown(message["data"]) == want
            )
        assert not any(stats.invalidations for stats in client.stats.values())


def binance_book(paths, native):
    """The REST body and the deltas after it, by the exchange's documented rule."""
    line = next(line for line in paths[1].read_text().splitlines() if f"symbol={native}&" in line)
    body, _ = json.JSONDecoder().raw_decode(line, line.index("{"))
    last = body["lastUpdateId"]
    book = [dict(map(tuple, body[side])) for side in ("bids", "asks")]
    for message in messages(paths[0]):
        data = message.get("data", {})
        if data.get("e") != "depthUpdate" or data["s"] != native or data["u"] <= last:
            continue
        assert data["U"] <= last + 1 <= data["u"] or data["U"] == last + 1
        last = data["u"]
        for levels, changes in zip(book, (data["b"], data["a"]), strict=True):
            for price, amount in changes:
                levels[price] = amount
                if not float(amount):
                    del levels[price]
    return book
