"""Catalogue of the instruments of every exchange, read at the start and then hourly.

A failing exchange does not affect the others. An instrument stays the same object as long as the
exchange lists it, because feeds, books and streams compare it by identity; its fields are updated
in place.
"""

import asyncio
import difflib
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from datetime import date
from functools import partial
from typing import Final, Self

from msgspec.structs import force_setattr, replace

from onebook import metrics
from onebook.clock import SYSTEM_CLOCK, Clock, day_of
from onebook.config import FeedSettings
from onebook.errors import ExchangeFailed
from onebook.exchanges.kit import currencies
from onebook.exchanges.kit.contract import Exchange, Instruments, ProtocolError
from onebook.exchanges.kit.listing import sound
from onebook.exchanges.kit.published import published_fee
from onebook.feeds.ccxt.library import Library
from onebook.feeds.limits import LIMITS, FeedLimits
from onebook.fees import PublishedFee
from onebook.model import HOUR_MS, Instrument, InstrumentStatus, Reason
from onebook.rest import TOTAL_S, Rest
from onebook.signals import Signal
from onebook.transfers import CoinTransfer

LIST_WEIGHT: Final = 20  # highest request weight of a list (binance exchangeInfo)
log = logging.getLogger("onebook.feeds")

TRANSFERS_OLD_MS: Final = 3 * HOUR_MS  # they are read hourly
START_S: Final = 20.0  # timeout of `first_read`
SPREAD: Final = 0.1  # random part of the reload period
CANDIDATES_MAX: Final = 100  # symbols considered for a suggestion
SYMBOL_CHARACTERS_MAX: Final = 40  # longer client input cannot be a symbol
NAMED_MAX: Final = 5  # maximum instruments named in a log line
SIMILAR: Final = 0.5  # minimum similarity of a suggestion
QUOTES: Final = ("USDT", "USDC", "FDUSD", "USD", "EUR", "BTC", "ETH", "GBP", "TRY", "BNB")


async def read_list(
    exchange: Exchange,
    *,
    rest: Rest,
    settings: FeedSettings,
    limits: FeedLimits = LIMITS,
    page_s: float = TOTAL_S,
    library: Library | None = None,
    parsing: asyncio.Lock | None = None,
) -> Instruments:
    """Fetch all pages of an exchange's instrument list; the limits apply to all pages together.

    Args:
        exchange: The exchange.
        rest: Fetches the pages.
        settings: The operator's currency codes.
        limits: Maximum bytes, rows and pages.
        page_s: Total timeout of one page, including waits and retries.
        library: ccxt, for exchanges without a connector.
        parsing: Held while a page is parsed, so that only one list is parsed at a time.

    Raises:
        ExchangeFailed: A page could not be fetched.
        ProtocolError: A page is invalid, or the list exceeds a limit.
    """
    found, bodies = Instruments(), list[bytes]()
    bytes_left, path = limits.list_bytes_max, exchange.instruments_path
    while True:
        if exchange.via:
            assert library is not None, exchange.name
            body = await library.markets(exchange.name)
        else:
            sent = exchange.instruments_body
            ask = rest.get if sent is None else partial(rest.post, content=sent)
            body = await ask(
                exchange.rest_url + path,
                weight=LIST_WEIGHT,
                total_s=page_s,
                bytes_max=max(1, bytes_left),
            )
        bodies.append(body)
        bytes_left -= len(body)
        # Megabytes of JSON are parsed in a thread, so that the event loop stays free for books.
        async with parsing or nullcontext():
            page = await asyncio.to_thread(
                exchange.parse_instruments, body, rows_max=limits.list_rows_max
            )
        _rename(page, exchange.name, settings)
        found += page
        found.refused += page.refused
        if len(found) > limits.list_rows_max:
            raise ProtocolError(f"the list has more than {limits.list_rows_max} rows")
        if exchange.next_page is None:
            return found
        following = await asyncio.to_thread(exchange.next_page, bodies)
        if following is None:
            return found
        if len(bodies) >= limits.list_pages_max:
            raise ProtocolError(f"the list has more than {limits.list_pages_max} pages")
        path = following


