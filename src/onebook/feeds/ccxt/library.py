"""ccxt in its thread: validates the list of exchanges, reads their markets, creates clients.

Used from the node's event loop; `_read`, `_make` and `_opened` run in the worker's thread.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from math import isfinite
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from onebook.config import ExchangeSettings, FeedSettings
from onebook.errors import ConfigError, ExchangeFailed
from onebook.exchanges import resolve
from onebook.exchanges.kit.contract import Exchange
from onebook.exchanges.kit.through_ccxt import exchange_of
from onebook.feeds.ccxt.client import (
    STOP_S,
    TASKS_MAX,
    CcxtClient,
    CcxtHandle,
    Emit,
    SideWriter,
    describe_error,
    rows,
    writer,
)
from onebook.feeds.ccxt.worker import Tasks, Worker
from onebook.feeds.limits import LIMITS
from onebook.feeds.outbox import End
from onebook.transfers import NetworkTransfer

SETTING: Final = "feeds.ccxt.exchanges"
TRANSFERS: Final = "feeds.ccxt.transfers"
MODULE: Final = "ccxt.pro"
LIST_S: Final = 60.0  # timeout of loading an exchange's markets, with ccxt's waits and retries
THREAD: Final = "onebook-ccxt"
SPOT: Final = ["spot"]
CLASSES: Final = {"coinbase": "coinbaseexchange"}  # ccxt's classes under another name than ours
CURRENCIES_MAX: Final = 50_000  # of one exchange
NETWORKS_MAX: Final = 64  # of one currency
NAME_CHARACTERS_MAX: Final = 64  # of a currency or network


def installed() -> bool:
    """Return whether ccxt can be imported, without importing it."""
    return find_spec("ccxt") is not None


def library() -> Any:
    """Import ccxt.pro, which takes seconds the first time and about 100 MB."""
    return import_module(MODULE)


def faults(names: Collection[str], *, transfers: bool = False) -> Iterator[str]:
    """Yield one sentence for each error in the operator's list, or if transfers need ccxt."""
    if transfers and not installed():
        yield f'{TRANSFERS}: ccxt is not installed; install it with pip install "onebook[ccxt]".'
    if not names:
        return
    if not installed():
        yield f'{SETTING}: ccxt is not installed; install it with pip install "onebook[ccxt]".'
        return
    for name in sorted(set(names)):
        if fault := _fault(name):
            yield f"{SETTING}: {fault}"


def _fault(name: str) -> str:
    native = resolve(name)
    if native is not None:
        return f"{name!r} has a native connector ({native}); remove it from this list."
    known = library().exchanges
    if name not in known:
        usable = ", ".join(each for each in known if resolve(each) is None)
        return f"ccxt.pro has no exchange {name!r}; it has {usable}."
    able = getattr(library(), name)().has
    if not able.get("watchOrderBook"):
        return f"ccxt.pro cannot watch the order books of {name!r} (watchOrderBook)."
    if able.get("spot") is False:
        return f"{name!r} trades no spot pairs, and derivatives are not merged with spot."
    return ""


def enabled(settings: FeedSettings) -> dict[str, Exchange]:
    """Return the facts of the exchanges that are configured through ccxt, by name.

    Raises:
        ConfigError: Exchanges are not available through ccxt; one line each.
    """
    found = [*faults(settings.ccxt.exchanges, transfers=settings.ccxt.transfers)]
    if found:
        raise ConfigError("\n".join(found))
    return {
        name: exchange_of(name, str(getattr(library(), name)().name or name), settings.ccxt)
        for name in dict.fromkeys(settings.ccxt.exchanges)
    }


class CcxtCurrency(NamedTuple):
    """A currency of an exchange: its id there, ccxt's code, and its deposits and withdrawals."""

    id: str
    code: str
    deposit: bool | None
    withdraw: bool | None
    networks: tuple[NetworkTransfer, ...]


