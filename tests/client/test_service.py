"""Both Python clients against a real node: books, transactions, usage, and every kind of error."""

import asyncio
import logging
import socket
import subprocess
import sys
import time
from contextlib import aclosing, closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from archive.world import EPOCH_US, closed_hours
from client.place import KEEP_DAYS, NAMES, place
from core.both import needs_compiled
from onebook.archive.format import HOUR_US
from onebook.client import AsyncOnebook, Onebook, Refused, Unavailable
from steady import PATIENCE_S

ALL_TYPES = ["deposits", "withdrawals", "trades", "transfers"]


@pytest.fixture
async def rig(tmp_path):
    async with asyncio.timeout(PATIENCE_S * 3), place(tmp_path) as found:
        yield found


@pytest.fixture
async def client(rig):
    async with AsyncOnebook(rig.url, rig.key) as client:
        yield client


async def test_books_are_watched_and_asked_for_once(rig, client):
    async with aclosing(client.watch("BTC/USDT", depth=5, mode="delta")) as views:
        async for view in views:
            if view.live and len(view.market_stats) and not view.stale_exchanges:
                break
    assert 0 < len(view.bids) <= 5
    assert {name for each in view.bids for name in each.exchanges} <= set(NAMES)
    book = await client.snapshot("BTC/USDT", exchanges=["okx"], depth=3, encoding="protobuf")
    assert book.live
    assert [each.exchanges for each in book.bids] == [("okx",)] * 3
    assert isinstance(book.bids[0].price, Decimal)


async def test_exchanges_and_pairs(client):
    assert {"okx", "kraken"} <= set((await client.exchanges())["supported_exchanges"])
    assert "BTC/USDT" in (await client.pairs("okx"))["pairs"]
    assert "BTC/USDT" in (await client.pairs())["exchanges"]["kraken"]


async def test_usage_counts_what_was_delivered(rig, client):
    before = await client.usage()
    assert (before.tier, before.active, before.exceeded) == ("premium", True, False)
    assert before.resets_at > datetime.now(UTC)
    await client.snapshot("BTC/USDT")
    async with asyncio.timeout(PATIENCE_S):
        while (after := await client.usage()).used_bytes == before.used_bytes:
            await asyncio.sleep(0.05)
    assert after.used_bytes + after.remaining_bytes == after.limit_bytes


async def test_the_quality_of_a_service_without_a_history_is_unavailable(client):
    with pytest.raises(Unavailable, match="has no history"):
        await client.quality(start="2026-11-26", end="2026-11-27", exchanges=["okx"], by="hour")
    with pytest.raises(Unavailable, match="has no history"):
        await client.recorded("BTC/USDT")


async def test_the_quality_and_the_recorded_times_are_those_of_the_history(tmp_path):
    await closed_hours(tmp_path / "history", 4)
    history = {"dir": str(tmp_path / "history"), "keep_days": KEEP_DAYS}
    start, end = EPOCH_US - HOUR_US, EPOCH_US + 2 * HOUR_US
    async with (
        place(tmp_path, history=history) as rig,
        AsyncOnebook(rig.url, rig.key) as client,
    ):
        found = await client.quality(start=start, end=end, exchanges=["okx", "kraken"])
        rows = {each["exchange"]: each for each in found["rows"]}
        assert rows.keys() == {"kraken", "okx"}
        assert all(each["messages"] for each in rows.values())
        times = await client.recorded("BTC/USDT", start=start, end=end)
        assert (times["symbol"], times["first"]) == ("BTC/USDT", times["recorded"][0]["from"])
        assert times["exchanges"].keys() == {"binance", "kraken", "okx"}
        later = await client.recorded("btc/usdt", start=times["recorded"][-1]["to"], end=end)
        assert later["recorded"] == []
        with pytest.raises(Refused, match="at most 31 days"):
            await client.recorded("BTC/USDT", start="2026-01-01", end="2026-03-01")
        blocking = Onebook(rig.url, rig.key)
        again = await asyncio.to_thread(blocking.recorded, "BTC/USDT", start=start, end=end)
        assert again | {"last": times["last"]} == times  # the node records
        await asyncio.to_thread(blocking.close)


