"""Positions of the simulated account, and the prices of its markets."""

from collections import defaultdict
from random import Random

from onebook.simulator.accounts.bybit.facts import SimulatedMarket
from onebook.simulator.accounts.bybit.markets import MARKETS


class Holding:
    """A position in one market."""

    __slots__ = ("entry_value", "open_fee", "size")

    def __init__(self) -> None:
        self.size = 0
        self.entry_value = 0
        self.open_fee = 0

    def add(self, size: int, value: int, fee: int) -> None:
        """Open or increase the position by a signed size."""
        self.entry_value += value
        self.open_fee += fee
        self.size += size

    def reduce(self, change: int) -> tuple[int, int]:
        """Close a part, by a signed size against its side; its entry value and its opening fee."""
        size, held = abs(change), abs(self.size)
        entry, opened = self.entry_value * size // held, self.open_fee * size // held
        self.entry_value -= entry
        self.open_fee -= opened
        self.size += change
        return entry, opened


class Positions:
    """What is held in each market, and each market's last price."""

    def __init__(self) -> None:
        self.held: dict[SimulatedMarket, Holding] = defaultdict(Holding)
        self.prices = {market: market.price for market in MARKETS}

    def next_price(self, market: SimulatedMarket, random: Random) -> int:
        """Move a price by at most 0.2 %, within half and twice the first one."""
        moved = int(self.prices[market] * (1 + random.uniform(-0.002, 0.002)))
        low, high = market.price // 2, market.price * 2
        self.prices[market] = min(high, max(low, moved)) // market.price_step * market.price_step
        return self.prices[market]
