"""The books of one view, and the delivery of their updates by an iterator or callbacks.

The work per frame is constant: the first change of a book after a reader was read notifies its
`ReaderQueue`; later changes notify no reader. The books are merged when a reader is read, so a slow
consumer gets the newest book, nothing is queued and nothing is delayed. Time comes from a `Clock`.

`Wiring` routes changes of books to sources, through the identity guard.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple, Self

from onebook.books import Books, LiveBook
from onebook.clock import Clock, Handle
from onebook.config import StreamSettings
from onebook.core import MEMBERS_MAX, View
from onebook.fees import (
    PUBLISHED,
    PublishedFee,
    TakerFees,
    exchange_of,
    fee_factors,
    fee_of,
    fees_of,
    stated_table,
    symbol_of,
)
from onebook.library.update import (
    BestLevels,
    BookUpdate,
    ExchangeCondition,
    Naming,
    NetTerms,
    Observed,
)
from onebook.model import Health, Instrument, Reason
from onebook.orderbook import BookTimes, ConversionReport
from onebook.streams.basket import BasketMembers, Lookup, conversion_steps, member_name
from onebook.streams.crossings import CrossingView
from onebook.streams.identity import IdentityGuard
from onebook.streams.members import StreamMembers, condition
from onebook.streams.options import BEST, CROSSING
from onebook.streams.stream import Opening, converted_depth

# A book that is offline for one of these reasons will not return soon.
SETTLED: Final = (
    Reason.HALTED,
    Reason.NOT_LISTED,
    Reason.REFUSED,
    Reason.UNKNOWN_FEE,
    Reason.NO_CONVERSION,
)
UNKNOWN_FEE: Final = (Reason.UNKNOWN_FEE, "")  # of an exchange that takes no part
TOO_MANY: Final = (
    Reason.NOT_WANTED,
    f"A view merges at most {MEMBERS_MAX} books; name fewer exchanges or quotes.",
)


Published = Callable[[str, str], PublishedFee | None]  # by exchange and symbol


class BookOptions(NamedTuple):
    """Options of a shown book.

    Levels per side, price step, amounts by exchange, minimum interval, distance from the mid in
    basis points, "best" or "crossing" if only their changes are updates, whether updates have
    times, taker fees by exchange or "published", whether prices are after fees, the minimum profit
    of crossings in percent, and the quote currencies of pooled books.
    """

    depth: int
    group: str | None
    split: bool
    interval_s: float
    within: str | None = None
    on: str | None = None
    times: bool = False
    fees: TakerFees | Literal["published"] | None = None
    net: bool = False
    crossings: str | None = None
    quotes: tuple[str, ...] = ()


class BookSource:
    """The instruments of one symbol on some exchanges, and which of their books may be shown.

    Args:
        symbol: The pair.
        names: The exchanges, in the order of the update.
        books: The open books.
        opened_at: Monotonic seconds.
        fees: Taker fees by exchange; an exchange without one takes no part.
        published: Returns the published fee of a pair, if those are the fees.
    """

    def __init__(
        self,
        symbol: str,
        names: Sequence[str],
        books: Books,
        opened_at: float,
        fees: TakerFees | None = None,
        published: Published | None = None,
    ) -> None:
        self.symbol = symbol
        self.edition = 0  # of members and fees: after a change, readers make their views again
        self.fees = fees  # by exchange, or by pair if they are published
        self.published_fees: tuple[PublishedFee, ...] = ()
        self._published = published
        self.names = tuple(names)
        self.naming = Naming(names)
        self.instruments: list[Instrument | None] = [None] * len(names)
        self.members = StreamMembers(names, self.instruments)
        self.opening = Opening(opened_at)
        self.clean: set[BookReader] = set()  # `Wiring` notifies them of the next change
        self.pacing: set[BookReader] = set()  # changed, and waiting for the end of their interval
        # The reason, for exchanges without an instrument.
        without_fee = () if fees is None else fees_of(fees, names, symbol).unknown
        self.missing: dict[str, tuple[Reason, str]] = {
            name: UNKNOWN_FEE if name in without_fee else (Reason.SUBSCRIBING, "") for name in names
        }
        self.conditions: tuple[ExchangeCondition, ...] = ()
        self._books = books
        self.refresh()

    def awaits(self, name: str) -> bool:
        """Return whether a list may show the instrument of an exchange, or its published fee."""
        has_no_fee = self.missing.get(name) == UNKNOWN_FEE and self._published is None
        return name in self.missing and not has_no_fee

    def has_fee(self, instrument: Instrument) -> bool:
        """Return whether an exchange that is not `missing` has a fee, and read a published one."""
        if self._published is None:
            return True
        fee = self._published(instrument.exchange, instrument.symbol)
        if fee is None:
            return False
        self.published_fees = tuple(sorted([*self.published_fees, fee]))
        self.fees = stated_table(self.published_fees)
        self.edition += 1
        return True

    def join(self, instrument: Instrument) -> None:
        """Add the instrument of one of the exchanges; its book is open."""
        self.instruments[self.names.index(instrument.exchange)] = instrument
        self.missing.pop(instrument.exchange, None)
        self.refresh()

    def miss(self, name: str, reason: Reason, detail: str) -> None:
        """Record why an exchange has no instrument."""
        if self.missing.get(name) != (reason, detail):
            self.missing[name] = reason, detail
            self.refresh()

    def refresh(self) -> None:
        """Refresh which books may be shown, and notify all readers."""
        self.members.refresh(self._books)
        self.members.awaited |= any(
            reason is Reason.SUBSCRIBING for reason, _ in self.missing.values()
        )
        self.conditions = tuple(map(self._condition, self.names, self.instruments))
        readers = self.clean | self.pacing
        self.clean, self.pacing = set(), set()
        for reader in readers:
            reader.queue.status_changed(reader)

    @property
    def unlisted(self) -> bool:
        """Whether no exchange lists the symbol."""
        reasons = {reason for reason, _ in self.missing.values()}
        return (
            len(self.missing) == len(self.names)
            and Reason.NOT_LISTED in reasons
            and reasons <= {Reason.NOT_LISTED, Reason.UNKNOWN_FEE}
        )

    @property
    def offline(self) -> bool:
        """Whether no book is live and none is expected soon."""
        return not self.members.live and all(
            each.state is Health.OFFLINE and each.reason in SETTLED for each in self.conditions
        )

    def percents(self) -> list[str] | None:
        """Return the fee of each member; None without fees.

        A member without a fee has no instrument, so that its percent is unused.
        """
        if self.fees is None:
            return None
        known = fees_of(self.fees, self.names, self.symbol).known
        return [known.get(name, "0") for name in self.names]

    def changes(self) -> int:
        """Return the number of changes of the shown books."""
        return sum([book.changes for book in self.members.books])

    def observed(self, now: float) -> tuple[list[Observed], int]:
        """Return what was last known of the shown books, and the number of their changes."""
        observed: list[Observed] = []
        changes = 0
        for book in self.members.books:  # `LiveBook.horizon` and a loop without calls (hot path)
            observed.append((book.updated_at, book.core.horizon(book.window)))
            changes += book.changes
        return observed, changes

    def conversions(self, now: float) -> tuple[ConversionReport, ...]:
        """Return how books in other quotes are converted."""
        return ()

    def _condition(self, name: str, instrument: Instrument | None) -> ExchangeCondition:
        book = self._books.get(instrument) if instrument is not None else None
        if book is None:
            reason, detail = self.missing.get(name, (Reason.NOT_WANTED, ""))
            state = Health.SYNCING if reason is Reason.SUBSCRIBING else Health.OFFLINE
            return ExchangeCondition(name, state, False, reason, detail)
        shown = self.members.shows(book)
        state, why, detail = condition(book, shown=shown)
        return ExchangeCondition(name, state, shown, why, detail)


class BasketSource(BookSource):
    """The books of a symbol in several quote currencies, as far as the lists read show them.

    `names` are the members of the basket (`streams.basket`), and change when lists arrive;
    `missing` has the exchanges without a member, and the books that nothing converts.

    Args:
        symbol: The pair, in the quote that the others are converted into.
        exchanges: The exchanges, in the order of the update.
        books: The open books.
        opened_at: Monotonic seconds.
        lookup: Returns the instrument of an exchange and a symbol.
        options: `quotes`, `fees` and `net` decide how books are converted.
        published: Returns the published fee of a pair; needed if those are the fees.
    """

    members: BasketMembers

    def __init__(
        self,
        symbol: str,
        exchanges: Sequence[str],
        books: Books,
        opened_at: float,
        lookup: Lookup,
        options: BookOptions,
        published: Published | None = None,
    ) -> None:
        if options.fees == PUBLISHED:
            super().__init__(symbol, (), books, opened_at, published=published)
        else:
            super().__init__(symbol, (), books, opened_at, options.fees)
        self.exchanges = tuple(exchanges)
        self.followed: set[Instrument] = set()  # whose books are open for this source
        self._lookup = lookup
        self._options = options
        self.members = self._members()

    def read_lists(self, absence: Callable[[str], tuple[Reason, str]]) -> set[Instrument]:
        """Find the members in the lists read so far; return the instruments that they need.

        `absence` returns why an exchange has no member.
        """
        base, _, own = self.symbol.partition("/")
        quotes = self._options.quotes
        symbols = {quote: f"{base}/{quote}" for quote in (own, *quotes)}
        pairs = [pair for quote in quotes for pair in (f"{quote}/{own}", f"{own}/{quote}")]
        stated = self._read_fees([*symbols.values(), *pairs])
        names: list[str] = []
        self.missing = {}
        for exchange in self.exchanges:
            found = [
                member_name(exchange, quote, own)
                for quote, symbol in symbols.items()
                if self._lookup(exchange, symbol) is not None
            ]
            charged = [name for name in found if self._has_fee(*self._book_of(name))]
            if charged:
                names += charged
                lacking = [name for name in found if name not in charged]
                self.missing |= dict.fromkeys(lacking, UNKNOWN_FEE)
            elif found or (self._published is None and not self._has_fee(exchange, self.symbol)):
                self.missing[exchange] = UNKNOWN_FEE
            else:
                self.missing[exchange] = absence(exchange)
        steps = conversion_steps(names, self.symbol, self._usable)
        converted = {each for step in steps for each in step.members}
        lost = [each for each in names if ":" in each and each not in converted]
        self.missing |= dict.fromkeys(lost, (Reason.NO_CONVERSION, ""))
        kept = [each for each in names if each not in lost]
        self.missing |= dict.fromkeys(kept[MEMBERS_MAX:], TOO_MANY)
        self.names = tuple(kept[:MEMBERS_MAX])
        self.naming = Naming(self.names)
        self.members = self._members()
        self.instruments = self.members.instruments
        self.edition += 1
        used = {*map(self._book_of, self.names)}
        used |= {(name, step.symbol) for step in steps for name in step.through}
        self.published_fees = tuple(each for each in stated if each[:2] in used)
        return set(self.members.needed())

    def refresh(self) -> None:
        """Refresh which books may be shown, and notify all readers."""
        super().refresh()
        self.conditions += tuple(
            ExchangeCondition(
                name,
                Health.SYNCING if reason is Reason.SUBSCRIBING else Health.OFFLINE,
                False,
                reason,
                detail,
            )
            for name, (reason, detail) in self.missing.items()
        )

    @property
    def unlisted(self) -> bool:
        """Whether no exchange lists the symbol in any of the quotes."""
        reasons = {reason for reason, _ in self.missing.values()}
        return (
            not self.names
            and Reason.NOT_LISTED in reasons
            and reasons <= {Reason.NOT_LISTED, Reason.UNKNOWN_FEE}
        )

    def observed(self, now: float) -> tuple[list[Observed], int]:
        """Return ages and horizons in the view's quote; a conversion may be the older part."""
        members = self.members
        observed = [
            (now - members.age_ms(name, now) / 1_000, members.horizon_of(name, book))
            for name, book in zip(members.shown, members.books, strict=True)
        ]
        return observed, self.changes()

    def changes(self) -> int:
        """Return the number of changes of the shown books and of those that convert them."""
        members = self.members
        books = [*members.books, *(book for each in members.steps for book in each.books.books)]
        return sum(book.changes for book in dict.fromkeys(books))

    def conversions(self, now: float) -> tuple[ConversionReport, ...]:
        """Return how books in other quotes are converted, as of the last merge."""
        return tuple(each.report(now) for each in self.members.steps)

    def _read_fees(self, symbols: Iterable[str]) -> list[PublishedFee]:
        """Read the published fees of these pairs, if those are the fees."""
        if self._published is None:
            return []
        found = (self._published(name, each) for name in self.exchanges for each in symbols)
        stated = sorted(each for each in found if each is not None)
        self.fees = stated_table(stated)
        return stated

    def _book_of(self, name: str) -> tuple[str, str]:
        """Return the exchange and the symbol of a member."""
        return exchange_of(name), symbol_of(name, self.symbol)

    def _has_fee(self, exchange: str, symbol: str) -> bool:
        return self.fees is None or fee_of(self.fees, exchange, symbol) is not None

    def _usable(self, exchange: str, symbol: str) -> bool:
        return self._has_fee(exchange, symbol) and self._lookup(exchange, symbol) is not None

    def _members(self) -> BasketMembers:
        options = self._options
        depth = converted_depth(
            options.depth, crossings=options.crossings, every=options.group is not None
        )
        return BasketMembers(
            self.names, self.symbol, self._lookup, self.fees, depth, net=options.net
        )

    def _condition(self, name: str, instrument: Instrument | None) -> ExchangeCondition:
        book = self._books.get(instrument) if instrument is not None else None
        if book is None:
            return super()._condition(name, instrument)
        state, why, detail = self.members.state_of(name, book)
        return ExchangeCondition(name, state, name in self.members.shown, why, detail)


