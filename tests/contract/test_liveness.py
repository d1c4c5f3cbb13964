"""Every exchange goes silent, freezes or misbehaves, on a clock advanced by hand.

A session, the exchange's own connector and the dialect of its exchange: only the socket is
missing. Pongs come all the time, because a pong proves a socket and no data.
"""

import heapq
from itertools import count

import pytest
from msgspec.structs import replace

from contract.talk import Talk
from contract.test_connectors import BOOK_CHANNELS, damaged
from contract.unavailable import FRAMES as UNAVAILABLE
from contract.venue import CHANNELS, Venue, greeted
from onebook.books import Books
from onebook.exchanges.kit.contract import LossDetection, SlowDown
from onebook.exchanges.kit.limits import Limit
from onebook.feeds.limits import LIMITS
from onebook.feeds.outbox import End, Request, SendPing, Transmit
from onebook.feeds.recovery import UNNAMED_WAIT_S
from onebook.feeds.session import FeedSession
from onebook.feeds.stats import ExchangeStats
from onebook.feeds.subscriptions import Cadences
from onebook.model import Health, Instrument, Reason
from onebook.simulator.bybit import Bybit
from onebook.simulator.htx import Htx
from onebook.simulator.kit.board import Now

every_channel = pytest.mark.parametrize("name", CHANNELS)
# Where another book fits on the connection.
with_others = pytest.mark.parametrize(
    "name", [name for name, each in CHANNELS.items() if each.limits.topics > 2]
)

STEP_S = 0.1
CHANGE_S = 0.5  # a busy book changes so often
LEVELS = 10  # per side: time is what is tested here, and not the contents of books
WALL_MS = 1_700_000_000_000


class World:
    """A feed and its exchange: frames take 50 ms; closed connections are reopened."""

    def __init__(self, name: str, *, count: int = 2, exchange=None) -> None:
        self.exchange = exchange or CHANNELS[name]
        self.venue = Venue(name, levels_max=LEVELS)
        self.instruments = self.venue.instruments[: min(count, self.exchange.limits.topics)]
        self.books = Books()
        for instrument in self.instruments:
            self.books.open(instrument)
        self.stats = ExchangeStats(name)
        self.cadences = Cadences()
        self.now = 1_000.0
        self.silent = self.frozen = self.mute = False
        self.refusals: dict[str, bytes] = {}  # of requests for the whole book of a native
        self.ends: list[End] = []
        self.sent: list[bytes] = []
        self.requests: list[bytes] = []  # of books, which the exchange answered
        self._order = count_up()
        self._coming: list[tuple[float, int, object]] = []
        self._beat_at = self._change_at = 0.0
        self.connect()

    def connect(self) -> None:
        greeting = self.venue.connect()
        self._coming.clear()
        self.session = FeedSession(
            self.exchange,
            self.instruments,
            books=self.books,
            stats=self.stats,
            jitter=lambda: 0.5,
            cadences=self.cadences,
            wall_ms=lambda: WALL_MS,
        )
        self.session.opened(self.now)
        for frame in greeting:
            self.say(frame)
        self._act()

    def say(self, frame: bytes) -> None:
        self.session.received(frame, self.now)
        self._act()

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            self.venue.now = Now(self.now, round(self.now * 1_000))
            while self._coming and self._coming[0][0] <= self.now:
                _, _, arrival = heapq.heappop(self._coming)
                self._arrive(arrival)
            if not self.silent:
                self._speak()
            self.session.tick(self.now)
            self._act()
            if self.session.ended is not None:
                self.ends.append(self.session.ended)
                self.now += 1.0
                self.connect()

    def health(self) -> set[tuple[Health, Reason | None]]:
        found = (self.books.get(each) for each in self.instruments)
        return {(book.health, book.reason) for book in found if book is not None}

    def live(self) -> bool:
        return self.health() == {(Health.LIVE, None)}

    def shown(self) -> bool:
        return any(health is Health.LIVE for health, _ in self.health())

    def _speak(self) -> None:
        if self.now >= self._beat_at:
            self._beat_at = self.now + 1.0
            for frame in self.venue.heartbeats():
                self._later(frame)
        if not self.frozen and self.now >= self._change_at:
            self._change_at = self.now + CHANGE_S
            for instrument in self.instruments:
                if instrument.native in self.venue.subscribed:
                    self._later(self.venue.changed(instrument.native))

    def _act(self) -> None:
        for action in self.session.drain(self.now):
            match action:
                case SendPing():
                    self.session.received_control(self.now)
                case Transmit(frame):
                    self._answer(frame)
                case Request(fetch) if not self.mute:
                    self._later((fetch.instrument, self.venue.body(fetch.path)))

    def _answer(self, frame: bytes) -> None:
        self.sent.append(frame)
        for native, refusal in self.refusals.items():
            if native.encode() in frame and (b"getBook" in frame or b'"req"' in frame):
                self._later(refusal)
                return
        if frame in heartbeat_of(self) or (
            not self.silent and not (self.mute and self._names_book(frame))
        ):
            answers = list(self.venue.answers(frame))
            if answers and self._names_book(frame):
                self.requests.append(frame)
            for answer in answers:
                self._later(answer)

    def _names_book(self, frame: bytes) -> bool:
        """Whether it is about a book; answers to heartbeats are not."""
        text = frame.decode().lower()
        return any(one.native.lower() in text for one in self.venue.instruments)

    def _later(self, arrival: object) -> None:
        heapq.heappush(self._coming, (self.now + 0.05, next(self._order), arrival))

    def _arrive(self, arrival: object) -> None:
        match arrival:
            case bytes():
                self.session.received(arrival, self.now)
            case (Instrument() as instrument, bytes() as body):
                self.session.fetched(instrument, body, self.now)
        self._act()


