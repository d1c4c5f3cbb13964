"""The book of a past moment over real sockets, from a history that the node recorded."""

import asyncio
from contextlib import asynccontextmanager
from decimal import Decimal

import msgspec
import pytest

from gateway.rig import SYMBOL, gateway, parse, settled
from onebook.archive.format import HOUR_US
from onebook.archive.recorder import HistoryRecorder
from onebook.client import AsyncOnebook
from onebook.client.packed import PackedBook, decode
from onebook.client.view import BookView
from onebook.clock import us_of_iso
from onebook.errors import HistoryNotFound, HistoryUnavailable, InvalidRequest
from onebook.streams import past
from onebook.streams.past import NO_HISTORY, QualityQuery


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
        assert await node.gateway.quality(QualityQuery(*asked)) == []
        assert recorder.folder.close_hour(hour_us)
        (row,) = await node.gateway.quality(QualityQuery(*asked))
        assert (row["exchange"], row["symbol"], row["gaps"]) == ("okx", SYMBOL, 0)
        assert await node.gateway.quality(QualityQuery(*asked[:2], ["kraken"], [], "book")) == []


async def test_the_recorded_times_are_those_of_open_and_closed_hours(tmp_path):
    async with recording(tmp_path) as (node, _, recorder):
        node.snapshot("okx")
        await recorder.flush()
        (hour_us,) = recorder.folder.open_hours()
        open_times = await node.gateway.recorded(SYMBOL, hour_us, hour_us + HOUR_US)
        ((start_us, end_us),) = open_times.recorded
        assert (open_times.first_us, open_times.last_us) == (start_us, end_us)
        assert open_times.exchanges == {"okx": [(start_us, end_us)]}
        assert start_us < end_us <= node.clock.wall_us()
        assert recorder.folder.close_hour(hour_us)
        assert await node.gateway.recorded(SYMBOL, hour_us, hour_us + HOUR_US) == open_times
        middle_us = (start_us + end_us) // 2
        later = await node.gateway.recorded(SYMBOL, middle_us, hour_us + HOUR_US)
        assert later.recorded == [(middle_us, end_us)]
        other = await node.gateway.recorded("ETH/USDT", hour_us, hour_us + HOUR_US)
        assert (other.recorded, other.exchanges, other.last_us) == ([], {}, end_us)
        before = await node.gateway.recorded(SYMBOL, 0, start_us)
        assert before.recorded == []


async def test_without_a_history_there_is_no_quality(tmp_path):
    async with gateway(tmp_path) as node:
        with pytest.raises(HistoryUnavailable, match=r"history\.dir"):
            await node.gateway.quality(QualityQuery(0, HOUR_US, [], [], "exchange"))
        with pytest.raises(HistoryUnavailable, match=r"history\.dir"):
            await node.gateway.recorded(SYMBOL, 0, HOUR_US)


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


async def test_the_past_is_played_as_it_was_sent_and_runs_into_the_present(tmp_path):
    async with recording(tmp_path) as (node, client, recorder):
        for exchange in ("okx", "binance"):
            node.snapshot(exchange)
        asked = {"symbol": SYMBOL, "exchanges": ["okx", "binance"], "depth": 15, "mode": "delta"}
        await client.ask(type="subscribe_aggregated", interval_ms=0, **asked)
        first = await client.until("aggregated_orderbook_update")
        live = [first, *await updates_of(node, client, 25)]
        node.lose("okx")
        live.append(await client.until("aggregated_orderbook_delta"))
        node.snapshot("okx")
        live.append(await client.until("aggregated_orderbook_delta"))
        await recorder.flush()
        subscribed = await client.ask(
            type="subscribe_aggregated", interval_ms=0, view="past", start=str(at_of(first)),
            speed=0, id=9, **asked,
        )  # fmt: skip
        assert (subscribed["type"], subscribed["id"]) == ("aggregated_subscription_response", 9)
        assert (subscribed["start"], subscribed["speed"]) == (first["timestamp"], 0)
        played = []
        while (message := await client.next())["type"] != "history_end":
            assert message["view"] == "past"
            played.append(message)
            await recorder.flush()
        assert message["view"] == "past"
        assert at_of(live[-1]) <= us_of_iso(message["recorded_until"])
        updates = [each for each in played if "update_number" in each]
        assert [each["update_number"] for each in updates] == [*range(1, len(updates) + 1)]
        assert [shown(each) for each in updates] == [shown(each) for each in live]
        statuses = [each["state"] for each in played if each["type"] == "exchange_status"]
        assert statuses == ["stale", "live"]
        whole = await client.next()  # and now the live book, with the numbers of its stream
        assert (whole["type"], whole["view"]) == ("aggregated_orderbook_update", "past")
        node.delta("okx", [("91", "77")])
        both = [await client.next(), await client.next()]
        listed = await client.ask(type="get_subscriptions")
        assert [each.get("start") for each in listed["data"]["subscriptions"]] == [None, None]
        assert {each.get("view") for each in both} == {None, "past"}
        assert {each["previous_update_number"] for each in both} == {whole["update_number"]}
        assert not node.gateway.subscriptions._plays
        await client.ask(type="unsubscribe_aggregated", symbol=SYMBOL, view="past")
        await client.ask(type="unsubscribe_aggregated", symbol=SYMBOL)
        assert not len(node.gateway.streams)


