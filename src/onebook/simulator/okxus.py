"""Simulated OKX US: OKX's protocol, with the pairs of the United States.

https://app.okx.com/docs-v5/en/#overview-production-trading-services
"""

from typing import Final

from onebook.simulator.kit import Dialect, ListedSymbol, Profile
from onebook.simulator.okx import Okx


class OkxUs(Okx):
    """The protocol of wsus.okx.com and us.okx.com."""

    profile = Profile(depth=400, spread_ppm=8, offset_ppm_max=15)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USD", "BTC-USD", 1, 8),
        ListedSymbol("ETH/USD", "ETH-USD", 2, 6),
        ListedSymbol("BTC/USDT", "BTC-USDT", 1, 8),
        ListedSymbol("ETH/USDT", "ETH-USDT", 2, 6),
        ListedSymbol("SOL/USDT", "SOL-USDT", 2, 6),
        ListedSymbol("ETH/BTC", "ETH-BTC", 5, 6),
    )


DIALECT: Final[type[Dialect]] = OkxUs
