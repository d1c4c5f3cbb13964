"""Streams: one encoded update for all clients, at the stream's pace, of live books only."""

import heapq
import json
import zlib
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from onebook.books import Books
from onebook.clock import ManualClock
from onebook.exchanges.kit import Delta, Snapshot
from onebook.model import Health, Instrument
from onebook.signals import Signal
from onebook.streams import StreamKey, Streams, ViewOptions, iso_us
from onebook.streams.identity import CHECK_S, RECOVERY_S, SYMBOLS_PER_TURN_MAX
from onebook.streams.stream import FIRST_LIVE_S, FIRST_UPDATE_S
from onebook.streams.streams import (
    JOIN_PACE_S,
    MERGE_PACE_S,
    PUBLISHES_PER_TICK_MAX,
    PUBLISHING_MAX_S,
    SATURATED_S,
)
from onebook.transfers import no_transfers

SYMBOL = "BTC/USDT"
START_US = 1_763_632_800_000_000


class VirtualTime(ManualClock):
    """A clock that a test advances, exactly or late."""

    def __init__(self):
        super().__init__(1_000.0, epoch_us=START_US - 1_000_000_000)

    def run(self, seconds=0.0):
        self.move_to(self.now_s + seconds)

    def run_late(self, seconds):
        """Call the next callback late by this time."""
        when, _, timer = heapq.heappop(self._timers)
        self.now_s = max(self.now_s, when + seconds)
        timer.callback()

    @property
    def waiting(self):
        return sum(timer.callback is not None for _, _, timer in self._timers)


class Feeds:
    """Catalogue and supervisor of a few exchanges."""

    def __init__(self, books, exchanges, symbols=(SYMBOL,)):
        self.books = books
        self.wanted = {}
        self.on_read = Signal()
        self.listed = {
            (exchange, symbol): Instrument(exchange, symbol, f"{exchange}-{symbol}")
            for exchange in exchanges
            for symbol in symbols
        }

    def instrument(self, exchange, symbol):
        return self.listed.get((exchange, symbol))

    def acquire(self, instrument):
        self.wanted[instrument] = self.wanted.get(instrument, 0) + 1
        self.books.open(instrument)

    def release(self, instrument):
        self.wanted[instrument] -= 1


class Heard:
    """A publisher that keeps all messages, decoded with exact numbers."""

    def __init__(self, clock):
        self.clock = clock
        self.updates = []  # (time, stream, message, full message)
        self.statuses = []
        self.flushes = []  # when each had to end

    def publish(self, stream, payload, full):
        self.updates.append((self.clock.now_s, stream, parse(payload), parse(full())))

    def status(self, stream, payload):
        self.statuses.append((self.clock.now_s, stream, parse(payload)))

    def flush(self, ends_at):
        self.flushes.append(ends_at)


def parse(payload):
    return json.loads(payload, parse_float=Decimal, parse_int=Decimal)


class Rig:
    """Real books and streams under virtual time."""

    def __init__(
        self,
        exchanges=("binance", "kraken", "okx"),
        symbols=(SYMBOL,),
        transfers=no_transfers,
    ):
        self.time = VirtualTime()
        self.books = Books()
        self.feeds = Feeds(self.books, exchanges, symbols)
        self.heard = Heard(self.time)
        self.streams = Streams(
            books=self.books,
            supervisor=self.feeds,
            catalogue=self.feeds,
            publisher=self.heard,
            clock=self.time,
            transfers=transfers,
        )

    def snapshot(self, exchange, bids, asks, symbol=SYMBOL):
        self._apply(Snapshot, exchange, bids, asks, symbol)

    def delta(self, exchange, bids, asks, symbol=SYMBOL):
        self._apply(Delta, exchange, bids, asks, symbol)

    def _apply(self, kind, exchange, bids, asks, symbol):
        instrument = self.feeds.instrument(exchange, symbol)
        output = kind(instrument, levels(bids), levels(asks))
        put = {Snapshot: self.books.fill, Delta: self.books.change}[kind]
        assert put(output, self.time.now_s) is None

    def lose(self, exchange, health=Health.STALE, reason="gap", symbol=SYMBOL):
        instrument = self.feeds.instrument(exchange, symbol)
        self.books.set_health(instrument, health, reason, self.time.now_s)

    def opened(self, key, **books):
        """An open stream whose books are live and whose first update is out."""
        for exchange in books:
            self.books.open(self.feeds.instrument(exchange, SYMBOL))
        for exchange, (bids, asks) in books.items():
            self.snapshot(exchange, bids, asks)
        stream = self.streams.open(key)
        self.time.run()
        return stream


def levels(pairs):
    return Raw(json.dumps([[str(price), str(amount)] for price, amount in pairs]).encode())


def key(*exchanges, **options):
    return StreamKey(SYMBOL, tuple(sorted(exchanges)), ViewOptions(**options))


BOOK = ([("100", "1"), ("99", "2")], [("101", "3"), ("102", "4")])


# The key


def test_the_id_is_sub_and_12_hex_and_the_same_for_every_client():
    first, second = key("okx", "kraken"), key("kraken", "okx")
    assert first.id == second.id
    assert first.id.startswith("sub_")
    assert len(first.id) == 16
    int(first.id[4:], 16)


@pytest.mark.parametrize(
    "other",
    [
        key("okx"),
        key("okx", "kraken", depth=21),
        key("okx", "kraken", interval_ms=101),
        key("okx", "kraken", mode="delta"),
        key("okx", "kraken", levels="array"),
        key("okx", "kraken", split=True),
        key("okx", "kraken", group="0.5"),
        key("okx", "kraken", ages=True),
        key("okx", "kraken", coverage=True),
        key("okx", "kraken", ages=True, coverage=True),
        key("okx", "kraken", interval_ms=0),
        key("okx", "kraken", within="25"),
        key("okx", "kraken", on="best"),
        key("okx", "kraken", times=True),
    ],
)
def test_every_option_makes_another_stream(other):
    assert other.id != key("okx", "kraken").id


# Opening and closing


def test_the_same_key_is_one_stream_and_one_set_of_wants():
    rig = Rig()
    first = rig.streams.open(key("okx", "kraken"))
    second = rig.streams.open(key("okx", "kraken"))
    assert first is second is rig.streams.find(key("okx", "kraken"))
    assert len(rig.streams) == 1
    assert sorted(rig.feeds.wanted.values()) == [1, 1]
    rig.streams.close(first)
    assert sorted(rig.feeds.wanted.values()) == [1, 1]
    rig.streams.close(second)
    assert sorted(rig.feeds.wanted.values()) == [0, 0]
    assert len(rig.streams) == 0


def test_a_closed_stream_is_never_published():
    rig = Rig()
    stream = rig.opened(key("okx"), okx=BOOK)
    rig.delta("okx", [("100", "5")], [])
    rig.streams.close(stream)
    rig.time.run(60)
    rig.delta("okx", [("100", "6")], [])
    rig.lose("okx")
    rig.time.run(60)
    assert len(rig.heard.updates) == 1
    assert rig.heard.statuses == []


