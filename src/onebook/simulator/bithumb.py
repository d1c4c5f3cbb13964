"""Simulated Bithumb (API 2): Upbit's protocol with 15 levels and long names.

Sizes are cut to four decimals, times are in microseconds, numbers have no exponent, and a request
may omit its format. https://apidocs.bithumb.com
"""

from itertools import zip_longest
from typing import Final

from onebook.simulator.kit import (
    Dialect,
    ExchangeRules,
    ListedSymbol,
    Most,
    Now,
    Profile,
    PublishedBook,
    TextChanges,
    loaded,
)
from onebook.simulator.upbit import ABSENT, Upbit


class Bithumb(Upbit):
    """The protocol of ws-api.bithumb.com and api.bithumb.com.

    The real exchange has markets in KRW and BTC; USDT markets are for the common simulated market.
    """

    profile = Profile(depth=20, spread_ppm=30, offset_ppm_max=20)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "USDT-BTC", 2, 4),
        ListedSymbol("ETH/USDT", "USDT-ETH", 2, 4),
        ListedSymbol("SOL/USDT", "USDT-SOL", 3, 4),
        ListedSymbol("DOGE/USDT", "USDT-DOGE", 5, 4),
        ListedSymbol("ETH/BTC", "BTC-ETH", 8, 4),
    )
    depth = 15
    formats = ("DEFAULT", None)
    rules = ExchangeRules(
        messages=(Most(5), Most(100, 60.0)),
        connects=(Most(10, per_address=True),),
        silence_max_s=60.0,
        heartbeat_s=1.0,
    )

    @staticmethod
    def _frame(channel: PublishedBook, book: TextChanges, kind: str, now: Now) -> str:
        units = ",".join(
            f'{{"ask_price":{ask},"bid_price":{bid},"ask_size":{asked},"bid_size":{size}}}'
            for (bid, size), (ask, asked) in zip_longest(book.bids, book.asks, fillvalue=ABSENT)
        )
        about = f'"code":"{channel.listing.native}","total_ask_size":1.5,"total_bid_size":2.5'
        rest = f'"timestamp":{now.ms * 1_000},"stream_type":"{kind}"'
        return f'{{"type":"orderbook",{about},"level":1,"orderbook_units":[{units}],{rest}}}'

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the code of an `orderbook` frame."""
        message = loaded(frame) or {}
        return message.get("code") if message.get("type") == "orderbook" else None


DIALECT: Final[type[Dialect]] = Bithumb
