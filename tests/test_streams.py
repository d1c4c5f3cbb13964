"""Streams: one encoded update for everyone, at the stream's pace, of live books only."""

import heapq
import json
import zlib
from decimal import Decimal
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from onebook.books import Books
from onebook.exchanges.contract import Delta, Snapshot
from onebook.model import Health, Instrument
from onebook.streams import StreamKey, Streams, iso_us
from onebook.streams.streams import FIRST_UPDATE_S, MERGE_PACE_S, PUBLISHES_PER_TICK_MAX

SYMBOL = "BTC/USDT"
START_US = 1_763_632_800_000_000


class VirtualTime:
    """A clock and a loop: callbacks run when the time is advanced to them."""

    def __init__(self):
        self.now = 1_000.0
        self._calls = []
        self._order = count()

    def monotonic(self):
        return self.now

    def wall_us(self):
        return START_US + round((self.now - 1_000.0) * 1_000_000)

    def call_at(self, when, callback):
        call = _Call(callback)
        heapq.heappush(self._calls, (when, next(self._order), call))
        return call

    def run(self, seconds=0.0):
        until = self.now + seconds
        while self._calls and self._calls[0][0] <= until:
            when, _, call = heapq.heappop(self._calls)
            self.now = max(self.now, when)
            if not call.cancelled:
                call.callback()
        self.now = until

    @property
    def waiting(self):
        return sum(not call.cancelled for _, _, call in self._calls)


class _Call:
    def __init__(self, callback):
        self.callback = callback
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


class Feeds:
    """Catalogue and supervisor of a few exchanges."""

    def __init__(self, books, exchanges, symbols=(SYMBOL,)):
        self.books = books
        self.wanted = {}
        self.listed = {
            (exchange, symbol): Instrument(exchange, symbol, f"{exchange}-{symbol}")
            for exchange in exchanges
            for symbol in symbols
        }

    def instrument(self, exchange, symbol):
        return self.listed.get((exchange, symbol))

    def want(self, instrument):
        self.wanted[instrument] = self.wanted.get(instrument, 0) + 1
        self.books.open(instrument)

    def unwant(self, instrument):
        self.wanted[instrument] -= 1


class Heard:
    """A publisher that keeps what it was given, decoded with exact numbers."""

    def __init__(self, clock):
        self.clock = clock
        self.updates = []  # (time, stream, message, full message)
        self.statuses = []
        self.flushes = 0

    def publish(self, stream, payload, full):
        self.updates.append((self.clock.now, stream, parse(payload), parse(full())))

    def status(self, stream, payload):
        self.statuses.append((self.clock.now, stream, parse(payload)))

    def flush(self):
        self.flushes += 1


def parse(payload):
    return json.loads(payload, parse_float=Decimal, parse_int=Decimal)


class House:
    """Real books and streams under virtual time."""

    def __init__(self, exchanges=("binance", "kraken", "okx"), symbols=(SYMBOL,)):
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
        )

    def snapshot(self, exchange, bids, asks, symbol=SYMBOL):
        self._apply(Snapshot, exchange, bids, asks, symbol)

    def delta(self, exchange, bids, asks, symbol=SYMBOL):
        self._apply(Delta, exchange, bids, asks, symbol)

    def _apply(self, kind, exchange, bids, asks, symbol):
        instrument = self.feeds.instrument(exchange, symbol)
        output = kind(instrument, levels(bids), levels(asks))
        assert self.books.apply(output, self.time.now) is None

    def lose(self, exchange, health=Health.STALE, reason="gap", symbol=SYMBOL):
        instrument = self.feeds.instrument(exchange, symbol)
        self.books.set_health(instrument, health, reason, self.time.now)

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
    return StreamKey(SYMBOL, tuple(sorted(exchanges)), **options)


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
    ],
)
def test_every_option_makes_another_stream(other):
    assert other.id != key("okx", "kraken").id


# Opening and closing