class BookReader:
    """One consumer's view of a source: merges when it is read, and numbers its results."""

    def __init__(self, source: BookSource, options: BookOptions, queue: "ReaderQueue") -> None:
        self.source = source
        self.queue = queue
        self.read_at = float("-inf")  # monotonic seconds of the last update
        self._number = 0
        self._changes = 0  # number of changes of the shown books at the last merge
        self._conditions: tuple[ExchangeCondition, ...] | None = None
        self._options = options
        self._on = options.on
        self._times = options.times
        self._top = b""  # the best levels of the last merge
        self._open_view()

    def _open_view(self) -> None:
        """Make the views of the source's members, which may have changed."""
        source, options = self.source, self._options
        self._edition = source.edition
        percents = None if options.fees is None else source.percents()
        self._net: NetTerms | None = None
        self._crossings: CrossingView | None = None
        if percents is not None and options.net:
            self._net = NetTerms(*fee_factors(percents), binned=options.group is not None)
        if percents is not None and options.crossings is not None:
            self._crossings = CrossingView(source.names, options.crossings, percents)
        self._best = BestLevels(source.naming, self._net)
        self._view = View(
            source.names,
            depth=options.depth,
            group=options.group,
            split=options.split,
            within=options.within,
            fees=percents if options.net else None,
        )

    def _merge(self) -> bool:
        """Merge the current books; returns whether the view changed."""
        source = self.source
        if source.edition != self._edition:
            self._open_view()
        source.members.prepare()
        return self._view.merge(source.members.cores)

    def read(self, time_us: int, now: float) -> BookUpdate | None:
        """Merge the current books; None if nothing shown has changed since the last update."""
        source = self.source
        source.clean.add(self)
        changed = self._merge()
        if self._on == BEST and changed:
            before, self._top = self._top, self._view.top()
            changed = self._top != before
        if self._crossings is not None:
            crossed = self._crossings.merge(source.members)
            changed = crossed if self._on == CROSSING else changed or crossed
        if not changed and source.conditions is self._conditions:
            self._changes = source.changes()
            return None
        self._number += 1
        self.read_at = now
        return self._update(time_us, now)

    def peek(self, time_us: int, now: float) -> BookUpdate:
        """Merge the current books, changed or not."""
        self._merge()
        if self._crossings is not None:
            self._crossings.merge(self.source.members)
        return self._update(time_us, now)

    def _update(self, time_us: int, now: float) -> BookUpdate:
        source = self.source
        conditions = source.conditions
        same_books = conditions is self._conditions
        self._conditions = conditions
        observed, changes = source.observed(now)
        skipped = max(0, changes - self._changes - 1) if same_books else 0
        self._changes = changes
        levels = self._view.levels()
        bid, ask = self._best.of(levels)
        return BookUpdate(
            source.symbol,
            self._number,
            time_us,
            bid,
            ask,
            levels,
            source.naming,
            conditions,
            observed,
            now,
            skipped,
            self._times_of(time_us, now) if self._times else None,
            () if self._crossings is None else self._crossings.reports(source.members, now),
            self._net,
            source.conversions(now),
            source.fees,
            source.published_fees,
        )

    def _times_of(self, time_us: int, now: float) -> BookTimes:
        return self.source.members.times(time_us, now)

    def leave(self) -> None:
        """Detach from the source, whose changes then no longer notify this reader."""
        self.source.clean.discard(self)
        self.source.pacing.discard(self)


