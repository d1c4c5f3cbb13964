"""The book of a past moment over real sockets, from a history that the node recorded."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from gateway.rig import SYMBOL, gateway
from onebook.archive.format import HOUR_US
from onebook.archive.recorder import HistoryRecorder
from onebook.client import AsyncOnebook
from onebook.clock import us_of_iso
from onebook.errors import HistoryNotFound, HistoryUnavailable, InvalidRequest
from onebook.streams import past
from onebook.streams.past import NO_HISTORY


@asynccontextmanager
async def recording(folder, **options):
    """A node, a client of it, and the recorder of its books, which a test flushes."""
    async with gateway(folder, history=folder / "history", **options) as node:
        key = await node.key()
        recorder = HistoryRecorder(
            node.books, folder / "history", keep_days=10, keep_bytes=1 << 40, clock=node.clock
        )
        await recorder.begin()
        async with node.client(key) as client:
            yield node, client, recorder


def at_of(update):
    return us_of_iso(update["timestamp"])


async def updates_of(node, client, count):
    """Change the books; the client keeps each update."""
    found = []
    for number in range(count):
        exchange = ("okx", "binance")[number % 2]
        node.delta(exchange, [(str(90 + number % 9), str(1 + number))])
        found.append(await client.next())
    return found


async def test_a_past_book_is_what_clients_were_sent(tmp_path):
    async with recording(tmp_path) as (node, client, recorder):
        for exchange in ("okx", "binance"):
            node.snapshot(exchange)
        asked = {"symbol": SYMBOL, "split": True, "depth": 15}
        await client.ask(type="subscribe_aggregated", interval_ms=0, **asked)
        await client.until("aggregated_orderbook_update")
        kept = await updates_of(node, client, 25)
        node.lose("okx")
        without = await client.until("aggregated_orderbook_update")
        await recorder.flush()
        for update in kept[::4]:
            answer = await client.ask(
                type="get_aggregated_orderbook", as_of=str(at_of(update)), id=3, **asked
            )
            assert (answer["type"], answer["id"]) == ("aggregated_orderbook_data", 3)
            assert answer["timestamp"] == update["timestamp"]
            for side in ("bids", "asks", "market_stats", "stale_exchanges"):
                assert answer["data"][side] == update["data"][side], str(answer)
            states = answer["data"]["states"]
            assert (states["okx"]["state"], states["kraken"]["state"]) == ("live", "offline")
            assert states["kraken"]["reason"] == "not_recorded"
            assert states["binance"]["age_ms"] < 60_000
        answer = await client.ask(
            type="get_aggregated_orderbook", as_of=without["timestamp"], **asked
        )
        assert answer["data"]["states"]["okx"]["state"] == "stale"
        assert answer["data"]["states"]["okx"]["reason"] == "gap"
        assert answer["data"]["stale_exchanges"] == ["kraken", "okx"]


async def test_the_checksum_of_the_past_is_the_checksum_of_deltas(tmp_path):
    async with recording(tmp_path) as (node, client, recorder):
        for exchange in ("okx", "binance"):
            node.snapshot(exchange)
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, interval_ms=0, mode="delta")
        await client.until("aggregated_orderbook_update")
        kept = await updates_of(node, client, 12)
        await recorder.flush()
        for update in kept:
            assert update["type"] == "aggregated_orderbook_delta"
            answer = await client.ask(
                type="get_aggregated_orderbook", symbol=SYMBOL, as_of=at_of(update)
            )
            assert answer["checksum"] == update["checksum"], (answer, update)


async def test_the_python_client_asks_for_a_past_book(tmp_path):
    async with recording(tmp_path) as (node, client, recorder):
        node.snapshot("okx")
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, exchanges=["okx"])
        update = await client.until("aggregated_orderbook_update")
        node.delta("okx", [("100", "0")])
        await client.until("aggregated_orderbook_update")
        await recorder.flush()
        async with AsyncOnebook(f"http://127.0.0.1:{node.port}", await node.key()) as service:
            view = await service.snapshot(SYMBOL, exchanges="okx", as_of=update["timestamp"])
            assert view.best_bid.price == 100


async def test_rest_answers_with_the_options_of_a_view(tmp_path):
    async with recording(tmp_path) as (node, client, recorder):
        for exchange in ("okx", "binance"):
            node.snapshot(exchange)
        options = {
            "depth": 3,
            "exchanges": ["okx", "binance"],
            "fees": {"*": "0.1"},
            "net": True,
            "fill": {"amounts": ["1"]},
        }
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, interval_ms=0, **options)
        update = await client.until("aggregated_orderbook_update")
        await recorder.flush()
        at_us = at_of(update)
        found = msgspec.json.decode(
            await node.gateway.book_at(SYMBOL, options | {"depth": "3", "net": "true"}, at_us, {})
        )
        assert len(found["data"]["fill"]["buy"]) == 1
        assert len(found["data"]["bids"]) == len(update["data"]["bids"])
        with pytest.raises(InvalidRequest, match="depth: must be a whole number"):
            await node.gateway.book_at(SYMBOL, {"depth": "none"}, at_us, {})
        with pytest.raises(InvalidRequest, match="in the future"):
            await node.gateway.book_at(SYMBOL, {}, at_us + 3_600_000_000, {})
        with pytest.raises(HistoryNotFound, match="The history has a gap at"):
            await node.gateway.book_at(SYMBOL, {}, at_us - 3_600_000_000, {})


async def test_what_cannot_be_answered_is_one_sentence(tmp_path):
    async with recording(tmp_path) as (node, client, recorder):
        await recorder.flush()
        ask = {"type": "get_aggregated_orderbook", "symbol": SYMBOL, "id": 1}
        refusal = await client.ask(**ask, as_of="yesterday")
        assert refusal["error"] == "invalid_parameters"
        assert refusal["message"].startswith("as_of: must be ISO 8601")
        refusal = await client.ask(**ask, as_of=node.clock.wall_us() + 10_000_000)
        assert refusal["message"] == "as_of: must not be in the future."
        refusal = await client.ask(**ask, as_of="2020-01-01T00:00:00")
        assert (refusal["error"], refusal["id"]) == ("history_not_found", 1)
        assert "recorded again from" in refusal["message"]
        assert str(tmp_path) not in refusal["message"]
    (tmp_path / "other").mkdir()
    async with gateway(tmp_path / "other") as node, node.client(await node.key()) as client:
        refusal = await client.ask(**ask, as_of="2020-01-01T00:00:00")
        assert (refusal["error"], refusal["message"]) == ("history_unavailable", NO_HISTORY)


async def test_a_damaged_file_is_an_answer_and_a_line_in_the_log(tmp_path, caplog):
    async with recording(tmp_path) as (node, client, recorder):
        node.snapshot("okx")
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, interval_ms=0)
        update = await client.until("aggregated_orderbook_update")
        await recorder.flush()
        for path in (tmp_path / "history").rglob("*.arrow"):
            path.write_bytes(path.read_bytes()[:-40])
        ask = {"type": "get_aggregated_orderbook", "symbol": SYMBOL, "id": 1}
        refusal = await client.ask(**ask, as_of=at_of(update))
        assert (refusal["error"], refusal["message"]) == ("history_unavailable", past.UNREADABLE)
        assert f"The book of {SYMBOL}" in caplog.text


async def test_the_quality_is_that_of_the_closed_hours(tmp_path):
    async with recording(tmp_path) as (node, _, recorder):
        node.snapshot("okx")
        await recorder.flush()
        (hour_us,) = recorder.folder.open_hours()
        asked = (hour_us, hour_us + HOUR_US, ["okx"], [SYMBOL], "book")
        assert await node.gateway.quality(*asked) == []
        assert recorder.folder.close_hour(hour_us)
        (row,) = await node.gateway.quality(*asked)
        assert (row["exchange"], row["symbol"], row["gaps"]) == ("okx", SYMBOL, 0)
        assert await node.gateway.quality(*asked[:2], ["kraken"], [], "book") == []


async def test_without_a_history_there_is_no_quality(tmp_path):
    async with gateway(tmp_path) as node:
        with pytest.raises(HistoryUnavailable, match=r"history\.dir"):
            await node.gateway.quality(0, HOUR_US, [], [], "exchange")


async def test_reads_are_bounded_and_have_a_deadline(tmp_path, monkeypatch):
    async with recording(tmp_path) as (node, _, recorder):
        node.snapshot("okx")
        await recorder.flush()
        at_us = node.clock.wall_us() - 1
        monkeypatch.setattr(past, "READ_TIMEOUT_S", 0)
        with pytest.raises(HistoryUnavailable, match="was not read within"):
            await node.gateway.book_at(SYMBOL, {}, at_us, {})
        monkeypatch.setattr(past, "READS_OPEN_MAX", 0)
        with pytest.raises(HistoryUnavailable, match="Too many parts of the history"):
            await node.gateway.book_at(SYMBOL, {}, at_us, {})


async def test_a_client_that_leaves_cancels_its_reads(tmp_path):
    async with recording(tmp_path) as (node, client, recorder):
        node.snapshot("okx")
        await recorder.flush()
        ask = {"type": "get_aggregated_orderbook", "symbol": SYMBOL}
        for _ in range(8):
            await client.say(**ask, as_of=node.clock.wall_us() - 1)
        await client.socket.close()
        async with asyncio.timeout(10):
            while node.gateway.subscriptions._reading:
                await asyncio.sleep(0)
