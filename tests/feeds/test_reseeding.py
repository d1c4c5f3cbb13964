"""Refetching live books: Binance's connector in a session, with time as a number."""

import json
from functools import partial
from itertools import pairwise

import pytest
from msgspec.structs import replace

from onebook.books import Books
from onebook.exchanges import EXCHANGES
from onebook.exchanges.binance import BOOKS
from onebook.exchanges.kit.channel import (
    BookChannel,
    Event,
    SeedRefused,
    SocketSeed,
)
from onebook.exchanges.kit.contract import Exchange
from onebook.exchanges.kit.engine import SeededEngine
from onebook.feeds.limits import FeedLimits
from onebook.feeds.outbox import Effect, End, Request, Transmit
from onebook.feeds.reseeding import NO_CHANGES, RESEED_TOTAL_S, RESEED_TRIES_MAX, RETRY_S
from onebook.feeds.session import REFETCHES_MAX, FeedSession
from onebook.feeds.stats import ExchangeStats
from onebook.model import Health, Instrument, Reason

BTC = Instrument("binance", "BTC/USDT", "BTCUSDT")
ETH = Instrument("binance", "ETH/USDT", "ETHUSDT")
LIVE = (Health.LIVE, None)
STALE = (Health.STALE, Reason.DEAD_STREAM)
LIMITS = FeedLimits(
    reseed_levels=600, reseed_min_s=10, probe_first_s=5, probe_quiet_s=60, dead_stream_s=10
)
SEED_LEVELS = 1_000


def body(sequence: int, *, levels: int = SEED_LEVELS, mid: int = 10_000) -> bytes:
    bids = [[str(mid - rank), "1"] for rank in range(1, levels + 1)]
    asks = [[str(mid + rank), "1"] for rank in range(1, levels + 1)]
    return json.dumps({"lastUpdateId": sequence, "bids": bids, "asks": asks}).encode()


def event(
    first: int, final: int, bids: list[list[str]] | None = None, *, native: str = "BTCUSDT"
) -> bytes:
    data = {"e": "depthUpdate", "s": native, "U": first, "u": final, "b": bids or [], "a": []}
    return json.dumps({"stream": "x", "data": data}).encode()


class Talk:
    """A session of Binance with a clock advanced by hand."""

    def __init__(
        self,
        *instruments: Instrument,
        limits: FeedLimits = LIMITS,
        exchange: Exchange = EXCHANGES["binance"],
    ) -> None:
        self.books = Books()
        self.now = 1_000.0
        for instrument in instruments:
            self.books.open(instrument)
        self.stats = ExchangeStats("binance")
        self.session = FeedSession(
            exchange,
            instruments,
            books=self.books,
            limits=limits,
            stats=self.stats,
            jitter=lambda: 0.5,
        )
        self.session.opened(self.now)
        self.out()
        self.requests = 1
        self.acknowledge()

    def acknowledge(self) -> list[Effect]:
        self.session.received(b'{"result":null,"id":%d}' % self.requests, self.now)
        return self.out()

    def out(self) -> list[Effect]:
        return self.session.drain(self.now)

    def hear(self, *frames: bytes) -> list[Effect]:
        for frame in frames:
            self.session.received(frame, self.now)
        return self.out()

    def fetched(self, content: bytes, instrument: Instrument = BTC) -> list[Effect]:
        self.session.fetched(instrument, content, self.now)
        return self.out()

    def wait(self, seconds: float) -> list[Effect]:
        actions: list[Effect] = []
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.session.received_control(self.now)
            self.session.tick(self.now)
            actions += self.out()
        return [action for action in actions if isinstance(action, Request | Transmit | End)]

    def health(self, instrument: Instrument = BTC) -> tuple[Health, str]:
        book = self.books.get(instrument)
        assert book is not None
        return book.health, book.reason

    def top(self, count: int = 1) -> list[str]:
        book = self.books.get(BTC)
        assert book is not None
        return [price for price, _ in book.core.top(count)[0]]


def asked(actions: list[Effect]) -> list[bool]:
    """For each requested body, whether it can be postponed."""
    return [action.fetch.spare for action in actions if isinstance(action, Request)]


def live(**options) -> Talk:
    talk = Talk(BTC, **options)
    talk.fetched(body(100))
    talk.hear(event(101, 101))
    assert talk.health() == LIVE
    return talk


