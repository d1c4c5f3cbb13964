"""The check of exchanges, with drift planted between simulated exchanges and the feeds.

Each drift is planted relative to the connector as it is: where it copes, the report shows what was
seen.
"""

import asyncio
import json
import re
import socket
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import NamedTuple

from msgspec.structs import replace

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.config import FeedSettings
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Exchange
from onebook.feeds.limits import LIMITS
from onebook.ops.livecheck import ExchangeReport, FindingKind, LiveCheck
from onebook.ops.livecheck.run import defaults, own_hosts
from onebook.simulator import SimulatedExchange, SimulatedExchanges
from ops.livecheck.drift import (
    HOST,
    Bodies,
    Drift,
    DriftProxy,
    Edited,
    Injected,
    KicksAfter,
    RefusedVerb,
    Twin,
    without,
)

SECONDS = 8.0
SETTINGS = FeedSettings()
LONG = LIMITS.frame_bytes_max

K = FindingKind
CHECKED = ["okx", "kraken"]


def unchanged(exchange: SimulatedExchange) -> None:
    """No injected faults of the simulated exchange."""


def same(exchange: Exchange) -> Exchange:
    return exchange


class Case(NamedTuple):
    """A drift at an exchange: where it is planted, and how its check is run."""

    exchange: str
    drift: Drift = Drift()
    fault: Callable[[SimulatedExchange], object] = unchanged
    facts: Callable[[Exchange], Exchange] = same
    symbols: tuple[str, ...] = ()
    rate_hz: float = 10.0
    seconds: float = SECONDS
    clock: Clock = SYSTEM_CLOCK


def closed_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return server.getsockname()[1]


def no_books(text: str) -> str | None:
    """WOO X pushes no frames of its book channel for spot."""
    return None if '"topic":"orderbook' in text else text


def dearer(text: str) -> str | None:
    """OKX's best prices come from other orders than its levels: their amounts differ."""
    if '"bbo-tbt"' not in text or '"data"' not in text:
        return text
    frame = json.loads(text)
    for row in frame["data"]:
        row["bids"] = [[price, "0.777", *rest] for price, _, *rest in row["bids"]]
    return json.dumps(frame)


def no_best_prices(text: str) -> str | None:
    """OKX accepts the subscription of best prices, and sends none."""
    return None if '"bbo-tbt"' in text and '"data"' in text else text


def without_empty(text: str) -> str | None:
    """HTX sends a frame of a book only when something changed."""
    return None if '"bids":[],"asks":[]' in text else text


def padded(text: str) -> str:
    """A snapshot of the advanced channel is over 5 MB: white space stands for its levels."""
    return text[:-1] + " " * LONG + text[-1] if '"snapshot"' in text else text


def amounts_changed(body: bytes, number: int) -> bytes:
    """Every body has amounts that differ from the book and from the previous body."""
    book = json.loads(body)
    for side in ("bids", "asks"):
        book[side] = [[price, f"{number}.123"] for price, _ in book[side]]
    return json.dumps(book).encode()


class Ahead(Clock):
    """A clock whose wall time is 30 s ahead."""

    def wall_us(self) -> int:
        return super().wall_us() + 30_000_000


def mexc_push(symbol: str) -> bytes:
    """A wrapper with channel, symbol and time, but without a body."""
    channel = f"spot@public.aggre.depth.v3.api.pb@100ms@{symbol}".encode()
    return (
        b"\x0a" + bytes([len(channel)]) + channel + b"\x1a" + bytes([len(symbol)]) + symbol.encode()
    )


UPGRADE = (
    '{"time":1790000000,"time_ms":1790000000000,"channel":"spot.system","event":"update",'
    '"result":{"type":"upgrade","msg":"The connection will soon be closed. Please reconnect"}}'
)


class Emptied(Drift):
    """Bybit sends a snapshot with `u` 1 and no levels for a pair, as at a delisting."""

    def __init__(self) -> None:
        self._count = 0

    def down(self, text: str) -> Iterable[str | bytes]:
        self._count += '"type":"delta"' in text and "BTCUSDT" in text
        if self._count != 8:
            return (text,)
        self._count += 1
        frame = json.loads(text)
        frame["type"] = "snapshot"
        frame["data"] |= {"b": [], "a": [], "u": 1}
        return text, json.dumps(frame)


