"""Real connectors, real sockets, simulated exchanges, with one fault after the other."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
from msgspec.structs import replace

from contract.venue import Venue
from feeds.toy import paced
from onebook.books import Books, LiveBook
from onebook.config import FeedSettings
from onebook.exchanges import EXCHANGES
from onebook.exchanges.binance import BOOKS, SEED_PATH, SEED_WEIGHT
from onebook.exchanges.kit import Limit, LossDetection, Scope, SeededEngine, join_by_rest
from onebook.feeds import Catalogue, Supervisor, reseeding
from onebook.feeds.limits import FeedLimits
from onebook.model import Health, Instrument, Reason
from onebook.rest import Rest
from onebook.simulator import DIALECTS, SimulatedExchanges

SYMBOL = "BTC/USDT"
WAIT_S = 120.0
SETTINGS = FeedSettings()
QUICK = FeedLimits(
    reconnect_base_s=0.02,
    resync_base_s=0.02,
    resync_max_s=1.0,
    silent_min_s=0.8,
    cadence_evidence_s=0.5,
    cadence_gaps_min=2,
)
NAMES = tuple(EXCHANGES)
# Silence is noticed sooner. Also a pause of a busy machine is, so only for tests of silence.
PROMPT = replace(
    QUICK,
    silent_min_s=0.4,
    reconnect_base_s=0.2,  # not before a test has ended the silence
    cadence_evidence_s=0.2,
    cadence_factor=2.0,
)
# Every live book is audited at once, and again after each snapshot.
AUDITED = replace(QUICK, audits=True, reseed_min_s=0.0)
REST_NUMBERED = ("backpack", "binance", "binanceus", "mexc", "xt")  # with the numbers of the stream
SPEAKS_S = 0.8  # then its silence is noticed
# One book is judged before its whole connection.
ONE_BOOK = replace(QUICK, quiet_min_s=0.8, silent_min_s=20.0)


class Rig:
    def __init__(
        self,
        simulated: SimulatedExchanges,
        supervisor: Supervisor,
        books: Books,
        catalogue: Catalogue,
    ) -> None:
        self.catalogue = catalogue
        self.simulated = simulated
        self.supervisor = supervisor
        self.books = books
        self.moves: list[tuple[Health, Reason | None]] = []
        books.subscribe(
            on_health=lambda book, previous: self.moves.append((book.health, book.reason))
        )

    def book(self, instrument: Instrument) -> LiveBook:
        book = self.books.get(instrument)
        assert book is not None
        return book

    def equal(self, instrument: Instrument) -> bool:
        """Whether our book is live and equals the exchange's, level by level."""
        book = self.book(instrument)
        if book.health is not Health.LIVE:
            return False
        truth = self.simulated[instrument.exchange].book(instrument.symbol, 50)
        bids, asks = book.core.top(50)
        return list(normal(bids)) == list(normal(list(truth.bids.items())[: len(bids)])) and list(
            normal(asks)
        ) == list(normal(list(truth.asks.items())[: len(asks)]))

    async def until(self, condition: Callable[[], bool], *, stepping: bool = True) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                if stepping:
                    self.simulated.step()
                await asyncio.sleep(0.01)


def normal(levels: list[tuple[str, str]]) -> list[tuple[float, float]]:
    return [(float(price), float(amount)) for price, amount in levels]


