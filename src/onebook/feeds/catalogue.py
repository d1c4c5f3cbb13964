"""What can be asked for: the instruments of every exchange, read at start and every hour.

One exchange that fails stops no other. An instrument stays the same object for as long as the
exchange names it, because feeds, books and streams know it by identity; its facts follow the list.
"""

import asyncio
import difflib
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from msgspec.structs import force_setattr

from onebook.config import FeedSettings
from onebook.errors import ExchangeFailed
from onebook.exchanges.contract import Exchange, ProtocolError
from onebook.model import Instrument, InstrumentStatus
from onebook.rest import Rest

log = logging.getLogger("onebook.feeds")

START_S: Final = 20.0  # the start waits so long for the first lists; the late ones come later
LIST_WEIGHT: Final = 20  # what a list costs at the dearest exchange (binance exchangeInfo)
SPREAD: Final = 0.1  # reloads are so much of their period apart
CANDIDATES_MAX: Final = 100  # symbols that a suggestion is chosen from
SYMBOL_CHARACTERS_MAX: Final = 40  # of what a client asked for, more is no symbol
SIMILAR: Final = 0.5  # least similarity of a suggestion
QUOTES: Final = ("USDT", "USDC", "FDUSD", "USD", "EUR", "BTC", "ETH", "GBP", "TRY", "BNB")

HALTED: Final = "halted"
DELISTED: Final = "delisted"


