"""A whole service with an exchange through ccxt beside one with a connector."""

import asyncio
import importlib.util
from contextlib import AsyncExitStack
from decimal import Decimal

import pytest

from e2e.service import client_of, key_of, merged, pointed_at, settings_in, shown
from longtail import without_connector
from onebook import app
from onebook.config import CcxtSettings, FeedSettings
from onebook.errors import ConfigError
from onebook.feeds.ccxt import library
from onebook.ops.preflight import faults
from onebook.simulator import SimulatedExchanges
from steady import PATIENCE_S

SYMBOL = "BTC/USDT"
DEPTH = 50

needs_ccxt = pytest.mark.skipif(
    importlib.util.find_spec("ccxt") is None, reason="the extra onebook[ccxt] is not installed"
)


@needs_ccxt
async def test_its_books_are_merged_and_marked(tmp_path):
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        simulated = await enter(SimulatedExchanges(["okx", "kraken"], rate_hz=0))
        places = pointed_at(simulated.urls)
        settings = settings_in(tmp_path, feeds={"ccxt": {"exchanges": ["okx"]}})
        stack.enter_context(without_connector("okx"))
        node = await enter(app.running(settings, overrides=places))
        await node.catalogue.first_read()
        client = await enter(client_of(node, await key_of(node)))
        await client.say(type="get_exchanges")
        data = (await client.kind("exchanges_data"))["data"]
        assert data["via"] == {"okx": "ccxt"}
        assert set(data["active_exchanges"]) == {"okx", "kraken"}
        assert "okx" in data["supported_exchanges"]
        await client.say(type="get_pairs", exchange="OKX")
        assert SYMBOL in (await client.kind("pairs_data"))["data"]["pairs"]

        await client.say(
            type="subscribe_aggregated",
            symbol=SYMBOL,
            depth=DEPTH,
            interval_ms=10,
            coverage=True,
        )
        answer = await client.kind("aggregated_subscription_response")
        assert answer["exchanges"] == ["kraken", "okx"]
        status = await client.until(lambda message: message.get("exchange") == "okx")
        assert (status["type"], status["via"]) == ("exchange_status", "ccxt")

        def truth():
            books = {name: simulated[name].book(SYMBOL) for name in ("kraken", "okx")}
            return merged({each: (b.bids, b.asks) for each, b in books.items()}, DEPTH)

        async def until_true():
            simulated.step()
            expected = truth()
            return await client.until(
                lambda message: (
                    message["type"] == "aggregated_orderbook_update"
                    and shown(message["data"]) == expected
                )
            )

        update = await until_true()
        ends = update["data"]["coverage"]["okx"]
        assert ends["bids"] < update["data"]["bids"][-1]["price"]
        assert ends["asks"] > update["data"]["asks"][-1]["price"]
        await until_true()


@needs_ccxt
async def test_crossings_state_whether_the_coin_can_be_moved(tmp_path):
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        simulated = await enter(SimulatedExchanges(["kucoin", "gate", "okx"], rate_hz=0))
        settings = settings_in(tmp_path, feeds={"ccxt": {"transfers": True}})
        node = await enter(app.running(settings, overrides=pointed_at(simulated.urls)))
        await node.catalogue.first_read()
        client = await enter(client_of(node, await key_of(node)))
        options = {"symbol": SYMBOL, "net": True}
        await client.say(type="subscribe_aggregated", fees="published", **options)
        answer = await client.kind("aggregated_subscription_response")
        fees = {each["exchange"]: each for each in answer["published_fees"]}
        assert fees.keys() == {"kucoin", "gate"}
        assert (fees["gate"]["percent"], fees["gate"]["source"]) == ("0.2", "instruments")
        assert (fees["kucoin"]["percent"], fees["kucoin"]["date"]) == ("0.1", "2026-03-26")
        assert answer["unknown_fee"] == ["okx"]

        # With rebates, every exchange crosses every other.
        options = {**options, "fees": {"*": "-1"}, "crossings": "0", "view": "crossed"}
        await client.say(type="subscribe_aggregated", **options)

        def moved(message, buy, sell):
            crossings = message.get("data", {}).get("crossings", ())
            found = [each for each in crossings if (each["buy"], each["sell"]) == (buy, sell)]
            return found[0].get("transferable") if found else None

        async def until_moved(buy, sell, whole):
            def is_known(message):
                known = moved(message, buy, sell)
                return known is not None and whole == (None not in (known["buy"], known["sell"]))

            while True:
                simulated.step()
                message = await client.kind("aggregated_orderbook_update")
                if is_known(message):
                    return moved(message, buy, sell)

        async with asyncio.timeout(PATIENCE_S):
            found = await until_moved("kucoin", "gate", whole=True)
            half = await until_moved("okx", "gate", whole=False)
        assert (found["coin"], found["possible"]) == ("BTC", True)
        assert (found["buy"]["via"], found["sell"]["deposit"]) == ("ccxt", True)
        (network,) = found["buy"]["networks"]
        assert (network["network"], network["withdraw_fee"]) == ("BTC", Decimal("0.0005"))
        assert (half["possible"], half["buy"]) == (None, None)  # OKX tells only account owners


def test_the_service_refuses_what_cannot_come_through_ccxt(tmp_path, monkeypatch):
    def said(*exchanges, **feeds):
        return faults(settings_in(tmp_path, feeds={"ccxt": {"exchanges": exchanges}} | feeds))

    assert said() == []
    with monkeypatch.context() as absent:
        absent.setattr(library, "installed", lambda: False)
        (absence,) = said("bitopro")
        assert absence.startswith("Command line: feeds.ccxt.exchanges: ccxt is not installed; ")
        assert 'pip install "onebook[ccxt]"' in absence
    if importlib.util.find_spec("ccxt") is None:
        pytest.skip("the extra onebook[ccxt] is not installed")
    assert said("bitopro", overrides={"bitopro": {"rest_url": "http://127.0.0.1:1"}}) == []
    (unknown,) = said("nowhere")
    assert unknown.startswith(
        "Command line: feeds.ccxt.exchanges: ccxt.pro has no exchange 'nowhere'; it has "
    )
    assert "bitopro" in unknown
    assert " okx," not in unknown, "what has a connector cannot come through ccxt"
    (native,) = said("gateio")
    assert native == (
        "Command line: feeds.ccxt.exchanges: 'gateio' has a native connector (gate); remove it "
        "from this list."
    )
    (deaf,) = said("mudrex")
    assert "(watchOrderBook)" in deaf
    (futures,) = said("krakenfutures")
    assert "no spot pairs" in futures
    (channel,) = said("bitopro", overrides={"bitopro": {"channel": "fast"}})
    assert channel == (
        "Command line: feeds.overrides.bitopro.channel: an exchange through ccxt has no channels."
    )
    with pytest.raises(ConfigError, match="nowhere"):
        library.enabled(FeedSettings(ccxt=CcxtSettings(exchanges=("nowhere",))))


@needs_ccxt
async def test_the_demo_connects_to_nothing_that_is_not_simulated(tmp_path, caplog):
    settings = settings_in(tmp_path, feeds={"ccxt": {"exchanges": ["bitopro"]}})
    async with (
        SimulatedExchanges(["kraken"], rate_hz=0) as simulated,
        app.running(settings, overrides=pointed_at(simulated.urls)) as node,
    ):
        assert list(node.supervisor.stats) == ["kraken"]
    assert "These exchanges have no simulator and stay unconnected: bitopro." in caplog.messages