def test_the_first_update_comes_at_once_if_every_book_is_live():
    rig = Rig()
    stream = rig.opened(key("okx"), okx=BOOK)
    ((at, published, message, full),) = rig.heard.updates
    assert (at, published) == (1_000.0, stream)
    assert message == full
    assert message["type"] == "aggregated_orderbook_update"
    assert message["symbol"] == SYMBOL
    assert message["subscription_id"] == stream.id
    assert message["update_number"] == 1
    assert message["timestamp"] == "2025-11-20T10:00:00.000000Z"
    assert [level["price"] for level in message["data"]["bids"]] == [100, 99]
    assert message["data"]["market_stats"]["best_ask"] == 101
    assert message["data"]["stale_exchanges"] == []


@pytest.mark.parametrize("others", [0.4, 0.999])
def test_the_first_update_of_a_cold_symbol_waits_for_the_last_book(others):
    rig = Rig()
    rig.streams.open(key("okx", "kraken", "binance", interval_ms=60_000))
    rig.time.run(0.5)
    rig.snapshot("okx", *BOOK)
    rig.time.run(others)
    rig.snapshot("kraken", *BOOK)
    assert rig.heard.updates == []
    rig.snapshot("binance", *BOOK)
    rig.time.run()
    ((at, _, message, _),) = rig.heard.updates
    assert at == pytest.approx(1_000.5 + others)
    assert message["data"]["market_stats"]["participating_exchanges"] == 3


@pytest.mark.parametrize("warm", [True, False])
def test_the_first_update_comes_one_second_after_the_first_live_book(warm):
    rig = Rig()
    if warm:  # another client has it already
        rig.opened(key("okx"), okx=BOOK)
        rig.heard.updates.clear()
    rig.streams.open(key("okx", "kraken"))
    if not warm:
        rig.time.run(2.5)
        rig.snapshot("okx", *BOOK)
    begun = rig.time.now_s
    rig.time.run(60)
    at, _, message, _ = rig.heard.updates[0]
    assert at == begun + FIRST_LIVE_S
    assert message["data"]["stale_exchanges"] == ["kraken"]


@pytest.mark.parametrize("health", [Health.OFFLINE, Health.STALE])
def test_the_first_update_waits_for_no_exchange_that_has_failed(health):
    rig = Rig()
    rig.streams.open(key("okx", "kraken"))
    rig.lose("kraken", health, "refused")
    rig.time.run(0.2)
    rig.snapshot("okx", *BOOK)
    rig.time.run()
    assert [update[0] for update in rig.heard.updates] == [1_000.2]


def test_a_book_that_is_lost_before_the_first_update_starts_the_wait_anew():
    rig = Rig()
    rig.streams.open(key("okx", "kraken"))
    rig.snapshot("okx", *BOOK)
    rig.time.run(0.5)
    rig.lose("okx")
    rig.time.run(1.5)
    assert rig.heard.updates == []
    rig.snapshot("okx", *BOOK)
    rig.time.run(60)
    ((at, _, message, _),) = rig.heard.updates
    assert at == 1_002.0 + FIRST_LIVE_S
    assert message["data"]["stale_exchanges"] == ["kraken"]


def test_members_that_come_in_the_first_seconds_do_not_wait_for_the_interval():
    rig = Rig()
    rig.streams.open(key("okx", "kraken", "binance", interval_ms=60_000))
    rig.snapshot("okx", *BOOK)
    rig.time.run(1.2)
    rig.snapshot("kraken", *BOOK)
    rig.time.run(3)
    rig.snapshot("binance", *BOOK)
    rig.time.run(5)
    assert [update[0] for update in rig.heard.updates] == [
        1_000.0 + FIRST_LIVE_S,
        1_000.0 + FIRST_LIVE_S + JOIN_PACE_S,
        1_004.2,
    ]
    rig.delta("okx", [("100", "5")], [])
    rig.time.run(20)
    assert len(rig.heard.updates) == 3, "levels wait for it"
    rig.lose("kraken", Health.SYNCING)
    rig.snapshot("kraken", *BOOK)
    rig.time.run(1)
    assert len(rig.heard.updates) == 4, "kraken left, and its return waits for the interval"


def test_the_first_update_comes_in_time_even_if_nothing_is_live():
    rig = Rig()
    rig.streams.open(key("okx", "kraken"))
    rig.time.run(60)
    ((at, _, message, _),) = rig.heard.updates
    assert at == 1_000.0 + FIRST_UPDATE_S
    assert message["data"]["bids"] == message["data"]["asks"] == []
    assert message["data"]["market_stats"]["best_bid"] is None
    assert message["data"]["stale_exchanges"] == ["kraken", "okx"]


def test_an_exchange_that_lost_the_symbol_is_stale():
    rig = Rig()
    rig.opened(key("okx", "gone"), okx=BOOK)
    assert rig.heard.updates[0][2]["data"]["stale_exchanges"] == ["gone"]


def test_a_first_update_can_be_asked_for():
    rig = Rig()
    stream = rig.streams.open(key("okx"))
    rig.streams.publish_now(stream)
    rig.streams.publish_now(stream)
    assert [update[2]["update_number"] for update in rig.heard.updates] == [1]
    rig.time.run(60)
    assert len(rig.heard.updates) == 1


def test_a_present_book_can_be_asked_for_within_the_interval_and_goes_to_everyone():
    rig = Rig()
    stream = rig.opened(key("okx", interval_ms=60_000, mode="delta"), okx=BOOK)
    rig.time.run(5)
    rig.delta("okx", [("100", "7")], [])
    rig.streams.publish_now(stream)
    numbers = [update[2]["update_number"] for update in rig.heard.updates]
    assert numbers == [1, 2]
    assert rig.heard.updates[-1][2]["previous_update_number"] == 1
    answer = parse(stream.full_for("r1"))
    assert (answer["update_number"], answer["data"]["bids"][0]["amount"]) == (2, 7)
    assert answer["timestamp"] == "2025-11-20T10:00:05.000000Z"
    rig.delta("okx", [("100", "8")], [])
    rig.time.run(60)
    assert rig.heard.updates[-1][2]["previous_update_number"] == 2


@pytest.mark.parametrize("interval_ms", [1_000, 60_000])
@pytest.mark.parametrize("extra", [{}, {"ages": True}, {"coverage": True}])
def test_a_flood_of_requests_for_a_book_costs_the_other_clients_of_its_view_nothing(
    extra, interval_ms
):
    """Each was published to all clients, whatever their interval, at the cost of their keys."""
    rig = Rig()
    stream = rig.opened(key("okx", interval_ms=interval_ms, mode="delta", **extra), okx=BOOK)
    for amount in range(2, 52):
        rig.time.run(0.01)
        rig.delta("okx", [("100", str(amount))], [])
        rig.streams.publish_now(stream)
        answer = parse(stream.full_for("r1"))
        assert (answer["update_number"], answer["data"]["bids"][0]["amount"]) == (1, 1)
    rig.time.run(60)
    assert [update[0] for update in rig.heard.updates] == [1_000.0, 1_000.0 + interval_ms / 1_000]
    assert rig.heard.updates[-1][2]["previous_update_number"] == 1
    assert rig.heard.updates[-1][2]["data"]["bids"][0]["amount"] == 51


