"""Simulated Bequant, public protocol: HitBTC's protocol with separate books.

https://api.bequant.io/#subscribe-to-full-order-book
"""

from typing import Final

from onebook.simulator.hitbtc import Hitbtc
from onebook.simulator.kit import Dialect, Profile


class Bequant(Hitbtc):
    """The protocol of api.bequant.io."""

    profile = Profile(depth=120, spread_ppm=50, offset_ppm_max=25)


DIALECT: Final[type[Dialect]] = Bequant
