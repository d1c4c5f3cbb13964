"""Simulated Binance US: Binance's protocol as on an older server.

It pings every 3 min, requires unsigned integers as request numbers, and has lower REST weights.
https://github.com/binance-us/binance-us-api-docs/blob/master/web-socket-streams.md
"""

from typing import Final

from onebook.simulator.binance import Binance
from onebook.simulator.kit import (
    Dialect,
    ListedSymbol,
    Most,
    Now,
    Profile,
    SimulatedSession,
    dumped,
    loaded,
)


class BinanceUs(Binance):
    """The protocol of stream.binance.us and api.binance.us."""

    profile = Profile(depth=300, spread_ppm=12, offset_ppm_max=25)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTCUSDT", 2, 5),
        ListedSymbol("ETH/USDT", "ETHUSDT", 2, 4),
        ListedSymbol("SOL/USDT", "SOLUSDT", 2, 3),
        ListedSymbol("DOGE/USDT", "DOGEUSDT", 5, 0),
        ListedSymbol("BTC/USD", "BTCUSD", 2, 5),
        ListedSymbol("ETH/USD", "ETHUSD", 2, 4),
        ListedSymbol("ETH/BTC", "ETHBTC", 5, 4),
    )
    rules = Binance.rules._replace(ping_s=180.0, fetches=(Most(1_200, 60.0),))
    weights = ((100, 1), (500, 5), (1_000, 10), (5_000, 50))

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer a frame as Binance does, if its number is an unsigned integer."""
        request = loaded(frame)
        if request is None or _is_unsigned(request.get("id")):
            return super().received(session, frame, now)
        text = "Invalid request: request ID must be an unsigned integer"
        return [dumped({"code": 2, "msg": text})]


def _is_unsigned(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


DIALECT: Final[type[Dialect]] = BinanceUs
