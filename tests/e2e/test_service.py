"""The whole service as users see it: exchanges appear and disappear, bytes are counted."""

import asyncio
from decimal import Decimal

import httpx
import pytest

from e2e.service import client_of, key_of, merged, node_on, shown
from onebook import core
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import LossDetection
from onebook.gateway import fanout
from onebook.simulator import DIALECTS, SimulatedExchanges
from steady import PATIENCE_S, own_s

SYMBOL = "BTC/USDT"
# Whole books may come with the next change only, and the market of these tests stands still.
ALL = sorted(
    name
    for name, exchange in EXCHANGES.items()
    if exchange.guard is not LossDetection.WHOLE
    and any(each.symbol == SYMBOL for each in DIALECTS[name].listings)
)
DEPTH = 50


def truth(exchanges, names):
    """The expected merged book."""
    books = {name: exchanges[name].book(SYMBOL) for name in names}
    return merged({name: (book.bids, book.asks) for name, book in books.items()}, DEPTH)


@pytest.fixture
async def node(exchanges, tmp_path):
    async with node_on(exchanges.urls, tmp_path) as node:
        yield node


@pytest.fixture
async def client(node):
    async with client_of(node, await key_of(node)) as client:
        yield client


async def subscribed(client, simulated, **options):
    """Subscribe to everything; wait for the merged book of all."""
    await client.say(
        type="subscribe_aggregated",
        symbol=SYMBOL,
        depth=DEPTH,
        interval_ms=10,
        exchanges=ALL,
        **options,
    )
    answer = await client.kind("aggregated_subscription_response")
    await until_shown(client, truth(simulated, ALL))
    return answer


async def until_shown(client, expected):
    return await client.until(
        lambda message: (
            message["type"] == "aggregated_orderbook_update" and shown(message["data"]) == expected
        )
    )


async def test_one_book_is_merged_from_many_exchanges(client, exchanges):
    answer = await subscribed(client, exchanges)
    assert answer["exchanges"] == ALL
    for _ in range(5):
        exchanges.step()
        await until_shown(client, truth(exchanges, ALL))


async def test_coverage_says_where_the_book_of_each_exchange_ends(tmp_path):
    async with (
        SimulatedExchanges(["okx", "hitbtc"], rate_hz=0) as simulated,
        node_on(simulated.urls, tmp_path) as node,
        client_of(node, await key_of(node)) as client,
    ):
        books = {name: simulated[name].book(SYMBOL) for name in ("okx", "hitbtc")}
        expected = truth(simulated, books)
        await client.say(
            type="subscribe_aggregated",
            symbol=SYMBOL,
            depth=DEPTH,
            interval_ms=10,
            mode="delta",
            coverage=True,
        )
        assert (await client.kind("aggregated_subscription_response"))["options"]["coverage"]
        data = (await until_shown(client, expected))["data"]
        # hitbtc sends all levels, okx keeps a window of its best ones in step.
        window = EXCHANGES["okx"].depth
        assert min(len(books["okx"].bids), len(books["okx"].asks)) >= window
        ends = {
            "bids": sorted(map(Decimal, books["okx"].bids), reverse=True)[window - 1],
            "asks": sorted(map(Decimal, books["okx"].asks))[window - 1],
        }
        assert EXCHANGES["hitbtc"].depth == 0
        assert data["coverage"] == {"hitbtc": {"bids": None, "asks": None}, "okx": ends}
        simulated.step()
        delta = await client.kind("aggregated_orderbook_delta")
        assert delta["data"]["coverage"].keys() == {"hitbtc", "okx"}
        await simulated["okx"].stop()
        left = await client.until(lambda message: message.get("data", {}).get("stale_exchanges"))
        assert left["data"]["coverage"] == {"hitbtc": {"bids": None, "asks": None}}


async def test_a_killed_exchange_leaves_the_book_and_returns_with_a_fresh_snapshot(
    client, exchanges, node
):
    await subscribed(client, exchanges)
    others = [name for name in ALL if name != "okx"]
    await exchanges["okx"].stop()
    status = await client.kind("exchange_status")
    assert (status["exchange"], status["state"]) == ("okx", "stale")
    update = await client.kind("aggregated_orderbook_update")
    assert update["data"]["stale_exchanges"] == ["okx"]
    assert shown(update["data"]) == truth(exchanges, others)  # no other levels changed
    exchanges.step()
    await until_shown(client, truth(exchanges, others))

    await exchanges["okx"].start()
    live = await client.until(
        lambda message: message["type"] == "exchange_status" and message["state"] == "live"
    )
    assert live["exchange"] == "okx"
    await until_shown(client, truth(exchanges, ALL))


async def test_it_leaves_the_book_within_100_ms_of_detection(client, exchanges, node):
    await subscribed(client, exchanges)
    detected = []
    node.books.subscribe(on_health=lambda book, previous: detected.append(own_s()))
    exchanges["kraken"].corrupt_next(SYMBOL, "checksum")
    exchanges.step()
    await client.until(
        lambda message: (
            message["type"] == "aggregated_orderbook_update"
            and message["data"]["stale_exchanges"] == ["kraken"]
        )
    )
    assert own_s() - detected[0] < 0.1


async def test_every_byte_that_a_client_received_is_counted_once(node, exchanges):
    key = await key_of(node, "carol")
    async with client_of(node, key) as client:
        await subscribed(client, exchanges)
        exchanges.step()
        await until_shown(client, truth(exchanges, ALL))
        await client.say(type="unsubscribe_aggregated", symbol=SYMBOL)
        await client.kind("unsubscribe_response")  # nothing comes after it
        received = client.received_bytes
    async with asyncio.timeout(PATIENCE_S):
        while node.gateway.connections:
            await asyncio.sleep(0.01)
    async with httpx.AsyncClient(base_url=node.url) as http:
        report = (await http.get(f"/api/v1/data-usage/{key}")).json()
    assert report["data_usage"]["bytes_used"] == received


async def test_rest_and_websocket_share_one_port(node, client):
    async with httpx.AsyncClient(base_url=node.url) as http:
        health = (await http.get("/api/v1/health")).json()
        assert health["websocket_endpoint"] == "/api/v1/ws"
        assert (await http.get("/")).status_code == 200
        docs = await http.get("/docs")
        assert 'id="tag-bybit"' in docs.text
        assert "gateway.subscriptions_max" in docs.text
        assert str(node.settings.store.pepper_file) not in docs.text
        assert (await http.get("/metrics")).status_code == 200


@pytest.mark.parametrize(
    ("module", "part"),
    [
        (core, "core"),
        (fanout, "last step to clients"),
        (None, None),
    ],
)
async def test_a_node_names_what_is_not_compiled(
    exchanges, tmp_path, monkeypatch, caplog, module, part
):
    for each in (core, fanout):
        monkeypatch.setattr(each, "COMPILED", each is not module)
    async with node_on(exchanges.urls, tmp_path):
        pass
    said = [text for text in caplog.messages if text.startswith("Compiled extensions unavailable")]
    assert len(said) == (part is not None)
    assert all(f"unavailable ({part});" in text for text in said)
