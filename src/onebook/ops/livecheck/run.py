"""Runs the check through the feeds of the service, a few exchanges at a time."""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from onebook.books import Books
from onebook.config import FeedSettings
from onebook.errors import ExchangeFailed
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Exchange, ProtocolError
from onebook.feeds import Catalogue, Supervisor, read_list
from onebook.feeds.catalogue import traded
from onebook.feeds.connection import FrameRecorder
from onebook.feeds.limits import LIMITS, FeedLimits
from onebook.model import Health, Instrument
from onebook.ops.livecheck.findings import exchange_report
from onebook.ops.livecheck.forms import Redactor
from onebook.ops.livecheck.observer import Observer
from onebook.ops.livecheck.report import (
    ExchangeReport,
    FindingKind,
    ListReport,
    LiveReport,
    whole_report,
)
from onebook.rest import Rest

AT_ONCE_MAX: Final = 8
SYMBOLS: Final = 2  # followed per exchange by default, besides `TWIN_QUOTES`
LOOK_S: Final = 0.25
LIST_S: Final = 30.0  # timeout of one page of a list, including waits and retries
COMPARE_AT: Final = (0.3, 0.8)  # shares of the duration after which bodies are requested
RESUBSCRIBE_AT: Final = 0.55
AGAIN_MAX_S: Final = 30.0  # additional time for the book of a second subscription
# Shares of the duration within which a silent stream is checked over REST.
PROBE_SHARE: Final = 0.2
DEAD_SHARE: Final = 0.2
BASES: Final = ("BTC", "ETH", "SOL", "XRP")
QUOTES: Final = ("USDT", "USD", "USDC", "EUR", "KRW", "JPY", "AUD", "BTC")
TWIN_QUOTES: Final = ("USD", "USDC")  # two names of the dollar that may share one book

log = logging.getLogger("onebook.livecheck")


class LiveCheck:
    """One run of the check.

    Args:
        exchanges: The exchanges to check, with the operator's settings.
        settings: Limits and timeouts.
        seconds: How long each exchange is followed.
        symbols: The symbols to follow; default: `defaults` of the instrument list.
        recorders: Record the frames, by exchange.
    """

    def __init__(
        self,
        exchanges: Mapping[str, Exchange],
        *,
        settings: FeedSettings,
        seconds: float,
        symbols: Sequence[str] = (),
        recorders: Mapping[str, FrameRecorder] | None = None,
    ) -> None:
        self.exchanges = dict(exchanges)
        self.running: dict[str, ExchangeCheck] = {}
        self.done: dict[str, ExchangeReport] = {}
        self.seconds = seconds
        self._settings = settings
        self._symbols = tuple(symbols)
        self._recorders = recorders or {}
        self._started_at_ms = time.time_ns() // 1_000_000
        self._stop = asyncio.Event()

    @property
    def stopped(self) -> bool:
        """Whether the check was stopped early."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Stop early; the observations so far are reported."""
        self._stop.set()

    async def run(self) -> LiveReport:
        """Check all exchanges, and return the report."""
        places = asyncio.Semaphore(AT_ONCE_MAX)

        async def one(exchange: Exchange) -> None:
            async with places:
                if not self.stopped:
                    await self._check(exchange)

        async with asyncio.TaskGroup() as group:
            for exchange in self.exchanges.values():
                group.create_task(one(exchange))
        return self.report()

    def report(self) -> LiveReport:
        """Return the report of the exchanges checked so far."""
        return whole_report(
            tuple(self.done[name] for name in self.exchanges if name in self.done),
            started_at_ms=self._started_at_ms,
            seconds=self.seconds,
            interrupted=self.stopped,
        )

    async def _check(self, exchange: Exchange) -> None:
        check = self.running[exchange.name] = ExchangeCheck(
            exchange,
            settings=self._settings,
            seconds=self.seconds,
            symbols=self._symbols,
            recorder=self._recorders.get(exchange.name),
            stop=self._stop,
        )
        try:
            self.done[exchange.name] = await check.run()
        except Exception as error:
            log.exception("The check of %s failed.", exchange.name)
            check.observer.note(FindingKind.DEFECT, type(error).__name__)
            self.done[exchange.name] = check.report()
        finally:
            del self.running[exchange.name]