def test_a_delta_holds_only_what_changed_since_the_update_before():
    rig = Rig()
    books = {"okx": BOOK, "kraken": ([("90", "1")], [("110", "1")])}
    stream = rig.opened(key("okx", "kraken", mode="delta", depth=1, coverage=True), **books)
    rig.delta("okx", [("100", "5")], [])
    rig.time.run(1)
    assert rig.heard.updates[-1][2]["data"]["bids"]
    rig.lose("kraken")  # beyond the depth: only the list of stale exchanges changes
    rig.time.run(1)
    lost = rig.heard.updates[-1][2]
    rig.streams.publish_now(stream)  # a client joins
    joined = rig.heard.updates[-1][2]
    for update in (lost, joined):
        assert update["type"] == "aggregated_orderbook_delta"
        assert (update["data"]["bids"], update["data"]["asks"]) == ([], [])
        assert update["data"]["stale_exchanges"] == ["kraken"]


def test_a_second_update_without_changes_is_a_delta():
    rig = Rig()
    rig.opened(key("okx", "kraken", mode="delta", depth=1), okx=BOOK, kraken=([], []))
    rig.lose("kraken")
    rig.time.run(1)
    first, second = (message for *_, message, _ in rig.heard.updates)
    assert first["type"] == "aggregated_orderbook_update"
    assert second["type"] == "aggregated_orderbook_delta"
    assert (second["data"]["bids"], second["data"]["asks"]) == ([], [])


def test_a_present_book_and_its_stale_exchanges_are_of_the_same_instant():
    rig = Rig()
    books = {"okx": BOOK, "kraken": ([("99.5", "1")], [("101.5", "1")])}
    stream = rig.opened(key("okx", "kraken", interval_ms=60_000, split=True), **books)
    rig.lose("okx")
    rig.streams.publish_now(stream)
    answer = parse(stream.full_for(1))
    assert answer["data"]["stale_exchanges"] == ["okx"]
    assert [level["exchanges"] for level in answer["data"]["bids"]] == [["kraken"]]
    rig.time.run()
    assert len(rig.heard.updates) == 2, "once for both reasons"


# Ages


def test_an_update_can_say_how_old_the_data_of_each_exchange_is():
    rig = Rig()
    rig.opened(key("okx", "kraken"), okx=BOOK, kraken=BOOK)
    rig.time.run(2)
    rig.delta("kraken", [("99", "9")], [])
    rig.time.run(0.25)
    stream = rig.streams.open(key("okx", "kraken", "binance", ages=True, interval_ms=60_000))
    rig.time.run(1)
    data = rig.heard.updates[-1][2]["data"]
    assert (data["ages"], data["stale_exchanges"]) == ({"kraken": 1_250, "okx": 3_250}, ["binance"])
    rig.time.run(1)
    rig.streams.publish_now(stream)
    assert parse(stream.full_for(1))["data"]["ages"] == {"kraken": 2_250, "okx": 4_250}


def test_ages_are_in_deltas_and_looks_and_only_where_they_are_asked_for():
    rig = Rig()
    rig.opened(key("okx", mode="delta", ages=True), okx=BOOK)
    rig.time.run(1)
    rig.delta("okx", [("100", "7")], [])
    rig.time.run(1)
    delta = rig.heard.updates[-1][2]
    assert (delta["type"], delta["data"]["ages"]) == ("aggregated_orderbook_delta", {"okx": 0})
    answers = []
    rig.streams.fetch(key("okx", ages=True), answers.append)
    rig.streams.fetch(key("okx"), answers.append)
    assert [parse(each)["data"].get("ages") for each in answers] == [{"okx": 1_000}, None]


def test_the_id_of_a_stream_without_the_later_options_is_what_it_was():
    assert key("okx", "kraken").id == "sub_0a0a40b46337"
    assert key("okx", "kraken", ages=True).id == "sub_325ecd9d5bb4"


# Coverage

NEAR = st.integers(90, 99).map(str)
FAR = st.integers(101, 110).map(str)
AMOUNT = st.integers(0, 3).map(str)


@given(
    st.lists(st.tuples(NEAR, AMOUNT), max_size=10, unique_by=lambda level: level[0]),
    st.lists(st.tuples(FAR, AMOUNT), max_size=10, unique_by=lambda level: level[0]),
    st.integers(0, 8),
    st.lists(st.tuples(NEAR, AMOUNT), max_size=10),
    st.lists(st.tuples(FAR, AMOUNT), max_size=10),
)
def test_nothing_of_an_exchange_is_shown_beyond_the_coverage_that_is_reported(
    bids, asks, asked, more_bids, more_asks
):
    rig = Rig()
    instrument = rig.feeds.instrument("okx", SYMBOL)
    for name in ("okx", "kraken"):
        rig.books.open(rig.feeds.instrument(name, SYMBOL))
    rig.snapshot("kraken", [], [])
    snapshot = Snapshot(instrument, levels(bids), levels(asks), levels_asked=asked)
    assert rig.books.fill(snapshot, rig.time.now_s) is None
    stream = rig.streams.open(key("okx", "kraken", coverage=True, interval_ms=10))
    rig.time.run()
    rig.delta("okx", more_bids, more_asks)
    rig.streams.publish_now(stream)
    data = parse(stream.full_for(1))["data"]
    prices = [[int(price) for price, _ in side] for side in (bids, asks)]
    bounded = [0 < asked <= len(side) for side in prices]
    bid = min(prices[0]) if bounded[0] else None
    ask = max(prices[1]) if bounded[1] else None
    assert data["coverage"]["okx"] == {"bids": bid, "asks": ask}
    assert data["coverage"]["kraken"] == {"bids": None, "asks": None}
    assert bid is None or all(level["price"] >= bid for level in data["bids"])
    assert ask is None or all(level["price"] <= ask for level in data["asks"])


def test_coverage_ends_where_a_full_window_of_the_exchange_ends():
    rig = Rig()
    for name, window in (("okx", 2), ("kraken", 3)):
        rig.books.open(rig.feeds.instrument(name, SYMBOL), window=window)
        rig.snapshot(name, [("100.50", "1"), ("99.25", "2")], [("101", "3")])
    rig.streams.open(key("okx", "kraken", "binance", coverage=True))
    rig.time.run(FIRST_UPDATE_S)
    assert rig.heard.updates[-1][2]["data"]["coverage"] == {
        "kraken": {"bids": None, "asks": None},
        "okx": {"bids": Decimal("99.25"), "asks": None},
    }


