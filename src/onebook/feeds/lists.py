"""The instrument list of one exchange, read over REST: every page of it, within bounds."""

import asyncio
from typing import Final

from msgspec.structs import replace

from onebook.config import FeedSettings
from onebook.exchanges import currencies
from onebook.exchanges.contract import Exchange, Instruments, ProtocolError
from onebook.exchanges.frames import sound
from onebook.rest import TOTAL_S, Rest

LIST_WEIGHT: Final = 20  # what a list costs at the dearest exchange (binance exchangeInfo)


async def read_list(
    exchange: Exchange, *, rest: Rest, settings: FeedSettings, page_s: float = TOTAL_S
) -> Instruments:
    """Get every page of an exchange's list; its bounds are those of all pages together.

    Args:
        exchange: Whose list.
        rest: How to ask.
        settings: The bounds.
        page_s: How long one page may take, with its waits and retries.

    Raises:
        ExchangeFailed: A page cannot be had.
        ProtocolError: A page cannot be read, or the list is longer than allowed.
    """
    found, bodies = Instruments(), list[bytes]()
    bytes_left, path = settings.list_bytes_max, exchange.instruments_path
    request = rest.ask if exchange.instruments_posted else rest.get
    while True:
        body = await request(
            exchange.rest_url + path,
            weight=LIST_WEIGHT,
            total_s=page_s,
            bytes_max=max(1, bytes_left),
        )
        bodies.append(body)
        bytes_left -= len(body)
        # Megabytes of JSON: not in the loop that also carries the books.
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
    """Give instruments the symbols that the operator's currency codes make."""
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
