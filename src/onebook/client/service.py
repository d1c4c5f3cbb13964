"""`AsyncOnebook`: books, transactions and usage of one service for one API key."""

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack
from urllib.parse import quote, urlencode

from onebook.client.addresses import addresses_of
from onebook.client.ask import ask
from onebook.client.books import TIMEOUT_S, BookSession, ServiceBook
from onebook.client.follow import TransactionEvents
from onebook.client.link import ServiceLink, ViewUpdates
from onebook.client.options import SubscribeOptions, Symbols, fields_of, subscriptions_of
from onebook.client.pages import (
    PAGE_RECORDS,
    Time,
    TransactionPages,
    TransactionRecords,
    request_of,
)
from onebook.client.rest import ATTEMPTS_MAX, RestClient
from onebook.client.session import SILENCE_MAX_S
from onebook.client.usage import KeyUsage
from onebook.client.view import BookView
from onebook.orderbook import ALL, Names, symbols_of


class AsyncOnebook:
    """A client of one service. Use it as a context manager or close it.

    It belongs to the event loop that uses it first; from another one it raises RuntimeError.

    Every error is a `ServiceError` with the service's code: `Refused` if a retry would fail in the
    same way, otherwise `Unavailable`.

    Args:
        url: The service's address, such as https://books.example.
        api_key: The key; sent in messages and headers, and only for `usage` in the path.
        attempts_max: Maximum attempts of a REST request.
        ssl_context: Trusted authorities; the system's, or those of SSL_CERT_FILE, by default.

    Raises:
        Refused: `url` is not a valid address.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        attempts_max: int = ATTEMPTS_MAX,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._addresses = addresses_of(url)
        self._api_key = api_key
        self._attempts_max = attempts_max
        self._ssl_context = ssl_context
        self._opened: RestClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the HTTP connections; iterators close their own connections."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    def watch(
        self,
        symbols: Symbols,
        *,
        exchanges: Names = ALL,
        attempts_max: int | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        **options: Unpack[SubscribeOptions],
    ) -> ViewUpdates:
        """Iterate over the newest view of each symbol across reconnects; see `watch`."""
        link = self._link(attempts_max, silence_max_s)
        link.hold(subscriptions_of(symbols, exchanges, options))
        return link.updates(owner=True)

    def order_book(
        self,
        symbol: str,
        *,
        exchanges: Names = ALL,
        timeout_s: float = TIMEOUT_S,
        attempts_max: int | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        **options: Unpack[SubscribeOptions],
    ) -> ServiceBook:
        """Return the live order book of a symbol, to be used in `async with`.

        It has the methods of the library's `onebook.order_book`, and yields `BookView`s.

        Args:
            symbol: The pair, such as BTC/USDT.
            exchanges: One name or several, or "all", where "-name" excludes one.
            timeout_s: Entering fails if no book is live after this many seconds.
            attempts_max: Consecutive failures before `Unavailable` is raised; None: unlimited.
            silence_max_s: Seconds without an answer to a ping before the connection is closed.
            options: See `SubscribeOptions`. `ages` and `coverage` are requested by default, because
                `BookView.exchanges` and fills need them; `ages=False, coverage=False` saves their
                bytes.
        """
        if not isinstance(symbol, str):
            raise TypeError(
                f"symbol must be text such as BTC/USDT, not {symbol!r}; see order_books."
            )
        wanted = subscriptions_of(symbol, exchanges, _complete(options))
        return ServiceBook(self._link(attempts_max, silence_max_s), timeout_s, wanted)

    def order_books(
        self,
        symbols: Symbols,
        *,
        exchanges: Names = ALL,
        merged: bool = True,
        timeout_s: float = TIMEOUT_S,
        attempts_max: int | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        **options: Unpack[SubscribeOptions],
    ) -> BookSession:
        """Return the live order books of several symbols, to be used in `async with`.

        With `merged=False` each exchange has a separate view, and `BookView.exchange` names it. A
        symbol that no exchange lists becomes a view that is not live, with the reason. Everything
        else is as for `order_book`.
        """
        wanted = subscriptions_of(symbols, exchanges, _complete(options))
        link = self._link(attempts_max, silence_max_s)
        return BookSession(link, timeout_s, wanted, merged=merged)

    def session(
        self,
        *,
        attempts_max: int | None = None,
        silence_max_s: float = SILENCE_MAX_S,
    ) -> BookSession:
        """Return a connection without subscriptions, to be used in `async with`.

        `BookSession.subscribe` adds and changes them.
        """
        return BookSession(self._link(attempts_max, silence_max_s), TIMEOUT_S)

    async def snapshot(
        self,
        symbol: str,
        *,
        exchanges: Names = ALL,
        as_of: str | int | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> BookView:
        """Request the merged book of one symbol once; other arguments as for `order_book`.

        Args:
            symbol: The pair.
            exchanges: The exchanges to merge.
            as_of: A moment of the service's history: ISO 8601, UTC if without a zone, or
                microseconds since 1970. None: now.
            options: The options of the view.
        """
        (symbol,) = symbols_of(symbol)
        asked: dict[str, Any] = {"type": "get_aggregated_orderbook", "symbol": symbol}
        if as_of is not None:
            asked["as_of"] = as_of
        fields = {**asked, **fields_of(exchanges, _complete(options))}
        fields.pop("encoding", None)  # one answer: JSON, whatever its updates would be
        reply = await self._ask(fields, "aggregated_orderbook_data")
        view = BookView(reply["symbol"])
        view.apply({**reply, "type": "aggregated_orderbook_update", "update_number": 0})
        view.members = (*view.ages, *view.stale_exchanges)
        return view

    async def exchanges(self) -> dict[str, Any]:
        """List the exchanges and the state of their feeds."""
        return await self._data({"type": "get_exchanges"}, "exchanges_data")

    async def pairs(self, exchange: str | None = None) -> dict[str, Any]:
        """List the pairs of one exchange, or of all."""
        asked = {"type": "get_pairs"} | ({"exchange": exchange} if exchange else {})
        return await self._data(asked, "pairs_data")

    async def usage(self) -> KeyUsage:
        """Return usage and allowance of the key."""
        return KeyUsage.read(await self._rest.usage())

    async def fees(self) -> dict[str, str]:
        """Return the key's taker fees in percent by exchange; `"*"`: all others."""
        return await self._rest.fees()

    async def change_fees(self, fees: Mapping[str, str]) -> dict[str, str]:
        """Replace the key's whole fee table, and return it in canonical form.

        Subscriptions with `fees="key"` keep the fees they were opened with.

        Raises:
            Refused: A fee is invalid, or an exchange is unknown.
        """
        return await self._rest.fees(fees)

    async def quality(
        self,
        *,
        start: str | int | None = None,
        end: str | int | None = None,
        exchanges: Sequence[str] = (),
        symbols: Sequence[str] = (),
        by: str = "exchange",
    ) -> dict[str, Any]:
        """Return the recorded quality of exchanges: uptime, failures, ages and crossings.

        Args:
            start: ISO 8601, UTC if without a zone, or microseconds since 1970; None: a day before
                `end`.
            end: None: now.
            exchanges: The exchanges; none: all.
            symbols: The pairs; none: all.
            by: A row for each `exchange`, `symbol`, `hour` or `book`.

        Raises:
            Unavailable: The service has no history, or cannot read it now.
        """
        asked = {"from": start, "to": end, "by": by}
        asked |= {"exchanges": ",".join(exchanges), "symbols": ",".join(symbols)}
        query = urlencode({name: value for name, value in asked.items() if value})
        return dict(await self._rest.get(f"/exchanges/quality?{query}", session=True))

    async def recorded(
        self, symbol: str, *, start: str | int | None = None, end: str | int | None = None
    ) -> dict[str, Any]:
        """Return when books of a pair were recorded, and by which exchanges.

        Args:
            symbol: The pair.
            start: ISO 8601, UTC if without a zone, or microseconds since 1970; None: a day before
                `end`.
            end: None: now. At most 31 days after `start`.

        Raises:
            Unavailable: The service has no history, or cannot read it now.
        """
        asked = {"from": start, "to": end}
        query = urlencode({name: value for name, value in asked.items() if value})
        base, _, counter = symbol.partition("/")
        path = f"/history/{quote(base, safe='')}/{quote(counter, safe='')}?{query}"
        return dict(await self._rest.get(path, session=True))

    async def health(self) -> dict[str, Any]:
        """Return the health of the service."""
        return dict(await self._rest.get("/health"))

    async def validate_credentials(
        self, exchange: str, *, testnet: bool = False, demo: bool = False
    ) -> dict[str, Any]:
        """Verify the operator's credentials with the exchange."""
        body = {"exchange": exchange, "testnet": testnet} | ({"demo": True} if demo else {})
        return dict(await self._rest.post("/transactions/validate-credentials", body))

    def transactions(
        self,
        exchange: str | Sequence[str],
        types: Sequence[str] | str = (),
        *,
        start: Time | None = None,
        end: Time | None = None,
        page_records: int = PAGE_RECORDS,
        partial_allowed: bool = False,
        **options: Any,
    ) -> TransactionRecords:
        """Iterate over the records of an exchange account, newest first.

        Numbers are exact (`Decimal`). Failed parts are requested again if a retry may succeed, so
        their records arrive late. A cancellation or `Unavailable` loses nothing: the next iteration
        continues.

        Args:
            exchange: Such as bybit; a named account such as bybit:treasury; several; or all.
            types: Unified or exchange-specific names; default: all but ledger and holdings.
            start: Oldest time, inclusive, with a time zone, or Unix ms; default: 30 days before
                `end`.
            end: Newest time, inclusive; default: now.
            page_records: Records per request, up to 10,000.
            partial_allowed: Whether to end without an exception if records are missing.
            options: testnet, demo, include_raw, verify, source (`collected`, or `exchange`),
                everything (begin at the oldest time there is).

        Raises:
            Refused: The service refuses the request; `incomplete`, after the last record, if some
                could not be read: `details` has the errors and the coverage.
            Unavailable: The service or the exchange cannot answer at the moment.
        """
        found = self.transaction_pages(
            exchange, types, start=start, end=end, page_records=page_records, **options
        )
        return TransactionRecords(found, partial_allowed=partial_allowed)

    def transaction_pages(
        self,
        exchange: str | Sequence[str],
        types: Sequence[str] | str = (),
        *,
        start: Time | None = None,
        end: Time | None = None,
        page_records: int = PAGE_RECORDS,
        **options: Any,
    ) -> TransactionPages:
        """Iterate over transactions page by page, with coverage and errors; see `transactions`."""
        request = request_of(
            exchange, types, start=start, end=end, page_records=page_records, options=options
        )
        return TransactionPages(self._rest.transactions, request)

    def follow_transactions(
        self,
        exchange: str | Sequence[str],
        types: Sequence[str] | str = (),
        *,
        start: Time | None = None,
        attempts_max: int | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        **options: Any,
    ) -> TransactionEvents:
        """Iterate over new and changed records as they happen, across reconnects.

        Each record is yielded once, and again as `updated` when it changes; `status` reports when
        the exchange cannot be read. Use `aclosing`, or break from the loop and call `aclose`.

        Args:
            exchange: Such as bybit; a named account such as bybit:treasury; several; or all.
            types: Unified or exchange-specific names; default: all but ledger and holdings.
            start: Begin with the history since then (`change` is `history`); default: from now on.
            attempts_max: Consecutive failures before `Unavailable` is raised; None: unlimited.
            silence_max_s: Seconds without an answer to a ping before the connection is closed.
            options: testnet, demo, include_raw.
        """
        body = request_of(
            exchange, types, start=start, end=None, page_records=PAGE_RECORDS, options=options
        )
        return TransactionEvents(
            self._addresses.websocket,
            self._api_key,
            {name: value for name, value in body.items() if name not in ("limit", "start_time")},
            start_ms=body.get("start_time"),
            attempts_max=attempts_max,
            silence_max_s=silence_max_s,
            ssl_context=self._ssl_context,
        )

    def _link(self, attempts_max: int | None, silence_max_s: float) -> ServiceLink:
        return ServiceLink(
            self._addresses.websocket,
            self._api_key,
            attempts_max=attempts_max,
            silence_max_s=silence_max_s,
            ssl_context=self._ssl_context,
        )

    @property
    def _rest(self) -> RestClient:
        if self._opened is None:
            self._opened = RestClient(
                self._addresses.rest,
                self._api_key,
                attempts_max=self._attempts_max,
                ssl_context=self._ssl_context,
            )
        return self._opened

    async def _data(self, message: dict[str, Any], reply: str) -> dict[str, Any]:
        return dict((await self._ask(message, reply))["data"])

    async def _ask(self, message: dict[str, Any], reply: str) -> dict[str, Any]:
        url, context = self._addresses.websocket, self._ssl_context
        return await ask(url, self._api_key, message, reply, ssl_context=context)


def _complete(options: SubscribeOptions) -> SubscribeOptions:
    """Also request the ages and horizons of the exchanges, as in books of the library.

    The short updates of `on` with `mode="delta"` stay short.
    """
    if options.get("on") and options.get("mode") == "delta":
        return {**options}
    return {"ages": True, "coverage": True, **options}