async def test_the_fees_of_the_key_are_read_replaced_and_removed(client):
    assert await client.fees() == {}
    assert await client.change_fees({"okex": "0.080", "*": "0.1"}) == {"*": "0.1", "okx": "0.08"}
    assert await client.fees() == {"*": "0.1", "okx": "0.08"}
    with pytest.raises(Refused, match="A fee is a decimal number"):
        await client.change_fees({"okx": "free"})
    assert await client.change_fees({}) == await client.fees() == {}


async def test_transactions_come_over_as_many_pages_as_needed(rig, client):
    start = datetime.now(UTC) - timedelta(days=20)
    whole = [page async for page in client.transaction_pages("bybit", ALL_TYPES, start=start)]
    assert len(whole) == 1
    records = [
        record
        async for record in client.transactions("bybit", ALL_TYPES, start=start, page_records=37)
    ]
    assert len(records) > 100
    ids = [record["transactionId"] for record in records]
    assert len(set(ids)) == len(ids)
    assert set(ids) >= {record["transactionId"] for record in whole[0].records}
    assert [record["timestamp"] for record in records] == sorted(
        (record["timestamp"] for record in records), reverse=True
    )


async def test_records_that_could_not_be_read_are_no_silent_end(rig, client):
    rig.bybit.faults.queue("/v5/asset/withdraw/query-record", *["404"] * 100)
    found = []

    async def read_all():
        async for record in client.transactions("bybit", ["deposits", "withdrawals"]):
            found.append(record)  # noqa: PERF401  # the exception comes after the records

    with pytest.raises(Refused, match="withdrawals") as refused:
        await read_all()
    assert refused.value.code == "incomplete"
    assert refused.value.details["errors"][0]["transaction_type"] == "withdrawals"
    assert found
    count = len(found)
    allowed = client.transactions("bybit", ["deposits", "withdrawals"], partial_allowed=True)
    assert len([record async for record in allowed]) == count


async def test_a_session_that_ended_is_renewed(rig, client):
    assert (await client.validate_credentials("bybit"))["success"] is True
    await rig.move_key("suspend")
    with pytest.raises(Refused) as refused:
        await client.validate_credentials("bybit")
    assert refused.value.code == "api_key_disabled"
    await rig.move_key("resume")
    assert (await client.validate_credentials("bybit"))["success"] is True


async def test_every_service_error_has_its_code(rig, client):
    with pytest.raises(Refused) as refused:
        await anext(client.transactions("gemini"))
    assert refused.value.code == "invalid_exchange"
    assert refused.value.details == {"supported_exchanges": ["bybit", "kraken", "okx"]}
    with pytest.raises(Refused) as refused:
        await client.snapshot("NO/SUCH")
    assert refused.value.code == "invalid_symbol"
    with pytest.raises(Refused) as refused:
        await client.pairs("mtgox")
    assert refused.value.code == "invalid_exchange"
    with pytest.raises(Refused) as refused:
        await anext(client.watch("BTC/USDT", depth=0))
    assert refused.value.code == "invalid_parameters"
    async with AsyncOnebook(rig.url, "ob_live_wrong") as stranger:
        for asking in (stranger.exchanges, stranger.usage, stranger.validate_credentials):
            with pytest.raises(Refused) as refused:
                await asking(*(["bybit"] if asking == stranger.validate_credentials else []))
            assert refused.value.code in ("invalid_api_key", "api_key_not_found")


async def test_a_dead_port_is_raised_at_once_by_each_request():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with AsyncOnebook(f"http://127.0.0.1:{port}", "key", attempts_max=1) as client:
            for asking in (client.health, client.exchanges):
                with pytest.raises(Unavailable, match=f"Connection refused by 127.0.0.1:{port}"):
                    await asking()


async def test_the_cause_is_logged_before_the_second_attempt(caplog):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with AsyncOnebook(f"http://127.0.0.1:{port}", "key", attempts_max=2) as client:
            with pytest.raises(Unavailable):
                await client.usage()
    (record,) = [each for each in caplog.records if each.name == "onebook.client"]
    assert record.levelname == "WARNING"
    assert record.message.startswith(f"Connection refused by 127.0.0.1:{port}. Next attempt in ")


async def test_a_wrong_address_is_said(rig):
    with pytest.raises(Refused) as refused:
        AsyncOnebook("ftp://books.example", "key")
    assert refused.value.code == "invalid_url"
    async with AsyncOnebook(rig.url + "/wrong", "key") as client:
        with pytest.raises(Refused) as refused:
            await client.health()
        assert refused.value.code in ("not_found", "http_404")