@pytest.fixture(params=NAMES)
async def rig(request) -> AsyncIterator[tuple[Rig, Instrument]]:
    name, limits = request.param if isinstance(request.param, tuple) else (request.param, QUICK)
    async with SimulatedExchanges([name], seed=7, rate_hz=0) as simulated, Rest() as rest:
        simulated[name].admit_all()
        exchanges = {
            each: paced(replace(exchange, snapshot_s=1.0))
            for each, exchange in simulated.exchanges().items()
        }
        books = Books()
        async with Catalogue(exchanges, rest=rest, settings=SETTINGS) as catalogue:
            assert await catalogue.first_read()
            supervisor = Supervisor(
                exchanges,
                books=books,
                rest=rest,
                catalogue=catalogue,
                settings=SETTINGS,
                limits=limits,
                jitter=random.Random(7).random,
            )
            async with supervisor:
                instrument = catalogue.instrument(name, DIALECTS[name].listings[0].symbol)
                assert instrument is not None
                yield Rig(simulated, supervisor, books, catalogue), instrument
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def live(rig: Rig, instrument: Instrument) -> None:
    rig.supervisor.acquire(instrument)
    await rig.until(lambda: rig.equal(instrument))
    assert rig.supervisor.active_exchanges() == 1
    assert rig.supervisor.state(instrument.exchange) == "active"


@pytest.mark.over_sockets
async def test_a_wanted_book_becomes_that_of_the_exchange_and_stays_it(rig):
    rig, instrument = rig
    await live(rig, instrument)
    for _ in range(20):
        rig.simulated.step()
    await rig.until(lambda: rig.equal(instrument), stepping=False)
    assert rig.moves == [(Health.LIVE, None)]


@pytest.mark.over_sockets
@pytest.mark.parametrize(
    "kind",
    [
        *("gap", "garbage", "crossed", "checksum"),
        # To a session the same as garbage; tests/contract/test_hostile has them of every exchange.
        *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("nan", "negative")),
    ],
)
async def test_a_fault_takes_the_book_out_and_a_fresh_snapshot_brings_it_back(rig, kind):
    rig, instrument = rig
    guard = EXCHANGES[instrument.exchange].guard
    if kind == "checksum" and guard is not LossDetection.CHECKSUM:
        pytest.skip("it sends no checksum")
    if kind == "gap" and guard in (LossDetection.ORDER, LossDetection.WHOLE):
        pytest.skip("its channel numbers nothing: a lost update cannot be seen or does no harm")
    await live(rig, instrument)
    rig.simulated[instrument.exchange].corrupt_next(instrument.symbol, kind)
    await rig.until(lambda: any(health is Health.STALE for health, _ in rig.moves))
    await rig.until(lambda: rig.equal(instrument))


@pytest.mark.over_sockets
async def test_an_exchange_that_vanishes_and_returns_is_followed_again(rig):
    rig, instrument = rig
    await live(rig, instrument)
    await rig.simulated[instrument.exchange].stop()
    await rig.until(lambda: rig.book(instrument).health is Health.OFFLINE, stepping=False)
    assert (Health.STALE, Reason.DISCONNECTED) in rig.moves
    assert rig.supervisor.state(instrument.exchange) == "offline"
    await rig.simulated[instrument.exchange].start()
    await rig.until(lambda: rig.equal(instrument))
    assert rig.supervisor.state(instrument.exchange) == "active"


@pytest.mark.over_sockets
@pytest.mark.parametrize("rig", [(name, PROMPT) for name in NAMES], ids=NAMES, indirect=True)
async def test_b2_a_silenced_exchange_goes_stale_and_comes_back(rig):
    rig, instrument = rig
    await live(rig, instrument)
    await speaking(rig, SPEAKS_S)
    moves = len(rig.moves)
    rig.simulated[instrument.exchange].silence()
    await rig.until(lambda: (Health.STALE, Reason.SILENT) in rig.moves[moves:])
    assert rig.book(instrument).health is not Health.LIVE
    rig.simulated[instrument.exchange].end_silence()
    await rig.until(lambda: rig.equal(instrument))


@pytest.mark.over_sockets
@pytest.mark.parametrize("rig", [(name, PROMPT) for name in NAMES], ids=NAMES, indirect=True)
async def test_b2_a_frozen_exchange_goes_stale_stays_it_and_comes_back(rig):
    rig, instrument = rig
    await live(rig, instrument)
    await speaking(rig, SPEAKS_S)
    moves = len(rig.moves)
    exchange = rig.simulated[instrument.exchange]
    exchange.freeze()
    await rig.until(lambda: (Health.STALE, Reason.SILENT) in rig.moves[moves:])
    moves = len(rig.moves)
    await speaking(rig, SPEAKS_S)
    assert all(health is not Health.LIVE for health, _ in rig.moves[moves:])
    exchange.unfreeze()
    await rig.until(lambda: rig.equal(instrument))