def test_the_same_key_is_one_stream_and_one_set_of_wants():
    house = House()
    first = house.streams.open(key("okx", "kraken"))
    second = house.streams.open(key("okx", "kraken"))
    assert first is second is house.streams.find(key("okx", "kraken"))
    assert len(house.streams) == 1
    assert sorted(house.feeds.wanted.values()) == [1, 1]
    house.streams.close(first)
    assert sorted(house.feeds.wanted.values()) == [1, 1]
    house.streams.close(second)
    assert sorted(house.feeds.wanted.values()) == [0, 0]
    assert len(house.streams) == 0


def test_a_closed_stream_is_never_published():
    house = House()
    stream = house.opened(key("okx"), okx=BOOK)
    house.delta("okx", [("100", "5")], [])
    house.streams.close(stream)
    house.time.run(60)
    house.delta("okx", [("100", "6")], [])
    house.lose("okx")
    house.time.run(60)
    assert len(house.heard.updates) == 1
    assert house.heard.statuses == []


def test_the_first_update_comes_at_once_if_a_book_is_live():
    house = House()
    stream = house.opened(key("okx", "kraken"), okx=BOOK)
    ((at, published, message, full),) = house.heard.updates
    assert (at, published) == (1_000.0, stream)
    assert message == full
    assert message["type"] == "aggregated_orderbook_update"
    assert message["symbol"] == SYMBOL
    assert message["subscription_id"] == stream.id
    assert message["update_number"] == 1
    assert message["timestamp"] == "2025-11-20T10:00:00.000000Z"
    assert [level["price"] for level in message["data"]["bids"]] == [100, 99]
    assert message["data"]["market_stats"]["best_ask"] == 101
    assert message["data"]["stale_exchanges"] == ["kraken"]


def test_the_first_update_comes_with_the_first_live_book():
    house = House()
    house.streams.open(key("okx", "kraken"))
    house.time.run(1)
    assert house.heard.updates == []
    house.snapshot("okx", *BOOK)
    house.time.run()
    ((at, _, message, _),) = house.heard.updates
    assert at == 1_001.0
    assert message["data"]["stale_exchanges"] == ["kraken"]


def test_the_first_update_comes_in_time_even_if_nothing_is_live():
    house = House()
    house.streams.open(key("okx", "kraken"))
    house.time.run(60)
    ((at, _, message, _),) = house.heard.updates
    assert at == 1_000.0 + FIRST_UPDATE_S
    assert message["data"]["bids"] == message["data"]["asks"] == []
    assert message["data"]["market_stats"]["best_bid"] is None
    assert message["data"]["stale_exchanges"] == ["kraken", "okx"]


def test_an_exchange_that_lost_the_symbol_is_stale():
    house = House()
    house.opened(key("okx", "gone"), okx=BOOK)
    assert house.heard.updates[0][2]["data"]["stale_exchanges"] == ["gone"]


def test_a_first_update_can_be_asked_for():
    house = House()
    stream = house.streams.open(key("okx"))
    house.streams.publish_now(stream)
    house.streams.publish_now(stream)
    assert [update[2]["update_number"] for update in house.heard.updates] == [1]
    house.time.run(60)
    assert len(house.heard.updates) == 1


# Pace


def test_at_most_one_update_in_the_interval_and_the_last_state_arrives():
    house = House()
    house.opened(key("okx", interval_ms=500), okx=BOOK)
    for amount in range(2, 10):
        house.delta("okx", [("100", str(amount))], [])
        house.time.run(0.05)
    assert len(house.heard.updates) == 1
    house.time.run(10)
    assert [update[0] for update in house.heard.updates] == [1_000.0, 1_000.5]
    assert house.heard.updates[-1][2]["data"]["bids"][0]["amount"] == 9


def test_what_a_view_costs_in_30_days_is_told_from_its_live_rate():
    house = House()
    assert house.streams.expected_gb(key("okx")) is None
    stream = house.opened(key("okx", interval_ms=100), okx=BOOK)
    assert house.streams.expected_gb(stream.key) is None  # too young to tell
    for amount in range(2, 102):
        house.delta("okx", [("100", str(amount))], [])
        house.time.run(0.1)
    sent = sum(len(json.dumps(update[2], default=float)) for update in house.heard.updates)
    per_30_days = sent / 10 * 30 * 86_400 / 2**30
    assert house.streams.expected_gb(stream.key) == pytest.approx(per_30_days, rel=0.2)


