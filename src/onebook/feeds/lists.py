"""The instrument list of one exchange, read over REST or by ccxt: every page, within bounds."""

import asyncio
from contextlib import nullcontext
from functools import partial
from typing import Final

from msgspec.structs import replace

from onebook.config import FeedSettings
from onebook.exchanges.kit import Exchange, Instruments, ProtocolError, currencies, sound
from onebook.feeds.ccxt.library import Library
from onebook.rest import TOTAL_S, Rest

LIST_WEIGHT: Final = (
    20  # request weight of a list at the most expensive exchange (binance exchangeInfo)
)


async def read_list(
    exchange: Exchange,
    *,
    rest: Rest,
    settings: FeedSettings,
    page_s: float = TOTAL_S,
    library: Library | None = None,
    parsing: asyncio.Lock | None = None,
) -> Instruments:
    """Get every page of an exchange's list; its bounds are those of all pages together.

    Args:
        exchange: Whose list.
        rest: How to ask.
        settings: The bounds.
        page_s: How long one page may take, with its waits and retries.
        library: ccxt, which reads the lists of exchanges that come through it.
        parsing: Held while a page is parsed, so that the lists of a start are parsed one by one.

    Raises:
        ExchangeFailed: A page cannot be had.
        ProtocolError: A page cannot be read, or the list is longer than allowed.
    """
    found, bodies = Instruments(), list[bytes]()
    bytes_left, path = settings.list_bytes_max, exchange.instruments_path
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
        # Megabytes of JSON: parsed in a thread, not in the loop of the books.
        async with parsing or nullcontext():
            page = await asyncio.to_thread(
                exchange.parse_instruments, body, rows_max=settings.list_rows_max
            )
        _rename(page, exchange.name, settings)
        found += page
        found.refused += page.refused
        if len(found) > settings.list_rows_max:
            raise ProtocolError(f"the list has more than {settings.list_rows_max} rows")
        if exchange.next_page is None:
            return found
        following = await asyncio.to_thread(exchange.next_page, bodies)
        if following is None:
            return found
        if len(bodies) >= settings.list_pages_max:
            raise ProtocolError(f"the list has more than {settings.list_pages_max} pages")
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