def test_coverage_is_of_live_exchanges_in_deltas_and_looks_and_only_where_it_is_asked_for():
    rig = Rig()
    for name in ("kraken", "okx"):
        rig.books.open(rig.feeds.instrument(name, SYMBOL), window=2)
    rig.opened(key("okx", "kraken", mode="delta", coverage=True), okx=BOOK, kraken=BOOK)
    rig.time.run(1)
    rig.delta("okx", [("99", "0"), ("98", "7")], [])
    rig.time.run(1)
    delta = rig.heard.updates[-1][2]
    ends = {"bids": 99, "asks": 102}
    assert delta["type"] == "aggregated_orderbook_delta"
    assert delta["data"]["coverage"] == {"kraken": ends, "okx": {"bids": 98, "asks": 102}}
    rig.lose("kraken")
    rig.time.run(1)
    assert list(rig.heard.updates[-1][2]["data"]["coverage"]) == ["okx"]
    answers = []
    rig.streams.fetch(key("okx", coverage=True, ages=True), answers.append)
    rig.streams.fetch(key("okx"), answers.append)
    found = [parse(each)["data"] for each in answers]
    assert found[0]["coverage"] == {"okx": {"bids": 98, "asks": 102}}
    assert found[0]["ages"] == {"okx": 2_000}
    assert "coverage" not in found[1]


# Memory


def test_streams_that_end_before_they_are_due_leave_nothing_behind():
    rig = Rig()
    rig.opened(key("okx"), okx=BOOK)
    for interval_ms in range(10, 1_010):
        for exchanges in (["okx"], ["okx", "kraken"]):  # due now, due in a second
            stream = rig.streams.open(key(*exchanges, depth=500, interval_ms=interval_ms))
            assert stream.view is None
            rig.streams.close(stream)
    assert len(rig.streams._ready) + len(rig.streams._later) < 200
    rig.time.run(10)
    assert len(rig.heard.updates) == 1


# Pace


def test_at_most_one_update_in_the_interval_and_the_last_state_arrives():
    rig = Rig()
    rig.opened(key("okx", interval_ms=500), okx=BOOK)
    for amount in range(2, 10):
        rig.delta("okx", [("100", str(amount))], [])
        rig.time.run(0.05)
    assert len(rig.heard.updates) == 1
    rig.time.run(10)
    assert [update[0] for update in rig.heard.updates] == [1_000.0, 1_000.5]
    assert rig.heard.updates[-1][2]["data"]["bids"][0]["amount"] == 9


@pytest.mark.parametrize(
    ("late_ms", "apart_ms"),
    [(0, [100] * 9), (30, [130, *[100] * 8]), (80, [180, *[130] * 8])],
    ids=["on time", "late by less than half of it", "late by more"],
)
def test_a_late_update_does_not_slow_the_pace_by_more_than_it_must(late_ms, apart_ms):
    rig = Rig()
    rig.opened(key("okx", interval_ms=100), okx=BOOK)
    for amount in range(2, 11):
        rig.delta("okx", [("100", str(amount))], [])
        rig.time.run_late(late_ms / 1_000)
    times = [update[0] for update in rig.heard.updates]
    apart = [(after - before) * 1_000 for before, after in pairwise(times)]
    assert apart == pytest.approx(apart_ms)


def test_an_update_that_was_not_late_for_itself_makes_nothing_up():
    rig = Rig()
    stream = rig.opened(key("okx", interval_ms=100, ages=True), okx=BOOK)
    rig.time.run(0.15)
    rig.streams.publish_now(stream)  # it was not due: no level changed
    rig.delta("okx", [("100", "3")], [])
    rig.time.run(1)
    assert [update[0] for update in rig.heard.updates] == [1_000.0, 1_000.15, 1_000.25]


def test_what_a_view_costs_in_30_days_is_reported_from_its_live_rate():
    rig = Rig()
    assert rig.streams.expected_gb(key("okx")) is None
    stream = rig.opened(key("okx", interval_ms=100), okx=BOOK)
    assert rig.streams.expected_gb(stream.key) is None  # too young to estimate
    for amount in range(2, 102):
        rig.delta("okx", [("100", str(amount))], [])
        rig.time.run(0.1)
    sent = sum(len(json.dumps(update[2], default=float)) for update in rig.heard.updates)
    per_30_days = sent / 10 * 30 * 86_400 / 2**30
    assert rig.streams.expected_gb(stream.key) == pytest.approx(per_30_days, rel=0.2)


def test_a_change_after_the_interval_is_published_at_once():
    rig = Rig()
    rig.opened(key("okx", interval_ms=100), okx=BOOK)
    rig.time.run(5)
    rig.delta("okx", [("100", "7")], [])
    rig.time.run()
    assert rig.heard.updates[-1][0] == 1_005.0


def test_a_change_that_is_not_shown_is_not_published_and_costs_no_interval():
    rig = Rig()
    rig.opened(key("okx", depth=1, interval_ms=10_000), okx=BOOK)
    rig.time.run(20)
    rig.delta("okx", [("99", "9")], [])
    rig.time.run()
    rig.delta("okx", [("100", "9")], [])
    rig.time.run(MERGE_PACE_S)
    assert [update[0] for update in rig.heard.updates] == [1_000.0, 1_020.0 + MERGE_PACE_S]


def test_a_frame_costs_one_look_up_while_its_streams_wait():
    rig = Rig()
    streams = [rig.opened(key("okx", interval_ms=100 + n), okx=BOOK) for n in range(3)]
    rig.delta("okx", [("100", "5")], [])
    for amount in range(100):
        rig.delta("okx", [("100", str(amount + 6))], [])
    rig.time.run(1)
    numbers = {stream.id: stream.update_number for stream in streams}
    assert set(numbers.values()) == {2}
    assert rig.time.waiting == 0


def test_a_long_queue_lets_the_loop_have_its_turn():
    symbols = [f"C{n}/USDT" for n in range(PUBLISHES_PER_TICK_MAX + 10)]
    rig = Rig(("okx",), symbols)
    for symbol in symbols:
        rig.streams.open(StreamKey(symbol, ("okx",)))
        rig.snapshot("okx", *BOOK, symbol=symbol)
    assert rig.streams.tick(rig.time.now_s) == rig.time.now_s
    assert len(rig.heard.updates) == PUBLISHES_PER_TICK_MAX
    assert rig.streams.tick(rig.time.now_s) == 1_000.0 + FIRST_UPDATE_S
    assert len(rig.heard.updates) == len(symbols)
    assert len(rig.heard.flushes) == 2


def with_slow_views(count, publish_s):
    """A rig with due views of so many symbols, each of which takes so long to publish."""
    symbols = [f"C{n}/USDT" for n in range(count)]
    rig = Rig(("okx",), symbols)
    for symbol in symbols:
        rig.streams.open(StreamKey(symbol, ("okx",)))
        rig.snapshot("okx", *BOOK, symbol=symbol)
    publish = rig.heard.publish

    def publish_slowly(stream, payload, full):
        rig.time.now_s += publish_s
        publish(stream, payload, full)

    rig.heard.publish = publish_slowly
    return rig