def test_a_change_after_the_interval_is_published_at_once():
    house = House()
    house.opened(key("okx", interval_ms=100), okx=BOOK)
    house.time.run(5)
    house.delta("okx", [("100", "7")], [])
    house.time.run()
    assert house.heard.updates[-1][0] == 1_005.0


def test_a_change_that_nobody_sees_is_not_published_and_costs_no_interval():
    house = House()
    house.opened(key("okx", depth=1, interval_ms=10_000), okx=BOOK)
    house.time.run(20)
    house.delta("okx", [("99", "9")], [])
    house.time.run()
    house.delta("okx", [("100", "9")], [])
    house.time.run(MERGE_PACE_S)
    assert [update[0] for update in house.heard.updates] == [1_000.0, 1_020.0 + MERGE_PACE_S]


def test_a_frame_costs_one_look_up_while_its_streams_wait():
    house = House()
    streams = [house.opened(key("okx", interval_ms=100 + n), okx=BOOK) for n in range(3)]
    house.delta("okx", [("100", "5")], [])
    for amount in range(100):
        house.delta("okx", [("100", str(amount + 6))], [])
    house.time.run(1)
    numbers = {stream.id: stream.update_number for stream in streams}
    assert set(numbers.values()) == {2}
    assert house.time.waiting == 0


def test_a_long_queue_lets_the_loop_have_its_turn():
    symbols = [f"C{n}/USDT" for n in range(PUBLISHES_PER_TICK_MAX + 10)]
    house = House(("okx",), symbols)
    for symbol in symbols:
        house.streams.open(StreamKey(symbol, ("okx",)))
        house.snapshot("okx", *BOOK, symbol=symbol)
    assert house.streams.tick(house.time.now) == house.time.now
    assert len(house.heard.updates) == PUBLISHES_PER_TICK_MAX
    assert house.streams.tick(house.time.now) == 1_000.0 + FIRST_UPDATE_S
    assert len(house.heard.updates) == len(symbols)
    assert house.heard.flushes == 2


def test_an_earlier_due_replaces_the_callback():
    house = House()
    house.opened(key("okx", interval_ms=60_000), okx=BOOK)
    house.opened(key("okx", interval_ms=1_000), okx=BOOK)
    house.delta("okx", [("100", "5")], [])
    assert house.time.waiting == 1
    house.time.run(1.0)
    assert house.heard.updates[-1][0] == 1_001.0
    house.streams.stop()
    assert house.time.waiting == 0
    house.streams.stop()


# The honesty rule


def test_a_book_that_leaves_live_leaves_the_view_at_once():
    house = House()
    house.opened(key("okx", "kraken", interval_ms=60_000), okx=BOOK, kraken=BOOK)
    house.time.run(0.001)
    house.lose("okx", reason="gap")
    house.time.run(0.1)
    at, _, message, _ = house.heard.updates[-1]
    assert at <= 1_000.001 + 0.1
    assert message["data"]["stale_exchanges"] == ["okx"]
    assert message["data"]["bids"][0]["exchanges"] == ["kraken"]
    assert message["update_number"] == 2


def test_every_book_that_leaves_leaves_an_empty_view():
    house = House()
    house.opened(key("okx"), okx=BOOK)
    house.lose("okx", Health.OFFLINE, "maintenance")
    house.time.run()
    data = house.heard.updates[-1][2]["data"]
    assert data["bids"] == data["asks"] == []
    assert data["stale_exchanges"] == ["okx"]
    assert data["market_stats"]["participating_exchanges"] == 0


