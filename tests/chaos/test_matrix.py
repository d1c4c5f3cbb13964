"""Every exchange behind every toxic: a live book is always a state of the exchange, in order.

Real feeds and real sockets. Whenever the event loop gets to look, a live book must equal one that
its exchange published, never an older one than before; once the toxic is gone it must be live and
equal to the newest again.
"""

import asyncio
import random
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from chaos import proxy as toxics
from chaos.proxy import HOST, Proxy, Toxic
from feeds.toy import paced
from onebook.books import Books, LiveBook
from onebook.config import FeedSettings
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Exchange, ExchangeLimits, Limit, LossDetection, Scope
from onebook.feeds import Catalogue, Supervisor
from onebook.feeds.limits import FeedLimits
from onebook.model import Health, Instrument, Reason
from onebook.rest import Rest
from onebook.simulator import DIALECTS, SimulatedExchanges
from steady import within

STEP_S: Final = 0.02
HARM_S: Final = 0.3  # how long a toxic is in force, unless it must be noticed first
NOTICED_S: Final = 30.0
RECOVERED_S: Final = 30.0
REST_S: Final = 0.2  # how long the market rests for a comparison, and moves between two
CONNECTS_PER_S: Final = 20
BOOKS: Final = 2  # of each exchange, the first that it lists
LEVELS: Final = 15  # a side that are compared
CHECKSUM_LEVELS: Final = 10
LEVELS_MIN: Final = 5
COMPARED_MIN: Final = 20

SETTINGS = FeedSettings()
LIMITS = FeedLimits(
    connect_timeout_s=0.6,
    reconnect_base_s=0.02,
    reconnect_max_s=1.0,
    silent_min_s=0.5,
    quiet_min_s=0.5,
    resync_base_s=0.02,
    resync_max_s=1.0,
    retry_offline_s=1.0,
    fetch_total_s=1.0,
    cadence_evidence_s=0.2,
    cadence_gaps_min=2,
    cadence_factor=2.0,
)

# What a toxic can hide depends on how an exchange shows that a frame was lost: one of each way
# stands for the others, and the soak has all of them.
STAND_FOR_ALL: Final = ("binance", "bitfinex", "bitstamp", "coinbase", "kraken")
# Exchanges that number nothing and send no checksum: a change that is lost cannot be seen, or the
# next frame has the whole book.
UNNUMBERED: Final = {
    name
    for name, each in EXCHANGES.items()
    if each.guard in (LossDetection.ORDER, LossDetection.WHOLE)
}
# Exchanges whose lost changes only the checksum shows: what lies deeper is not compared then.
CHECKSUMMED: Final = {
    name for name, each in EXCHANGES.items() if each.guard is LossDetection.CHECKSUM
}


class Case(NamedTuple):
    """A toxic, and its expected effect."""

    make: Callable[[], Toxic]
    noticed: bool  # the book must leave live while it is in force
    slow: bool = False  # nothing is wrong with the stream but its speed
    numbers: bool = False  # only the exchange's own numbers can show it
    learns_s: float = 0.0  # how long the feed must have known the pace of the books


CASES: Final = {
    "delay": Case(lambda: toxics.Delay(0.05, 0.1), noticed=False, slow=True),
    "slicer": Case(toxics.Slicer, noticed=False, slow=True),
    "throttle": Case(lambda: toxics.Throttle(8_000), noticed=False, slow=True),
    "cut": Case(toxics.Cut, noticed=True),
    "storm": Case(toxics.Storm, noticed=True),
    "black_hole": Case(toxics.BlackHole, noticed=True, learns_s=1.0),
    "half_open": Case(toxics.HalfOpen, noticed=True, learns_s=1.0),
    "corrupt": Case(lambda: toxics.Corrupt(0.2), noticed=True),
    "corrupt_head": Case(lambda: toxics.CorruptHead(0.2), noticed=True),
    "truncate": Case(lambda: toxics.Truncate(0.2), noticed=True),
    "duplicate": Case(lambda: toxics.Duplicate(0.3), noticed=False),
    "reorder": Case(lambda: toxics.Reorder(0.3), noticed=True, numbers=True),
    "drop": Case(lambda: toxics.Drop(0.3), noticed=True, numbers=True),
}
# What a stream that is only slow may be stale for: an own pace that was not kept.
SLOW: Final = {None, Reason.SILENT}