def shown(update):
    data = update["data"]
    return update.get("checksum"), data["bids"], data["asks"], data["stale_exchanges"]


async def test_a_play_ends_with_its_subscription_and_its_connection(tmp_path):
    async with recording(tmp_path) as (node, client, recorder):
        for exchange in ("okx", "binance"):
            node.snapshot(exchange)
        asked = {"type": "subscribe_aggregated", "symbol": SYMBOL, "interval_ms": 0}
        await client.ask(**asked)
        first = await client.until("aggregated_orderbook_update")
        await updates_of(node, client, 9)
        await recorder.flush()
        plays = node.gateway.subscriptions._plays
        slow = {**asked, "start": at_of(first), "speed": 0.000001, "view": "a"}
        assert (await client.ask(**slow))["type"] == "aggregated_subscription_response"
        assert (await client.until("aggregated_orderbook_update"))["view"] == "a"
        again = await client.ask(type="resync", symbol=SYMBOL, view="a", id=4)
        assert (again["view"], again["id"], again["update_number"]) == ("a", 4, 1)
        assert len(plays) == 1
        await client.ask(**slow | {"view": "b"})
        await client.until("aggregated_orderbook_update")
        refusal = await client.ask(**slow | {"view": "c", "id": 5})
        assert (refusal["error"], refusal["id"]) == ("history_unavailable", 5)
        assert refusal["message"].startswith("Too many subscriptions of this connection")
        answer = await client.ask(type="resync", symbol=SYMBOL, view="c")
        assert answer["error"] == "no_subscription"
        assert len(plays) == 2
        listed = await client.ask(type="get_subscriptions")
        stated = {each.get("view"): each for each in listed["data"]["subscriptions"]}
        assert "start" not in stated[None]
        assert "speed" not in stated[None]
        for view in ("a", "b"):
            assert (stated[view]["start"], stated[view]["speed"]) == (
                first["timestamp"],
                Decimal("0.000001"),
            )
        # A live subscription in place of the play, and a play that is unsubscribed.
        await client.ask(**asked, view="b")
        whole = await client.until("aggregated_orderbook_update")
        assert (whole["view"], at_of(whole) > at_of(first)) == ("b", True)
        listed = await client.ask(type="get_subscriptions")
        playing = [each["view"] for each in listed["data"]["subscriptions"] if "start" in each]
        assert playing == ["a"]
        await client.ask(type="unsubscribe_aggregated", symbol=SYMBOL, view="a")
        assert not plays
        await client.ask(**slow)
        await client.until("aggregated_orderbook_update")
        (played,) = plays.values()
        await client.socket.close()
        await settled(lambda: played.task.done())
        assert not plays
        await settled(lambda: not len(node.gateway.streams))
        assert not node.gateway.views.count("")


async def test_a_play_that_cannot_begin_is_refused(tmp_path):
    async with recording(tmp_path) as (node, client, recorder):
        node.snapshot("okx")
        await recorder.flush()
        ask = {"type": "subscribe_aggregated", "symbol": SYMBOL}
        refusal = await client.ask(**ask, start="2020-01-01T00:00:00", id=3)
        assert (refusal["error"], refusal["id"]) == ("history_not_found", 3)
        refusal = await client.ask(**ask, start="yesterday")
        assert refusal["message"].startswith("start: must be ISO 8601")
        refusal = await client.ask(**ask, start=node.clock.wall_us() + 10_000_000)
        assert refusal["message"] == "start: must not be in the future."
        refusal = await client.ask(**ask, speed=2)
        assert refusal["message"] == "speed: needs start."
        listed = await client.ask(type="get_subscriptions")
        assert listed["data"]["total"] == 0
        # A live subscription that could not be replaced continues.
        await client.ask(**ask, exchanges=["okx"], interval_ms=0)
        await client.until("aggregated_orderbook_update")
        refusal = await client.ask(**ask, start="2020-01-01T00:00:00", id=3)
        assert refusal["error"] == "history_not_found"
        assert (await client.next())["type"] == "aggregated_orderbook_update"
        node.delta("okx", [("100", "77")])
        update = await client.next()
        assert update["data"]["bids"][0]["amount"] == 77
        await client.ask(type="unsubscribe_aggregated", symbol=SYMBOL)
        assert not len(node.streams)
    async with gateway(tmp_path) as node, node.client(await node.key(name="bob")) as client:
        refusal = await client.ask(**ask, start=1)
        assert (refusal["error"], refusal["message"]) == ("history_unavailable", NO_HISTORY)


