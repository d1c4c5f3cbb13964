"""Opens and closes connections: packs subscribed books into feeds; keeps idle books open a while.

Owns every feed task. Streams subscribe to books; only this module opens connections.
"""

import asyncio
import logging
import random
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from msgspec.structs import replace

from onebook import metrics
from onebook.books import Books
from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.config import ExchangeSettings, FeedSettings
from onebook.core.types import LEVELS_MAX
from onebook.errors import ConfigError
from onebook.exchanges import channel_of
from onebook.exchanges.kit import Exchange, Quotas, batches
from onebook.feeds import ccxt
from onebook.feeds.catalogue import Catalogue, traded
from onebook.feeds.ccxt import Library
from onebook.feeds.clocks import ServerClock
from onebook.feeds.connection import FrameRecorder
from onebook.feeds.feed import Feed
from onebook.feeds.limits import LIMITS, FeedLimits
from onebook.feeds.stats import OFFLINE, ExchangeStats, PriceAges
from onebook.model import Health, Instrument, Reason
from onebook.rest import Rest

log = logging.getLogger("onebook.feeds")

CONNECTIONS: Final = "the exchange allows no more connections from one address"
MARKS: Final = (Reason.IDENTITY_CONFLICT, Reason.UNCONFIRMED_IDENTITY, Reason.SHARED_BOOK)
SWEEP_S: Final = 1.0  # interval of checking for idle books and publishing counters


class Running(NamedTuple):
    """A feed and the task it runs in."""

    feed: Feed
    task: asyncio.Task[None]


def enabled(exchanges: Mapping[str, Exchange], settings: FeedSettings) -> dict[str, Exchange]:
    """Return the exchanges that the operator enabled, with the configured channels and addresses.

    Exchanges through ccxt come last; the library applies their addresses.

    Raises:
        ConfigError: A name is unknown, or not available through ccxt.
    """
    names = settings.exchanges or tuple(exchanges)
    through = ccxt.enabled(settings)
    for name in (*names, *(each for each in settings.overrides if each not in through)):
        if name not in exchanges:
            raise ConfigError(f"Unknown exchange {name!r}; known: {', '.join(exchanges)}.")
    chosen: dict[str, Exchange] = {}
    for name in names:
        exchange, override = exchanges[name], settings.overrides.get(name)
        if override is not None:
            has_key = bool(override.api_key.get_secret_value())
            exchange = _at(channel_of(exchange, override.channel, has_key=has_key), override)
        chosen[name] = exchange
    return chosen | through


def _at(exchange: Exchange, override: ExchangeSettings) -> Exchange:
    """Return an exchange at the operator's addresses."""
    return replace(
        exchange,
        ws_url=override.ws_url or exchange.ws_url,
        rest_url=override.rest_url or exchange.rest_url,
        instead=exchange.instead and _at(exchange.instead, override),
    )


def _key_of(name: str, settings: FeedSettings) -> str:
    override = settings.overrides.get(name)
    return "" if override is None else override.api_key.get_secret_value()


def _stats_of(name: str, settings: FeedSettings) -> ExchangeStats:
    override = settings.overrides.get(name)
    return ExchangeStats(name, recorded=override is not None and override.recorded)