def count_up():
    return count()


def busy(name: str, seconds: float = 40.0, **options) -> World:
    """A feed with live books, by default for long enough to know their cadence."""
    world = World(name, **options)
    world.run(seconds)
    assert world.live(), world.health()
    assert world.ends == []
    return world


@every_channel
def test_b2_an_exchange_that_falls_silent_is_stale_in_time_and_stays_it(name: str) -> None:
    world = busy(name)
    world.silent = True
    world.run(6.5)
    assert not world.shown()
    assert [end.reason for end in world.ends] == [Reason.SILENT]
    for _ in range(80):
        world.run(1)
        assert not world.shown()


@every_channel
def test_b2_frozen_books_are_stale_in_time_though_snapshots_and_heartbeats_go_on(name: str) -> None:
    world = busy(name)
    world.frozen = True
    world.run(6.5)
    assert not world.shown()
    assert [end.reason for end in world.ends] == [Reason.SILENT]
    for _ in range(80):
        world.run(1)
        assert not world.shown(), "the very same book proves nothing"
    world.frozen = False
    world.run(5)
    assert world.live(), "and when it moves it is shown again"


@with_others
def test_a_book_that_hardly_changes_stays_live_while_its_connection_delivers(name: str) -> None:
    world = busy(name)
    quiet = world.instruments[1]
    spoken = world.instruments
    world.cadences.of(quiet).learn(25.8, world.now)  # so long it was silent before
    world.instruments = spoken[:1]
    world.run(25.8)
    world.instruments = spoken
    world.run(1)
    assert world.live()
    assert world.ends == []


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, each in CHANNELS.items()
        if each.limits.topics > 2 and each.guard is not LossDetection.COUNT
    ],
)
def test_a_busy_book_that_is_out_of_sync_does_not_make_its_connection_silent(name: str) -> None:
    """Frames are withheld until its resync is answered; the other book hardly changes."""
    world = busy(name)
    broken, quiet = world.instruments
    world.cadences.of(quiet).learn(25.8, world.now)
    world.mute = True
    world.instruments = [broken]
    world.say(damaged(name)(world.venue.changed(broken.native)))
    book, beside = world.books.get(broken), world.books.get(quiet)
    assert book is not None
    assert beside is not None
    assert book.health is Health.STALE
    for _ in range(7):
        world.run(1)
        assert beside.health is Health.LIVE
    assert world.ends == []


@every_channel
def test_errors_that_name_no_instrument_touch_no_live_book(name: str) -> None:
    world = busy(name, 10.0)
    world.requests.clear()
    for _ in range(20):
        world.say(world.venue.unnamed_error())
        world.run(0.5)
        assert world.live(), world.health()
    assert world.ends == []
    assert world.requests == []


def unanswered(name: str) -> tuple[World, Instrument]:
    """A busy connection with one more instrument, whose request is still unanswered."""
    world = busy(name, 10.0)
    if not world.venue.acknowledges():
        pytest.skip("no request waits for an answer")
    third = world.venue.instruments[2]
    world.books.open(third)
    world.mute = True
    world.session.add([third], world.now)
    world._act()
    return world, third


