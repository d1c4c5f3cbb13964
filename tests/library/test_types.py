"""A program that uses the library and the client passes mypy --strict without any plugin."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio
from decimal import Decimal

import onebook
from onebook import BookUpdate
from onebook.client import AsyncOnebook, Onebook, watch
from onebook.library import BookLevel, ExchangeSettings, FeedSettings, Fill, Route
from onebook.library import NoLiveBook, StreamSettings

feeds = FeedSettings(linger_s=60.0, overrides={"okx": ExchangeSettings(channel="books")})
streams = StreamSettings()


def on_update(update: BookUpdate) -> None:
    best: BookLevel | None = update.best_bid
    if best is not None:
        price: Decimal = best.price
        print(price, best.exchanges[0].upper(), update.horizon.bid)
    for name, health in update.exchanges.items():
        print(name.upper(), health.state, health.reason, health.age_s)
    floats: list[list[float]] = update.bids.floats()
    ints: list[tuple[int, int]] = update.bids.ints()
    print(floats, ints, [each.amount for each in update.bids[:3]])


async def main() -> None:
    async with onebook.order_book("BTC/USDT", feeds=feeds, streams=streams) as book:
        fill: Fill = book.fill("buy", amount="2.5")
        route: Route = book.route("buy", amount="2.5", fees={"okx": "0.1", "*": "0.2"})
        print(fill.average, route.net_average, route.split)
        print(book.route("sell", notional=100, fees="published", exclude=["okx"]).fees)
        async for update in book:
            on_update(update)
        await book.run(on_update)
    async with onebook.order_books(["BTC/USDT"], merged=False, record="folder") as books:
        for each in books.snapshots():
            on_update(each)
    async with onebook.order_book("BTC/USDT", fees="published", net=True) as book:
        for fee in book.snapshot().published_fees:
            print(fee.exchange.upper(), fee.percent.upper(), fee.date.year, fee.old)
    for each in onebook.replay("folder", "BTC/USDT"):
        on_update(each)
    async with AsyncOnebook("http://127.0.0.1:8000", "ob_live_") as client:
        async for view in client.watch("BTC/USDT", depth=10):
            print(view.bids[0].price, view.problem, view.live)
    async for view in watch("http://127.0.0.1:8000", "ob_live_", ["BTC/USDT"], mode="delta"):
        print(view.asks[0].price + 1)
    with onebook.sync.order_book("BTC/USDT", exchanges="okx") as own:
        for each in own:
            on_update(each)
    with Onebook("http://127.0.0.1:8000", "ob_live_") as blocking:
        for record in blocking.transactions("bybit", ["deposits"]):
            print(record["timestamp"])
        print(blocking.usage().share + 1)


try:
    asyncio.run(main())
except NoLiveBook as error:
    print(error.details)
"""


def test_a_program_passes_mypy_strict(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    cache = pytestconfig.cache
    assert cache is not None
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file="),
            *("--cache-dir", cache.mkdir("mypy"), program),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert not checked.returncode, checked.stdout + checked.stderr