GREETING = '{"sessionId":"e8e46556","%s":"welcome","pingInterval":18000,"pingTimeout":10000}'

CASES: dict[str, Case] = {
    "well": Case("okx"),
    "well seeded": Case("binance"),
    "okx's best prices are of other orders": Case("okx", Edited(dearer)),
    "deribit orders by time": Case("deribit"),
    "okx sends no best prices": Case("okx", Edited(no_best_prices)),
    "woo pushes nothing for spot": Case("woo", Edited(no_books)),
    "woo refuses the verb": Case("woo", RefusedVerb()),
    "kucoin greets in data": Case(
        "kucoin", Edited(lambda text: GREETING % "data" if "welcome" in text else text)
    ),
    "kucoin greets in a member of no SDK": Case(
        "kucoin", Edited(lambda text: GREETING % "greeting" if "welcome" in text else text)
    ),
    "kucoin kicks": Case("kucoin", KicksAfter(3)),
    "gate upgrades": Case("gate", Injected(UPGRADE)),
    "gate has one book twice": Case("gate", Twin(), symbols=("BTC/USDT", "BTC/USDC")),
    "mexc pushes without a body": Case("mexc", Injected(mexc_push("BTCUSDT"), after=20)),
    "htx ends its empty frames": Case(
        "htx", Edited(without_empty), symbols=("BTC/USDT",), rate_hz=2.5, seconds=12
    ),
    "coinbase advanced is long": Case(
        "coinbase",
        Edited(padded),
        facts=lambda each: replace(
            EXCHANGES["coinbase"].channels["advanced"],
            frame_bytes=0,  # the limit of the settings, as before its snapshots were known
            ws_url=each.ws_url,
            rest_url=each.rest_url,
        ),
    ),
    "whitebit without update_id": Case("whitebit", Edited(without("update_id"))),
    "bybit empties a book": Case("bybit", Emptied()),
    "bitget has a checksum": Case(
        "bitget",
        Edited(lambda text: text.replace('"data":[{', '"data":[{"checksum":1153969492,', 1)),
    ),
    "okx renames a member": Case("okx", Edited(lambda text: text.replace('"bids":', '"bidz":'))),
    "kraken moved": Case(
        "kraken", facts=lambda each: replace(each, ws_url=f"ws://{HOST}:{closed_port()}")
    ),
    "gemini lists nonsense": Case(
        "gemini", Bodies("/", lambda body, number: b"<html>moved</html>")
    ),
    "okx refuses a pair": Case("okx", fault=lambda sim: sim.refuse("ETH/USDT")),
    "okx wants fewer requests": Case("okx", fault=lambda sim: sim.limit(1)),
    "bybit has no such pair": Case("bybit", symbols=("BTC/USDT", "XYZ/USDT")),
    "binance differs from REST": Case("binance", Bodies("/api/v3/depth", amounts_changed)),
    "okx has another clock": Case("okx", clock=Ahead()),
    "binance delivers nothing": Case("binance", fault=lambda sim: sim.kill_stream("BTC/USDT")),
}


async def checked(case: Case) -> ExchangeReport:
    async with AsyncExitStack() as stack:
        sims = await stack.enter_async_context(
            SimulatedExchanges([case.exchange], rate_hz=case.rate_hz, clock=case.clock)
        )
        sim = sims[case.exchange]
        sim.admit_all()
        case.fault(sim)
        proxy = await stack.enter_async_context(
            DriftProxy(sims.exchanges()[case.exchange], case.drift)
        )
        exchange = case.facts(proxy.exchange)
        check = LiveCheck(
            {exchange.name: exchange}, settings=SETTINGS, seconds=case.seconds, symbols=case.symbols
        )
        (report,) = (await check.run()).exchanges
        return report


async def checked_of(*names: str) -> list[ExchangeReport]:
    """Run the checks of some cases side by side."""
    return await asyncio.gather(*(checked(CASES[name]) for name in names))


def kinds(report: ExchangeReport) -> set[FindingKind]:
    return {each.kind for each in report.findings}


def text_of(report: ExchangeReport, *wanted: FindingKind) -> str:
    """The report's text for some kinds of findings."""
    return "\n".join(
        f"{each.symbol} {each.detail} {each.example}"
        for each in report.findings
        if each.kind in wanted
    )