async def test_the_key_is_in_no_log_and_no_error(rig, caplog):
    ours = ("httpx", "httpcore", "websockets", "onebook.client")
    for name in ours:
        caplog.set_level(logging.DEBUG, logger=name)
    async with AsyncOnebook(rig.url, rig.key) as client:
        await client.usage()
        await client.validate_credentials("bybit")
        await client.exchanges()
    written = [each.getMessage() for each in caplog.records if each.name.startswith(ours)]
    assert any("validate-credentials" in line for line in written)
    assert not [line for line in written if rig.key[-8:] in line]


async def test_without_asyncio_the_same(rig):
    def use():
        with Onebook(rig.url, rig.key) as client:
            with closing(client.watch(["BTC/USDT"], depth=5)) as views:
                first = next(view for view in views if view.live)
                time.sleep(0.3)  # a caller that is busy: it gets the newest, not the next
                later = next(views)
            count = sum(1 for _ in client.transactions("bybit", ALL_TYPES, page_records=50))
            usage = client.usage()
            with pytest.raises(Refused) as refused:
                client.pairs("mtgox")
            return first, later, count, usage, refused.value.code, client

    first, later, count, usage, code, client = await asyncio.to_thread(use)
    assert first.bids
    assert later.update_number > first.update_number
    assert count > 100
    assert usage.used_bytes >= 0
    assert code == "invalid_exchange"
    with pytest.raises(RuntimeError, match="closed"):
        client.health()
    assert not client._thread._thread.is_alive()


def test_it_imports_nothing_of_the_server():
    program = (
        "import sys; import onebook.client; early = set(sys.modules);"
        "from onebook.client import AsyncOnebook, Onebook, KeyUsage, TransactionPage;"
        "ours = {n for n in sys.modules if n.startswith('onebook')};"
        "foreign = {n.partition('.')[0] for n in sys.modules};"
        # They import only each other.
        "shared = ('blocking', 'clock', 'crossings', 'fees', 'fill', 'health', 'inflate',"
        " 'orderbook', 'routes', 'transfers');"
        "neutral = ('onebook', 'onebook.client', *(f'onebook.{n}' for n in shared));"
        "assert all(n in neutral or n.startswith('onebook.client.')"
        " for n in ours), ours;"
        "server = {'fastapi', 'uvicorn', 'sqlalchemy', 'pydantic', 'typer', 'picows',"
        " 'msgspec', 'uvloop', 'prometheus_client', 'cryptography', 'google'};"
        "assert not foreign & server, foreign & server;"
        "assert 'httpx' not in early"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("core", [pytest.param("compiled", marks=needs_compiled), "reference"])
def test_binary_updates_need_only_the_core_of_the_server(core):
    program = (
        f"import sys; {core!r} == 'compiled' or sys.modules.update({{'onebook.core._core': None}});"
        "from onebook.client.packed import PackedBook, decode;"
        "from onebook.client.view import BookView;"
        "view, book = BookView('A/B'), PackedBook(['okx']);"
        r"assert view.apply_packed(decode(b'\x2a\x03\x64\x05\x01'), book);"
        "assert str(view.best_bid.price) == '100' and view.best_bid.exchanges == ('okx',);"
        "import onebook.core;"
        f"assert onebook.core.COMPILED == ({core!r} == 'compiled');"
        "import onebook.client, onebook.client.service, onebook.client.blocking;"
        "ours = {n for n in sys.modules if n.startswith('onebook')};"
        "server = ('model', 'config', 'exchanges', 'books', 'streams', 'feeds', 'gateway');"
        "assert not ours & {f'onebook.{n}' for n in server}, ours"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_client_of_another_event_loop_says_so():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        client = AsyncOnebook(url, "key", attempts_max=1)
        views = client.watch("BTC/USDT", attempts_max=1)
        records = AsyncOnebook(url, "key", attempts_max=1).transactions("bybit")

        async def waited(asking):
            with pytest.raises(Unavailable):
                await asking()

        for asking in (client.usage, views.__anext__, records.__anext__):
            asyncio.run(waited(asking))
            with pytest.raises(RuntimeError, match=r"another event loop: .* Onebook\.$"):
                asyncio.run(asyncio.wait_for(asking(), 5))
        for closing_it in (client.close, views.aclose):
            with pytest.raises(RuntimeError, match="another event loop"):
                asyncio.run(asyncio.wait_for(closing_it(), 5))