@pytest.mark.parametrize("rig", [(name, ONE_BOOK) for name in ("okx", "kraken")], indirect=True)
async def test_one_frozen_pair_goes_stale_beside_neighbours_that_move(rig):
    rig, instrument = rig
    exchange = rig.simulated[instrument.exchange]
    listed = DIALECTS[instrument.exchange].listings[1].symbol
    other = rig.catalogue.instrument(instrument.exchange, listed)
    assert other is not None
    await live(rig, instrument)
    await live(rig, other)
    await speaking(rig, 1.5)
    moves: list[tuple[Instrument, Health, Reason | None]] = []
    rig.books.subscribe(
        on_health=lambda book, previous: moves.append((book.instrument, book.health, book.reason))
    )
    exchange.kill_stream(instrument.symbol)
    await rig.until(lambda: (instrument, Health.STALE, Reason.QUIET) in moves)
    # It is subscribed again on the same connection, and is live with what the exchange answers.
    await rig.until(lambda: moves[-1][:2] == (instrument, Health.LIVE))
    exchange.heal()
    await rig.until(lambda: rig.equal(instrument) and rig.equal(other))
    assert {each for each, _, _ in moves} == {instrument}, (
        "the connection went on, and the neighbour"
    )


async def speaking(rig: Rig, seconds: float) -> None:
    """Let the exchange send until its silence would be detected."""
    since = asyncio.get_running_loop().time()
    await rig.until(lambda: asyncio.get_running_loop().time() > since + seconds)


@pytest.mark.over_sockets
async def test_an_error_without_a_name_leaves_the_live_book_alone(rig):
    rig, instrument = rig
    if not Venue(instrument.exchange).refuses():
        pytest.skip("it acknowledges what it does not know, or says nothing")
    await live(rig, instrument)
    ether = DIALECTS[instrument.exchange].listings[1].symbol
    other = rig.catalogue.instrument(instrument.exchange, ether)
    rig.simulated[instrument.exchange].refuse(ether, named=False)
    rig.supervisor.acquire(other)
    await rig.until(lambda: rig.book(other).health is Health.OFFLINE)
    # Some exchanges acknowledge what they do not know, and are silent.
    assert rig.book(other).reason in (Reason.REFUSED, Reason.NO_SNAPSHOT)
    assert (Health.STALE, Reason.PROTOCOL_ERROR) not in rig.moves
    assert rig.equal(instrument)


@pytest.mark.over_sockets
async def test_a_pair_that_the_exchange_refuses_goes_offline_or_stays_out(rig):
    rig, instrument = rig
    rig.simulated[instrument.exchange].refuse(instrument.symbol)
    rig.supervisor.acquire(instrument)
    await rig.until(lambda: bool(rig.moves) or rig.supervisor.active_exchanges() == 1)
    for _ in range(20):
        rig.simulated.step()
        await asyncio.sleep(0.005)
    assert rig.book(instrument).health is not Health.LIVE


# Binance alone: books that are seeded by REST

SEED_LEVELS = 100
SEEDED = FeedLimits(
    resync_base_s=0.02, reseed_levels=70, reseed_min_s=0.05, probe_first_s=0.3, dead_stream_s=0.3
)


