"""Reads every hour which coins can be deposited and withdrawn, through ccxt; off by default.

A reading is kept with the instrument list in the catalogue, so that feeds nodes pass it on to
gateways. Exchanges that tell only account owners, such as Binance, return nothing without a key:
their coins stay unknown.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Self

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.errors import ExchangeFailed
from onebook.feeds.catalogue import Catalogue
from onebook.feeds.ccxt.library import CcxtCurrency, Library
from onebook.model import VIA_CCXT, Instrument
from onebook.transfers import CoinTransfer

RELOAD_S: Final = 3_600.0
SPREAD: Final = 0.1  # random part of the reload period
log = logging.getLogger("onebook.feeds")


class TransferReader:
    """Reads the exchanges of a catalogue one after the other, as an async context manager."""

    def __init__(
        self,
        catalogue: Catalogue,
        library: Library,
        names: Iterable[str],
        *,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._catalogue = catalogue
        self._library = library
        self._names = sorted(names)
        self._clock = clock
        self._jitter = jitter
        self._broken: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="transfers")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        await self._catalogue.first_read()
        while True:
            for name in self._names:
                try:
                    await self.read(name)
                except Exception:
                    log.exception("Reading the transfers of %s failed.", name)
            await self._clock.sleep(RELOAD_S * (1.0 + SPREAD * self._jitter()))

    async def read(self, name: str) -> bool:
        """Read one exchange; return whether that succeeded."""
        try:
            currencies = await self._library.currencies(name)
        except ExchangeFailed as error:
            if name not in self._broken:
                self._broken.add(name)
                log.warning("Cannot read deposits and withdrawals: %s", error.message)
            return False
        if name in self._broken:
            self._broken.discard(name)
            log.info("Deposits and withdrawals of %s can be read again.", name)
        coins = transfers_of(self._catalogue.listed(name), currencies, self._clock.wall_ms())
        self._catalogue.transferred(name, coins)
        return True


def transfers_of(
    instruments: Iterable[Instrument], currencies: Iterable[CcxtCurrency], read_at_ms: int
) -> dict[str, CoinTransfer]:
    """Return the transfers of the coins of instruments, by our code.

    A currency belongs to a coin if it has the exchange's code of the instrument; else, as for
    Kraken's XXBT, if ccxt gives it our code. A code of several currencies belongs to none.
    """
    found = list(currencies)
    ids = Counter(each.id.upper() for each in found)
    codes = Counter(each.code for each in found)
    by_id = {each.id.upper(): each for each in found if ids[each.id.upper()] == 1}
    by_code = {each.code: each for each in found if codes[each.code] == 1}
    coins: dict[str, CoinTransfer] = {}
    for instrument in instruments:
        coin, own = instrument.symbol.partition("/")[0], instrument.codes.partition("/")[0]
        each = by_id.get(own) or (by_code.get(coin) if own not in ids else None)
        if each is not None:
            coins[coin] = CoinTransfer(
                VIA_CCXT, read_at_ms, each.deposit, each.withdraw, each.networks
            )
    return coins