def test_a_book_comes_back_only_with_its_snapshot_and_at_the_streams_pace():
    house = House()
    house.opened(key("okx", "kraken", interval_ms=1_000), okx=BOOK, kraken=BOOK)
    house.time.run(5)
    house.lose("okx")
    house.time.run(0.2)
    house.lose("okx", Health.SYNCING, "")
    house.delta("okx", [("100", "50")], [])
    house.time.run(0.2)
    assert house.heard.updates[-1][2]["data"]["stale_exchanges"] == ["okx"]
    house.snapshot("okx", [("100", "8")], [("101", "1")])
    house.time.run(10)
    at, _, message, _ = house.heard.updates[-1]
    assert at == 1_006.0
    assert message["data"]["stale_exchanges"] == []
    assert message["data"]["bids"][0]["amount"] == 9


def test_exchange_status_goes_to_every_stream_of_the_book():
    house = House()
    both = house.opened(key("okx", "kraken"), okx=BOOK, kraken=BOOK)
    one = house.opened(key("okx"), okx=BOOK)
    house.opened(key("kraken"), kraken=BOOK)
    house.heard.statuses.clear()
    house.lose("okx", reason="checksum")
    assert {stream for _, stream, _ in house.heard.statuses} == {both, one}
    assert house.heard.statuses[0][2] == {
        "type": "exchange_status",
        "symbol": SYMBOL,
        "exchange": "okx",
        "state": "stale",
        "reason": "checksum",
        "timestamp": "2025-11-20T10:00:00.000000Z",
    }
    house.lose("okx", Health.SYNCING, "")
    house.snapshot("okx", *BOOK)
    states = [message["state"] for _, stream, message in house.heard.statuses if stream is one]
    assert states == ["stale", "syncing", "live"]


def test_a_change_between_two_states_of_doubt_publishes_nothing():
    house = House()
    house.opened(key("okx", "kraken"), kraken=BOOK)
    house.lose("okx", Health.OFFLINE, "maintenance")
    house.time.run(10)
    assert len(house.heard.statuses) == 1
    assert len(house.heard.updates) == 1


def test_the_newest_data_of_a_view_is_known():
    house = House()
    stream = house.opened(key("okx", "kraken"), okx=BOOK, kraken=BOOK)
    house.time.run(3)
    house.delta("okx", [("100", "7")], [])
    assert stream.newest_at == 1_003.0
    house.lose("okx")
    house.lose("kraken")
    assert stream.newest_at == stream.published_at


def test_a_stream_that_cannot_be_published_does_not_stop_the_others(caplog):
    house = House(("okx",), (SYMBOL, "ETH/USDT"))
    bad = house.streams.open(StreamKey(SYMBOL, ("okx",)))
    house.streams.open(StreamKey("ETH/USDT", ("okx",)))
    view, bad.view = bad.view, None
    for symbol in (SYMBOL, "ETH/USDT"):
        house.snapshot("okx", *BOOK, symbol=symbol)
    house.time.run(1)
    house.delta("okx", [("100", "2")], [])
    house.time.run(1)
    assert [update[2]["symbol"] for update in house.heard.updates] == ["ETH/USDT"]
    assert caplog.text.count("could not be published") == 1
    bad.view = view
    house.delta("okx", [("100", "3")], [])
    house.time.run(1)
    assert house.heard.updates[-1][2]["data"]["bids"][0]["amount"] == 3


# Delta mode


def test_delta_mode_begins_with_an_update_and_goes_on_with_changes():
    house = House()
    house.opened(key("okx", mode="delta"), okx=BOOK)
    house.time.run(1)
    house.delta("okx", [("100", "0"), ("98", "5")], [("101", "9")])
    house.time.run(1)
    first, second = (update[2] for update in house.heard.updates)
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
    house = House()
    stream = house.opened(key("okx", mode="delta", levels="array"), okx=BOOK)
    house.time.run(1)
    house.delta("okx", [("100", "6")], [])
    house.time.run(1)
    assert stream.full() is stream.full()
    message = parse(stream.full_for("r7"))
    assert message["type"] == "aggregated_orderbook_update"
    assert (message["id"], message["update_number"]) == ("r7", 2)
    assert message["data"]["bids"] == [[100, 6], [99, 2]]