def _rename(page: Instruments, name: str, settings: FeedSettings) -> None:
    """Rename instruments by the operator's currency codes."""
    override = settings.overrides.get(name)
    own = override.currencies if override is not None else {}
    if not own:
        return
    named = [
        replace(each, symbol=currencies.symbol_of(name, each.codes, own))
        if not own.keys().isdisjoint(each.codes.split("/"))
        else each
        for each in page
    ]
    page[:] = [each for each in named if sound(each)]
    page.refused += len(named) - len(page)


class Catalogue:
    """The instruments of the exchanges in use.

    `via` maps exchanges without a connector to their library; `library` reads their lists.
    `on_gone` is called with a delisted instrument and the reason, `on_back` with a relisted one,
    `on_read` with an exchange after each attempt to read its list.
    """

    def __init__(
        self,
        exchanges: Mapping[str, Exchange],
        *,
        rest: Rest,
        settings: FeedSettings,
        limits: FeedLimits = LIMITS,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
        library: Library | None = None,
    ) -> None:
        self.via = {name: each.via for name, each in exchanges.items() if each.via}
        self.on_gone: Signal[[Instrument, Reason]] = Signal()
        self.on_back: Signal[[Instrument]] = Signal()
        self.on_read: Signal[[str]] = Signal()
        self.read_on: dict[str, date] = {}  # day (UTC) of the last successful read, by exchange
        # Transfers of coins by exchange and coin, if a `TransferReader` reads them.
        self.transfers: dict[str, Mapping[str, CoinTransfer]] = {}
        self._exchanges = dict(exchanges)
        self._rest = rest
        self._library = library
        self._settings = settings
        self._limits = limits
        self._clock = clock
        self._jitter = jitter
        self._known: dict[str, dict[tuple[str, str], Instrument]] = {}
        self._listed: dict[str, dict[str, Instrument]] = {}
        self._trading: Mapping[str, list[str]] = {}  # exchange names by symbol
        self._by_base: Mapping[str, list[str]] = {}
        self._by_letter: Mapping[str, list[str]] = {}  # bases by first letter
        self._broken: dict[str, str] = {}  # error of the last attempt to read a list, by exchange
        self._unsound: set[str] = set()
        self._ambiguous: set[str] = set()
        self._tried = {name: asyncio.Event() for name in exchanges}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._parsing = asyncio.Lock()  # parsing needs several times a list's size in memory
        for exchange in exchanges.values():
            self._budget(exchange)

    async def __aenter__(self) -> Self:
        for exchange in self._exchanges.values():
            self._begin(exchange)
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._tasks.values(), *self._stopping]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def add(self, exchange: Exchange) -> None:
        """Add an exchange; its list is read from now on."""
        self._exchanges[exchange.name] = exchange
        self._tried[exchange.name] = asyncio.Event()
        self._budget(exchange)
        self._begin(exchange)

    def drop(self, name: str) -> None:
        """Remove an exchange and all of its instruments."""
        task = self._tasks.pop(name)
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
        task.cancel()
        del self._exchanges[name], self._tried[name]
        self._broken.pop(name, None)
        listed = self._listed.pop(name, {})
        self._index()
        for each in listed.values():
            self.on_gone(each, Reason.SWITCHED_OFF)

    def _budget(self, exchange: Exchange) -> None:
        if not exchange.via:
            self._rest.budget(exchange.rest_url, exchange.limits.fetches, exchange.holds)

    def _begin(self, exchange: Exchange) -> None:
        name = exchange.name
        self._tasks[name] = asyncio.create_task(self._keep(exchange), name=f"catalogue {name}")

    def exchanges(self, symbol: str) -> list[str]:
        """Return the names of the exchanges that trade `symbol` now."""
        return list(self._trading.get(symbol, ()))

    def pairs(self, exchange: str) -> list[str]:
        """Return the symbols that `exchange` trades now, sorted."""
        listed = self._listed.get(exchange, {})
        return sorted(symbol for symbol, each in listed.items() if traded(each))

    def symbols(self) -> list[str]:
        """Return all symbols traded on any exchange, sorted."""
        return sorted(self._trading)

    def instrument(self, exchange: str, symbol: str) -> Instrument | None:
        """Return the instrument listed as `symbol` on `exchange`, traded or halted."""
        return self._listed.get(exchange, {}).get(symbol)

    def listed(self, exchange: str) -> list[Instrument]:
        """Return all instruments that `exchange` lists, traded or halted."""
        return list(self._listed.get(exchange, {}).values())

    def loaded(self, exchange: str) -> bool:
        """Return whether the list of `exchange` has ever been read."""
        return exchange in self._listed

    def published_fee(self, exchange: str, symbol: str) -> PublishedFee | None:
        """Return the published taker fee of a listed pair; None if it is unknown."""
        instrument = self.instrument(exchange, symbol)
        if instrument is None:
            return None
        return published_fee(instrument, self.read_on.get(exchange), day_of(self._clock.wall_ms()))

    def transferred(self, exchange: str, coins: Mapping[str, CoinTransfer]) -> None:
        """Replace the transfers of the coins of an exchange."""
        self.transfers[exchange] = coins
        self.on_read(exchange)

    def transfer(self, exchange: str, coin: str) -> CoinTransfer | None:
        """Return the transfers of a coin; None if they are unknown or have not been read lately."""
        found = self.transfers.get(exchange, {}).get(coin)
        if found is None or self._clock.wall_ms() - found.read_at_ms > TRANSFERS_OLD_MS:
            return None
        return found

    def published_fees(self, symbol: str) -> tuple[list[PublishedFee], list[str]]:
        """Return the published taker fees of a symbol, and the exchanges that have none."""
        fees = {name: self.published_fee(name, symbol) for name in sorted(self.exchanges(symbol))}
        known = [fee for fee in fees.values() if fee is not None]
        return known, [name for name, fee in fees.items() if fee is None]

    def unread(self) -> set[str]:
        """Return the exchanges in use whose instrument list has not been read yet."""
        return self._exchanges.keys() - self._listed.keys()

    def problem(self, exchange: str) -> str:
        """Return the error of the last attempt to read the list; "" if it succeeded."""
        return self._broken.get(exchange, "")

    async def first_read(self, timeout_s: float = START_S) -> bool:
        """Wait until each list was read or failed once; return whether all were read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for tried in self._tried.values():
                    await tried.wait()
        return not self.unread()

    def suggest(self, symbol: str, n: int = 3) -> list[str]:
        """Return up to `n` traded symbols similar to the given one."""
        wanted = normalised(symbol)
        base, _, quote = wanted.partition("/")
        reverse = f"{quote}/{base}"
        found = [each for each in (wanted, reverse) if each in self._trading]
        found += sorted(self._by_base.get(base, ()), key=self._popularity)
        if len(found) < n:
            found += difflib.get_close_matches(wanted, self._similar(base), n, SIMILAR)
        return list(dict.fromkeys(found))[:n]

    def update(self, name: str, instruments: Iterable[Instrument]) -> list[Instrument]:
        """Replace the instruments of the exchange `name`; report removed and relisted ones.

        If two natives have the same symbol, the traded one is used, otherwise the first.

        Returns:
            The instruments that were left out because their symbol was taken.
        """
        known = self._known.setdefault(name, {})
        before = set(self._listed.get(name, {}).values())
        was_traded = {each for each in before if traded(each)}
        listed: dict[str, Instrument] = {}
        left_out: list[Instrument] = []
        for new in instruments:
            each = known.setdefault((new.symbol, new.native), new)
            follow(each, new)
            other = listed.setdefault(each.symbol, each)
            if other is each:
                continue
            if traded(each) and not traded(other):
                listed[each.symbol], each = each, other
            left_out.append(each)
        self._listed[name] = listed
        self._index()
        now_listed = set(listed.values())
        for each in was_traded:
            if each not in now_listed:
                self.on_gone(each, Reason.NOT_LISTED)
            elif not traded(each):
                self.on_gone(each, Reason.HALTED)
        for each in now_listed:
            if traded(each) and each not in was_traded:
                self.on_back(each)
        return left_out

    async def load(self, exchange: Exchange) -> bool:
        """Read the list of one exchange; return whether that succeeded."""
        try:
            instruments = await read_list(
                exchange,
                rest=self._rest,
                settings=self._settings,
                limits=self._limits,
                library=self._library,
                parsing=self._parsing,
            )
            if not instruments:
                raise ProtocolError("the list is empty")
        except ExchangeFailed as error:
            return self._failed(exchange.name, error.message)
        except ProtocolError as error:
            return self._failed(exchange.name, f"invalid list: {error.reason}.")
        left_out = self.update(exchange.name, instruments)
        self.read_on[exchange.name] = day_of(self._clock.wall_ms())
        self._report(exchange.name, instruments.refused, left_out)
        if exchange.name in self._broken:
            del self._broken[exchange.name]
            log.info("The instruments of %s can be read again.", exchange.name)
        return True

    def _report(self, name: str, refused: int, left_out: list[Instrument]) -> None:
        """Count skipped rows, and log each cause once per exchange."""
        metrics.LIST_ROWS_REFUSED.labels(name).set(refused + len(left_out))
        if refused and name not in self._unsound:
            self._unsound.add(name)
            log.warning("%s: %d instruments skipped because of malformed names.", name, refused)
        if left_out and name not in self._ambiguous:
            self._ambiguous.add(name)
            pairs = ", ".join(f"{each.native} ({each.symbol})" for each in left_out[:NAMED_MAX])
            log.warning(
                "%s: %d instruments skipped because their symbol is already taken: %s%s. "
                "If they are different coins, map them in feeds.overrides.%s.currencies.",
                name,
                len(left_out),
                pairs,
                ", ..." if len(left_out) > NAMED_MAX else "",
                name,
            )

    async def _keep(self, exchange: Exchange) -> None:
        while True:
            try:
                loaded = await self.load(exchange)
            except Exception:
                log.exception("Reading the instruments of %s failed.", exchange.name)
                loaded = False
            metrics.LIST_UNREADABLE.labels(exchange.name).set(not loaded)
            self._tried[exchange.name].set()
            self.on_read(exchange.name)
            if loaded:
                wait_s = self._limits.reload_s * (1.0 + SPREAD * self._jitter())
            else:
                wait_s = self._limits.reload_retry_s * self._jitter()
            await self._clock.sleep(wait_s)

    def _failed(self, name: str, problem: str) -> bool:
        if name not in self._broken:
            log.warning("Cannot read the instruments of %s: %s", name, problem)
        self._broken[name] = problem
        return False

    def _index(self) -> None:
        trading: defaultdict[str, list[str]] = defaultdict(list)
        by_base: defaultdict[str, list[str]] = defaultdict(list)
        for name, listed in self._listed.items():
            for symbol, each in listed.items():
                if traded(each):
                    trading[symbol].append(name)
        for symbol in trading:
            by_base[symbol.partition("/")[0]].append(symbol)
        by_letter: defaultdict[str, list[str]] = defaultdict(list)
        for base in sorted(by_base):
            by_letter[base[:1]].append(base)
        self._trading, self._by_base, self._by_letter = trading, by_base, by_letter

    def _popularity(self, symbol: str) -> tuple[int, str]:
        return -len(self._trading[symbol]), symbol

    def _similar(self, base: str) -> list[str]:
        """Return symbols with a similar base; limited, because clients trigger the search."""
        near = [
            other for other in self._by_letter.get(base[:1], ()) if abs(len(other) - len(base)) <= 1
        ]
        near.sort(key=lambda other: other[:2] != base[:2])
        return [min(self._by_base[other], key=self._popularity) for other in near[:CANDIDATES_MAX]]


def traded(instrument: Instrument) -> bool:
    """Return whether an instrument is traded now."""
    return instrument.status is InstrumentStatus.TRADING


def follow(instrument: Instrument, new: Instrument) -> None:
    """Copy the fields of `new` to `instrument`.

    The only function that changes a frozen value, because its holders compare it by identity and
    need current fields.
    """
    for field in ("tick", "lot", "status", "scales", "least_amount", "least_notional", "taker_fee"):
        force_setattr(instrument, field, getattr(new, field))


def normalised(symbol: str) -> str:
    """Normalise a symbol from common spellings: `btc-usdt`, `ETHUSD`."""
    text = symbol[:SYMBOL_CHARACTERS_MAX].strip().upper()
    for separator in "-_: ":
        text = text.replace(separator, "/")
    if "/" not in text:
        for quote in QUOTES:
            if text.endswith(quote) and len(text) > len(quote):
                return f"{text.removesuffix(quote)}/{quote}"
    return text
