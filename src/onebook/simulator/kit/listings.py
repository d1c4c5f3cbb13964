"""The pairs of the simulated market, and the form in which a dialect lists them.

Facts only. Each exchange lists its main pair first: BTC/USDT, or BTC/USD where it has no USDT.
"""

from typing import Final, NamedTuple, Protocol


class Pair(NamedTuple):
    """A symbol of the market: where its price starts and how its levels lie."""

    symbol: str
    price: str
    grid: str  # the common distance of levels, the same on every exchange
    amount: str  # a usual amount of a level


class ListedSymbol(NamedTuple):
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


class Offer(Protocol):
    """What an exchange lists and how its books look; a dialect is one.

    The depth of a book is what the exchange publishes, or somewhat more where that is a window.
    """

    listings: tuple[ListedSymbol, ...]
    profile: Profile


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
    Pair("SOL/USD", "172.30", "0.01", "70"),
)