class Supervisor:
    """Feeds of all subscribed books.

    Args:
        exchanges: The exchanges in use: see `enabled`.
        books: Receive the data.
        rest: Fetches snapshots over REST.
        catalogue: Reports instruments that are delisted or traded again.
        settings: The operator's settings.
        limits: Limits and timeouts of feeds opened from now on.
        recorders: Record all frames and bodies of an exchange; by exchange name.
        library: ccxt, for exchanges without a connector.
        clock: Times the waits.
        jitter: Returns a number in [0, 1) for each wait.
    """

    def __init__(
        self,
        exchanges: Mapping[str, Exchange],
        *,
        books: Books,
        rest: Rest,
        catalogue: Catalogue,
        settings: FeedSettings,
        limits: FeedLimits = LIMITS,
        recorders: Mapping[str, FrameRecorder] = MappingProxyType({}),
        library: Library | None = None,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.limits = limits
        self.stats = {name: _stats_of(name, settings) for name in exchanges}
        self._exchanges = dict(exchanges)
        self._ages = PriceAges()
        self._proxies = settings.proxies
        self._books = books
        self._rest = rest
        self._catalogue = catalogue
        self._settings = settings
        self._recorders = recorders
        self._library = library
        self._clock = clock
        self._jitter = jitter
        self._quotas = {name: Quotas(each.limits) for name, each in exchanges.items()}
        self._subscribers: dict[Instrument, int] = {}
        self._unused_since: dict[Instrument, float] = {}
        self._unplaced: dict[str, dict[Instrument, None]] = {}
        self._surplus: dict[str, dict[Instrument, None]] = {name: {} for name in exchanges}
        self._homes: dict[Instrument, Feed] = {}
        self._running: dict[str, list[Running]] = {name: [] for name in exchanges}
        self._clocks: dict[str, asyncio.Task[None]] = {}  # measure exchanges' clocks
        self._stopping: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        self._catalogue.on_gone.subscribe(self._gone)
        self._catalogue.on_back.subscribe(self._back)
        self._sweeper = asyncio.create_task(self._keep_sweeping(), name="feeds sweep")
        return self

    async def __aexit__(self, *_: object) -> None:
        sweeper, self._sweeper = self._sweeper, None  # during shutdown, nothing is started
        assert sweeper is not None
        for running in self._running.values():
            for each in running:
                self._stop(each.task)
            running.clear()
        for name in list(self._clocks):
            self._leave_clock(name)
        sweeper.cancel()
        await asyncio.gather(sweeper, *self._stopping, return_exceptions=True)

    def add(self, exchange: Exchange) -> None:
        """Add an exchange; the catalogue reports its instruments later."""
        name = exchange.name
        self._exchanges[name] = exchange
        self.stats[name] = _stats_of(name, self._settings)
        # Limits are per address, so an exchange that is added again keeps its used quota.
        self._quotas.setdefault(name, Quotas(exchange.limits))
        self._surplus.setdefault(name, {})
        self._running.setdefault(name, [])

    def drop(self, name: str) -> None:
        """Remove an exchange, after the catalogue has removed its instruments."""
        for running in self._running[name]:
            self._stop(running.task)
        self._running[name].clear()
        self._leave_clock(name)
        self._surplus[name].clear()
        del self._exchanges[name]
        self.stats.pop(name).forget()
        for health in Health:
            metrics.BOOKS.labels(name, health).set(0)
        for reason in MARKS:
            metrics.BOOKS_MARKED.labels(name, reason).set(0)

    def acquire(self, instrument: Instrument) -> None:
        """Add a subscriber of an instrument's book; the first one opens it."""
        count = self._subscribers[instrument] = self._subscribers.get(instrument, 0) + 1
        if count > 1 or self._unused_since.pop(instrument, None) is not None:
            return
        exchange = self._exchanges[instrument.exchange]
        levels_max = exchange.depth if exchange.truncate else LEVELS_MAX
        tops = self.stats[exchange.name].tops if exchange.tops else None
        self._books.open(instrument, levels_max=levels_max, window=exchange.depth, tops=tops)
        if traded(instrument):
            self._place(instrument)
        else:
            now = self._clock.monotonic()
            self._books.set_health(instrument, Health.OFFLINE, Reason.HALTED, now)

    def release(self, instrument: Instrument) -> None:
        """Remove a subscriber; after the last one the book stays open for `linger_s`."""
        count = self._subscribers[instrument] - 1
        if count:
            self._subscribers[instrument] = count
        else:
            del self._subscribers[instrument]
            self._unused_since[instrument] = self._clock.monotonic()

    def in_use(self) -> Collection[str]:
        """Return the enabled exchanges."""
        return self.stats.keys()

    def release_now(self, instrument: Instrument) -> None:
        """Remove a subscriber; close after the last one, because another node serves the book."""
        self.release(instrument)
        if self._unused_since.pop(instrument, None) is not None:
            self._close(instrument)

    def state(self, exchange: str) -> str:
        """Return "active", "maintenance", "limited" or "offline"."""
        stats = self.stats.get(exchange)
        if stats is None or not (stats.connected or self._catalogue.loaded(exchange)):
            return OFFLINE
        return stats.state

    def active_exchanges(self) -> int:
        """Return the number of exchanges with an open connection."""
        return sum(1 for stats in self.stats.values() if stats.connected)

    def feeds(self, exchange: str) -> list[Feed]:
        """Return the connections of one exchange."""
        return [each.feed for each in self._running.get(exchange, ())]

    def sweep(self, now: float) -> None:
        """Close books without subscribers after their linger time, and publish the counters."""
        linger_s = self._settings.linger_s
        for instrument, since in list(self._unused_since.items()):
            if now - since >= linger_s:
                del self._unused_since[instrument]
                self._close(instrument)
        wall_offset_s = self._clock.wall_ms() / 1_000 - self._clock.monotonic()
        for stats in self.stats.values():
            stats.publish(wall_offset_s=wall_offset_s, old_s=self.limits.old_s)
        recorded = {name for name, stats in self.stats.items() if stats.recorded}
        live = (each for each in self._books.live() if each.instrument.exchange not in recorded)
        self._ages.publish(live, self._clock.monotonic())
        counts = Counter((book.instrument.exchange, book.health) for book in self._books)
        for name in self.stats:
            for health in Health:
                metrics.BOOKS.labels(name, health).set(counts[name, health])
        marks = Counter(
            (book.instrument.exchange, book.mark[0]) for book in self._books if book.mark
        )
        for name in self.stats:
            for reason in MARKS:
                metrics.BOOKS_MARKED.labels(name, reason).set(marks[name, reason])

    async def _keep_sweeping(self) -> None:
        while True:
            await self._clock.sleep(SWEEP_S)
            try:
                self.sweep(self._clock.monotonic())
            except Exception:
                log.exception("A tick of the feed supervisor failed.")

    def _close(self, instrument: Instrument) -> None:
        self._displace(instrument)
        self._books.close(instrument)

    def _place(self, instrument: Instrument) -> None:
        """Assign books to feeds once all current subscriptions are known, to pack them better."""
        if not self._unplaced:
            asyncio.get_running_loop().call_soon(self._place_all)
        self._unplaced.setdefault(instrument.exchange, {})[instrument] = None

    def _place_all(self) -> None:
        unplaced, self._unplaced = self._unplaced, {}
        if self._sweeper is None:
            return  # stopped in the meantime
        for name, instruments in unplaced.items():
            waiting = list(instruments)
            for feed in self.feeds(name):
                fitting, waiting = waiting[: feed.room], waiting[feed.room :]
                if fitting:
                    feed.add(fitting)
                    self._homes.update(dict.fromkeys(fitting, feed))
            limits = self._exchanges[name].limits
            for some in batches(waiting, limits.topics):
                if limits.connections is None or len(self._running[name]) < limits.connections:
                    self._start(name, list(some))
                else:
                    self._defer(name, some)

    def _defer(self, name: str, instruments: Sequence[Instrument]) -> None:
        """Take books offline that exceed the exchange's connections per address."""
        self._surplus[name].update(dict.fromkeys(instruments))
        now = self._clock.monotonic()
        for each in instruments:
            self._books.set_health(
                each, Health.OFFLINE, Reason.RATE_LIMITED, now, detail=CONNECTIONS
            )

    def _start(self, name: str, instruments: list[Instrument]) -> None:
        exchange = self._exchanges[name]
        feed = Feed(
            exchange,
            instruments,
            books=self._books,
            rest=self._rest,
            limits=self.limits,
            stats=self.stats[name],
            quotas=self._quotas[name],
            recorder=self._recorders.get(name),
            library=self._library,
            proxies=self._proxies,
            api_key=_key_of(name, self._settings),
            tls=self._tls_for(exchange.ws_url),
            clock=self._clock,
            jitter=self._jitter,
        )
        self._homes.update(dict.fromkeys(instruments, feed))
        task = asyncio.create_task(feed.run(), name=f"feed {name}")
        self._running[name].append(Running(feed, task))
        self._follow_clock(exchange)

    def _tls_for(self, url: str) -> ssl.SSLContext | None:
        if url.startswith("wss:") and self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def _displace(self, instrument: Instrument) -> None:
        self._unplaced.get(instrument.exchange, {}).pop(instrument, None)
        surplus = self._surplus[instrument.exchange]
        surplus.pop(instrument, None)
        feed = self._homes.pop(instrument, None)
        if feed is None:
            return
        feed.remove([instrument])
        if not feed.instruments:
            running = self._running[instrument.exchange]
            index = next(i for i, each in enumerate(running) if each.feed is feed)
            self._stop(running.pop(index).task)
            if not running:
                self._leave_clock(instrument.exchange)
                self.stats[instrument.exchange].trouble = ""  # no connection is needed now
        self._surplus[instrument.exchange] = {}
        for each in surplus:
            self._place(each)

    def _follow_clock(self, exchange: Exchange) -> None:
        """Start measuring the clock of an exchange when its first connection opens."""
        name = exchange.name
        if exchange.time is None or name in self._clocks or self.stats[name].recorded:
            return
        clock = ServerClock(
            exchange,
            rest=self._rest,
            skew=self._books.skew(name),
            clock=self._clock,
            jitter=self._jitter,
        )
        self._clocks[name] = asyncio.create_task(clock.run(), name=f"clock {name}")

    def _leave_clock(self, name: str) -> None:
        task = self._clocks.pop(name, None)
        if task is not None:
            self._stop(task)

    def _stop(self, task: asyncio.Task[None]) -> None:
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
        task.cancel()

    def _gone(self, instrument: Instrument, reason: Reason) -> None:
        if self._books.get(instrument) is not None:
            self._displace(instrument)
            self._books.set_health(instrument, Health.OFFLINE, reason, self._clock.monotonic())

    def _back(self, instrument: Instrument) -> None:
        if self._books.get(instrument) is not None and instrument not in self._homes:
            now = self._clock.monotonic()
            self._books.set_health(instrument, Health.SYNCING, Reason.SUBSCRIBING, now)
            self._place(instrument)
