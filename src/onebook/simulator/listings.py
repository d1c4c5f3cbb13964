"""What the simulated exchanges list: pairs, their own names for them, ticks, lots and depths.

Facts only. A row of `LISTINGS` is (our symbol, the exchange's native, decimals of its tick,
decimals of its lot); BTC/USDT is on every exchange, the USD pairs where the real one has them.
"""

from typing import Final, NamedTuple


class Pair(NamedTuple):
    """A symbol of the market: where its price starts and how its levels lie."""

    symbol: str
    price: str
    grid: str  # the common distance of levels, the same on every exchange
    amount: str  # a usual amount of a level


class Listing(NamedTuple):
    """A symbol as one exchange lists it."""

    symbol: str
    native: str
    price_decimals: int
    amount_decimals: int

    @property
    def base(self) -> str:
        """What is bought."""
        return self.symbol.partition("/")[0]

    @property
    def quote(self) -> str:
        """What it is paid with."""
        return self.symbol.partition("/")[2]

    @property
    def tick(self) -> str:
        """The smallest price step as decimal text."""
        return step_text(self.price_decimals)

    @property
    def lot(self) -> str:
        """The smallest amount step as decimal text."""
        return step_text(self.amount_decimals)


class Profile(NamedTuple):
    """How the books of one exchange differ from those of the others."""

    depth: int  # levels a side
    spread_ppm: int
    offset_ppm_max: int  # how far its middle wanders from the reference


def step_text(decimals: int) -> str:
    """10^-decimals as text."""
    return f"0.{'1'.rjust(decimals, '0')}" if decimals else "1"


PAIRS: Final = (
    Pair("BTC/USDT", "64250.00", "0.5", "0.4"),
    Pair("ETH/USDT", "3420.00", "0.05", "6"),
    Pair("SOL/USDT", "172.40", "0.01", "80"),
    Pair("DOGE/USDT", "0.15920", "0.00001", "40000"),
    Pair("BTC/USD", "64235.00", "0.5", "0.3"),
    Pair("ETH/USD", "3419.00", "0.05", "5"),
    Pair("ETH/BTC", "0.05323", "0.00001", "10"),
)

# Binance, okx, coinbase and bybit (200 of its 250) are deep; kraken and poloniex publish a window
# of their books (100 and 20 levels), so theirs are somewhat deeper than the window.
PROFILES: Final = {
    "binance": Profile(depth=500, spread_ppm=3, offset_ppm_max=6),
    "okx": Profile(depth=400, spread_ppm=4, offset_ppm_max=8),
    "bybit": Profile(depth=250, spread_ppm=5, offset_ppm_max=8),
    "coinbase": Profile(depth=400, spread_ppm=6, offset_ppm_max=10),
    "kraken": Profile(depth=130, spread_ppm=10, offset_ppm_max=12),
    "poloniex": Profile(depth=30, spread_ppm=40, offset_ppm_max=20),
}

LISTINGS: Final = {
    "binance": (
        Listing("BTC/USDT", "BTCUSDT", 2, 5),
        Listing("ETH/USDT", "ETHUSDT", 2, 4),
        Listing("SOL/USDT", "SOLUSDT", 2, 3),
        Listing("DOGE/USDT", "DOGEUSDT", 5, 0),
        Listing("ETH/BTC", "ETHBTC", 5, 4),
    ),
    "okx": (
        Listing("BTC/USDT", "BTC-USDT", 1, 8),
        Listing("ETH/USDT", "ETH-USDT", 2, 6),
        Listing("SOL/USDT", "SOL-USDT", 2, 6),
        Listing("DOGE/USDT", "DOGE-USDT", 5, 6),
        Listing("BTC/USD", "BTC-USD", 1, 8),
        Listing("ETH/USD", "ETH-USD", 2, 6),
        Listing("ETH/BTC", "ETH-BTC", 5, 6),
    ),
    "bybit": (
        Listing("BTC/USDT", "BTCUSDT", 2, 6),
        Listing("ETH/USDT", "ETHUSDT", 2, 5),
        Listing("SOL/USDT", "SOLUSDT", 2, 3),
        Listing("DOGE/USDT", "DOGEUSDT", 5, 1),
        Listing("ETH/BTC", "ETHBTC", 6, 5),
    ),
    "coinbase": (
        Listing("BTC/USDT", "BTC-USDT", 2, 8),
        Listing("ETH/USDT", "ETH-USDT", 2, 8),
        Listing("SOL/USDT", "SOL-USDT", 2, 8),
        Listing("DOGE/USDT", "DOGE-USDT", 5, 1),
        Listing("BTC/USD", "BTC-USD", 2, 8),
        Listing("ETH/USD", "ETH-USD", 2, 8),
        Listing("ETH/BTC", "ETH-BTC", 5, 8),
    ),
    "kraken": (
        Listing("BTC/USDT", "BTC/USDT", 1, 8),
        Listing("ETH/USDT", "ETH/USDT", 2, 8),
        Listing("SOL/USDT", "SOL/USDT", 2, 8),
        Listing("DOGE/USDT", "DOGE/USDT", 7, 8),
        Listing("BTC/USD", "BTC/USD", 1, 8),
        Listing("ETH/USD", "ETH/USD", 2, 8),
        Listing("ETH/BTC", "ETH/BTC", 5, 8),
    ),
    "poloniex": (
        Listing("BTC/USDT", "BTC_USDT", 2, 6),
        Listing("ETH/USDT", "ETH_USDT", 2, 6),
        Listing("SOL/USDT", "SOL_USDT", 3, 3),
        Listing("DOGE/USDT", "DOGE_USDT", 6, 3),
        Listing("ETH/BTC", "ETH_BTC", 6, 6),
    ),
}