def test_views_that_take_long_to_publish_let_the_loop_have_its_turn():
    rig = with_slow_views(10, publish_s=0.4 * PUBLISHING_MAX_S)
    begun = rig.time.now_s
    assert rig.streams.tick(begun) == begun
    assert len(rig.heard.updates) == 3
    assert rig.heard.flushes == [begun + PUBLISHING_MAX_S], "writing has no time of its own"
    while rig.streams.backlog:
        rig.streams.tick(rig.time.now_s)
    assert len(rig.heard.updates) == 10
    assert rig.streams.saturated_total == 0


def test_views_that_wait_long_for_others_are_counted_as_saturation():
    rig = with_slow_views(60, publish_s=0.002)
    begun = rig.time.now_s
    while rig.streams.backlog or not rig.heard.updates:
        rig.streams.tick(rig.time.now_s)
    assert len(rig.heard.updates) == 60
    assert rig.streams.saturated_total == (rig.time.now_s - begun) // SATURATED_S == 2
    rig.time.now_s += 1  # nothing waited meanwhile
    for n in range(60):
        rig.delta("okx", [("100", "5")], [], symbol=f"C{n}/USDT")
    rig.streams.tick(rig.time.now_s)
    assert rig.streams.backlog
    assert rig.streams.saturated_total == 2


def test_nothing_more_is_published_before_the_updates_of_the_last_tick_are_written():
    rig = with_slow_views(10, publish_s=0.4 * PUBLISHING_MAX_S)
    left = [True, True, False, True, True]  # whether updates are left after each flush

    def flush(ends_at):
        return left.pop(0) if left else False

    rig.heard.flush = flush
    for published in (3, 3, 6, 6, 9):
        assert rig.streams.tick(rig.time.now_s) <= rig.time.now_s
        assert len(rig.heard.updates) == published
    rig.heard.flush = lambda _: True
    assert rig.streams.tick(rig.time.now_s) <= rig.time.now_s, "all are published, one is left"
    assert len(rig.heard.updates) == 10


def test_requests_that_take_long_to_answer_let_the_loop_have_its_turn():
    rig = Rig(("okx",))
    answered = []

    def answer_slowly(payload):
        rig.time.now_s += 0.4 * PUBLISHING_MAX_S
        answered.append(payload)

    for _ in range(8):
        rig.streams.fetch(StreamKey(SYMBOL, ("okx",)), answer_slowly)
    rig.time.now_s += FIRST_UPDATE_S
    begun = rig.time.now_s
    assert rig.streams.tick(begun) <= begun
    assert len(answered) == 3
    while rig.streams.tick(rig.time.now_s) is not None:
        pass
    assert len(answered) == 8


@pytest.mark.parametrize("again", [True, False])
def test_a_view_follows_an_exchange_that_lists_its_symbol_as_another_instrument(again):
    rig = Rig(("okx",))
    stream = rig.opened(key("okx"), okx=BOOK)
    old = rig.feeds.instrument("okx", SYMBOL)
    if again:  # the new one is listed later, and a client subscribes after that
        rig.lose("okx", Health.OFFLINE, "not_listed")
    new = rig.feeds.listed["okx", SYMBOL] = Instrument("okx", SYMBOL, "renamed")
    if again:
        assert rig.streams.open(key("okx")) is stream
    else:
        rig.books.set_health(old, Health.OFFLINE, "not_listed", rig.time.now_s)
    assert rig.feeds.wanted == {old: 0, new: 1}
    rig.snapshot("okx", [("90", "1")], [("91", "1")])
    rig.time.run(1)
    assert rig.heard.updates[-1][2]["data"]["stale_exchanges"] == []
    assert rig.heard.updates[-1][2]["data"]["market_stats"]["best_bid"] == 90
    rig.delta("okx", [("90.5", "1")], [])
    rig.time.run(1)
    assert rig.heard.updates[-1][2]["data"]["market_stats"]["best_bid"] == Decimal("90.5")
    for _ in range(stream.users):
        rig.streams.close(stream)
    assert set(rig.feeds.wanted.values()) == {0}


def test_an_earlier_due_replaces_the_callback():
    rig = Rig()
    rig.opened(key("okx", interval_ms=60_000), okx=BOOK)
    rig.opened(key("okx", interval_ms=1_000), okx=BOOK)
    rig.delta("okx", [("100", "5")], [])
    assert rig.time.waiting == 1
    rig.time.run(1.0)
    assert rig.heard.updates[-1][0] == 1_001.0
    rig.streams.stop()
    assert rig.time.waiting == 0
    rig.streams.stop()


# The honesty rule


def test_a_book_that_leaves_live_leaves_the_view_at_once():
    rig = Rig()
    rig.opened(key("okx", "kraken", interval_ms=60_000), okx=BOOK, kraken=BOOK)
    rig.time.run(0.001)
    rig.lose("okx", reason="gap")
    rig.time.run(0.1)
    at, _, message, _ = rig.heard.updates[-1]
    assert at <= 1_000.001 + 0.1
    assert message["data"]["stale_exchanges"] == ["okx"]
    assert message["data"]["bids"][0]["exchanges"] == ["kraken"]
    assert message["update_number"] == 2


def test_every_book_that_leaves_leaves_an_empty_view():
    rig = Rig()
    rig.opened(key("okx"), okx=BOOK)
    rig.lose("okx", Health.OFFLINE, "maintenance")
    rig.time.run()
    data = rig.heard.updates[-1][2]["data"]
    assert data["bids"] == data["asks"] == []
    assert data["stale_exchanges"] == ["okx"]
    assert data["market_stats"]["participating_exchanges"] == 0


def test_a_book_comes_back_only_with_its_snapshot_and_at_the_streams_pace():
    rig = Rig()
    rig.opened(key("okx", "kraken", interval_ms=1_000), okx=BOOK, kraken=BOOK)
    rig.time.run(5)
    rig.lose("okx")
    rig.time.run(0.2)
    rig.lose("okx", Health.SYNCING, "")
    rig.delta("okx", [("100", "50")], [])
    rig.time.run(0.2)
    assert rig.heard.updates[-1][2]["data"]["stale_exchanges"] == ["okx"]
    rig.snapshot("okx", [("100", "8")], [("101", "1")])
    rig.time.run(10)
    at, _, message, _ = rig.heard.updates[-1]
    assert at == 1_006.0
    assert message["data"]["stale_exchanges"] == []
    assert message["data"]["bids"][0]["amount"] == 9


def test_exchange_status_goes_to_every_stream_of_the_book():
    rig = Rig()
    both = rig.opened(key("okx", "kraken"), okx=BOOK, kraken=BOOK)
    one = rig.opened(key("okx"), okx=BOOK)
    rig.opened(key("kraken"), kraken=BOOK)
    rig.heard.statuses.clear()
    rig.lose("okx", reason="checksum")
    assert {stream for _, stream, _ in rig.heard.statuses} == {both, one}
    assert rig.heard.statuses[0][2] == {
        "type": "exchange_status",
        "symbol": SYMBOL,
        "exchange": "okx",
        "state": "stale",
        "reason": "checksum",
        "detail": "",
        "timestamp": "2025-11-20T10:00:00.000000Z",
    }
    rig.lose("okx", Health.SYNCING, "")
    rig.snapshot("okx", *BOOK)
    states = [message["state"] for _, stream, message in rig.heard.statuses if stream is one]
    assert states == ["stale", "syncing", "live"]