def gone(first: int, last: int) -> list[list[str]]:
    """Remove bids, best first."""
    return [[str(10_000 - rank), "0"] for rank in range(first, last + 1)]


def dense(below: int, amount: str) -> list[list[str]]:
    """799 bids within one unit of price."""
    return [[f"{below - step / 1_000:.3f}", amount] for step in range(1, 800)]


def test_a_book_is_fetched_again_before_the_shown_depth_reaches_the_horizon() -> None:
    talk = live()
    assert talk.wait(LIMITS.reseed_min_s) == []
    talk.hear(event(102, 102, gone(1, 400)))
    assert asked(talk.wait(1)) == [], "600 levels are left"
    talk.hear(event(103, 103, gone(401, 401)))
    assert asked(talk.wait(1)) == [True]
    assert (talk.health(), talk.top()) == (LIVE, ["9598"])
    talk.hear(event(104, 104, [["9599", "7"]]))
    assert talk.fetched(body(103, mid=9_599)) == []
    assert (talk.health(), talk.top(2)) == (LIVE, ["9599", "9598"]), "body, then what followed it"
    assert asked(talk.wait(30)) == []


def test_a_book_is_fetched_again_when_the_price_has_crossed_most_of_its_range() -> None:
    talk = live()
    talk.wait(LIMITS.reseed_min_s)
    talk.hear(event(102, 102, gone(1, 740)), event(103, 103, dense(9_240, "1")))
    assert asked(talk.wait(1)) == [], "26 % of the distance and 1,059 levels are left"
    talk.hear(event(104, 104, dense(9_240, "0")))
    talk.hear(
        event(
            105, 105, [*gone(741, 760), *([f"{9_239 - s / 1_000:.3f}", "1"] for s in range(1, 800))]
        )
    )
    assert asked(talk.wait(1)) == [True]


def test_no_book_is_fetched_again_more_often_than_the_setting_says() -> None:
    talk = live()
    times = []
    for sequence in range(102, 142):
        talk.hear(event(sequence, sequence, gone(1, 500)))
        if asked(talk.wait(1)):
            times.append(talk.now)
            talk.fetched(body(sequence))
    assert len(times) == 3, "of 40 seconds in which every second called for one"
    assert all(later - earlier >= 10 for earlier, later in pairwise(times))


def test_a_body_that_was_put_off_is_asked_for_again_and_the_book_stays() -> None:
    talk = live()
    talk.wait(LIMITS.reseed_min_s)
    talk.hear(event(102, 102, gone(1, 500)))
    assert asked(talk.wait(0.5)) == [True]
    talk.session.deferred(BTC, talk.now)
    assert asked(talk.wait(RETRY_S - 0.5)) == []
    assert asked(talk.wait(1)) == [True]
    assert talk.health() == LIVE


@pytest.mark.parametrize("content", [b"<html>", None])
def test_a_body_that_fails_leaves_a_live_book_as_it_is(content: bytes | None) -> None:
    talk = live()
    talk.wait(LIMITS.reseed_min_s)
    talk.hear(event(102, 102, gone(1, 500)))
    assert asked(talk.wait(0.5)) == [True]
    if content is None:
        talk.session.fetch_failed(BTC, "answered 404", talk.now)
    else:
        talk.fetched(content)
    assert talk.health() == LIVE
    assert not talk.stats.invalidations
    assert asked(talk.wait(RETRY_S + 1)) == [True]


def test_many_bodies_for_live_books_never_count_as_failed_repairs() -> None:
    talk = live()
    sequence = 101
    for _ in range(REFETCHES_MAX * 3):
        talk.hear(event(sequence + 1, sequence + 1, gone(1, 500)))
        assert asked(talk.wait(11)) == [True]
        talk.fetched(body(sequence, mid=10_000))
        sequence += 1
        talk.hear(event(sequence + 1, sequence + 1, [["9999", "1"]]))
        sequence += 1
        talk.fetched(body(sequence))
        assert talk.health() == LIVE
    assert talk.session.ended is None


def test_a_quiet_book_is_compared_by_rest_and_stays_live_where_nothing_moved() -> None:
    talk = live()
    assert asked(talk.wait(LIMITS.probe_quiet_s - 1)) == []
    assert asked(talk.wait(2)) == [True]
    talk.fetched(body(101))
    assert asked(talk.wait(LIMITS.probe_quiet_s - 1)) == []
    assert talk.health() == LIVE