@pytest.fixture
async def seeded(request) -> AsyncIterator[tuple[Rig, Instrument]]:
    """Binance with bodies of 100 of its 500 levels; a parameter is its REST budget per minute."""
    budget: int = getattr(request, "param", 60_000)
    async with SimulatedExchanges(["binance"], seed=7, rate_hz=0) as simulated, Rest() as rest:
        exchanges = {
            name: replace(
                exchange,
                connector=partial(
                    SeededEngine,
                    replace(BOOKS, track=join_by_rest(SEED_PATH, SEED_LEVELS, weight=SEED_WEIGHT)),
                ),
                limits=replace(exchange.limits, fetches=(Limit(budget, 60.0, Scope.ADDRESS),)),
            )
            for name, exchange in simulated.exchanges().items()
        }
        books = Books()
        async with Catalogue(exchanges, rest=rest, settings=SETTINGS) as catalogue:
            assert await catalogue.first_read()
            supervisor = Supervisor(
                exchanges,
                books=books,
                rest=rest,
                catalogue=catalogue,
                settings=SETTINGS,
                limits=SEEDED,
            )
            async with supervisor:
                assert await catalogue.first_read()
                instrument = catalogue.instrument("binance", SYMBOL)
                assert instrument is not None
                yield Rig(simulated, supervisor, books, catalogue), instrument


async def test_a_seeded_book_is_fetched_again_over_sockets_and_never_shows_beyond(seeded):
    rig, instrument = seeded
    await live(rig, instrument)
    book = rig.book(instrument)
    horizons = {book.horizon()}
    sequence = 0

    def enough() -> bool:
        nonlocal sequence
        sequence += 1
        horizons.add(book.horizon())
        assert book.horizon() != (None, None)
        return len(horizons) >= 4

    await rig.until(enough)
    await rig.until(lambda: rig.equal(instrument), stepping=False)
    assert rig.moves == [(Health.LIVE, None)], "it was live all the time"
    assert min(book.core.bid_count, book.core.ask_count) > 30


async def test_a_stream_that_delivers_nothing_is_found_over_sockets(seeded):
    rig, instrument = seeded
    rig.simulated["binance"].kill_stream(SYMBOL)
    rig.supervisor.acquire(instrument)
    await rig.until(lambda: (Health.STALE, Reason.DEAD_STREAM) in rig.moves)
    rig.simulated["binance"].heal()
    await rig.until(lambda: rig.equal(instrument))


@pytest.mark.parametrize("seeded", [200], indirect=True)
async def test_a_live_book_takes_no_budget_that_a_first_one_may_need(seeded):
    """200 a minute: a burst of 100, a body costs 50, and half of the burst is reserved."""
    rig, instrument = seeded
    await live(rig, instrument)
    book, steps = rig.book(instrument), 0
    first = book.horizon()

    def stepped() -> bool:
        nonlocal steps
        steps += 1
        return steps > 400

    await rig.until(stepped)
    assert book.horizon() == first, "there was no budget to spare"
    assert rig.moves == [(Health.LIVE, None)]
    other = rig.supervisor._catalogue.instrument("binance", "ETH/USDT")
    rig.supervisor.acquire(other)
    await rig.until(lambda: rig.equal(other))


@pytest.mark.over_sockets
@pytest.mark.parametrize("rig", [(name, AUDITED) for name in REST_NUMBERED], indirect=True)
async def test_a_stream_that_lies_by_one_level_is_found(rig, monkeypatch, caplog):
    rig, instrument = rig
    monkeypatch.setattr(reseeding, "AUDIT_S", 0.1)
    monkeypatch.setattr(reseeding, "AUDIT_CHANCE", 1.0)
    await live(rig, instrument)
    stats = rig.supervisor.stats[instrument.exchange]
    await rig.until(lambda: stats.audits >= 3)
    assert not stats.invalidations
    rig.simulated[instrument.exchange].lie_next(instrument.symbol)
    rig.simulated.step()
    await rig.until(lambda: stats.invalidations[Reason.AUDIT] == 1, stepping=False)
    assert (Health.STALE, Reason.AUDIT) in rig.moves
    assert f"{instrument.symbol} differs from the exchange's snapshot" in caplog.text
    await rig.until(lambda: rig.equal(instrument))
    audits = stats.audits
    await rig.until(lambda: stats.audits >= audits + 3)
    assert stats.invalidations.total() == 1
