"""The live ladder: the picture, and the messages if there is none."""

import asyncio
import fcntl
import itertools
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from contextlib import suppress
from decimal import Decimal

import pytest
from typer.testing import CliRunner
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from client.test_watch import NO_STATS
from onebook.cli.commands import app
from onebook.cli.ladder import Ladder, rows
from onebook.client import BookLevel, BookProblem, BookView

ONEBOOK = (sys.executable, "-m", "onebook")
PATIENCE_S = 30.0
STATS = {"spread": Decimal("0.5"), "mid_price": Decimal("100.25"), "crossed": False}


NAMES = ("binance", "bybit", "coinbase", "kraken", "okx", "poloniex")
WIDTHS = (60, 80, 100, 200)


def drawn(view, count=5, width=None):
    return [line.plain for line in Ladder(width).lines(view, count)]


def level(price, **amounts):
    parts = {name: Decimal(amount) for name, amount in amounts.items()}
    return BookLevel(
        Decimal(price), sum(parts.values(), Decimal()), tuple(parts), tuple(parts.values())
    )


@pytest.fixture
def view():
    return BookView(
        "BTC/USDT",
        live=True,
        bids=[level("100", okx="1.25", kraken="0.75"), level("99", okx="1")],
        asks=[level("100.5", kraken="4"), level("101", okx="0.00000001")],
        market_stats=STATS,
        timestamp="2026-11-20T10:11:12.345678Z",
        update_number=7,
    )


@pytest.fixture
def wide():
    """A view with long numbers and every exchange at the best level."""
    everywhere = {name: f"1{number}.12345678" for number, name in enumerate(NAMES)}
    return BookView(
        "BTC/USDT",
        live=True,
        bids=[level("97310.45", **everywhere), level("97310", okx="0.00000001")],
        asks=[level("97310.5", kraken="4"), level("97311.123456", okx="12345")],
        market_stats={
            "spread": Decimal("0.05"), "mid_price": Decimal("97310.475"), "crossed": False,
        },
        stale_exchanges=["bybit", "coinbase", "kraken", "poloniex", "binance", "okx", "gate"],
        timestamp="2026-11-20T10:11:12.345678Z",
        update_number=7,
    )  # fmt: skip


def test_asks_stand_above_bids_with_the_best_in_the_middle(view):
    prices = [line.split()[0] for line in drawn(view)[2:]]
    assert prices == ["101", "100.5", "100.25", "100", "99"]


def test_a_level_lists_its_exchanges_with_their_amounts(view):
    assert "okx 1.25  kraken 0.75" in drawn(view)[5]


@pytest.mark.parametrize("width", [*WIDTHS, 32, None])
def test_no_price_or_amount_is_cut_and_no_line_is_too_long(wide, width):
    lines = drawn(wide, width=width)
    for each in (*wide.bids, *wide.asks):
        shown = [f"{each.price:f}", f"{each.amount:f}"]
        assert any(line.split()[:2] == shown for line in lines)
    assert not any("…" in line for line in lines)
    if width is not None:
        assert max(map(len, lines)) <= width
    assert " ".join(lines).count("gate") == 1


@pytest.mark.parametrize("width", [*WIDTHS, None])
def test_decimal_points_stand_under_each_other(wide, width):
    numbers = [line for line in drawn(wide, width=width) if line[:1].isdigit()]
    assert len(numbers) == 5
    assert {line.index(".") for line in numbers if "." in line.split()[0]} == {5}
    amounts = [line for line in numbers if "spread" not in line and "." in line.split()[1]]
    assert len({line.index(".", 13) for line in amounts}) == 1


@pytest.mark.parametrize(
    ("width", "attribution", "bars"),
    [
        (None, "binance 10.12345678  bybit 11.12345678", False),
        (200, "binance 10.12345678  bybit 11.12345678", True),
        (100, "binance bybit coinbase kraken okx poloniex", True),
        (80, "binance bybit coinbase kraken okx poloniex", True),
        (60, "poloniex okx kraken +3", True),
        (45, None, True),
        (30, None, False),
    ],
)
def test_what_does_not_fit_is_left_out_column_by_column(wide, width, attribution, bars):
    text = "\n".join(drawn(wide, width=width))
    assert ("█" in text) == bars
    assert ("exchanges" in text) == (attribution is not None)
    assert attribution is None or attribution in text


def test_columns_do_not_move_when_numbers_get_shorter(wide, view):
    ladder = Ladder(80)
    before = ladder.lines(wide, 5)[2].plain
    wide.asks, wide.bids = view.asks, view.bids
    assert "amount" in before
    assert ladder.lines(wide, 5)[2].plain == before


