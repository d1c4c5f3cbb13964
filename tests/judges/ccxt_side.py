"""ccxt.pro pointed at a simulated exchange: its addresses rewritten, one book followed.

Nothing leaves loopback: every address of the client's table becomes one of the simulated exchange,
and names of hosts are not looked up.
"""

import asyncio
import re
import socket
from collections.abc import Callable, Mapping
from copy import deepcopy
from decimal import Decimal
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import aiohttp
import ccxt.pro
from aiohttp.abc import AbstractResolver, ResolveResult

from onebook.simulator.kit import ListedSymbol
from onebook.simulator.kit.loopback import Urls

Levels = list[tuple[Decimal, Decimal]]


class Judge(NamedTuple):
    """The parameters with which ccxt requests a book.

    Args:
        name: Its class, where that is not our name of the exchange.
        limit: The `limit` of `watch_order_book`.
        params: Its `params`.
        options: Of the client, merged into its own.
        keys: What it wants to have before it subscribes; the simulated exchange reads none.
        markets: Its method that loads the simulated list of instruments; where empty, the markets
            are set by hand, as ccxt asks for more than the one list that we read.
        levels: How many of the best levels are compared: what its subscription covers.
        step_s: While the clients join, the market moves on after so long without a message.
        same: Whether it follows the channel that we follow.
        because: Why not in the way, or not as deeply, as we read the exchange.
        repair: Corrects a known mistake of its class, which `because` names.
    """

    name: str = ""
    limit: int | None = None
    params: Mapping[str, Any] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})
    keys: Mapping[str, str] = MappingProxyType({})
    markets: str = ""
    levels: int = 50
    step_s: float = 0.01
    same: bool = True
    because: str = ""
    repair: Callable[[Any], None] | None = None


def has(name: str) -> bool:
    """Whether ccxt.pro has order books of an exchange."""
    return name in ccxt.pro.exchanges and bool(getattr(ccxt.pro, name)().has["watchOrderBook"])


def redirected(urls: Any, to: Urls) -> Any:
    """Every address in a table of addresses, with another host and the same path."""
    if isinstance(urls, dict):
        return {key: redirected(value, to) for key, value in urls.items()}
    if isinstance(urls, list):
        return [redirected(value, to) for value in urls]
    if not isinstance(urls, str):
        return urls
    place = urlsplit(to.ws).netloc
    for secure, plain in (("https", "http"), ("wss", "ws")):
        urls = re.sub(rf"^{secure}://[^/]+", f"{plain}://{place}", urls)
    return urls


def market(listing: ListedSymbol) -> dict[str, Any]:
    """A spot market as ccxt describes it."""
    return {
        "id": listing.native,
        "lowercaseId": listing.native.lower(),
        "symbol": listing.symbol,
        "base": listing.base,
        "quote": listing.quote,
        "baseId": listing.base,
        "quoteId": listing.quote,
        "type": "spot",
        "spot": True,
        "contract": False,
        "stock": False,  # read by ccxt of each market of backpack
        "active": True,
        "precision": {"price": float(listing.tick), "amount": float(listing.lot)},
    }


class NoNames(AbstractResolver):
    """Finds no host; addresses in digits need none."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Refuse a name."""
        raise OSError(f"{host} is not the simulated exchange")

    async def close(self) -> None:
        """Do nothing."""


class Watched:
    """One order book that ccxt keeps, as an asynchronous context manager.

    Args:
        judge: How it is asked for.
        urls: Where the simulated exchange is.
        listings: What the exchange lists.
        symbol: Whose book.
        stirred: Called after each message and each answer of `watch_order_book`.
    """

    def __init__(
        self,
        judge: Judge,
        urls: Urls,
        listings: tuple[ListedSymbol, ...],
        symbol: str,
        stirred: Callable[[], None],
    ) -> None:
        self._judge = judge
        self._symbol = symbol
        self._stirred = stirred
        config = {"enableRateLimit": False, "options": dict(judge.options)}
        self._client = getattr(ccxt.pro, judge.name)(config | dict(judge.keys))
        self._client.urls = redirected(self._client.urls, urls)
        if judge.repair:
            judge.repair(self._client)
        self._listings = listings
        self._handle = self._client.handle_message
        self._client.handle_message = self._heard
        self._failure: Exception | None = None  # of its reading of a message
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(resolver=NoNames())
        self._client.session = aiohttp.ClientSession(connector=connector)
        self._client.open()  # as it does before its first request
        try:
            self._client.set_markets(await self._markets())
        except BaseException:
            await self._client.close()
            raise
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._client.close()

    def _heard(self, client: Any, message: Any) -> None:
        try:
            self._handle(client, message)
        except Exception as error:
            self._failure = error
        self._stirred()

    async def _markets(self) -> list[dict[str, Any]]:
        if not self._judge.markets:
            return [market(listing) for listing in self._listings]
        markets: list[dict[str, Any]] = await getattr(self._client, self._judge.markets)()
        return markets

    async def _watch(self) -> None:
        while True:
            await self._client.watch_order_book(
                self._symbol, self._judge.limit, deepcopy(dict(self._judge.params))
            )
            self._stirred()

    def steps(self, symbol: str) -> tuple[Decimal, Decimal]:
        """The steps of prices and of amounts."""
        precision = self._client.markets[symbol]["precision"]
        return Decimal(repr(precision["price"])), Decimal(repr(precision["amount"]))

    def leasts(self, symbol: str) -> tuple[Decimal | None, Decimal | None]:
        """The least amount and notional of an order, None where ccxt names none."""
        limits = self._client.markets[symbol]["limits"]
        amount, cost = limits["amount"]["min"], limits["cost"]["min"]
        return tuple(None if each is None else Decimal(repr(each)) for each in (amount, cost))

    def sides(self) -> tuple[Levels, Levels]:
        """The best levels of both sides, with the digits of ccxt's numbers.

        Raises:
            Exception: It could not read a message, or gave up.
        """
        assert self._task is not None
        if self._failure:
            raise self._failure
        if self._task.done():
            self._task.result()
        book = self._client.orderbooks.get(self._symbol) or {"bids": [], "asks": []}
        bids, asks = (
            [(Decimal(repr(level[0])), Decimal(repr(level[1]))) for level in book[side]]
            for side in ("bids", "asks")
        )
        return bids[: self._judge.levels], asks[: self._judge.levels]