class ExchangeCheck:
    """Checks one exchange.

    Args:
        exchange: The exchange's facts, with the operator's addresses.
        settings: Limits and timeouts.
        seconds: How long the exchange is followed.
        symbols: The symbols to follow; default: `defaults` of the instrument list.
        recorder: Records the frames.
        stop: Ends the check early.
    """

    def __init__(
        self,
        exchange: Exchange,
        *,
        settings: FeedSettings,
        seconds: float,
        symbols: Sequence[str],
        recorder: FrameRecorder | None,
        stop: asyncio.Event,
    ) -> None:
        self.exchange = exchange
        self.books = Books()
        self.state = "reading the list"
        self.passed_s = 0.0
        self._own = own_hosts(exchange)
        self._redactor = Redactor(self._own)
        self.observer = Observer(exchange, self.books, redactor=self._redactor, recorder=recorder)
        self._settings = settings.model_copy(update={"exchanges": (exchange.name,)})
        self._limits = _hurried(seconds)
        self._seconds = seconds
        self._symbols = symbols
        self._recorded = recorder is not None
        self._stop = stop
        self._listed = ListReport()
        self._missing: list[str] = []

    async def run(self) -> ExchangeReport:
        """Follow the books of the exchange, and return the findings."""
        exchanges = {self.exchange.name: self.observer.observed()}
        async with AsyncExitStack() as stack:
            rest = await stack.enter_async_context(Rest(proxies=self._settings.proxies))
            catalogue = Catalogue(exchanges, rest=rest, settings=self._settings)
            self._listed = await self._read_list(rest, catalogue)
            instruments = [] if self._listed.problem else self._chosen(catalogue)
            if instruments:
                supervisor = Supervisor(
                    exchanges,
                    books=self.books,
                    rest=rest,
                    catalogue=catalogue,
                    settings=self._settings,
                    limits=self._limits,
                    recorders={self.exchange.name: self.observer},
                )
                if self.exchange.tops:
                    self.observer.tops = supervisor.stats[self.exchange.name].tops
                await stack.enter_async_context(supervisor)
                await self._follow(supervisor, instruments)
            self.observer.stop()
            return self.report()

    def report(self) -> ExchangeReport:
        """Return the report so far."""
        return exchange_report(
            self.observer,
            listed=self._listed,
            missing=self._missing,
            own_addresses=bool(self._own),
            seconds=self.passed_s,
            interrupted=self._stop.is_set(),
            old_s=self._limits.old_s,
            now=time.monotonic(),
        )

    async def _read_list(self, rest: Rest, catalogue: Catalogue) -> ListReport:
        began_s = time.monotonic()
        reading = asyncio.ensure_future(
            read_list(self.exchange, rest=rest, settings=self._settings, page_s=LIST_S)
        )
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return ListReport(problem="the check was ended while the list was read")
            found = await reading
            problem = "" if found else "the list is empty"
        except ExchangeFailed as error:
            return ListReport(problem=self._redactor.text(error.message))
        except ProtocolError as error:
            return ListReport(problem=self._redactor.text(error.reason))
        finally:
            for task in (reading, stopping):
                task.cancel()
            await asyncio.gather(reading, stopping, return_exceptions=True)
        catalogue.update(self.exchange.name, found)
        seconds = round(time.monotonic() - began_s, 3)
        return ListReport(len(found), found.refused, seconds, problem)

    def _chosen(self, catalogue: Catalogue) -> list[Instrument]:
        """Return the instruments to follow; note symbols that are not traded."""
        name = self.exchange.name
        symbols = list(self._symbols) or defaults(catalogue.pairs(name))
        if self._recorded:
            symbols = symbols[: self.exchange.limits.topics]  # a recording has only one connection
        chosen = []
        for symbol in symbols:
            instrument = catalogue.instrument(name, symbol)
            if instrument is None or not traded(instrument):
                self._missing.append(symbol)
            else:
                chosen.append(instrument)
        return chosen

    async def _follow(self, supervisor: Supervisor, instruments: Sequence[Instrument]) -> None:
        for instrument in instruments:
            self.observer.follow(instrument)
            supervisor.acquire(instrument)
        began_s = time.monotonic()
        marks = [
            *((share * self._seconds, self.observer.want_bodies) for share in COMPARE_AT),
            (
                RESUBSCRIBE_AT * self._seconds,
                lambda: self._resubscribe(supervisor, instruments[-1]),
            ),
        ]
        marks.sort(key=lambda mark: mark[0])
        while not self._stop.is_set():
            left_s = self._seconds - self.passed_s
            if left_s <= 0 and not self._awaits(-left_s):
                break
            wait_s = min(LOOK_S, left_s) if left_s > 0 else LOOK_S
            due_s = self.passed_s + wait_s
            await self._wait(wait_s)
            self.passed_s = time.monotonic() - began_s
            late_s = self.passed_s - due_s
            self.observer.late_max_s = max(self.observer.late_max_s, late_s)
            self.state = self._described()
            self.observer.look()
            while marks and self.passed_s >= marks[0][0]:
                marks.pop(0)[1]()

    def _awaits(self, over_s: float) -> bool:
        """Return whether a second subscription still has time to deliver its book."""
        again = any(
            each.before is not None and each.health is not Health.OFFLINE
            for each in self.observer.followed.values()
        )
        return again and over_s < min(self.exchange.snapshot_s, AGAIN_MAX_S)

    def _resubscribe(self, supervisor: Supervisor, instrument: Instrument) -> None:
        """Unsubscribe from a book and subscribe again on the same connection as the others."""
        shared = any(
            instrument in feed.instruments and len(feed.instruments) > 1
            for feed in supervisor.feeds(self.exchange.name)
        )
        book = self.books.get(instrument)
        if not shared or book is None or book.health is not Health.LIVE:
            return
        self.observer.will_resubscribe(instrument)
        supervisor.release_now(instrument)
        supervisor.acquire(instrument)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass

    def _described(self) -> str:
        live = sum(1 for _ in self.books.live())
        words = f"{live} of {len(self.observer.followed)} live"
        return words if self.passed_s < self._seconds else f"{words}, waiting for the second book"


