"""Simulated Phemex, public socket: `orderbook`, 30 levels as scaled integers, no numbers.

A request has one book; a second request for it is accepted and sends another snapshot. A single
book cannot be unsubscribed. Each book is sent whole every minute. Levels pushed out of the 30 by
better ones are not announced. A client that sends nothing for 30 s is disconnected, however busy
its connection. Currencies have different scales, so that a client cannot use one for all; a replay
has no list and uses 8 for all, as on the page.
https://github.com/phemex/phemex-api-docs/blob/master/Public-Spot-API-en.md
"""

from collections.abc import Mapping
from typing import Final

from onebook.simulator.kit import (
    ChannelKey,
    Dialect,
    ExchangeRules,
    ListedSymbol,
    Most,
    Now,
    Profile,
    PublishedBook,
    RestReply,
    SimulatedSession,
    TextChanges,
    TextLevels,
    answered,
    dumped,
    loaded,
    units,
)

DEPTH: Final = 30
SUBSCRIPTIONS_MAX: Final = 20
WHOLE_S: Final = 60.0
PRICE_SCALE: Final = 8
VALUE_SCALE: Final = 8
SPARE_DECIMALS: Final = 2  # of a currency's scale beyond its steps
INVALID: Final = (6001, "invalid argument")
TOO_MANY_BOOKS: Final = (6015, "subscription limit exceeded")
TOO_MANY: Final = (6002, "too many requests")  # unconfirmed


class Phemex(Dialect):
    """The protocol of ws.phemex.com and api.phemex.com."""

    profile = Profile(depth=40, spread_ppm=25, offset_ppm_max=20)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "sBTCUSDT", 2, 6),
        ListedSymbol("ETH/USDT", "sETHUSDT", 2, 5),
        ListedSymbol("SOL/USDT", "sSOLUSDT", 3, 3),
        ListedSymbol("DOGE/USDT", "sDOGEUSDT", 6, 1),
    )
    rules = ExchangeRules(
        clock=("/public/time", lambda now: {"code": 0, "msg": "", "data": {"serverTime": now.ms}}),
        silent_cuts=True,
        messages=(Most(20),),
        connects=(Most(200, 300.0),),
        silence_max_s=30.0,
        traffic_counts=False,
        heartbeat_s=1.0,
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer `server.ping`, `orderbook.subscribe` and `orderbook.unsubscribe`."""
        request = loaded(frame) or {}
        method, params, number = (request.get(each) for each in ("method", "params", "id"))
        if method == "server.ping":
            return [_answer(number, result="pong")]
        if self._board.limits(session, now):
            return [_answer(number, TOO_MANY)]
        if method == "orderbook.unsubscribe":
            session.topics.clear()
            return [_answer(number, result={"status": "success"})]
        native = str(params[0]) if isinstance(params, list) and params else ""
        if method != "orderbook.subscribe" or not self._board.lists(native):
            return [_answer(None if self._board.nameless else number, INVALID)]
        if native not in session.topics and len(session.topics) >= SUBSCRIPTIONS_MAX:
            return [_answer(number, TOO_MANY_BOOKS)]
        session.heartbeats[native] = now.s
        window = self._board.subscribe(session, native, ChannelKey(native, DEPTH))
        book = [_frame(window, "snapshot", window.snapshot(), now)] if window else []
        return [_answer(number, result={"status": "success"}), *book]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the changes of 20 ms."""
        return _frame(channel, "incremental", changes, now)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return the books whose last snapshot was a minute ago, for the client's verification."""
        due = [each for each in session.topics if now.s - session.heartbeats[each] >= WHOLE_S]
        session.heartbeats |= dict.fromkeys(due, now.s)
        windows = [self._board.channel(session.topics[each]) for each in due]
        return [_frame(window, "snapshot", window.snapshot(), now) for window in windows if window]

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer `products`: currencies, pairs and contracts; the older list has no pairs."""
        if path == "/v1/exchange/public/products":
            return answered({"code": 0, "msg": "OK", "data": []})
        if path != "/public/products":
            return None
        listings = self._board.listings.values()
        scales = {one.quote: VALUE_SCALE for one in listings}
        scales |= {one.base: _scale(one) for one in listings}
        currencies = [{"currency": code, "valueScale": each} for code, each in scales.items()]
        products = [_product(listing) for listing in listings]
        lists = {"currencies": currencies, "products": products, "perpProductsV2": []}
        return answered({"code": 0, "msg": "OK", "data": lists})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the symbol of a frame that has a book."""
        message = loaded(frame) or {}
        return message["symbol"] if "book" in message else None


def _scale(listing: ListedSymbol) -> int:
    return min(listing.amount_decimals + SPARE_DECIMALS, VALUE_SCALE)


def _product(listing: ListedSymbol) -> dict[str, object]:
    return {
        "symbol": listing.native,
        "type": "Spot",
        "displaySymbol": f"{listing.base} / {listing.quote}",
        "quoteCurrency": listing.quote,
        "priceScale": PRICE_SCALE,
        "ratioScale": 8,
        "pricePrecision": listing.price_decimals,
        "baseCurrency": listing.base,
        "baseTickSize": f"{listing.lot} {listing.base}",
        "quoteTickSize": f"{listing.tick} {listing.quote}",
        "minOrderValue": f"10 {listing.quote}",
        "defaultTakerFee": "0.001",
        "defaultTakerFeeEr": 100_000,
        "defaultMakerFee": "0.001",
        "defaultMakerFeeEr": 100_000,
        "status": "Listed",
    }


def _frame(channel: PublishedBook, kind: str, book: TextChanges, now: Now) -> str:
    sides = ",".join(
        f'"{name}":{_scaled(levels, channel.listing)}'
        for name, levels in (("asks", book.asks), ("bids", book.bids))
    )
    rest = {
        "depth": DEPTH,
        "sequence": channel.sequence,
        "symbol": channel.listing.native,
        "timestamp": now.ms * 1_000_000,
        "type": kind,
    }
    return f'{{"book":{{{sides}}},{dumped(rest)[1:]}'


def _scaled(levels: TextLevels, listing: ListedSymbol) -> str:
    scale = _scale(listing)
    rows = (
        f"[{_integer(price, PRICE_SCALE)},{_integer(amount, scale)}]" for price, amount in levels
    )
    return f"[{','.join(rows)}]"


def _integer(number: str, scale: int) -> str:
    """Convert decimal text to an integer of 10^-scale; anything else is returned unchanged."""
    return str(units(number, scale)) if number.lstrip("-")[:1].isdecimal() else number


def _answer(number: object, error: tuple[int, str] | None = None, *, result: object = None) -> str:
    problem = None if error is None else {"code": error[0], "message": error[1]}
    return dumped({"error": problem, "id": number, "result": result})


DIALECT: Final[type[Dialect]] = Phemex
