"""Feeds, books and identity guard of the library: a service node without clients.

Owns every socket and task: leaving the context closes all of them.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self
from weakref import WeakSet

from onebook.books import Books
from onebook.clock import Clock
from onebook.config import FeedSettings, StreamSettings
from onebook.exchanges import EXCHANGES, instead_of, resolve, select
from onebook.exchanges.kit import Exchange
from onebook.feeds import Catalogue, Supervisor, enabled
from onebook.feeds.limits import LIMITS, FeedLimits
from onebook.feeds.recording import Recorder
from onebook.fees import PUBLISHED
from onebook.library.errors import NoLiveBook, UnknownExchange, UnknownSymbol
from onebook.library.recorders import Recorders
from onebook.library.source import (
    UNKNOWN_FEE,
    BasketSource,
    BookOptions,
    BookSource,
    ReaderQueue,
    Wiring,
)
from onebook.model import Reason
from onebook.orderbook import Names, exchange_texts, meant, near_exchanges
from onebook.rest import Rest

LOOK_S: Final = 1.0  # maximum interval between checks whether all have a book
REST_UNREAD: Final = "its instrument list could not be read"
REST_READING: Final = "its instrument list has not been read yet"


def in_use(names: Sequence[str], feeds: FeedSettings) -> Mapping[str, Exchange]:
    """Return exchanges by name, with the channels and addresses of the settings."""
    return enabled(EXCHANGES, feeds.model_copy(update={"exchanges": tuple(names)}))


def names_of(exchanges: Names) -> tuple[str, ...]:
    """Return exchanges by Onebook's names, with the rules of the service.

    None and "all" mean all known exchanges; "-name" excludes one.

    Raises:
        UnknownExchange: A name is unknown.
        ValueError: The list is empty, or excludes all exchanges that it names.
        TypeError: A name is not text.
    """
    selection = select(exchange_texts(exchanges), resolve)
    if selection.unknown:
        raise _unknown(selection.unknown[0].strip().removeprefix("-"))
    return selection.among(EXCHANGES)


def name_of(name: str) -> str:
    """Return Onebook's name of an exchange.

    Raises:
        UnknownExchange: The name is unknown.
    """
    found = resolve(str(name).strip().lower())
    if found is None:
        raise _unknown(name)
    return found


def _unknown(asked: str) -> UnknownExchange:
    instead = instead_of(asked)
    hint = f" {instead}" if instead else meant(asked, EXCHANGES)
    return UnknownExchange(
        f"Unknown exchange {asked!r}.{hint} Known: {', '.join(EXCHANGES)}.",
        details={"near": near_exchanges(asked, EXCHANGES), "supported_exchanges": [*EXCHANGES]},
    )


class BookEngine:
    """Live books of some exchanges, as an asynchronous context manager.

    Args:
        names: The exchanges.
        feeds: Limits, waits and addresses of feeds.
        streams: The limits of the identity guard.
        limits: Limits and waits of feeds.
        record: Folder for recordings of the traffic; None: no recordings.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        feeds: FeedSettings,
        streams: StreamSettings,
        limits: FeedLimits = LIMITS,
        record: Path | None = None,
    ) -> None:
        self.books = Books()
        self.clock = Clock()
        self.queues: WeakSet[ReaderQueue] = WeakSet()
        self._exchanges = in_use(names, feeds)
        self._limits = limits
        self._settings = feeds.model_copy(update={"exchanges": tuple(names)})
        self._record = record
        self._sources: list[BookSource] = []
        self._stirred = asyncio.Event()
        self._wiring = Wiring(
            self.books, clock=self.clock, streams=streams, on_status=self._stirred.set
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            files: Mapping[str, Recorder] = {}
            if self._record is not None:
                # Feeds use monotonic seconds; a recording uses Unix seconds.
                epoch_s = time.time() - time.monotonic()
                recorders = Recorders(self._record, self._exchanges, epoch_s=epoch_s)
                stack.callback(recorders.close)
                files = recorders.files
            rest = await stack.enter_async_context(Rest(proxies=self._settings.proxies))
            self.catalogue = Catalogue(
                self._exchanges, rest=rest, settings=self._settings, limits=self._limits
            )
            self.supervisor = Supervisor(
                self._exchanges,
                books=self.books,
                rest=rest,
                catalogue=self.catalogue,
                settings=self._settings,
                limits=self._limits,
                recorders=files,
            )
            self.catalogue.on_read.subscribe(self._listed)
            stack.callback(self._wiring.stop)
            await stack.enter_async_context(self.catalogue)
            await stack.enter_async_context(self.supervisor)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._wiring.stop()
        for queue in list(self.queues):
            queue.close()
        await self._stack.aclose()

    def source(self, symbol: str, names: Sequence[str], options: BookOptions) -> BookSource:
        """Open the books of a symbol on some exchanges, except of those without a fee."""
        now, fees = self.clock.monotonic(), options.fees
        source = (
            BookSource(symbol, names, self.books, now, published=self.catalogue.published_fee)
            if fees == PUBLISHED
            else BookSource(symbol, names, self.books, now, fees)
        )
        self._sources.append(source)
        for name in [*source.missing]:
            if source.awaits(name):
                self._look_up(source, name)
        return source

    def basket(self, symbol: str, names: Sequence[str], options: BookOptions) -> BasketSource:
        """Return a symbol in several quotes, of the books that are open; `follow` opens others."""
        now, catalogue = self.clock.monotonic(), self.catalogue
        source = BasketSource(
            symbol,
            names,
            self.books,
            now,
            catalogue.instrument,
            options,
            catalogue.published_fee,
        )
        source.read_lists(self._absence)
        source.refresh()
        return source

    def follow(self, source: BasketSource) -> BasketSource:
        """Open the books of a basket, and those that convert them, as their lists are read."""
        self._sources.append(source)
        self._read_lists(source)
        return source

    async def first_books(self, timeout_s: float) -> None:
        """Wait until each source has a live book and has had time to show every exchange.

        A source that cannot become live does not delay the others.

        Raises:
            UnknownSymbol: No exchange lists a symbol.
            NoLiveBook: No book became live within `timeout_s`, or none can.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while (wait_s := self._wait_s()) > 0:
                    self._stirred.clear()
                    await self._stirred_within(wait_s)
        except TimeoutError:
            if not any(source.members.live for source in self._sources):
                raise NoLiveBook(self._why(f"No book was live within {timeout_s:g} s")) from None

    async def _stirred_within(self, wait_s: float) -> None:
        timer = asyncio.get_running_loop().call_later(wait_s, self._stirred.set)
        try:
            await self._stirred.wait()
        finally:
            timer.cancel()

    def _wait_s(self) -> float:
        """Return how long to wait for the next event; 0 once the first books have arrived."""
        self._require_listed()
        if all(source.offline for source in self._sources):
            raise NoLiveBook(self._why("No book can become live"))
        expected = [source for source in self._sources if not source.offline]
        if not all(source.members.live for source in expected):
            return LOOK_S
        now = self.clock.monotonic()
        return max(source.opening.due(source.members, now) for source in expected) - now

    def _require_listed(self) -> None:
        """Add similar symbols to the problem of each symbol that no exchange lists.

        Raises:
            UnknownSymbol: No exchange lists any of the symbols.
        """
        unlisted = [source for source in self._sources if source.unlisted]
        for source in unlisted:
            near = self.catalogue.suggest(source.symbol)
            hint = f"Did you mean {', '.join(near)}?" if near else ""
            for name in [*source.missing]:
                source.miss(name, Reason.NOT_LISTED, hint)
            if len(unlisted) == len(self._sources):
                names = ", ".join(source.missing)
                what = f"No exchange of {names} lists {source.symbol}. {hint}".rstrip()
                raise UnknownSymbol(what, details={"near": near})

    def _why(self, what: str) -> str:
        reasons = [
            f"{source.symbol} on {each}" for source in self._sources for each in source.conditions
        ]
        return f"{what}. {'; '.join(reasons)}."

    # Callbacks of the catalogue

    def _listed(self, name: str) -> None:
        """Search a list for instruments after it was read, or record that it could not be read."""
        for source in self._sources:
            if isinstance(source, BasketSource):
                self._read_lists(source)
            elif source.awaits(name):
                self._look_up(source, name)
        self._stirred.set()

    def _look_up(self, source: BookSource, name: str) -> None:
        instrument = self.catalogue.instrument(name, source.symbol)
        if instrument is None:
            source.miss(name, *self._absence(name))
        elif source.has_fee(instrument):
            self.supervisor.acquire(instrument)
            self._wiring.attach(source, instrument)
        else:
            source.miss(name, *UNKNOWN_FEE)

    def _absence(self, name: str) -> tuple[Reason, str]:
        """Return why an exchange has no instrument."""
        if self.catalogue.loaded(name):
            return Reason.NOT_LISTED, ""
        if problem := self.catalogue.problem(name):
            return Reason.UNREACHABLE, f"{REST_UNREAD}: {problem}"
        return Reason.SUBSCRIBING, REST_READING

    def _read_lists(self, source: BasketSource) -> None:
        """Open the books that a basket needs now, and close those it no longer needs."""
        needed = source.read_lists(self._absence)
        for instrument in needed - source.followed:
            self.supervisor.acquire(instrument)
            self._wiring.follow(source, instrument)
        for instrument in source.followed - needed:
            self._wiring.unfollow(source, instrument)
            self.supervisor.release(instrument)
        source.followed = needed
        source.refresh()