class ReaderQueue:
    """The readers of some sources, and which of them are due; its owner polls `take`.

    Args:
        sources: The sources to read; each is due at once.
        options: The options of the view.
        clock: The time.
    """

    def __init__(self, sources: Iterable[BookSource], options: BookOptions, clock: Clock) -> None:
        self._clock = clock
        self._now = clock.monotonic
        self._interval_s = options.interval_s
        self._closed = False
        self._timers: dict[BookReader, Handle] = {}
        self._options = options
        self._ready: deque[BookReader] = deque()  # in the order in which they became due
        for source in sources:
            self.add(source)

    def add(self, source: BookSource) -> None:
        """Read one more source; it is due at once."""
        self._ready.append(BookReader(source, self._options, self))

    def book_changed(self, reader: BookReader) -> None:
        """Schedule a reader with a new state for the time when it may be read.

        Called only for readers that are not yet ready.
        """
        if self._closed or (self._interval_s and self._waits(reader)):
            return
        self._ready.append(reader)
        self._notify()

    def status_changed(self, reader: BookReader) -> None:
        """Schedule a reader at once, without waiting for its interval."""
        if not self._closed:
            self._due(reader)

    def close(self) -> None:
        """Stop reading."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        for reader in (*self._timers, *self._ready):
            reader.leave()
        self._timers.clear()
        self._ready.clear()

    def _waits(self, reader: BookReader) -> bool:
        """Return whether a reader has to wait for the end of its interval, and set a timer then."""
        due = reader.read_at + self._interval_s
        if due <= self._now():
            return False
        reader.source.pacing.add(reader)
        self._timers[reader] = self._clock.call_at(due, lambda: self._due(reader))
        return True

    def _due(self, reader: BookReader) -> None:
        timer = self._timers.pop(reader, None)
        if timer is not None:
            timer.cancel()
            reader.source.pacing.discard(reader)
        self._ready.append(reader)
        self._notify()

    def next(self) -> BookUpdate | None:
        """Read the book that has been due longest; None if nothing shown has changed."""
        ready, clock, now = self._ready, self._clock, self._now
        while ready:
            update = ready.popleft().read(clock.wall_us(), now())
            if update is not None:
                return update
        return None

    def snapshots(self) -> list[BookUpdate]:
        """Return the current state of each source, if nothing was taken yet."""
        now_us, now = self._clock.wall_us(), self._now()
        return [reader.peek(now_us, now) for reader in self._ready]

    def _notify(self) -> None:
        """Wake the task that waits for updates; a poller needs no call."""


class BookUpdates(ReaderQueue, AsyncIterator[BookUpdate]):
    """Updates as an asynchronous iterator: the first at once, then after each change."""

    def __init__(self, sources: Iterable[BookSource], options: BookOptions, clock: Clock) -> None:
        super().__init__(sources, options, clock)
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BookUpdate:
        """Wait for the next update; ends when the book is closed."""
        while True:
            update = self.next()
            if update is not None:
                return update
            if self._closed:
                raise StopAsyncIteration
            if self._waiter is not None:
                raise RuntimeError("Two tasks share one iterator: start an iteration in each task.")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def close(self) -> None:
        """End the iteration."""
        super().close()
        self._notify()

    async def aclose(self) -> None:
        """End the iteration."""
        self.close()

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class BookCallbacks(ReaderQueue):
    """Updates as calls of a function, from the event loop and outside of any exchange's frame.

    The function is called after all frames that were read together, so that no book is
    seen between a change and a checksum that invalidates it.
    """

    def __init__(
        self,
        sources: Iterable[BookSource],
        options: BookOptions,
        clock: Clock,
        callback: Callable[[BookUpdate], object],
    ) -> None:
        super().__init__(sources, options, clock)
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._scheduled: asyncio.Handle | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._notify()

    def book_changed(self, reader: BookReader) -> None:
        """Like the base class, but without a call of `_notify` (the hot path)."""
        if self._closed or (self._interval_s and self._waits(reader)):
            return
        self._ready.append(reader)
        if self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._deliver)

    def close(self) -> None:
        """Stop calling."""
        super().close()
        if self._scheduled is not None:
            self._scheduled.cancel()
        if not self.ended.done():
            self.ended.set_result(None)

    def _notify(self) -> None:
        if self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = None
        # `take` without a call for each update, and with locals: the hot path.
        ready, clock, now, callback = self._ready, self._clock, self._now, self._callback
        try:
            while ready:
                update = ready.popleft().read(clock.wall_us(), now())
                if update is not None:
                    callback(update)
        except StopIteration as error:  # a future cannot hold it; as in PEP 479
            failed = RuntimeError("The callback raised StopIteration.")
            failed.__cause__ = error
            self._fail(failed)
        except (Exception, asyncio.CancelledError) as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
        self.close()


class Wiring:
    """Sets the callbacks of `Books` and notifies each source of the changes of its books.

    Args:
        books: The books whose changes are routed.
        clock: For the guard, which checks each symbol once a second.
        streams: The limits of the guard; None without one, because the marks are recorded.
        on_status: Called after a book's health or mark changed.
    """

    def __init__(
        self,
        books: Books,
        *,
        clock: Clock,
        streams: StreamSettings | None,
        on_status: Callable[[], object] = lambda: None,
    ) -> None:
        self._books = books
        self._on_status = on_status
        self._sources: dict[Instrument, tuple[BookSource, ...]] = {}
        self._guard: IdentityGuard | None = None
        if streams is None:
            books.subscribe(on_health=lambda book, _: self._status_changed(book))
        else:
            self._guard = IdentityGuard(
                books, clock=clock, settings=streams, on_status=self._status_changed
            )
        books.subscribe(on_changed=self._changed)

    def attach(self, source: BookSource, instrument: Instrument) -> None:
        """Add an instrument, whose book is open, to a source."""
        self.follow(source, instrument)
        source.join(instrument)

    def follow(self, source: BookSource, instrument: Instrument) -> None:
        """Notify a source of the changes of a book."""
        self._sources[instrument] = (*self._sources.get(instrument, ()), source)

    def unfollow(self, source: BookSource, instrument: Instrument) -> None:
        """Notify a source no longer of the changes of a book."""
        others = tuple(each for each in self._sources.get(instrument, ()) if each is not source)
        if others:
            self._sources[instrument] = others
        else:
            self._sources.pop(instrument, None)

    def awaits(self, instrument: Instrument) -> bool:
        """Return whether a reader is to be notified of the next change of a book."""
        return any(source.clean for source in self._sources.get(instrument, ()))

    def stop(self) -> None:
        """Remove the callbacks."""
        if self._guard is not None:
            self._guard.stop()
        self._sources.clear()

    def _changed(self, book: LiveBook) -> None:
        """Notify readers of new levels of a live book (the hot path)."""
        try:  # a subscript is cheaper than a call of `get`
            sources = self._sources[book.instrument]
        except KeyError:
            return
        for source in sources:
            clean = source.clean  # the readers that have read everything so far
            while clean:
                reader = clean.pop()
                reader.queue.book_changed(reader)

    def _status_changed(self, book: LiveBook) -> None:
        """Handle a change of a book's health or mark."""
        for source in self._sources.get(book.instrument, ()):
            source.refresh()
        self._on_status()