class Catalogue:
    """The instruments of the exchanges in use.

    `on_gone` hears of an instrument that is no longer traded and why, `on_back` of one that is
    traded again.
    """

    def __init__(
        self,
        exchanges: Mapping[str, Exchange],
        *,
        rest: Rest,
        settings: FeedSettings,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.on_gone: Callable[[Instrument, str], None] = lambda instrument, reason: None
        self.on_back: Callable[[Instrument], None] = lambda instrument: None
        self._exchanges = exchanges
        self._rest = rest
        self._settings = settings
        self._sleep = sleep
        self._jitter = jitter
        self._known: dict[str, dict[tuple[str, str], Instrument]] = {}
        self._listed: dict[str, dict[str, Instrument]] = {}
        self._trading: Mapping[str, list[str]] = {}  # symbol: names of exchanges
        self._by_base: Mapping[str, list[str]] = {}
        self._by_letter: Mapping[str, list[str]] = {}  # first letter: bases
        self._broken: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        for exchange in exchanges.values():
            rest.budget(exchange.rest_url, exchange.fetches_per_minute)

    async def __aenter__(self) -> Self:
        first = {name: asyncio.Event() for name in self._exchanges}
        self._tasks = [
            asyncio.create_task(self._keep(exchange, first[name]), name=f"catalogue {name}")
            for name, exchange in self._exchanges.items()
        ]
        try:
            async with asyncio.timeout(START_S):
                for tried in first.values():
                    await tried.wait()
        except TimeoutError:
            log.warning("Some exchanges are slow to list their instruments; going on without.")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def exchanges(self, symbol: str) -> list[str]:
        """Return the exchanges that trade `symbol` now, by name."""
        return list(self._trading.get(symbol, ()))

    def pairs(self, exchange: str) -> list[str]:
        """Return the symbols that `exchange` trades now, sorted."""
        listed = self._listed.get(exchange, {})
        return sorted(symbol for symbol, each in listed.items() if traded(each))

    def symbols(self) -> list[str]:
        """Return every symbol that is traded somewhere, sorted."""
        return sorted(self._trading)

    def instrument(self, exchange: str, symbol: str) -> Instrument | None:
        """Return what `exchange` lists as `symbol`, traded or halted."""
        return self._listed.get(exchange, {}).get(symbol)

    def loaded(self, exchange: str) -> bool:
        """Return whether the list of `exchange` was ever read."""
        return exchange in self._listed

    def suggest(self, symbol: str, n: int = 3) -> list[str]:
        """Return up to `n` traded symbols that may have been meant."""
        wanted = normalised(symbol)
        base, _, quote = wanted.partition("/")
        reverse = f"{quote}/{base}"
        found = [each for each in (wanted, reverse) if each in self._trading]
        found += sorted(self._by_base.get(base, ()), key=self._popularity)
        if len(found) < n:
            found += difflib.get_close_matches(wanted, self._similar(base), n, SIMILAR)
        return list(dict.fromkeys(found))[:n]

    def take(self, name: str, instruments: Iterable[Instrument]) -> None:
        """Make `instruments` what the exchange `name` lists, and tell who went and who is back."""
        known = self._known.setdefault(name, {})
        before = set(self._listed.get(name, {}).values())
        was_traded = {each for each in before if traded(each)}
        listed: dict[str, Instrument] = {}
        for new in instruments:
            each = known.setdefault((new.symbol, new.native), new)
            follow(each, new)
            # Two natives may have one symbol: the one that is traded counts, else the first.
            other = listed.get(each.symbol)
            if other is None or (traded(each) and not traded(other)):
                listed[each.symbol] = each
        self._listed[name] = listed
        self._index()
        now_listed = set(listed.values())
        for each in was_traded:
            if each not in now_listed:
                self.on_gone(each, DELISTED)
            elif not traded(each):
                self.on_gone(each, HALTED)
        for each in now_listed:
            if traded(each) and each not in was_traded:
                self.on_back(each)

    async def load(self, exchange: Exchange) -> bool:
        """Read the list of one exchange; return whether that succeeded."""
        try:
            body = await self._rest.get(
                exchange.rest_url + exchange.instruments_path, weight=LIST_WEIGHT
            )
            # Megabytes of JSON: not in the loop that also carries the books.
            instruments = await asyncio.to_thread(exchange.parse_instruments, body)
            if not instruments:
                raise ProtocolError("the list is empty")
        except ExchangeFailed as error:
            return self._failed(exchange.name, error.message)
        except ProtocolError as error:
            return self._failed(exchange.name, f"{exchange.name} lists nonsense: {error.reason}.")
        self.take(exchange.name, instruments)
        if exchange.name in self._broken:
            self._broken.discard(exchange.name)
            log.info("%s lists its instruments again.", exchange.name)
        return True

    async def _keep(self, exchange: Exchange, tried: asyncio.Event) -> None:
        while True:
            try:
                loaded = await self.load(exchange)
            except Exception:
                log.exception("Reading the instruments of %s failed.", exchange.name)
                loaded = False
            tried.set()
            if loaded:
                wait_s = self._settings.reload_s * (1.0 + SPREAD * self._jitter())
            else:
                wait_s = self._settings.reload_retry_s * self._jitter()
            await self._sleep(wait_s)

    def _failed(self, name: str, problem: str) -> bool:
        if name not in self._broken:
            self._broken.add(name)
            log.warning("The instruments of %s are not known: %s", name, problem)
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
        """Return a bounded choice of symbols whose base begins alike: clients call this."""
        near = [
            other for other in self._by_letter.get(base[:1], ()) if abs(len(other) - len(base)) <= 1
        ]
        near.sort(key=lambda other: other[:2] != base[:2])
        return [min(self._by_base[other], key=self._popularity) for other in near[:CANDIDATES_MAX]]


def traded(instrument: Instrument) -> bool:
    """Return whether it is traded now."""
    return instrument.status is InstrumentStatus.TRADING


def follow(instrument: Instrument, new: Instrument) -> None:
    """Bring the facts of `instrument` up to `new`.

    The one place that changes a frozen value: who holds it wants the instrument, not its facts of
    an hour ago, and it is known by identity.
    """
    for field in ("tick", "lot", "status"):
        force_setattr(instrument, field, getattr(new, field))


def normalised(symbol: str) -> str:
    """Write a symbol the way we do, from the ways people write it: `btc-usdt`, `ETHUSD`."""
    text = symbol[:SYMBOL_CHARACTERS_MAX].strip().upper()
    for separator in "-_: ":
        text = text.replace(separator, "/")
    if "/" not in text:
        for quote in QUOTES:
            if text.endswith(quote) and len(text) > len(quote):
                return f"{text.removesuffix(quote)}/{quote}"
    return text