Top = tuple[tuple[tuple[float, float], ...], tuple[tuple[float, float], ...]]


class Watcher:
    """Records every state of the exchange's books, and compares ours with them."""

    def __init__(self, books: Books, simulated: SimulatedExchanges, levels: int) -> None:
        self.wrong: list[str] = []
        self.moves: list[tuple[str, Health, Reason | None]] = []
        self.compared = 0
        self._levels = levels
        self._simulated = simulated
        self._versions: dict[Instrument, dict[Top, list[int]]] = {}
        self._shown: dict[Instrument, int] = {}
        self._now = 0
        self._due: set[LiveBook] = set()
        books.subscribe(on_changed=self._soon)
        books.subscribe(on_health=self._moved)

    def record(self, instruments: list[Instrument]) -> None:
        """Record the current state of the exchange."""
        self._now += 1
        for instrument in instruments:
            known = self._versions.setdefault(instrument, {})
            known.setdefault(self._truth(instrument), []).append(self._now)

    def newest(self, book: LiveBook) -> bool:
        """Whether a book is live and equals the exchange's current one."""
        return book.health is Health.LIVE and self._top(book) == self._truth(book.instrument)

    def _truth(self, instrument: Instrument) -> Top:
        truth = self._simulated[instrument.exchange].book(instrument.symbol, self._levels)
        return tuple(
            tuple((float(price), float(amount)) for price, amount in side.items()) for side in truth
        )

    def _top(self, book: LiveBook) -> Top:
        return tuple(
            tuple((float(price), float(amount)) for price, amount in side)
            for side in book.core.top(self._levels)
        )

    def _moved(self, book: LiveBook, previous: Health) -> None:
        self.moves.append((book.instrument.symbol, book.health, book.reason))
        self._soon(book)

    def _soon(self, book: LiveBook) -> None:
        """Compare as early as others could: after the callback that changes the book."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._look)
        self._due.add(book)

    def _look(self) -> None:
        due, self._due = self._due, set()
        for book in due:
            if book.health is Health.LIVE:
                self._compare(book)

    def _compare(self, book: LiveBook) -> None:
        top, instrument = self._top(book), book.instrument
        versions = self._versions[instrument].get(top, [])
        at = bisect_left(versions, self._shown.get(instrument, 0))
        self.compared += 1
        if at < len(versions) and min(map(len, top)) >= LEVELS_MIN:
            self._shown[instrument] = versions[at]
        else:
            kind = "older than one shown before" if versions else "never what the exchange had"
            self.wrong.append(f"{instrument.symbol}: a live book was {kind}: {top}")


class Rig:
    """One exchange, its proxy, its feeds, and a constantly moving market."""

    def __init__(
        self,
        proxy: Proxy,
        simulated: SimulatedExchanges,
        books: list[LiveBook],
        watcher: Watcher,
    ) -> None:
        self.proxy = proxy
        self.watcher = watcher
        self._simulated = simulated
        self._books = books
        self.moving = True

    async def move(self) -> None:
        """Let the market move until cancelled."""
        instruments = [book.instrument for book in self._books]
        while True:
            if self.moving:
                self._simulated.step()
                self.watcher.record(instruments)
            await asyncio.sleep(STEP_S)

    async def recovered(self) -> None:
        """Wait until every book is live and, with the market at rest, equals the exchange's.

        A change that was lost just before may show only with the next one: then it moves on.
        """
        async with within(RECOVERED_S):
            equal = False
            while not equal:
                await self.until(self._live)
                self.moving = False
                with suppress(TimeoutError):
                    async with asyncio.timeout(REST_S):
                        await self.until(lambda: all(map(self.watcher.newest, self._books)))
                        equal = True
                self.moving = True
                await asyncio.sleep(0 if equal else REST_S)

    def _live(self) -> bool:
        return all(book.health is Health.LIVE for book in self._books)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(STEP_S / 2)


@asynccontextmanager
async def rig_of(name: str, levels: int) -> AsyncIterator[Rig]:
    async with (
        SimulatedExchanges([name], seed=7, rate_hz=0) as simulated,
        Proxy(int(urlsplit(simulated.urls[name].rest).port or 0)) as proxy,
        Rest() as rest,
    ):
        simulated[name].admit_all()
        exchanges = {name: behind(simulated.exchanges()[name], proxy.port)}
        books = Books()
        async with Catalogue(exchanges, rest=rest, settings=SETTINGS) as catalogue:
            assert await catalogue.first_read()
            watcher = Watcher(books, simulated, levels)
            listed = [each.symbol for each in DIALECTS[name].listings[:BOOKS]]
            wanted = [catalogue.instrument(name, symbol) for symbol in listed]
            instruments = [each for each in wanted if each is not None]
            assert instruments
            watcher.record(instruments)
            by_symbol = {each.symbol: [each] for each in instruments}
            simulated[name].on_published = lambda symbol: watcher.record(by_symbol[symbol])
            async with Supervisor(
                exchanges,
                books=books,
                rest=rest,
                catalogue=catalogue,
                settings=SETTINGS,
                limits=LIMITS,
                jitter=random.Random(7).random,
            ) as supervisor:
                for instrument in instruments:
                    supervisor.acquire(instrument)
                rig = Rig(proxy, simulated, list(books), watcher)
                moving = asyncio.create_task(rig.move())
                try:
                    yield rig
                finally:
                    moving.cancel()
                    outcome = (await asyncio.gather(moving, return_exceptions=True))[0]
                    assert isinstance(outcome, asyncio.CancelledError), outcome
    assert asyncio.all_tasks() == {asyncio.current_task()}


def behind(exchange: Exchange, port: int) -> Exchange:
    """The facts of a simulated exchange with the proxy's address and quicker limits."""
    ws, rest = urlsplit(exchange.ws_url), urlsplit(exchange.rest_url)
    at = f"{HOST}:{port}"
    return replace(
        exchange,
        ws_url=ws._replace(netloc=at).geturl(),
        rest_url=rest._replace(netloc=at).geturl(),
        limits=ExchangeLimits(
            topics=1,
            messages=paced(exchange).limits.messages,
            connects=(Limit(CONNECTS_PER_S, 1.0, Scope.ADDRESS),),
            fetches=(Limit(10_000, 1.0, Scope.ADDRESS),),
        ),
        snapshot_s=1.0,
    )