def test_exchanges_that_are_not_live_are_named(view):
    view.stale_exchanges = ["bybit"]
    assert drawn(view)[1] == "not live: bybit"
    view.rejected = {"krakne": "unknown_exchange"}
    assert drawn(view)[1] == "not live: bybit; not served: krakne (unknown_exchange)"
    view.rejected = {"xt": "unknown_fee", "krakne": "unknown_exchange", "htx": "unknown_fee"}
    shown = " ".join(drawn(view)[1:3])
    assert "; not served: xt, htx (unknown_fee); not served: krakne (unknown_exchange)" in shown


def test_a_crossed_book_says_so(view):
    view.market_stats = STATS | {"crossed": True}
    assert any("crossed" in line for line in drawn(view))


def test_a_lost_connection_is_said_with_its_cause_and_nothing_old_is_drawn(view):
    view.lose(BookProblem("unreachable", "Nothing listens there.", 1.5))
    assert drawn(view) == [
        "BTC/USDT",
        "not live: Nothing listens there. Next attempt in 1.5 s.",
    ]


@pytest.mark.parametrize("height", [15, 24, 40, 60])
def test_the_ladder_fills_the_screen_and_fits_it(view, height):
    view.bids = [level(str(100 - number), okx="1") for number in range(200)]
    view.asks = [level(str(101 + number), okx="1") for number in range(200)]
    view.stale_exchanges = ["bybit"]
    lines = drawn(view, rows(height), width=80)
    assert height - 2 <= len(lines) < height


def test_a_tiny_screen_shows_the_best_level():
    assert rows(1) == 1


def only_root(connection, request):
    return (
        None if request.path == "/api/v1/ws" else connection.respond(404, "There is nothing here.")
    )


class Scripted(threading.Thread):
    """A WebSocket server in a thread, because the command runs its own event loop."""

    def __init__(self, *messages, times=None):
        super().__init__()
        self.messages = messages
        self.times = times  # of the exchanges, for the request of a whole book
        self.heard = []
        self.asked = None
        self.ready = threading.Event()
        self.stop = threading.Event()

    def run(self):
        asyncio.run(self._serve())

    async def _serve(self):
        async with serve(self._talk, "127.0.0.1", 0, process_request=only_root) as server:
            self.port = server.sockets[0].getsockname()[1]
            self.ready.set()
            await asyncio.to_thread(self.stop.wait)

    async def _talk(self, ws):
        heard = [json.loads(await ws.recv()) for _ in range(2)]
        if heard[1]["type"] == "get_aggregated_orderbook":
            self.asked = heard[1]
            if self.times is not None:
                data = self.messages[0]["data"] | {"times": self.times}
                reply = self.messages[0] | {"data": data, "type": "aggregated_orderbook_data"}
                await ws.send(json.dumps(reply | {"id": self.asked["id"]}))
            await ws.wait_closed()
            return
        self.heard = heard
        for message in self.messages:
            await ws.send(json.dumps(message))
        if len(self.messages) > 1 or self.messages[0]["type"] != UPDATE["type"]:
            await ws.wait_closed()
            return
        with suppress(ConnectionClosed):  # the client takes the newest, so there must be more
            for number in itertools.count(2):
                await ws.send(json.dumps({**self.messages[0], "update_number": number}))
                await asyncio.sleep(0.02)

    def __enter__(self):
        self.start()
        self.ready.wait()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.join()

    def words(self, *words):
        url = f"127.0.0.1:{self.port}"
        return ["watch", "btc/usdt", "--key", "k", "--url", url, *words]

    def watch(self, *words):
        return CliRunner().invoke(app, self.words(*words))