def test_fault_dead_stream_is_stale_when_a_body_moved_and_no_delta_came() -> None:
    """The real case: a misspelt stream is acknowledged, answers pings and delivers nothing."""
    talk = Talk(BTC)
    talk.fetched(body(100))
    assert talk.health() == LIVE
    assert asked(talk.wait(LIMITS.probe_first_s + 1)) == [True]
    talk.fetched(body(140))
    assert talk.wait(LIMITS.dead_stream_s - 1) == []
    actions = talk.wait(1.5)
    assert talk.health() == STALE
    methods = [json.loads(action.frame)["method"] for action in actions]
    assert methods == ["UNSUBSCRIBE", "SUBSCRIBE"]
    assert talk.stats.invalidations == {Reason.DEAD_STREAM: 1}


def test_fault_dead_stream_is_found_though_the_first_probe_failed() -> None:
    """A probe without a body proves nothing: the next one follows soon, not in minutes."""
    talk = Talk(BTC)
    talk.fetched(body(100))
    assert asked(talk.wait(LIMITS.probe_first_s + 1)) == [True]
    talk.session.fetch_failed(BTC, "answered 404", talk.now)
    assert asked(talk.wait(RETRY_S - 0.5)) == []
    assert asked(talk.wait(1)) == [True]
    talk.fetched(body(140))
    talk.wait(LIMITS.dead_stream_s + 1)
    assert talk.health() == STALE


def test_a_quiet_stream_that_delivers_what_the_body_showed_is_not_dead() -> None:
    talk = Talk(BTC)
    talk.fetched(body(100))
    talk.wait(LIMITS.probe_first_s + 1)
    talk.fetched(body(140))
    talk.wait(LIMITS.dead_stream_s - 1)
    talk.hear(event(101, 140))
    talk.wait(LIMITS.dead_stream_s)
    assert talk.health() == LIVE


def dead_again(talk: Talk) -> list[Effect]:
    """Have the stream of BTC found dead once more."""
    talk.requests = 3 + 2 * (talk.requests > 1)
    assert asked(talk.acknowledge()) == [False]
    talk.fetched(body(200))
    assert talk.health() == LIVE
    assert asked(talk.wait(LIMITS.probe_first_s + 1)) == [True]
    talk.fetched(body(240))
    return talk.wait(LIMITS.dead_stream_s + 1)


def test_a_stream_that_stays_dead_ends_a_connection_that_serves_no_other() -> None:
    talk = Talk(BTC)
    talk.fetched(body(100))
    talk.wait(LIMITS.probe_first_s + 1)
    talk.fetched(body(140))
    talk.wait(LIMITS.dead_stream_s + 1)
    assert dead_again(talk)[-1] == End(Reason.DEAD_STREAM, NO_CHANGES)


def test_a_stream_that_stays_dead_costs_the_others_of_its_connection_nothing() -> None:
    talk = Talk(BTC, ETH)
    talk.fetched(body(100))
    talk.fetched(body(100), ETH)
    talk.hear(event(101, 101, native="ETHUSDT"))
    talk.wait(LIMITS.probe_first_s + 1)
    talk.fetched(body(140))
    talk.wait(LIMITS.dead_stream_s + 1)
    dead_again(talk)
    assert talk.session.ended is None
    assert talk.health() == (Health.OFFLINE, Reason.DEAD_STREAM)
    assert talk.health(ETH) == LIVE
    frames = [json.loads(action.frame) for action in talk.wait(LIMITS.retry_offline_s + 1)[-1:]]
    assert [frame["method"] for frame in frames] == ["SUBSCRIBE"]


def test_reseed_limits_of_zero_levels_go_by_distance_only() -> None:
    talk = live(limits=replace(LIMITS, reseed_levels=0))
    talk.wait(LIMITS.reseed_min_s)
    talk.hear(event(102, 102, gone(1, 700)))
    assert asked(talk.wait(1)) == []
    talk.hear(event(103, 103, gone(701, 760)))
    assert asked(talk.wait(1)) == [True]


# Bodies that are asked for on the socket.


def control(frame: bytes) -> Event:
    if frame.startswith(b"never "):
        return SeedRefused("BTCUSDT", frame.decode())
    if not frame.startswith(b"whole "):
        return BOOKS.control(frame)
    whole = json.loads(frame[6:])
    sides = (json.dumps(whole[side]).encode() for side in ("bids", "asks"))
    return SocketSeed("BTCUSDT", *sides, whole["lastUpdateId"])