def examples(report: ExchangeReport) -> str:
    """The report's text about tolerated frames without a finding."""
    return "\n".join(f"{each.kind} {each.form} {each.example}" for each in report.forms)


async def test_an_exchange_without_drift_is_well() -> None:
    chained, seeded = await checked_of("well", "well seeded")
    known, dollars = ["BTC/USDT", "ETH/USDT"], ["BTC/USD", "BTC/USDC"]
    for report, symbols in ((chained, known + dollars), (seeded, known)):
        assert kinds(report) <= {K.SLOWER}, "this machine may be slow"
        assert report.well
        assert {each.symbol: each.state for each in report.books} == dict.fromkeys(symbols, "live")
        assert report.books[-1].resubscribed
    assert {each.by for each in seeded.comparisons} == {"ids", "time"}
    exact = [each for each in seeded.comparisons if each.by == "ids"]
    assert all(each.levels and not each.differing for each in exact)
    assert {each.by for each in chained.comparisons} == {"time", "none"}
    measured = {each.name: each for each in seeded.measures if each.symbol != "ETH/USDT"}
    assert measured["data interval, median"].stated == EXCHANGES["binance"].interval_ms
    assert 50 < (measured["data interval, median"].measured or 0) < 1_000
    assert measured["messages sent in 1 s, most"].measured


async def test_what_became_of_fast_best_prices_is_reported() -> None:
    well, differing, none, levels_only, timed = await checked_of(
        "well",
        "okx's best prices are of other orders",
        "okx sends no best prices",
        "kucoin kicks",
        "deribit orders by time",
    )
    fast = well.fast_prices
    assert fast is not None
    assert fast.equal > 10
    assert fast.mismatches == fast.books_off == 0
    assert 0 < (fast.lead_ms or 0) <= (fast.lead_p90_ms or 0) < 1_000
    assert differing.fast_prices is not None
    assert differing.fast_prices.mismatches >= 2
    assert "differed" in text_of(differing, K.TOPS_DISAGREE)
    assert not differing.well
    assert "none shown of 0" in text_of(none, K.TOPS_MISSING)
    assert not none.well
    assert levels_only.fast_prices is None
    assert timed.fast_prices is not None
    assert timed.fast_prices.equal > 10
    assert timed.fast_prices.mismatches <= timed.fast_prices.equal
    assert timed.fast_prices.books_off == 0
    assert not text_of(timed, K.TOPS_DISAGREE)


async def test_woo_without_deltas_and_without_its_verb_is_named() -> None:
    silent, verb = await checked_of("woo pushes nothing for spot", "woo refuses the verb")
    assert {K.SILENT, K.NEVER_LIVE} & kinds(silent)
    assert "BTC/USDT" in text_of(silent, K.SILENT, K.NEVER_LIVE)
    assert "Command type invalid!" in text_of(verb, K.REQUEST_REFUSED)
    assert not silent.well
    assert not verb.well


async def test_kucoin_s_greetings_and_its_limit_are_named() -> None:
    data, other, kicked = await checked_of(
        "kucoin greets in data", "kucoin greets in a member of no SDK", "kucoin kicks"
    )
    (greeting,) = [each for each in data.forms if "pingTimeout" in each.form]
    assert '"welcome"' in greeting.form
    assert data.well or "pingTimeout" in text_of(data, K.UNKNOWN_FRAMES)
    assert '"greeting":"welcome"' in text_of(other, K.UNKNOWN_FRAMES)
    assert K.NEVER_LIVE in kinds(other)
    assert "too many messages per connection" in text_of(kicked, K.CLOSED)


async def test_gate_s_notice_and_its_book_of_two_names_are_named() -> None:
    notice, twins = await checked_of("gate upgrades", "gate has one book twice")
    assert "upgrade" in text_of(notice, K.UNKNOWN_FRAMES, K.CLOSE_ANNOUNCED)
    assert text_of(twins, K.SAME_BOOK).strip() == "BTC/USDT and BTC/USDC"


async def test_mexc_htx_and_coinbase_are_named() -> None:
    bodiless, slow, long = await checked_of(
        "mexc pushes without a body", "htx ends its empty frames", "coinbase advanced is long"
    )
    assert mexc_push("BTCUSDT").hex() in text_of(bodiless, *K) + examples(bodiless)
    assert "stated every 100 ms, measured every" in text_of(slow, K.SLOWER)
    assert slow.well, "a note alone"
    assert {K.FRAME_TOO_LARGE, K.NEVER_LIVE} <= kinds(long)