def defaults(pairs: Sequence[str]) -> list[str]:
    """Choose the symbols to follow.

    These are two pairs of well-known coins, and a coin's pairs in two dollar currencies, which may
    share one book.
    """
    listed = set(pairs)
    known = [f"{base}/{quote}" for quote in QUOTES for base in BASES if f"{base}/{quote}" in listed]
    chosen = [*known, *(each for each in pairs if each not in known)][:SYMBOLS]
    twins = [f"{BASES[0]}/{quote}" for quote in TWIN_QUOTES]
    if all(each in listed for each in twins):
        chosen += twins
    return list(dict.fromkeys(chosen))


def own_hosts(exchange: Exchange) -> list[str]:
    """Return the hosts of an exchange's addresses that differ from the published ones."""
    published = EXCHANGES.get(exchange.name)
    facts = [] if published is None else [published, *published.channels.values()]
    known = {urlsplit(url).hostname for each in facts for url in (each.ws_url, each.rest_url)}
    hosts = {urlsplit(url).hostname for url in (exchange.ws_url, exchange.rest_url)}
    return sorted(each for each in hosts - known if each)


def _hurried(seconds: float) -> FeedLimits:
    """Return limits that detect a silent stream within the duration of the check."""
    return replace(
        LIMITS,
        probe_first_s=min(LIMITS.probe_first_s, seconds * PROBE_SHARE),
        probe_quiet_s=min(LIMITS.probe_quiet_s, seconds * PROBE_SHARE),
        dead_stream_s=min(LIMITS.dead_stream_s, seconds * DEAD_SHARE),
        reseed_min_s=min(LIMITS.reseed_min_s, seconds * PROBE_SHARE),
    )


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Keep the feeds' log lines out of the terminal, because the report has the same facts."""
    feeds = logging.getLogger("onebook")
    level = feeds.level
    feeds.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        feeds.setLevel(level)
