"""Simulated Independent Reserve, aggregated book channel: `/orderbook/<depth>`, with a CRC-32.

The depth is part of the address. A level that changes is removed and added in one frame. Levels
pushed out of the depth by better ones are not announced. Each answer lists all subscriptions of the
socket, with codes in lower case and xbt as btc. An unknown code in a frame is an error; in the
address it closes the connection. Invalid JSON is also an error here, while the real exchange closes
the socket.
https://github.com/independentreserve/websockets/blob/master/orderbook-snapshot.md
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from zlib import crc32

from onebook.simulator.kit import (
    ChannelKey,
    Dialect,
    Dropped,
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
)

CHECKSUM_LEVELS: Final = 10
HEARTBEAT_S: Final = 1.0
LIST_CODES: Final = {"BTC": "Xbt"}


class IndependentReserve(Dialect):
    """The protocol of websockets.independentreserve.com and api.independentreserve.com."""

    profile = Profile(depth=130, spread_ppm=30, offset_ppm_max=25)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USD", "btc-usd", 2, 8),
        ListedSymbol("ETH/USD", "eth-usd", 2, 8),
        ListedSymbol("SOL/USD", "sol-usd", 2, 8),
    )
    rules = ExchangeRules(
        silent_cuts=True,
        replaced_levels=True,
        checksum_field="Crc32",
        requests=(Most(20, 1.0),),
        silence_max_s=86_400.0,
        heartbeat_s=HEARTBEAT_S,
    )

    def opened(self, session: SimulatedSession, now: Now) -> list[str]:
        """Subscribe to the codes in the address.

        Raises:
            Dropped: One of them is unknown.
        """
        codes = parse_qs(urlsplit(session.path).query).get("subscribe")
        if codes is None:
            return []
        answers = self._subscribe(session, codes[0].split(","), now)
        if len(answers) == 1 and '"Error"' in answers[0]:
            raise Dropped("Invalid channel.")
        return answers

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer subscriptions and unsubscriptions."""
        request = loaded(frame) or {}
        event, codes = request.get("Event"), request.get("Data")
        if event not in ("Subscribe", "Unsubscribe") or not isinstance(codes, list):
            return [_said("Error", "Unknown event", now)]
        if self._board.limits(session, now):
            return [_said("Error", "Too many requests", now)]
        if event == "Subscribe":
            return self._subscribe(session, codes, now)
        for code in codes:
            session.topics.pop(_native(code), None)
        return [self._subscriptions(session, (), now)]

    def _subscribe(self, session: SimulatedSession, codes: list[Any], now: Now) -> list[str]:
        natives = [_native(code) for code in codes]
        unknown = [native for native in natives if not self._board.lists(native)]
        if unknown:
            words = "" if self._board.nameless else f" {unknown[0]}"
            return [_said("Error", f"Invalid channel{words}", now)]
        depth = int(urlsplit(session.path).path.rpartition("/")[2])
        fresh = [native for native in natives if native not in session.topics]
        windows = [self._board.subscribe(session, each, ChannelKey(each, depth)) for each in fresh]
        frames = [
            _frame(each, "OrderBookSnapshot", each.snapshot(), now) for each in windows if each
        ]
        return [self._subscriptions(session, natives, now), *frames]

    def _subscriptions(
        self, session: SimulatedSession, natives: list[str] | tuple[()], now: Now
    ) -> str:
        return _said("Subscriptions", [*dict.fromkeys([*session.topics, *natives])], now)

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode a change with the checksum of the book after it."""
        return _frame(channel, "OrderBookChange", changes, now)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return a heartbeat, one a second."""
        return [dumped({"Event": "Heartbeat", "Time": now.ms})]

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of coins; their quote currencies are in another list."""
        if path != "/Public/GetPrimaryCurrencyConfig2":
            return None
        rows = [
            {
                "Currency": LIST_CODES.get(listing.base, listing.base.capitalize()),
                "Name": listing.base,
                "IsTradeEnabled": True,
                "DecimalPlaces": {
                    "OrderPrimaryCurrency": listing.amount_decimals,
                    "OrderSecondaryCurrency": listing.price_decimals,
                },
                "Networks": [],
            }
            for listing in self._board.listings.values()
        ]
        return answered(rows)

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the pair of a book frame."""
        parts = (loaded(frame) or {}).get("Channel", "").split("/")
        return f"{parts[2]}-{parts[3]}" if len(parts) == 4 else None


def _native(code: object) -> str:
    return str(code).lower().replace("xbt", "btc")


def checksum(bids: TextLevels, asks: TextLevels) -> int:
    """Return the CRC-32 of the best ten bids, then asks, with eight decimals."""
    levels = bids[:CHECKSUM_LEVELS] + asks[:CHECKSUM_LEVELS]
    digits = (f"{Decimal(text):.8f}".replace(".", "").lstrip("0") for row in levels for text in row)
    return crc32("".join(digits).encode())


def _frame(channel: PublishedBook, event: str, book: TextChanges, now: Now) -> str:
    """Format the JSON by hand, so that numbers keep their digits."""
    top = channel.top(CHECKSUM_LEVELS)
    pair = channel.listing.native.replace("-", "/")
    return (
        f'{{"Channel":"orderbook/{channel.key.depth}/{pair}","Event":"{event}","Time":{now.ms},'
        f'"Data":{{"Bids":{_levels(book.bids)},"Offers":{_levels(book.asks)},'
        f'"Crc32":{checksum(top.bids, top.asks)}}}}}'
    )


def _levels(levels: TextLevels) -> str:
    objects = (f'{{"Price":{price},"Volume":{amount}}}' for price, amount in levels)
    return f"[{','.join(objects)}]"


def _said(event: str, data: Any, now: Now) -> str:
    return dumped({"Event": event, "Data": data, "Time": now.ms})


DIALECT: Final[type[Dialect]] = IndependentReserve