ON_SOCKET: BookChannel = replace(
    BOOKS, control=control, request=lambda names, number: {"whole": names, "id": number}
)


def live_on_socket() -> Talk:
    connector = partial(SeededEngine, ON_SOCKET)
    talk = Talk(BTC, exchange=replace(EXCHANGES["binance"], connector=connector))
    talk.hear(b"whole " + body(100), event(101, 101))
    assert talk.health() == LIVE
    return talk


def sent(actions: list[Effect]) -> int:
    return sum(1 for action in actions if isinstance(action, Transmit) and b"whole" in action.frame)


def near_horizon(talk: Talk) -> list[Effect]:
    """Remove levels until another body is needed."""
    gone = [[str(10_000 - rank), "0"] for rank in range(1, 500)]
    talk.now += LIMITS.reseed_min_s
    return talk.hear(event(102, 102, gone))


def test_a_body_that_the_socket_does_not_bring_is_asked_for_again_and_the_book_stays_live():
    talk = live_on_socket()
    near_horizon(talk)
    assert sent(talk.wait(0.5)) == 1
    assert sent(talk.wait(RESEED_TOTAL_S - 1)) == 0
    assert sent(talk.wait(1 + RETRY_S)) == 1
    assert talk.health() == LIVE
    talk.hear(b"whole " + body(103))
    assert talk.health() == LIVE
    assert sent(talk.wait(RESEED_TOTAL_S + RETRY_S + 1)) == 0


def test_a_book_that_the_socket_never_brings_again_is_no_longer_live():
    talk = live_on_socket()
    near_horizon(talk)
    tries = RESEED_TRIES_MAX
    each_s = RESEED_TOTAL_S + RETRY_S
    assert sent(talk.wait(tries * each_s - RETRY_S - 1)) == tries
    assert talk.health() == LIVE
    assert sent(talk.wait(3)) == 1, "it is asked for as a book that is not live"
    assert talk.health() == (Health.STALE, Reason.NO_SNAPSHOT)
    talk.hear(b"whole " + body(200))
    assert talk.health() == LIVE


def test_a_body_that_the_exchange_refuses_on_the_socket_is_awaited_no_longer_than_any_other():
    talk = live_on_socket()
    near_horizon(talk)
    assert sent(talk.wait(0.5)) == 1
    for _ in range(RESEED_TRIES_MAX - 1):
        assert talk.hear(b"never mind") == []
        assert talk.health() == LIVE
        assert sent(talk.wait(RESEED_TOTAL_S + RETRY_S + 1)) == 1
    talk.hear(b"never mind")
    talk.wait(RESEED_TOTAL_S + 1)
    assert talk.health() == (Health.STALE, Reason.NO_SNAPSHOT)


def test_a_refused_body_that_comes_the_next_time_counts_from_the_start():
    talk = live_on_socket()
    near_horizon(talk)
    talk.wait(0.5)
    talk.hear(b"never mind")
    talk.wait(RESEED_TOTAL_S + RETRY_S)
    talk.hear(b"whole " + body(103))
    assert talk.health() == LIVE
    assert sent(talk.wait(RESEED_TOTAL_S * 2)) == 0


# Bodies of books that were removed while they were on their way.


def test_a_body_of_a_book_that_was_removed_is_not_of_the_one_that_came_back():
    talk = live()
    talk.wait(LIMITS.reseed_min_s)
    talk.hear(event(102, 102, gone(1, 500)))
    assert asked(talk.wait(0.5)) == [True]
    talk.session.remove([BTC], talk.now)
    talk.books.close(BTC)
    talk.books.open(BTC)
    talk.session.add([BTC], talk.now)
    talk.requests = 3
    assert asked([*talk.out(), *talk.wait(0.5), *talk.acknowledge()]) == [False]
    talk.fetched(body(102))
    assert talk.health()[0] is not Health.LIVE, "it is the body of before"
    talk.fetched(body(103))
    assert talk.health() == LIVE
    assert asked(talk.hear(event(200, 200))) == [False]
    talk.fetched(body(210))
    assert talk.health() == LIVE
    requests = talk.wait(LIMITS.dead_stream_s + 5)
    assert talk.health() == STALE
    assert [type(each) for each in requests] == [Transmit, Transmit]
    snapshot_s = EXCHANGES["binance"].snapshot_s
    assert talk.wait(snapshot_s + 1), "no body is on its way that an unanswered request waits for"
