"""Books through ccxt beside our own of the same simulated exchange; ccxt's failures included."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal

import pytest
from msgspec.structs import replace

from longtail import without_connector
from onebook.books import Books, LiveBook
from onebook.config import CcxtSettings, ExchangeSettings, FeedSettings
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Exchange, Limit, Scope
from onebook.exchanges.kit.through_ccxt import QUIET_MAX_S
from onebook.feeds import Catalogue, Library, Supervisor, enabled
from onebook.feeds.ccxt.library import THREAD
from onebook.feeds.limits import FeedLimits
from onebook.model import Health, Instrument, Reason
from onebook.rest import Rest
from onebook.simulator import SimulatedExchanges

pytest.importorskip("ccxt.pro", reason="the extra onebook[ccxt] is not installed")

SYMBOL, OTHER = "BTC/USDT", "ETH/USDT"
WAIT_S = 60.0
STEP_S = 0.05
DEPTH = 100
FAST = FeedLimits(reconnect_base_s=0.05, reconnect_max_s=1.0, resync_base_s=0.02, resync_max_s=1.0)
THROUGH = CcxtSettings(depth=DEPTH)

Levels = list[tuple[Decimal, Decimal]]


def _unpaced(exchange: Exchange, quiet_max_s: float) -> Exchange:
    """An exchange whose clients may be started as often as a test needs."""
    connects = (Limit(1_000, 60.0, Scope.ADDRESS),)
    return replace(
        exchange,
        limits=replace(exchange.limits, connects=connects),
        quiet_max_s=quiet_max_s,
        silence_max_s=quiet_max_s,
    )


class Rig:
    """Feeds of some exchanges of a simulated market; `names` may be native or through ccxt."""

    def __init__(
        self,
        simulated: SimulatedExchanges,
        settings: FeedSettings,
        quiet_max_s: float = QUIET_MAX_S,
    ) -> None:
        self.simulated = simulated
        self.settings = settings
        self.known = {
            name: _unpaced(each, quiet_max_s) if each.via else each
            for name, each in enabled(EXCHANGES, settings).items()
        }
        self.books = Books()
        self.moves: list[tuple[str, Health, Reason | None]] = []
        self.books.subscribe(
            on_health=lambda book, previous: self.moves.append(
                (book.instrument.symbol, book.health, book.reason)
            )
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Rig":
        enter, settings = self._stack.enter_async_context, self.settings
        rest = await enter(Rest())
        through = any(each.via for each in self.known.values())
        library = await enter(Library(settings)) if through else None
        self.catalogue = await enter(
            Catalogue(self.known, rest=rest, settings=settings, library=library)
        )
        assert await self.catalogue.first_read(WAIT_S)
        self.supervisor = await enter(
            Supervisor(
                self.known,
                books=self.books,
                rest=rest,
                catalogue=self.catalogue,
                settings=settings,
                limits=FAST,
                library=library,
                jitter=lambda: 0.0,
            )
        )
        return self

    async def __aexit__(self, *details: object) -> None:
        await self._stack.aclose()

    def acquire(self, name: str, symbol: str) -> Instrument:
        instrument = self.catalogue.instrument(name, symbol)
        assert instrument is not None
        self.supervisor.acquire(instrument)
        return instrument

    def book(self, instrument: Instrument) -> LiveBook:
        book = self.books.get(instrument)
        assert book is not None
        return book

    def top(self, instrument: Instrument) -> tuple[Levels, Levels]:
        """The best levels; None while the book is not live."""
        book = self.book(instrument)
        bids, asks = book.core.top(DEPTH) if book.health is Health.LIVE else ([], [])
        return exact(bids), exact(asks)

    def fallen(self, since: int) -> set[tuple[str, Reason | None]]:
        """The books that were not live since a given change, with the reasons."""
        return {
            (symbol, reason)
            for symbol, health, reason in self.moves[since:]
            if health is not Health.LIVE
        }

    def equal(self, instrument: Instrument) -> bool:
        """Whether the book is live and equals the exchange's."""
        return all(self.top(instrument)) and self.top(instrument) == truth(
            self.simulated, instrument
        )

    async def until(self, condition: Callable[[], bool], *, stepping: bool = True) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                if stepping:
                    self.simulated.step()
                await asyncio.sleep(STEP_S)

    async def settled(self, *instruments: Instrument) -> None:
        """Stop the market until these books equal the exchange's."""
        await self.until(lambda: all(map(self.equal, instruments)), stepping=False)


def exact(levels: list[tuple[str, str]]) -> Levels:
    return [(Decimal(price), Decimal(amount)) for price, amount in levels[:DEPTH]]


def truth(simulated: SimulatedExchanges, instrument: Instrument) -> tuple[Levels, Levels]:
    bids, asks = simulated[instrument.exchange].book(instrument.symbol)
    return exact([*bids.items()]), exact([*asks.items()])


