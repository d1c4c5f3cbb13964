"""The live ladder: what is drawn, and what is said when it cannot be."""

import asyncio
import json
import threading
from decimal import Decimal

import pytest
from rich.console import Console
from typer.testing import CliRunner
from websockets.asyncio.server import serve

from onebook.cli.main import app
from onebook.cli.watch import ladder, rows
from onebook.client import Level, View

STATS = {"spread": Decimal("0.5"), "mid_price": Decimal("100.25"), "crossed": False}


def drawn(view, count=5):
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(ladder(view, count))
    return captured.get().splitlines()


def level(price, **amounts):
    parts = {name: Decimal(amount) for name, amount in amounts.items()}
    return Level(
        Decimal(price), sum(parts.values(), Decimal()), tuple(parts), tuple(parts.values())
    )


@pytest.fixture
def view():
    return View(
        "BTC/USDT",
        live=True,
        bids=[level("100", okx="1.25", kraken="0.75"), level("99", okx="1")],
        asks=[level("100.5", kraken="4"), level("101", okx="0.00000001")],
        market_stats=STATS,
        timestamp="2026-11-20T10:11:12.345678Z",
        update_number=7,
    )


def test_asks_stand_above_bids_with_the_best_in_the_middle(view):
    lines = drawn(view)
    prices = [line.split()[0] for line in lines[2:]]
    assert prices == ["101", "100.5", "100.25", "100", "99"]


def test_a_level_says_who_stands_there_and_with_how_much(view):
    assert "okx 1.25 kraken 0.75" in drawn(view)[5]


def test_amounts_are_never_cut(view):
    assert "0.00000001" in drawn(view)[2]


def test_exchanges_that_are_not_live_are_named(view):
    view.stale_exchanges = ["bybit"]
    assert "not live: bybit" in drawn(view)[0]


def test_a_crossed_book_says_so(view):
    view.market_stats = STATS | {"crossed": True}
    assert any("crossed" in line for line in drawn(view))


def test_a_lost_connection_is_said_and_nothing_old_is_drawn(view):
    view.lose()
    lines = drawn(view)
    assert "not live" in lines[0]
    assert not any("100" in line for line in lines[1:])


def test_the_ladder_fits_the_screen():
    assert rows(50, 28) == 10
    assert rows(5, 60) == 5
    assert rows(5, 1) == 1


class Scripted(threading.Thread):
    """A WebSocket server in a thread: the command runs its own event loop."""

    def __init__(self, *messages):
        super().__init__()
        self.messages = messages
        self.heard = []
        self.ready = threading.Event()
        self.stop = threading.Event()

    def run(self):
        asyncio.run(self._serve())

    async def _serve(self):
        async with serve(self._talk, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            self.ready.set()
            await asyncio.to_thread(self.stop.wait)

    async def _talk(self, ws):
        self.heard = [json.loads(await ws.recv()) for _ in range(2)]
        for message in self.messages:
            await ws.send(json.dumps(message))
        await ws.wait_closed()

    def __enter__(self):
        self.start()
        self.ready.wait()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.join()

    def watch(self, *words):
        url = f"ws://127.0.0.1:{self.port}/"
        return CliRunner().invoke(app, ["watch", "btc/usdt", "--key", "k", "--url", url, *words])


UPDATE = {
    "type": "aggregated_orderbook_update",
    "symbol": "BTC/USDT",
    "timestamp": "2026-11-20T10:11:12.345678Z",
    "update_number": 1,
    "data": {"bids": [[100, 1]], "asks": [], "market_stats": {}, "stale_exchanges": []},
}


def test_watch_subscribes_as_asked_and_ends_after_so_many_updates():
    with Scripted(UPDATE, UPDATE) as server:
        answer = server.watch("--updates", "2", "-e", "okx, kraken", "--group", "10")
    assert answer.exit_code == 0
    assert server.heard[1] == {
        "type": "subscribe_aggregated", "symbol": "BTC/USDT", "exchanges": ["okx", "kraken"],
        "depth": 10, "split": True, "mode": "delta", "group": "10",
    }  # fmt: skip
    assert "100" in answer.output


def test_a_refusal_is_one_clear_line_and_status_2():
    refusal = {"type": "authentication_error", "error": "x", "message": "The key is not valid."}
    with Scripted(refusal) as server:
        answer = server.watch()
    assert answer.exit_code == 2
    assert "The key is not valid." in answer.output