class Library:
    """ccxt in its thread, as a context manager.

    Args:
        settings: The settings of feeds: the operator's addresses and limits.
    """

    def __init__(self, settings: FeedSettings) -> None:
        self._settings = settings
        self._worker = Worker(THREAD)
        self._listed: dict[str, tuple[Any, Mapping[str, Any]]] = {}  # client, markets by native

    async def __aenter__(self) -> Self:
        await self._worker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._worker.stop(STOP_S)

    async def markets(self, name: str) -> bytes:
        """Read the markets of an exchange, in the format of `through_ccxt.parse_instruments`.

        Raises:
            ExchangeFailed: ccxt could not load them in time.
        """
        try:
            async with asyncio.timeout(LIST_S):
                return await self._worker.call(partial(self._read, name))
        except TimeoutError:
            raise ExchangeFailed(
                f"ccxt did not load the markets of {name} within {LIST_S:g} s."
            ) from None

    async def currencies(self, name: str) -> list[CcxtCurrency]:
        """Read the currencies of an exchange; empty if it states them only to owners of accounts.

        Raises:
            ExchangeFailed: ccxt could not load them in time.
        """
        try:
            async with asyncio.timeout(LIST_S):
                return await self._worker.call(partial(self._read_currencies, name))
        except TimeoutError:
            raise ExchangeFailed(
                f"ccxt did not load the currencies of {name} within {LIST_S:g} s."
            ) from None

    def client(self, name: str, emit: Emit, ended: Callable[[End], object]) -> CcxtClient:
        """Return a client of an exchange whose markets were read; `run` starts it."""
        return CcxtClient(partial(self._make, name), emit, ended, self._settings.ccxt)

    async def run(self, client: CcxtClient) -> None:
        """Run a client in the worker until it has closed everything."""
        await self._worker.call(client.run)

    def command(self, client: CcxtClient, frame: bytes) -> None:
        """Pass a command to a client."""
        self._worker.post(client.command, frame)

    def stop(self, client: CcxtClient) -> None:
        """Request that a client ends."""
        self._worker.post(client.stop)

    # Called in the worker's thread

    async def _read(self, name: str) -> bytes:
        tasks = Tasks(TASKS_MAX, lambda error: None)
        tasks.own()
        ccxt, close = self._opened(name)
        try:
            markets = await ccxt.load_markets()
        except Exception as error:
            raise ExchangeFailed(
                f"ccxt could not load the markets of {name} ({describe_error(error)})."
            ) from None
        finally:
            await close()
            await tasks.cancel(STOP_S)
        found = rows(markets.values(), ccxt.precisionMode, ccxt.number_to_string)
        self._listed[name] = ccxt, {row.native: markets[row.symbol] for row in found}
        return msgspec.json.encode(found)

    async def _read_currencies(self, name: str) -> list[CcxtCurrency]:
        tasks = Tasks(TASKS_MAX, lambda error: None)
        tasks.own()
        ccxt, close = self._opened(name)
        try:
            found = await ccxt.fetch_currencies()
            return [*currencies_of(found or {}, ccxt.number_to_string)]
        except Exception as error:
            raise ExchangeFailed(
                f"ccxt could not load the currencies of {name} ({describe_error(error)})."
            ) from None
        finally:
            await close()
            await tasks.cancel(STOP_S)

    def _make(self, name: str) -> CcxtHandle:
        source, listed = self._listed[name]
        ccxt, close = self._opened(name)
        ccxt.set_markets_from_exchange(source)

        def market(native: str) -> tuple[str, SideWriter]:
            found = listed[native]
            written = writer(
                found, ccxt.precisionMode, ccxt.decimal_to_precision, ccxt.number_to_string
            )
            return found["symbol"], written

        return CcxtHandle(ccxt, close, market)

    def _opened(self, name: str) -> tuple[Any, Any]:
        """Create a ccxt client for spot, with bounded bodies, and its close function."""
        settings = self._settings
        session = http_session(LIMITS.list_bytes_max)
        ccxt = getattr(library(), CLASSES.get(name, name))(
            {
                "session": session,
                "timeout": round(LIMITS.connect_timeout_s * 1_000),
                "asyncio_loop": asyncio.get_running_loop(),
            }
        )
        ccxt.has["fetchCurrencies"] = False  # `load_markets` then skips unneeded requests
        ccxt.options["defaultType"] = "spot"
        fetched = ccxt.options.get("fetchMarkets")
        if isinstance(fetched, dict) and "types" in fetched:
            ccxt.options["fetchMarkets"] = {**fetched, "types": SPOT}
        override = settings.overrides.get(name)
        if override is not None:
            ccxt.urls = redirected(ccxt.urls, override)

        async def close() -> None:
            try:
                await ccxt.close()
            finally:
                await session.close()

        return ccxt, close


def currencies_of(
    currencies: Mapping[str, Mapping[str, Any]], plain: Callable[[float], str]
) -> Iterator[CcxtCurrency]:
    """Yield ccxt's currencies in our form; unusable names are skipped, other values are unknown."""
    for each in islice(currencies.values(), CURRENCIES_MAX):
        name, code = _name(each.get("id")), _name(each.get("code"))
        if not name or not code:
            continue
        networks = (each.get("networks") or {}).items()
        yield CcxtCurrency(
            name,
            code,
            _flag(each.get("deposit")),
            _flag(each.get("withdraw")),
            tuple(
                NetworkTransfer(
                    network, _flag(of.get("deposit")), _flag(of.get("withdraw")), _fee(of, plain)
                )
                for network, of in islice(networks, NETWORKS_MAX)
                if _name(network)
            ),
        )


def _name(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= NAME_CHARACTERS_MAX else ""


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _fee(network: Mapping[str, Any], plain: Callable[[float], str]) -> Decimal | None:
    """Return the fee of a withdrawal in the coin; None if it is unknown or a percentage."""
    fee = network.get("fee")
    if network.get("percentage") or isinstance(fee, bool) or not isinstance(fee, int | float):
        return None
    return Decimal(plain(fee)) if isfinite(fee) and fee >= 0 else None


def redirected(urls: Any, to: ExchangeSettings) -> Any:
    """Replace scheme and host of every URL in ccxt's tables with the operator's; paths stay.

    Args:
        urls: A string, a list or a table, nested.
        to: `rest_url` for http addresses, `ws_url` for ws ones; an empty one keeps them.
    """
    if isinstance(urls, dict):
        return {key: redirected(value, to) for key, value in urls.items()}
    if isinstance(urls, list):
        return [redirected(value, to) for value in urls]
    if not isinstance(urls, str):
        return urls
    for scheme, place in (("https?", to.rest_url), ("wss?", to.ws_url)):
        if place:
            parts = urlsplit(place)
            urls = re.sub(rf"^{scheme}://[^/]+", f"{parts.scheme}://{parts.netloc}", urls)
    return urls


def http_session(bytes_max: int) -> Any:
    """Create an aiohttp session whose responses fail beyond `bytes_max` decompressed bytes."""
    import aiohttp  # installed with ccxt

    class Bounded(aiohttp.ClientResponse):
        async def read(self) -> bytes:
            if self._body is None:
                parts, size = [], 0
                async for part in self.content.iter_any():
                    size += len(part)
                    if size > bytes_max:
                        self.close()
                        raise aiohttp.ClientPayloadError(f"response body exceeds {bytes_max} bytes")
                    parts.append(part)
                self._body = b"".join(parts)
            return self._body

    return aiohttp.ClientSession(response_class=Bounded)