async def test_whitebit_bybit_bitget_and_a_renamed_member_are_named() -> None:
    whitebit, bybit, bitget, okx = await checked_of(
        "whitebit without update_id",
        "bybit empties a book",
        "bitget has a checksum",
        "okx renames a member",
    )
    assert "update_id" in text_of(whitebit, K.UNREADABLE_FRAMES, K.UNKNOWN_FRAMES) or not any(
        "update_id" in each.form for each in whitebit.forms
    )
    assert "BTC/USDT" in text_of(bybit, K.EMPTY_BOOK, K.MAINTENANCE)
    assert any("checksum:number" in each.form for each in bitget.forms)
    assert "1153969492" in examples(bitget)
    assert '"bidz"' in examples(okx)
    assert "missing required field `bids`" in text_of(okx, K.UNREADABLE_FRAMES)


async def test_moved_hosts_lists_and_pairs_are_named() -> None:
    moved, nonsense, refused, missing = await checked_of(
        "kraken moved", "gemini lists nonsense", "okx refuses a pair", "bybit has no such pair"
    )
    assert "ConnectionRefusedError" in text_of(moved, K.UNREACHABLE)
    assert kinds(nonsense) == {K.LIST_UNREADABLE}
    assert nonsense.traffic.frames == 0
    assert "doesn't exist" in text_of(refused, K.REFUSED)
    assert "ETH/USDT offline: refused" in text_of(refused, K.NEVER_LIVE)
    assert text_of(missing, K.SYMBOL_MISSING).strip() == "XYZ/USDT"
    assert [each.symbol for each in missing.books] == ["BTC/USDT"]


async def test_a_book_that_differs_and_clocks_and_limits_are_named() -> None:
    differs, clock, limited, dead = await checked_of(
        "binance differs from REST",
        "okx has another clock",
        "okx wants fewer requests",
        "binance delivers nothing",
    )
    assert "of 50 levels" in text_of(differs, K.DIFFERS)
    assert any(".123" in each.detail for each in differs.comparisons)
    assert re.search(r"its times are [23]\d\.\d s ahead", text_of(clock, K.CLOCK_SKEW))
    assert "too frequent" in text_of(limited, K.SLOW_DOWN)
    assert "BTC/USDT" in text_of(dead, K.SILENT)


async def test_what_was_seen_is_reported_when_it_is_ended_early() -> None:
    async with SimulatedExchanges(["okx", "kraken"]) as sims:
        check = LiveCheck(sims.exchanges(), settings=SETTINGS, seconds=600)
        running = asyncio.create_task(check.run())
        async with asyncio.timeout(60):
            while not all(each.observer.outputs["delta"] for each in check.running.values()) or len(
                check.running
            ) < len(CHECKED):
                await asyncio.sleep(0)
        check.stop()
        report = await running
    assert report.interrupted
    assert not report.well
    assert [each.exchange for each in report.exchanges] == CHECKED
    assert all(each.interrupted and each.traffic.frames for each in report.exchanges)


def test_default_symbols_are_known_ones_and_both_dollars() -> None:
    assert defaults(["ABC/USDT", "BTC/USDT", "ETH/USDT"]) == ["BTC/USDT", "ETH/USDT"]
    assert defaults(["ABC/XYZ", "BTC/EUR"]) == ["BTC/EUR", "ABC/XYZ"]
    assert defaults(["ABC/XYZ"]) == ["ABC/XYZ"]
    assert defaults([]) == []
    both = ["BTC/USD", "BTC/USDC", "BTC/USDT", "ETH/USDT"]
    assert defaults(both) == ["BTC/USDT", "ETH/USDT", "BTC/USD", "BTC/USDC"]


def test_published_addresses_are_not_the_operator_s() -> None:
    okx = EXCHANGES["okx"]
    assert own_hosts(okx) == []
    assert own_hosts(replace(okx, ws_url="wss://relay.example/ws")) == ["relay.example"]
    advanced = EXCHANGES["coinbase"].channels["advanced"]
    assert own_hosts(advanced) == []