@with_others
def test_an_unnamed_error_to_a_request_leaves_the_live_books_alone(name: str) -> None:
    world, third = unanswered(name)
    for _ in range(2):  # to the request among others, then to that for it alone
        world.say(world.venue.unnamed_error())
        world.run(UNNAMED_WAIT_S + 0.3)
    assert world.live()
    book = world.books.get(third)
    assert book is not None
    assert (book.health, book.reason) == (Health.OFFLINE, Reason.REFUSED)
    assert world.ends == []


# An unknown coin ends the connection; without a name every request is in error, of whatever book.
NOT_OF_ONE = ("hyperliquid", "hyperliquid.slow", "bitget", "cryptocom")


@pytest.mark.parametrize(
    "name",
    [name for name, each in CHANNELS.items() if each.limits.topics > 2 and name not in NOT_OF_ONE],
)
def test_a_bad_market_refuses_none_that_is_asked_for_with_it(name: str) -> None:
    world = busy(name, 5.0, count=3)
    world.venue.refuse(world.instruments[1].native)
    world.connect()
    world.run(40.0)
    first, _, last = (world.books.get(each) for each in world.instruments)
    assert first is not None
    assert last is not None
    assert first.health is last.health is Health.LIVE


@with_others
def test_a_rate_limit_is_waited_for(name: str) -> None:
    pauses_at(name, Reason.RATE_LIMITED)


@with_others
def test_an_exchange_that_is_unavailable_is_asked_again(name: str) -> None:
    for frame in UNAVAILABLE[name]:
        pauses_at(name, Reason.UNAVAILABLE, frame.encode())


def pauses_at(name: str, reason: Reason, error: bytes | None = None) -> None:
    """An error, by default the one for too many requests, postpones an unanswered book."""
    world, third = unanswered(name)
    world.instruments = [*world.instruments, third]
    world.say(world.venue.rate_limit_error() if error is None else error)
    book = world.books.get(third)
    assert book is not None
    assert (book.health, book.reason) == (Health.STALE, reason), error
    world.mute = False
    world.run(14)
    assert book.health is Health.STALE
    world.run(3)
    assert book.health is Health.LIVE
    assert world.live()
    assert world.ends == []


# What refuses the request for a whole book on the socket, and nothing else.
REFUSED_SEEDS = {
    "bitvavo": '{{"action":"getBook","requestId":9,"market":"{0}","errorCode":431,'
    '"error":"getBook is not available for {0} in state HALTED"}}',
    "htx": '{{"status":"error","ts":1,"id":"market.{0}.mbp.150","err-code":"bad-request",'
    '"err-msg":"invalid symbol"}}',
}


def test_refused_seeds_are_known_of_every_channel_that_asks_for_them_on_the_socket() -> None:
    assert {name for name, each in BOOK_CHANNELS.items() if each.request} == {*REFUSED_SEEDS}


@pytest.mark.parametrize("name", REFUSED_SEEDS)
def test_a_book_that_the_exchange_does_not_give_costs_no_other(name: str) -> None:
    world, third = unanswered(name)
    world.mute = False
    world.refusals[third.native] = REFUSED_SEEDS[name].format(third.native).encode()
    book = world.books.get(third)
    assert book is not None
    for _ in range(150):
        world.run(2)
        assert world.live()
    assert (book.health, book.reason) == (Health.STALE, Reason.SNAPSHOT_FAILED)
    assert world.ends == []
    world.refusals.clear()
    world.run(LIMITS.retry_offline_s)
    assert book.health is Health.LIVE


@every_channel
def test_an_error_of_an_unavailable_exchange_refuses_nothing(name: str) -> None:
    for frame in UNAVAILABLE[name]:
        talk = Talk(name).open()
        outputs = list(talk.connector.received(frame.encode()))
        assert [*map(type, outputs)] == [SlowDown], frame
        assert outputs[0].unavailable, frame


@every_channel
def test_a_resync_of_all_instruments_takes_as_few_requests_as_possible(name: str) -> None:
    exchange = CHANNELS[name]
    instruments = [
        Instrument(name, f"C{rank}/USDT", f"C{rank}-USDT") for rank in range(exchange.limits.topics)
    ]
    connector = exchange.connector(instruments)
    opened = len(list(greeted(connector, Venue(name).greeting)))
    frames = [out for out in connector.resync(instruments) if hasattr(out, "frame")]
    assert len(frames) <= 2 * opened, "no more than unsubscribing and subscribing"