def test_each_way_of_noticing_a_loss_is_tried() -> None:
    ways = {each.guard for each in EXCHANGES.values()}
    assert {EXCHANGES[name].guard for name in STAND_FOR_ALL} == ways


@pytest.mark.over_sockets(STAND_FOR_ALL)
@pytest.mark.parametrize("toxic", CASES)
@pytest.mark.parametrize("name", EXCHANGES)
async def test_a_book_is_that_of_the_exchange_or_not_live(name: str, toxic: str) -> None:
    case = CASES[toxic]
    if case.numbers and name in UNNUMBERED:
        pytest.skip(f"{name} numbers nothing in this channel: a lost change cannot be seen")
    levels = CHECKSUM_LEVELS if case.numbers and name in CHECKSUMMED else LEVELS
    levels = min(levels, EXCHANGES[name].depth or levels)
    loop = asyncio.get_running_loop()
    async with rig_of(name, levels) as rig:
        await rig.recovered()
        await asyncio.sleep(case.learns_s)
        moves, upgrades, since = len(rig.watcher.moves), rig.proxy.upgrades, loop.time()
        rig.proxy.toxic = case.make()
        # Most frames of an exchange with a fast top are tops, whose order means nothing.
        if case.noticed and not (toxic == "reorder" and EXCHANGES[name].tops):
            async with within(NOTICED_S):
                await rig.until(lambda: len(rig.watcher.moves) > moves)
        await asyncio.sleep(HARM_S)
        most = CONNECTS_PER_S * (loop.time() - since) + BOOKS
        assert rig.proxy.upgrades - upgrades <= most, "no storm of our own"
        rig.proxy.toxic = Toxic()
        await rig.recovered()
        if case.slow:
            assert {reason for _, _, reason in rig.watcher.moves[moves:]} <= SLOW
        async with within(RECOVERED_S):
            await rig.until(lambda: rig.watcher.compared > COMPARED_MIN)
        assert rig.watcher.wrong == []