# A look without a subscription


def test_a_look_is_answered_at_once_if_a_book_is_live():
    house = House()
    house.opened(key("okx"), okx=BOOK)
    answers = []
    house.streams.look(key("okx", "kraken", depth=1), answers.append, message_id=7)
    message = parse(answers[0])
    assert message["type"] == "aggregated_orderbook_data"
    assert (message["symbol"], message["id"]) == (SYMBOL, 7)
    assert "update_number" not in message
    assert len(message["data"]["bids"]) == 1
    assert message["data"]["stale_exchanges"] == ["kraken"]
    assert house.feeds.wanted[house.feeds.instrument("kraken", SYMBOL)] == 0


def test_a_look_waits_for_the_first_live_book():
    house = House()
    answers = []
    house.streams.look(key("okx", "kraken"), answers.append)
    house.time.run(1)
    assert answers == []
    house.snapshot("okx", *BOOK)
    assert parse(answers[0])["data"]["stale_exchanges"] == ["kraken"]
    house.time.run(60)
    house.lose("okx", Health.SYNCING)
    house.snapshot("okx", *BOOK)
    assert len(answers) == 1
    assert set(house.feeds.wanted.values()) == {0}


def test_a_look_is_answered_in_time_with_what_is_live():
    house = House()
    answers = []
    house.streams.look(key("okx", "kraken"), answers.append)
    house.time.run(FIRST_UPDATE_S)
    assert parse(answers[0])["data"]["stale_exchanges"] == ["kraken", "okx"]
    assert set(house.feeds.wanted.values()) == {0}


def test_a_look_that_nobody_waits_for_is_forgotten():
    house = House()
    answers = []
    forget = house.streams.look(key("okx"), answers.append)
    forget()
    forget()
    house.snapshot("okx", *BOOK)
    house.time.run(60)
    assert answers == []
    assert set(house.feeds.wanted.values()) == {0}


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


class Oracle:
    """The slow and plain truth: dictionaries, summed when asked."""

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
    """What a client makes of full updates and deltas."""

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
    script=st.lists(st.one_of(change, change, wait, lose, fill), max_size=60),
    interval_ms=st.sampled_from((10, 100, 1_000)),
    depth=st.integers(1, 6),
)
def test_delta_client_equals_full_client_equals_the_brute_force_merge(script, interval_ms, depth):
    house, oracle, client = House(EXCHANGES), Oracle(), DeltaClient()
    stream = house.streams.open(
        key(*EXCHANGES, interval_ms=interval_ms, depth=depth, mode="delta", levels="array")
    )
    urgent = set()
    for action, what, changes in script:
        if action == "wait":
            house.time.run(what / 1_000)
        elif action == "fill" and what not in oracle.books:
            house.snapshot(what, [], [])
            oracle.books[what] = {"bid": {}, "ask": {}}
        elif action == "lose" and oracle.books.pop(what, None) is not None:
            house.lose(what)
            urgent.add(house.time.now)
            house.time.run()
            assert what in house.heard.updates[-1][2]["data"]["stale_exchanges"]
        elif action == "change" and what in oracle.books:
            _change(house, oracle.books[what], what, changes)
    house.time.run(FIRST_UPDATE_S + interval_ms / 1_000)
    previous = float("-inf")
    for number, (at, _, message, full) in enumerate(house.heard.updates, start=1):
        client.take(message)
        assert message["update_number"] == full["update_number"] == number
        assert client.book(depth) == [[*map(tuple, full["data"][s])] for s in ("bids", "asks")]
        assert at in urgent or at - previous >= interval_ms / 1_000 - 1e-9
        previous = at
    # The last state arrives, and it is the truth.
    assert client.book(depth) == oracle.merged(depth)
    stale = sorted(set(EXCHANGES) - set(oracle.books))
    assert house.heard.updates[-1][2]["data"]["stale_exchanges"] == stale
    assert stream.due is None


def _change(house, book, exchange, changes):
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
    house.delta(exchange, rows["bid"], rows["ask"])