def test_a_change_between_two_states_of_doubt_publishes_nothing():
    rig = Rig()
    rig.opened(key("okx", "kraken"), kraken=BOOK)
    rig.lose("okx", Health.OFFLINE, "maintenance")
    rig.time.run(10)
    assert len(rig.heard.statuses) == 1
    assert len(rig.heard.updates) == 1


def test_the_newest_data_of_a_view_is_known():
    rig = Rig()
    stream = rig.opened(key("okx", "kraken"), okx=BOOK, kraken=BOOK)
    rig.time.run(3)
    rig.delta("okx", [("100", "7")], [])
    assert stream.newest_at == 1_003.0
    rig.lose("okx")
    rig.lose("kraken")
    assert stream.newest_at == stream.published_at


def test_a_stream_that_cannot_be_published_does_not_stop_the_others(caplog):
    rig = Rig(("okx",), (SYMBOL, "ETH/USDT"))
    bad = rig.streams.open(StreamKey(SYMBOL, ("okx",)))
    rig.streams.open(StreamKey("ETH/USDT", ("okx",)))
    head, bad._head_full = bad._head_full, None
    for symbol in (SYMBOL, "ETH/USDT"):
        rig.snapshot("okx", *BOOK, symbol=symbol)
    rig.time.run(1)
    rig.delta("okx", [("100", "2")], [])
    rig.time.run(1)
    assert [update[2]["symbol"] for update in rig.heard.updates] == ["ETH/USDT"]
    assert caplog.text.count("could not be published") == 1
    bad._head_full = head
    rig.delta("okx", [("100", "3")], [])
    rig.time.run(1)
    assert rig.heard.updates[-1][2]["data"]["bids"][0]["amount"] == 3


# Delta mode


def test_delta_mode_begins_with_an_update_and_goes_on_with_changes():
    rig = Rig()
    rig.opened(key("okx", mode="delta"), okx=BOOK)
    rig.time.run(1)
    rig.delta("okx", [("100", "0"), ("98", "5")], [("101", "9")])
    rig.time.run(1)
    first, second = (update[2] for update in rig.heard.updates)
    assert first["type"] == "aggregated_orderbook_update"
    assert second["type"] == "aggregated_orderbook_delta"
    assert (second["previous_update_number"], second["update_number"]) == (1, 2)
    changed = [(level["price"], level["amount"]) for level in second["data"]["bids"]]
    assert changed == [(100, 0), (98, 5)]
    assert [level["amount"] for level in second["data"]["asks"]] == [9]
    assert second["data"]["market_stats"]["best_bid"] == 99
    assert second["data"]["stale_exchanges"] == []
    assert second["checksum"] == zlib.crc32(b"99:2:98:5:101:9:102:4")


def test_a_full_book_can_be_had_between_deltas_with_an_id():
    rig = Rig()
    stream = rig.opened(key("okx", mode="delta", levels="array"), okx=BOOK)
    rig.time.run(1)
    rig.delta("okx", [("100", "6")], [])
    rig.time.run(1)
    assert stream.full() is stream.full()
    message = parse(stream.full_for("r7"))
    assert message["type"] == "aggregated_orderbook_update"
    assert (message["id"], message["update_number"]) == ("r7", 2)
    assert message["data"]["bids"] == [[100, 6], [99, 2]]


# A look without a subscription


def test_a_look_is_answered_at_once_if_no_book_is_on_its_way():
    rig = Rig()
    rig.opened(key("okx"), okx=BOOK)
    rig.books.open(rig.feeds.instrument("kraken", SYMBOL))
    rig.lose("kraken", Health.OFFLINE, "refused")
    answers = []
    rig.streams.fetch(key("okx", "kraken", depth=1), answers.append, message_id=7)
    message = parse(answers[0])
    assert message["type"] == "aggregated_orderbook_data"
    assert (message["symbol"], message["id"]) == (SYMBOL, 7)
    assert "update_number" not in message
    assert len(message["data"]["bids"]) == 1
    assert message["data"]["stale_exchanges"] == ["kraken"]
    assert rig.feeds.wanted[rig.feeds.instrument("kraken", SYMBOL)] == 0


def test_a_cold_look_is_answered_with_the_last_book_or_a_second_after_the_first():
    for kraken_comes in (True, False):
        rig = Rig()
        answers = []
        rig.streams.fetch(key("okx", "kraken"), answers.append)
        rig.time.run(1)
        rig.snapshot("okx", *BOOK)
        rig.time.run(FIRST_LIVE_S / 2)
        assert answers == []
        if kraken_comes:
            rig.snapshot("kraken", *BOOK)
        rig.time.run(0 if kraken_comes else FIRST_LIVE_S / 2)
        stale = [] if kraken_comes else ["kraken"]
        assert parse(answers[0])["data"]["stale_exchanges"] == stale
        rig.time.run(60)
        rig.lose("okx", Health.SYNCING)
        rig.snapshot("okx", *BOOK)
        assert len(answers) == 1
        assert set(rig.feeds.wanted.values()) == {0}


def test_a_look_is_answered_in_time_with_what_is_live():
    rig = Rig()
    answers = []
    rig.streams.fetch(key("okx", "kraken"), answers.append)
    rig.time.run(FIRST_UPDATE_S)
    assert parse(answers[0])["data"]["stale_exchanges"] == ["kraken", "okx"]
    assert set(rig.feeds.wanted.values()) == {0}


def test_a_request_that_no_client_waits_for_is_dropped():
    rig = Rig()
    answers = []
    forget = rig.streams.fetch(key("okx"), answers.append)
    forget()
    forget()
    rig.snapshot("okx", *BOOK)
    rig.time.run(60)
    assert answers == []
    assert set(rig.feeds.wanted.values()) == {0}


def test_timestamps_have_microseconds_and_z():
    assert iso_us(0) == "1970-01-01T00:00:00.000000Z"
    assert iso_us(1_763_632_800_000_123) == "2025-11-20T10:00:00.000123Z"
    assert iso_us(999_999) == "1970-01-01T00:00:00.999999Z"


# Against an oracle

EXCHANGES = ("binance", "kraken", "okx")
PRICES = st.integers(90, 110)
AMOUNTS = st.decimals(0, 5, places=2)
change = st.tuples(
    st.just("change"),
    st.sampled_from(EXCHANGES),
    st.lists(st.tuples(st.sampled_from(("bid", "ask")), PRICES, AMOUNTS), max_size=4),
)
lose = st.tuples(st.just("lose"), st.sampled_from(EXCHANGES), st.none())
fill = st.tuples(st.just("fill"), st.sampled_from(EXCHANGES), st.none())
wait = st.tuples(st.just("wait"), st.integers(0, 300), st.none())
resync = st.tuples(st.just("resync"), st.none(), st.none())