def heartbeat_of(world: World) -> tuple[bytes, ...]:
    heartbeat = world.exchange.heartbeat
    return () if heartbeat is None else (heartbeat.message().at(WALL_MS),)


def test_books_leave_gate_s_connection_before_an_upgrade_closes_it() -> None:
    world = busy("gate", 10.0)
    result = b'{"type":"upgrade","msg":"The connection will soon be closed."}'
    world.say(b'{"channel":"spot.system","event":"update","result":%b}' % result)
    world.run(5)
    assert [(end.reason, end.at_once) for end in world.ends] == [(Reason.CLOSING, True)]
    assert world.live()


def test_maintenance_at_kraken_takes_its_books_out_until_it_is_over() -> None:
    world = busy("kraken", 10.0)
    status = b'{"channel":"status","type":"update","data":[{"system":"%b"}]}'
    for system in (b"maintenance", b"cancel_only", b"post_only"):
        world.say(status % system)
        world.run(5)
        assert world.health() == {(Health.STALE, Reason.MAINTENANCE)}
        world.say(status % b"online")
        world.run(2)
        assert world.live(), world.health()
    assert world.ends == []


def test_okx_is_asked_for_no_more_than_it_answers_in_an_hour() -> None:
    okx = CHANNELS["okx"]
    exchange = replace(okx, limits=replace(okx.limits, requests=(Limit(20, 3_600.0),)))
    world = busy("okx", 5.0, exchange=exchange)
    for _ in range(1_200):  # an instrument that breaks again and again
        world.say(world.venue.changed(world.instruments[0].native)[:-5])
        world.run(0.5)
    requests = [frame for frame in world.sent if frame not in heartbeat_of(world)]
    assert len(requests) <= 20 * (1 + len(world.ends))


# HTX's frames without changes: as they come today, and without them, which the page announces.

both_behaviours = pytest.mark.parametrize("aligned", [False, True], ids=["today", "announced"])


@both_behaviours
def test_a_quiet_book_stays_live_for_as_long_as_its_whole_book_is_the_same(
    aligned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pings prove that the connection works, probes that no update was lost."""
    monkeypatch.setattr(Htx, "aligned", aligned)
    world = World("htx")
    world.frozen = True
    world.run(5)
    world.requests.clear()
    world.run(1_500)
    assert (world.live(), world.ends) == (True, [])
    probes = [frame for frame in world.requests if b'"req"' in frame]
    expected = 1_500 / LIMITS.probe_quiet_s
    assert expected - 1 <= len(probes) / len(world.instruments) <= expected + 2


@pytest.mark.parametrize(
    ("aligned", "reason", "most_s"),
    [(False, Reason.GAP, 2), (True, Reason.DEAD_STREAM, 312)],
    ids=["today", "announced"],
)
def test_a_stream_that_stops_while_its_book_moves_is_found(
    aligned: bool, reason: Reason, most_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detected by the number of the next frame without changes, otherwise by a probe."""
    monkeypatch.setattr(Htx, "aligned", aligned)
    world = World("htx", count=1)
    assert most_s < 10 or most_s == (LIMITS.probe_quiet_s + LIMITS.dead_stream_s + 2)
    world.frozen = True
    world.run(30)
    (instrument,) = world.instruments
    world.venue.changed(instrument.native)  # a change that is not delivered
    world.run(most_s)
    assert dict(world.stats.invalidations) == {reason: 1}


def test_a_book_that_the_exchange_has_emptied_is_halted_until_it_is_there_again() -> None:
    world = busy("bybit")
    world.frozen = True
    one, other = world.instruments
    empty = Bybit.bookless(world.venue.window(one.native), world.venue.now)
    world.say(empty.encode())
    healths = [(book.health, book.reason) for book in map(world.books.get, (one, other)) if book]
    assert healths == [(Health.OFFLINE, Reason.HALTED), (Health.LIVE, None)]
    assert dict(world.stats.invalidations) == {Reason.HALTED: 1}
    world.frozen = False
    world.run(LIMITS.retry_offline_s - 1)
    assert not world.live()
    world.run(2)
    assert (world.live(), world.ends) == (True, [])