def in_terminal(words, *, columns, rows):
    """Run a command in a pseudo-terminal to its end; return its status and output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [*ONEBOOK, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    found = b""
    try:
        while data := os.read(ours, 65_536):
            found += data
    except OSError:  # Linux: the other end is closed
        pass
    finally:
        os.close(ours)
    status = process.wait(PATIENCE_S)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", found.decode().replace("\r\n", "\n"))
    return status, plain


UPDATE = {
    "type": "aggregated_orderbook_update",
    "symbol": "BTC/USDT",
    "timestamp": "2026-11-20T10:11:12.345678Z",
    "update_number": 1,
    "data": {
        "bids": [[100, 1, [["okx", 1]]]],
        "asks": [],
        "market_stats": NO_STATS,
        "stale_exchanges": [],
        "ages": {"okx": 5},
    },
}


def test_watch_subscribes_as_asked_and_ends_after_so_many_updates():
    with Scripted(UPDATE) as server:
        answer = server.watch("--updates", "2", "-e", "okx, kraken", "--group", "10")
    assert answer.exit_code == 0
    assert server.heard[1] == {
        "type": "subscribe_aggregated", "symbol": "BTC/USDT", "id": "BTC/USDT",
        "exchanges": ["okx", "kraken"], "depth": 10, "split": True, "mode": "delta", "group": "10",
        "ages": True, "encoding": "protobuf",
    }  # fmt: skip
    assert "100" in answer.output


def test_the_age_of_the_prices_is_shown_as_soon_as_the_times_are_known():
    stats = NO_STATS | {"spread": 1, "mid_price": 100.5}
    data = UPDATE["data"] | {"asks": [[101, 1, [["okx", 1]]]], "market_stats": stats}
    top = {"exchange": 1_000_000, "received": 3_012_300}  # of a clock that is 2 s behind ours
    okx = {"top": top, "depth": top, "offset": 2_000_000, "error": 1_200}
    times = {"merged": 3_012_400, "sent": 3_012_500, "exchanges": {"okx": okx}}
    with Scripted(UPDATE | {"data": data}, times=times) as server:
        answer = server.watch("--updates", "200", "-e", "okx, kraken")
    assert answer.exit_code == 0
    assert server.asked["times"] is True
    assert server.asked["exchanges"] == ["okx", "kraken"]
    first, last = (answer.output.find(text) for text in ("≥ 5 ms old", "17 ms old ±2 ms"))
    assert -1 < first < last


def test_sizes_are_asked_for_and_their_cost_is_below_the_ladder():
    part = {"exchange": "okx", "amount": 2, "notional": 200}
    filled = {"by": "amount", "size": 2, "amount": 2, "notional": 200, "average": 100, "worst": 100}
    filled |= {"levels": 1, "complete": True, "uncovered": [], "split": [part]}
    data = UPDATE["data"] | {"fill": {"buy": [filled], "sell": [filled]}}
    words = ["--updates", "1", "--amount", "2", "--notional", "10"]
    with Scripted(UPDATE | {"data": data}) as server:
        answer = server.watch(*words)
        status, text = in_terminal(server.words(*words), columns=80, rows=24)
    assert (answer.exit_code, status) == (0, 0)
    assert server.heard[1]["fill"] == {"amounts": ["2"], "notionals": ["10"]}
    assert server.heard[1]["depth"] == rows(24 - 6)
    for shown in (answer.stdout, text):
        assert "buy  2 BTC  average 100.00" in shown
        assert "oldest data:  okx 5 ms" in shown


def routed():
    """An update with a route for each direction."""
    part = {"exchange": "okx", "amount": 2, "notional": 200, "fee": 1, "limit": 100}
    route = {"by": "amount", "size": 2, "amount": 2, "notional": 200, "average": 100, "worst": 101}
    route |= {"fees": 2, "net": 202, "net_average": 101, "extra": 1, "unplaced": 0, "exact": True}
    route |= {"complete": True, "oldest_ms": 3, "unknown_rules": [], "uncovered": []}
    data = UPDATE["data"] | {"fill": {"buy": [route | {"split": [part]}], "sell": []}}
    data["fill"]["sell"] = data["fill"]["buy"]
    return UPDATE | {"data": data | {"crossings": []}}


def test_a_net_book_is_asked_for_with_its_fees_and_shows_the_route(tmp_path):
    fees = tmp_path / "fees.toml"
    fees.write_text("okx = -0.02\nothers = 0.1")
    words = ["--updates", "1", "--amount", "2", "--net", "--fees", str(fees)]
    with Scripted(routed()) as server:
        answer = server.watch(*words)
    assert answer.exit_code == 0, answer.output
    assert server.heard[1]["fees"] == {"okx": "-0.02", "*": "0.1"}
    assert (server.heard[1]["net"], server.heard[1]["crossings"]) == (True, "0")
    assert "not crossed after fees" in answer.stdout
    assert "average 100.00  after fees 101.00  lots cost 1.00" in answer.stdout


def test_further_quotes_are_subscribed_and_each_converted_book_has_its_quote():
    data = UPDATE["data"] | {"bids": [[100, 1, [["okx:USDC", 1]]]]}
    with Scripted(UPDATE | {"data": data | {"conversions": []}}) as server:
        answer = server.watch("--updates", "1", "--quotes", "USDC, USD")
    assert answer.exit_code == 0, answer.output
    assert server.heard[1]["quotes"] == ["USDC", "USD"]
    assert "okx:USDC 1" in answer.stdout


def test_a_route_excludes_exchanges_and_has_a_maximum_of_them():
    words = ["--updates", "1", "--fees", "published", "--amount", "2"]
    with Scripted(routed()) as server:
        answer = server.watch(*words, "--exclude", "okx, kraken", "--max-exchanges", "3")
    assert answer.exit_code == 0, answer.output
    asked = {"amounts": ["2"], "notionals": [], "exclude": ["okx", "kraken"], "max_exchanges": 3}
    assert (server.heard[1]["fill"], server.heard[1]["fees"]) == (asked, "published")


@pytest.mark.parametrize("words", [["--exclude", "okx", "--amount", "2"], ["--max-exchanges", "2"]])
def test_an_exclusion_needs_fees_and_a_size(words):
    answer = CliRunner().invoke(app, ["watch", "BTC/USDT", "--key", "k", *words])
    assert answer.exit_code == 2
    assert "need --fees, and --amount or --notional." in answer.stderr


def test_a_net_book_needs_fees():
    answer = CliRunner().invoke(app, ["watch", "BTC/USDT", "--key", "k", "--net"])
    assert answer.exit_code == 2
    assert "--net needs --fees." in answer.stderr


def test_a_fee_table_that_is_none_is_one_line_and_status_2(tmp_path):
    words = ["watch", "BTC/USDT", "--key", "k", "--fees", str(tmp_path / "none.toml")]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 2
    assert "No such file" in answer.stderr


def test_a_pipe_gets_updates_as_plain_lines():
    with Scripted(UPDATE) as server:
        answer = server.watch("--updates", "2")
    assert answer.exit_code == 0
    assert answer.stdout.count("BTC/USDT  update") == 2
    assert "\x1b" not in answer.stdout


def test_a_terminal_shows_the_ladder_in_its_size_and_leaves_the_last_one():
    """On a real pseudo-terminal of 80 columns and 24 rows."""
    with Scripted(UPDATE) as server:
        status, text = in_terminal(server.words("--updates", "1"), columns=80, rows=24)
    assert status == 0
    assert server.heard[1]["depth"] == rows(24 - 2), "two lines are for the market"
    assert re.search(r"^100 +1 +█+ +okx 1$", text.rpartition("\x1b")[2], re.MULTILINE)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://127.0.0.1:1/", "use https://, http://, wss:// or ws://"),
        ("ws://127.0.0.1:{port}/wrong", "returned HTTP 404"),
    ],
)
def test_what_cannot_get_better_is_one_line_and_status_2(url, message):
    with Scripted() as server:
        words = ["watch", "BTC/USDT", "--key", "k", "--url", url.format(port=server.port)]
        answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 2
    assert answer.stderr.startswith("error: ")
    assert message in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_a_dead_port_is_said_at_once_on_standard_error():
    words = ["watch", "BTC/USDT", "--key", "k", "--url", "ws://127.0.0.1:1/"]
    with subprocess.Popen(
        [*ONEBOOK, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stderr.readline()
        finally:
            process.kill()
    assert line.startswith(
        "BTC/USDT is not live: Connection refused by 127.0.0.1:1. Next attempt in"
    )


def test_a_refusal_is_one_clear_line_and_status_2():
    refusal = {"type": "authentication_error", "error": "x", "message": "The key is not valid."}
    with Scripted(refusal) as server:
        answer = server.watch()
    assert answer.exit_code == 2
    assert "The key is not valid." in answer.output


def test_a_refused_symbol_comes_with_those_that_it_resembles():
    refusal = {
        "type": "subscription_error", "error": "invalid_symbol", "symbol": "BTC/USDT",
        "message": "None of these exchanges trades BTC/USDT.", "suggested_symbols": ["BTC/USDC"],
    }  # fmt: skip
    with Scripted(refusal) as server:
        answer = server.watch()
    assert answer.exit_code == 2
    assert "None of these exchanges trades BTC/USDT. Did you mean BTC/USDC?" in answer.output


def test_a_service_that_sends_invalid_updates_is_given_up():
    with Scripted(UPDATE) as server:  # without the crossings that fees bring
        answer = server.watch("--updates", "1", "--net", "--fees", "key")
    assert answer.exit_code == 2
    assert "data.crossings is missing. The versions of client and service" in answer.output


@pytest.mark.parametrize("table", ["key", "published"])
def test_a_named_table_of_fees_is_that_of_the_service(table):
    data = UPDATE["data"] | {"crossings": []}
    with Scripted(UPDATE | {"data": data}) as server:
        answer = server.watch("--updates", "1", "--net", "--fees", table)
    assert answer.exit_code == 0, answer.output
    assert (server.heard[1]["fees"], server.heard[1]["net"]) == (table, True)