async def test_each_change_between_the_past_and_the_present_is_sent(tmp_path):
    """Nobody else has the view; books change while the play catches up with the live stream."""
    async with recording(tmp_path) as (node, client, recorder):
        for exchange in ("okx", "binance"):
            node.snapshot(exchange)
        start = node.clock.wall_us()
        await recorder.flush()
        asked = {"symbol": SYMBOL, "exchanges": ["okx", "binance"], "mode": "delta"}
        number, last = 1, None  # the amount at 100

        async def change():
            nonlocal number
            while number != last:
                number += 1
                node.delta("okx", [("100", str(number))])
                await asyncio.sleep(0.01)  # the market's pace
                if number % 10 == 0:
                    await recorder.flush()

        changing = asyncio.create_task(change())
        await settled(lambda: number > 20)
        subscribed = await client.ask(
            type="subscribe_aggregated", interval_ms=0, start=start, speed=0, **asked
        )
        assert subscribed["type"] == "aggregated_subscription_response", subscribed
        view, amounts, played = BookView(SYMBOL), [], 0
        while last is None or amounts[-1] < last:
            message = await client.next()
            if message["type"] == "history_end":
                played, last = len(amounts), number + 20
            else:
                assert view.apply(message)
                amounts.append(sum(each.amount for each in view.bids if each.price == 100) - 1)
        await changing
        assert 3 < played < len(amounts)
        assert amounts[:played] == [*range(1, played + 1)]
        assert amounts[played] in (amounts[played - 1], amounts[played - 1] + 1)
        assert amounts[played:] == [*range(int(amounts[played]), number + 1)]
        await client.ask(type="unsubscribe_aggregated", symbol=SYMBOL)
        assert not len(node.streams)
        assert not node.gateway.fanout._subscribers


async def test_binary_updates_are_played(tmp_path):
    async with recording(tmp_path) as (node, client, recorder):
        for exchange in ("okx", "binance"):
            node.snapshot(exchange)
        asked = {"symbol": SYMBOL, "interval_ms": 0, "mode": "delta", "split": True}
        await client.ask(type="subscribe_aggregated", **asked)
        first = await client.until("aggregated_orderbook_update")
        live = [first, *await updates_of(node, client, 12)]
        await recorder.flush()
        await client.ask(type="unsubscribe_aggregated", symbol=SYMBOL)
        subscribed = await client.ask(
            type="subscribe_aggregated", start=at_of(first), speed=0, encoding="protobuf", **asked
        )
        view, book = BookView(SYMBOL), PackedBook(subscribed["exchanges"])
        played = []
        while isinstance(frame := await client.socket.recv(), bytes):
            assert view.apply_packed(decode(frame), book)
            played.append(sides_of(view))
            await recorder.flush()
        assert parse(frame)["type"] == "history_end"
        exact = BookView(SYMBOL)
        assert played == [sides_of(exact) for each in live if exact.apply(each)]
        assert view.apply_packed(decode(await client.socket.recv()), book)
        assert sides_of(view) == sides_of(exact)


def sides_of(view):
    return [
        [(each.price, each.amount, each.exchanges) for each in side]
        for side in (view.bids, view.asks)
    ]


async def test_the_key_changes_or_is_suspended_while_the_past_is_played(tmp_path):
    async with recording(tmp_path) as (node, client, recorder):
        for exchange in ("okx", "binance"):
            node.snapshot(exchange)
        asked = {"type": "subscribe_aggregated", "symbol": SYMBOL, "interval_ms": 0}
        await client.ask(**asked)
        first = await client.until("aggregated_orderbook_update")
        await recorder.flush()
        text = await node.key()
        await client.ask(**asked, view="a", start=at_of(first), speed=0.000001)
        await client.until("aggregated_orderbook_update")
        (connection,) = node.gateway.connections
        before = connection.processor.key.key_id
        assert node.gateway.views.count(before) == 2
        await client.ask(type="authenticate", api_key=text)
        after = connection.processor.key.key_id
        assert (node.gateway.views.count(before), node.gateway.views.count(after)) == (0, 2)
        await client.ask(type="unsubscribe_aggregated", symbol=SYMBOL, view="a")
        assert node.gateway.views.count(after) == 1
        await client.ask(**asked, view="a", start=at_of(first), speed=0.000001)
        await client.until("aggregated_orderbook_update")
        (played,) = node.gateway.subscriptions._plays.values()
        await node.admin.move_key(text, "suspend", node.change())
        await node.accounts.poll(node.clock.wall_ms())
        assert await client.closed() == 4002
        await settled(lambda: played.task.done())
        await settled(lambda: not len(node.streams))
        assert not node.gateway.subscriptions._plays
        assert not node.gateway.views.count(after)