class Oracle:
    """The slow and simple model: dictionaries, summed on demand."""

    def __init__(self):
        self.books = {}

    def merged(self, depth):
        sides = []
        for side, sign in (("bid", -1), ("ask", 1)):
            sums = {}
            for book in self.books.values():
                for price, amount in book[side].items():
                    sums[price] = sums.get(price, 0) + amount
            best = sorted(sums.items(), key=lambda level: sign * level[0])
            sides.append([(Decimal(price), amount) for price, amount in best[:depth]])
        return sides


class DeltaClient:
    """A client's book from full updates and deltas."""

    def __init__(self):
        self.sides = {"bids": {}, "asks": {}}
        self.number = 0

    def take(self, message):
        if message["type"] == "aggregated_orderbook_delta":
            assert message["previous_update_number"] == self.number
        else:
            self.sides = {"bids": {}, "asks": {}}
        self.number = message["update_number"]
        for name, side in self.sides.items():
            for price, amount, *_ in message["data"][name]:
                if amount:
                    side[price] = amount
                else:
                    side.pop(price, None)
        if "checksum" in message:
            best = self.book(25)
            text = ":".join(f"{p}:{normal(a)}" for side in best for p, a in side)
            assert message["checksum"] == zlib.crc32(text.encode())

    def book(self, depth):
        bids = sorted(self.sides["bids"].items(), reverse=True)[:depth]
        return [bids, sorted(self.sides["asks"].items())[:depth]]


def normal(amount):
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@given(
    script=st.lists(st.one_of(change, change, wait, lose, fill, resync), max_size=60),
    interval_ms=st.sampled_from((10, 100, 1_000)),
    depth=st.integers(1, 6),
)
def test_delta_client_equals_full_client_equals_the_brute_force_merge(script, interval_ms, depth):
    rig, oracle, client = Rig(EXCHANGES), Oracle(), DeltaClient()
    stream = rig.streams.open(
        key(*EXCHANGES, interval_ms=interval_ms, depth=depth, mode="delta", levels="array")
    )
    urgent = set()
    for action, what, changes in script:
        if action == "wait":
            rig.time.run(what / 1_000)
        elif action == "fill" and what not in oracle.books:
            rig.snapshot(what, [], [])
            oracle.books[what] = {"bid": {}, "ask": {}}
        elif action == "lose" and oracle.books.pop(what, None) is not None:
            rig.lose(what)
            urgent.add(rig.time.now_s)
            rig.time.run()
            if rig.heard.updates:
                assert what in rig.heard.updates[-1][2]["data"]["stale_exchanges"]
        elif action == "resync":
            rig.streams.publish_now(stream)
            at, _, update, full = rig.heard.updates[-1]
            answer = parse(stream.full_for("r"))
            assert answer["update_number"] == update["update_number"]
            assert answer["data"] == full["data"]
            gone, stale = set(EXCHANGES) - set(oracle.books), set(answer["data"]["stale_exchanges"])
            assert gone <= stale
            if rig.time.now_s - at >= interval_ms / 1_000:
                assert gone == stale
                assert [[*map(tuple, answer["data"][side])] for side in ("bids", "asks")] == (
                    oracle.merged(depth)
                )
        elif action == "change" and what in oracle.books:
            _change(rig, oracle.books[what], what, changes)
    rig.time.run(FIRST_UPDATE_S + interval_ms / 1_000)
    previous = float("-inf")
    for number, (at, _, message, full) in enumerate(rig.heard.updates, start=1):
        client.take(message)
        assert message["update_number"] == full["update_number"] == number
        assert client.book(depth) == [[*map(tuple, full["data"][s])] for s in ("bids", "asks")]
        assert at in urgent or at - previous >= interval_ms / 1_000 - 1e-9
        previous = at
    # The last state arrives, and it is the truth.
    assert client.book(depth) == oracle.merged(depth)
    stale = sorted(set(EXCHANGES) - set(oracle.books))
    assert rig.heard.updates[-1][2]["data"]["stale_exchanges"] == stale
    assert stream.due is None


def _change(rig, book, exchange, changes):
    """Change a book, but never so that it crosses within the exchange."""
    sides = {"bid": dict(book["bid"]), "ask": dict(book["ask"])}
    for side, price, amount in changes:
        if amount:
            sides[side][price] = amount
        else:
            sides[side].pop(price, None)
    if sides["bid"] and sides["ask"] and max(sides["bid"]) >= min(sides["ask"]):
        return
    book.update(sides)
    rows = {side: [(p, a) for s, p, a in changes if s == side] for side in ("bid", "ask")}
    rig.delta(exchange, rows["bid"], rows["ask"])


@pytest.mark.parametrize("step_s", [-86_400, -3_600, 3_600, 86_400])
def test_a_wall_clock_that_is_set_changes_timestamps_and_not_the_pace(step_s):
    rig = Rig(exchanges=("okx",))
    rig.streams.open(key("okx", interval_ms=100, mode="delta", ages=True))
    rig.snapshot("okx", [("100", "1")], [("101", "1")])
    rig.time.run(1)
    for amount in range(2, 7):
        if amount == 4:
            rig.time.epoch_us = step_s * 1_000_000
        rig.delta("okx", [("100", str(amount))], [])
        rig.time.run(0.1)
    messages = [message for _, _, message, _ in rig.heard.updates]
    assert [message["update_number"] for message in messages] == [1, 2, 3, 4, 5, 6]
    times = [at for at, *_ in rig.heard.updates]
    gaps = [later - earlier for earlier, later in pairwise(times[1:])]
    assert gaps == pytest.approx([0.1] * 4)
    assert all(0 <= message["data"]["ages"]["okx"] <= 100 for message in messages)
    assert messages[-1]["timestamp"][:19] == iso_us(rig.time.wall_us() - 100_000)[:19]


def test_a_client_that_catches_up_gets_the_levels_and_the_names_of_one_update():
    rig = Rig(exchanges=("okx",))
    stream = rig.streams.open(key("okx", interval_ms=60_000))
    rig.snapshot("okx", [("100", "1")], [("101", "1")])
    rig.time.run(1)
    rig.lose("okx")
    rig.time.run(0.001)
    rig.snapshot("okx", [("100", "2")], [("101", "2")])
    late = parse(stream.full())["data"]
    assert (late["bids"], late["asks"], late["stale_exchanges"]) == ([], [], ["okx"])


# Identity of coins

FOUR = ("binance", "bybit", "kraken", "okx")


def book_at(price):
    return [(str(price), "1")], [(str(price + 1), "1")]


def statuses(rig, exchange, start=0):
    return [
        (each["state"], each["reason"])
        for _, _, each in rig.heard.statuses[start:]
        if each["exchange"] == exchange
    ]


def test_a_book_of_another_coin_is_never_merged():
    rig = Rig(FOUR)
    stream = rig.opened(key(*FOUR), binance=book_at(100), bybit=book_at(100), okx=book_at(101))
    rig.time.run(FIRST_UPDATE_S)
    rig.snapshot("kraken", *book_at(5_000))
    rig.time.run(60)
    assert statuses(rig, "kraken")[-1] == ("stale", "identity_conflict")
    for _, _, message, _ in rig.heard.updates:
        assert message["data"]["stale_exchanges"] == ["kraken"]
        assert message["data"]["market_stats"]["best_ask"] == 101
    assert parse(rig.streams.marks(stream)[0])["detail"] == (
        "mid 5000.5, median of the other 3 100.5"
    )