@asynccontextmanager
async def market(
    name: str,
    *others: str,
    quiet_max_s: float = QUIET_MAX_S,
) -> AsyncIterator[tuple[Rig, Rig]]:
    """One simulated exchange, read by our connector and, as if we had none, through ccxt."""
    async with SimulatedExchanges([name, *others], seed=11, rate_hz=0) as simulated:
        simulated[name].admit_all()
        places = {
            each: ExchangeSettings(ws_url=urls.ws, rest_url=urls.rest)
            for each, urls in simulated.urls.items()
        }
        through_ccxt = THROUGH.model_copy(update={"exchanges": (name,)})
        native = FeedSettings(exchanges=(name,), overrides=places)
        through = FeedSettings(exchanges=others, overrides=places, ccxt=through_ccxt)
        own = Rig(simulated, native)
        with without_connector(name):
            tail = Rig(simulated, through, quiet_max_s)
        async with own, tail:
            yield own, tail
        async with asyncio.timeout(WAIT_S):
            while simulated[name].clients:
                await asyncio.sleep(STEP_S)
    assert THREAD not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("name", ["okx", "hitbtc"])
async def test_a_book_through_ccxt_is_that_of_the_exchange_and_of_our_own_feed(
    name: str,
) -> None:
    async with market(name, "kraken") as (own, tail):
        ours, theirs = own.acquire(name, SYMBOL), tail.acquire(name, SYMBOL)
        beside = tail.acquire("kraken", SYMBOL)
        assert (ours.via, theirs.via, beside.via) == ("", "ccxt", "")
        assert (theirs.symbol, theirs.native) == (ours.symbol, ours.native)
        assert (Decimal(theirs.tick), Decimal(theirs.lot)) == (
            Decimal(ours.tick),
            Decimal(ours.lot),
        )
        await tail.until(lambda: own.equal(ours) and tail.equal(theirs) and tail.equal(beside))
        for burst in (1, 2, 5, 10):
            for _ in range(burst):
                tail.simulated.step()
            await own.settled(ours)
            await tail.settled(theirs, beside)
            assert own.top(ours) == tail.top(theirs)
        bids, asks = tail.top(theirs)
        assert tail.book(theirs).horizon() == (f"{bids[-1][0]}", f"{asks[-1][0]}")
        stats = tail.supervisor.stats[name]
        assert (tail.supervisor.state(name), stats.connected, stats.reconnects) == ("active", 1, 0)


async def test_a_failure_of_ccxt_makes_its_book_stale_and_nothing_else() -> None:
    async with market("okx", "kraken", quiet_max_s=2.0) as (_, tail):
        exchange, other = tail.simulated["okx"], "SOL/USDT"
        instrument, beside = tail.acquire("okx", SYMBOL), tail.acquire("kraken", SYMBOL)
        second = tail.acquire("okx", OTHER)
        await tail.until(lambda: tail.equal(instrument) and tail.equal(second))
        await tail.until(lambda: tail.equal(beside))

        async def stale_and_back(reason: Reason, since: int) -> None:
            """The fault is visible, and the book is exact again afterwards."""
            await tail.until(lambda: (SYMBOL, reason) in tail.fallen(since))
            exchange.heal()
            await tail.until(lambda: tail.equal(instrument) and tail.equal(second))

        exchange.refuse(other)
        refused = tail.acquire("okx", other)
        await tail.until(lambda: tail.book(refused).reason is Reason.REFUSED)
        assert tail.book(refused).health is Health.OFFLINE
        # ccxt gives this error to all that waits on the socket: the others are asked for again.
        await tail.until(lambda: tail.equal(instrument) and tail.equal(second))

        since = len(tail.moves)
        exchange.corrupt_next(SYMBOL, "garbage")  # ccxt reads nothing after such a message
        await stale_and_back(Reason.PROTOCOL_ERROR, since)
        since = len(tail.moves)
        exchange.kill_stream(SYMBOL)
        await stale_and_back(Reason.QUIET, since)
        since = len(tail.moves)
        exchange.silence()
        await stale_and_back(Reason.SILENT, since)
        since = len(tail.moves)
        await exchange.stop()
        await tail.until(lambda: (SYMBOL, Reason.UNREACHABLE) in tail.fallen(since))
        assert tail.top(instrument) == ([], [])
        assert tail.supervisor.state("okx") == "offline"
        await exchange.start()
        await stale_and_back(Reason.UNREACHABLE, since)
        assert tail.supervisor.state("okx") == "active"

        await tail.until(lambda: tail.equal(beside))
        kraken = tail.supervisor.stats["kraken"]
        assert (kraken.reconnects, kraken.invalidations.total()) == (0, 0)