def test_a_book_that_moves_away_leaves_within_a_second_and_returns_after_it_agrees_for_a_while():
    rig = Rig(FOUR)
    rig.opened(key(*FOUR), **{each: book_at(100) for each in FOUR})
    rig.delta("okx", [("100", "0"), ("50", "1")], [])
    rig.delta("okx", [], [("101", "0"), ("51", "1")])
    rig.time.run(CHECK_S)
    assert statuses(rig, "okx", start=-1) == [("stale", "identity_conflict")]
    assert rig.heard.updates[-1][2]["data"]["stale_exchanges"] == ["okx"]
    assert rig.heard.updates[-1][2]["data"]["market_stats"]["best_ask"] == 101
    rig.delta("okx", [("50", "0")], [("51", "0"), ("101", "1")])
    rig.delta("okx", [("100", "1")], [])
    rig.time.run(RECOVERY_S)
    assert rig.heard.updates[-1][2]["data"]["stale_exchanges"] == ["okx"]
    rig.time.run(2 * CHECK_S)
    assert statuses(rig, "okx", start=-1) == [("live", "")]
    assert rig.heard.updates[-1][2]["data"]["stale_exchanges"] == []


def test_a_view_of_one_exchange_shows_its_book_with_the_mark():
    rig = Rig(FOUR)
    own = rig.opened(key("okx"), **{each: book_at(100) for each in FOUR[:3]})
    rig.snapshot("okx", *book_at(7))
    rig.time.run(1)
    assert statuses(rig, "okx") == [("live", "identity_conflict")]
    assert rig.heard.updates[-1][1] is own
    assert rig.heard.updates[-1][2]["data"]["market_stats"]["best_bid"] == 7
    assert rig.heard.updates[-1][2]["data"]["stale_exchanges"] == []


def test_two_that_disagree_are_shown_with_their_marks():
    rig = Rig(FOUR)
    stream = rig.opened(key("kraken", "okx"), kraken=book_at(100))
    rig.snapshot("okx", *book_at(7))
    rig.time.run(FIRST_UPDATE_S)
    assert statuses(rig, "okx") == [("live", "unconfirmed_identity")]
    assert statuses(rig, "kraken") == [("live", "unconfirmed_identity")]
    assert rig.heard.updates[-1][2]["data"]["stale_exchanges"] == []
    names = [parse(each)["exchange"] for each in rig.streams.marks(stream)]
    assert names == ["kraken", "okx"]


def deep(middle=100, amount=1):
    sides = ([(str(middle + sign * each), amount) for each in range(1, 9)] for sign in (-1, 1))
    return tuple(sides)


def test_a_book_that_two_exchanges_show_is_merged_once_and_said_to_be_shared():
    rig = Rig(("okx", "okxus"))
    rig.opened(key("okx", "okxus"), okx=deep())
    rig.snapshot("okxus", *deep())
    rig.time.run(FIRST_UPDATE_S)
    assert statuses(rig, "okxus") == [("stale", "shared_book")]
    data = rig.heard.updates[-1][2]["data"]
    assert data["stale_exchanges"] == ["okxus"]
    assert (data["bids"][0]["price"], data["bids"][0]["amount"]) == (99, 1), "and not 2"
    rig.lose("okx")
    rig.time.run(1)
    assert rig.heard.updates[-1][2]["data"]["stale_exchanges"] == ["okx"]


def test_a_book_under_two_quotes_of_an_exchange_is_found_by_the_second_s_check():
    usd, usdc = "BTC/USD", "BTC/USDC"
    rig = Rig(("gate",), symbols=(usd, usdc))
    for symbol, amount in ((usd, 1), (usdc, 2)):
        stream = rig.streams.open(StreamKey(symbol, ("gate",)))
        rig.snapshot("gate", *deep(amount=amount), symbol=symbol)
    rig.time.run(5)
    assert statuses(rig, "gate") == [("live", "")] * 2, "amounts differ"
    rig.snapshot("gate", *deep(), symbol=usdc)
    rig.time.run(CHECK_S)
    (_, told, status) = rig.heard.statuses[-1]
    assert (told, status["state"], status["reason"]) == (stream, "live", "shared_book")
    assert status["detail"] == "the same levels as gate BTC/USD"
    assert rig.heard.updates[-1][2]["data"]["stale_exchanges"] == [], "it is merged with no other"


def test_one_that_leaves_does_not_wait_for_one_that_returns():
    rig = Rig(FOUR)
    books = {"binance": book_at(50), **{each: book_at(100) for each in FOUR[1:]}}
    rig.opened(key(*FOUR, interval_ms=60_000), **books)
    rig.time.run(100)
    rig.delta("okx", [("100", "2")], [])  # published: the next is due in a minute
    rig.snapshot("binance", *book_at(100))
    rig.time.run(RECOVERY_S + CHECK_S / 2)
    assert rig.heard.updates[-1][2]["data"]["stale_exchanges"] == ["binance"]
    rig.snapshot("okx", *book_at(50))
    rig.time.run(CHECK_S)
    changed_at = rig.heard.statuses[-1][0]
    assert statuses(rig, "binance", start=-2) == [("live", "")]
    assert statuses(rig, "okx", start=-2) == [("stale", "identity_conflict")]
    assert rig.heard.updates[-1][0] == changed_at
    assert rig.heard.updates[-1][2]["data"]["stale_exchanges"] == ["okx"]


def test_checks_are_called_back_only_for_symbols_of_several_books_and_a_few_at_a_time():
    symbols = [f"C{n}/USDT" for n in range(3 * SYMBOLS_PER_TURN_MAX)]
    rig = Rig(("kraken", "okx"), symbols)
    for symbol in symbols:
        rig.streams.open(StreamKey(symbol, ("kraken", "okx")))
        rig.snapshot("okx", *BOOK, symbol=symbol)
    rig.time.run(FIRST_UPDATE_S)
    assert rig.time.waiting == 1
    for symbol in symbols:
        rig.snapshot("kraken", *BOOK, symbol=symbol)
    rig.time.run(CHECK_S / 2)
    for symbol in symbols:  # unseen by the check at entry: it was before
        rig.delta("kraken", [("100", "0"), ("99", "0"), ("50", "1")], [], symbol=symbol)
        rig.delta("kraken", [], [("101", "0"), ("102", "0"), ("51", "1")], symbol=symbol)
    start = len(rig.heard.statuses)
    rig.time.run(CHECK_S)
    times = [at for at, _, _ in rig.heard.statuses[start:]]
    assert [times.count(at) for at in sorted(set(times))] == [2 * SYMBOLS_PER_TURN_MAX] * 3
    for instrument in tuple(rig.feeds.listed.values()):
        rig.books.close(instrument)
    rig.time.run(2 * CHECK_S)
    assert rig.time.waiting == 0
