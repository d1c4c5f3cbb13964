"""A seeded market: one reference price per symbol, and each exchange's exact book around it.

Pure: no I/O; the clock is an argument. The same seed, clock and calls give the same books on every
machine, because everything is integers: prices in ticks, amounts in lots, references in 10^-12. No
protocol: `board.py` defines how an exchange publishes a book. `PAIRS` lists the symbols; each
exchange lists its main pair first: BTC/USDT, or BTC/USD if it has no USDT.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from math import inf
from random import Random
from typing import Final, NamedTuple

REFERENCE_DECIMALS: Final = 12
PPM: Final = 1_000_000
STEP_PPM_MAX: Final = 15  # maximum move of a reference in one step
REVERSION_STEPS: Final = 2_000  # time constant of its return to the first price
# The price jumps from time to time, and some exchanges follow late: until then their books cross
# those of the others. Otherwise no exchange quotes through another. Jumps follow the clock, so that
# crossings last no longer on slow machines with fewer steps.
JUMP_EVERY_MS_MIN: Final = 10_000
JUMP_EVERY_MS_MAX: Final = 50_000
JUMP_PPM_MIN: Final = 60
JUMP_PPM_MAX: Final = 160
LAG_MS_MAX: Final = 700  # below a second, as if limited by arbitrage
STEPS_A_SECOND: Final = 10  # in a market without a clock
CHURNED_LEVELS_MAX: Final = 6  # levels a side that change per step in addition to price moves
TEXTS_CACHED_MAX: Final = 20_000  # prices and amounts: 3 MB
ON_GRID_PERCENT: Final = 70  # levels at round prices, which books of several exchanges share
Levels = list[tuple[int, int]]


class Pair(NamedTuple):
    """A symbol of the market: its first price and the spacing of its levels."""

    symbol: str
    price: str
    grid: str  # common price grid, the same on every exchange
    amount: str  # typical amount of a level


class ListedSymbol(NamedTuple):
    """The listing of a symbol on one exchange."""

    symbol: str
    native: str
    price_decimals: int
    amount_decimals: int

    @property
    def base(self) -> str:
        """The base currency."""
        return self.symbol.partition("/")[0]

    @property
    def quote(self) -> str:
        """The quote currency."""
        return self.symbol.partition("/")[2]

    @property
    def tick(self) -> str:
        """The price step as decimal text."""
        return step_text(self.price_decimals)

    @property
    def lot(self) -> str:
        """The amount step as decimal text."""
        return step_text(self.amount_decimals)


class Profile(NamedTuple):
    """Shape of the books of one exchange."""

    depth: int  # levels a side
    spread_ppm: int
    offset_ppm_max: int  # maximum distance of its mid price from the reference


class Offer(NamedTuple):
    """The listings of an exchange and the profile of its books.

    Books have the published depth, or slightly more if that depth is a moving window.
    """

    listings: tuple[ListedSymbol, ...]
    profile: Profile


def step_text(decimals: int) -> str:
    """Format 10^-decimals."""
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
    Pair("BTC/USDC", "64260.00", "0.5", "0.3"),
    Pair("USDC/USDT", "0.99980", "0.0001", "60000"),
    Pair("USDT/USD", "0.99970", "0.0001", "60000"),
)


class LevelChanges(NamedTuple):
    """Levels that changed in one step as (ticks, lots); 0 lots removes a level."""

    bids: Levels
    asks: Levels


class Side:
    """One side of a book: lots by price in ticks, best first, and the changes since `drain`."""

    def __init__(self, sign: int) -> None:
        self.amounts: dict[int, int] = {}
        self._sign = sign  # -1: the highest price is best; 1: the lowest
        self._keys: list[int] = []
        self._before: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def price(self, rank: int) -> int:
        """Return the price at a rank; 0 is the best, -1 the worst."""
        return self._keys[rank] * self._sign

    def top(self, count: int) -> Iterator[tuple[int, int]]:
        """Return the best `count` levels, best first."""
        prices = [key * self._sign for key in self._keys[:count]]
        return zip(prices, map(self.amounts.__getitem__, prices), strict=True)

    def set(self, price: int, amount: int) -> None:
        """Set the amount at a price; 0 removes it."""
        present = self.amounts.get(price, 0)
        self._before.setdefault(price, present)
        key = price * self._sign
        if amount == 0 and present:
            del self.amounts[price]
            del self._keys[bisect_left(self._keys, key)]
        elif amount:
            if not present:
                insort(self._keys, key)
            self.amounts[price] = amount

    def better(self, price: int, than: int) -> bool:
        """Return whether a price is closer to the mid than another."""
        return price * self._sign < than * self._sign

    def worse_by(self, price: int, ticks: int) -> int:
        """Return the price `ticks` further from the mid."""
        return price + ticks * self._sign

    def on_grid(self, price: int, grid: int) -> int:
        """Round a price to a grid, away from the mid."""
        return price + self._sign * (-price * self._sign % grid)

    def drain(self) -> Levels:
        """Return the changes since the last call, best first."""
        changed = [
            (price, self.amounts.get(price, 0))
            for price, before in self._before.items()
            if self.amounts.get(price, 0) != before
        ]
        self._before.clear()
        return sorted(changed, key=lambda level: level[0] * self._sign)


class Band(NamedTuple):
    """Bounds of the quotes of a symbol: no bid above `low`, every ask above `high`."""

    price: int
    low: int
    high: int


class Reference:
    """The price of a symbol that every exchange follows: a mean-reverting random walk.

    Exchanges step one after another. The band spans this price and the previous one, so that a
    book of this step and one of the previous step do not cross.
    """

    def __init__(self, pair: Pair, rng: Random, clock: Callable[[], float]) -> None:
        self._rng = rng
        self.clock = clock
        self._home = units(pair.price, REFERENCE_DECIMALS)
        self.band = self.before_jump = Band(self._home, self._home, self._home)
        self.jumped_s = -inf
        self._jump_due_s = clock() + self._pause_s()

    def _pause_s(self) -> float:
        return self._rng.randint(JUMP_EVERY_MS_MIN, JUMP_EVERY_MS_MAX) / 1_000

    def move(self) -> None:
        """Take one step."""
        last = self.band.price
        price = last + last * self._rng.randint(-STEP_PPM_MAX * 10, STEP_PPM_MAX * 10) // (PPM * 10)
        price += (self._home - price) // REVERSION_STEPS
        if (now_s := self.clock()) >= self._jump_due_s:
            ppm = self._rng.randint(JUMP_PPM_MIN, JUMP_PPM_MAX) * self._rng.choice((-1, 1))
            price += price * ppm // PPM
            self.before_jump, self.jumped_s = self.band, now_s
            self._jump_due_s = now_s + self._pause_s()
        self.band = Band(price, min(last, price), max(last, price))


class SimulatedBook:
    """One exchange's book of one symbol; never crossed, never empty, `depth` levels a side.

    Levels are made when first read, since most books are never read.
    """

    def __init__(self, listing: ListedSymbol, *, pair: Pair, profile: Profile, rng: Random) -> None:
        self.listing = listing
        self._home = units(pair.price, REFERENCE_DECIMALS)
        self._profile = profile
        self._rng = rng
        self.price_ppm = PPM  # price relative to the reference; other values simulate another coin
        self._offset_ppm = 0
        self._jumped_s = -inf  # time of the last known jump ...
        self._follows_s = -inf  # ... and of the reaction to it
        self._grid = max(1, units(pair.grid, listing.price_decimals))
        self._amount = max(1, units(pair.amount, listing.amount_decimals))

    @property
    def bids(self) -> Side:
        """The bids."""
        return self._sides[0]

    @property
    def asks(self) -> Side:
        """The asks."""
        return self._sides[1]

    def step(self, reference: Reference) -> LevelChanges:
        """Follow the reference price and change some levels; returns the changes."""
        sides = self._sides
        self._drift()
        self._follow(sides, self._band(reference))
        return LevelChanges(*(side.drain() for side in sides))

    @cached_property
    def _sides(self) -> tuple[Side, Side]:
        """Return the book after a first step at the first reference price."""
        sides = Side(-1), Side(1)
        self._drift()
        self._follow(sides, Band(self._home, self._home, self._home))
        for side in sides:
            side.drain()
        return sides

    def _follow(self, sides: tuple[Side, Side], band: Band) -> None:
        """Quote around a band and change some levels."""
        middle = self._ticks(band.price * (PPM + self._offset_ppm) // PPM)
        half_spread = max(1, middle * self._profile.spread_ppm // (2 * PPM))
        bid = min(middle - half_spread, self._ticks(band.low))
        ask = max(middle + half_spread, self._ticks(band.high) + 1)
        for side, limit in zip(sides, (bid, ask), strict=True):
            self._cut(side, limit)
            self._fill(side, limit)
            self._churn(side)
            self._fit(side)

    def _band(self, reference: Reference) -> Band:
        """Return the band to quote around: the one before a jump while this exchange lags."""
        if self._jumped_s != reference.jumped_s:
            self._jumped_s = reference.jumped_s
            self._follows_s = reference.jumped_s + self._rng.randint(0, LAG_MS_MAX) / 1_000
        return reference.before_jump if reference.clock() < self._follows_s else reference.band

    def _ticks(self, price: int) -> int:
        """Convert a reference price to ticks of this book."""
        unit: int = 10 ** (REFERENCE_DECIMALS - self.listing.price_decimals)
        return price * self.price_ppm // PPM // unit

    def _drift(self) -> None:
        """Drift around the reference, so that the exchange with the best price changes."""
        self._offset_ppm += self._rng.randint(-2, 2)
        bound = self._profile.offset_ppm_max
        self._offset_ppm = max(-bound, min(bound, self._offset_ppm))

    def _cut(self, side: Side, limit: int) -> None:
        while len(side) and side.better(side.price(0), limit):
            side.set(side.price(0), 0)

    def _fill(self, side: Side, limit: int) -> None:
        """Fill the gap up to the limit after a price move."""
        price, best = limit, side.price(0) if len(side) else None
        for _ in range(self._profile.depth):
            if best is not None and not side.better(side.worse_by(price, self._grid), best):
                return
            self._add(side, price)
            price = side.worse_by(price, self._rng.randint(1, 2 * self._grid))

    def _churn(self, side: Side) -> None:
        for _ in range(self._rng.randint(1, CHURNED_LEVELS_MAX)):
            # A product of two uniform numbers: most changes are near the top.
            rank = self._rng.randrange(len(side)) * self._rng.randrange(len(side)) // len(side)
            if rank and self._rng.randrange(4) == 0:
                side.set(side.price(rank), 0)
            elif self._rng.randrange(3) == 0:
                self._add(side, side.worse_by(side.price(rank), self._rng.randint(1, self._grid)))
            else:
                side.set(side.price(rank), self._lots())

    def _fit(self, side: Side) -> None:
        """Remove or add the worst levels to keep the depth."""
        while len(side) > self._profile.depth:
            side.set(side.price(-1), 0)
        while len(side) < self._profile.depth and side.price(-1) > 1:
            self._add(side, side.worse_by(side.price(-1), self._rng.randint(1, 2 * self._grid)))

    def _add(self, side: Side, price: int) -> None:
        if self._rng.randrange(100) < ON_GRID_PERCENT:
            price = side.on_grid(price, self._grid)
        side.set(max(price, 1), self._lots())

    def _lots(self) -> int:
        # A random share of a random bound: many small amounts, a few large ones.
        return self._rng.randint(1, 1 + self._amount * self._rng.randint(1, 16) // 4)


class MarketBooks:
    """The books of every simulated exchange.

    Args:
        offers: Listings and profile of each exchange, by CCXT id.
        seed: The same seed makes the same market.
        clock: Monotonic seconds; by default the market steps `STEPS_A_SECOND`.
    """

    def __init__(
        self,
        offers: Mapping[str, Offer],
        *,
        seed: int,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._steps = 0
        clock = clock or (lambda: self._steps / STEPS_A_SECOND)
        self._references = {
            pair.symbol: Reference(pair, Random(f"{seed}/{pair.symbol}"), clock)  # noqa: S311
            for pair in PAIRS
            if any(
                pair.symbol == each.symbol for offer in offers.values() for each in offer.listings
            )
        }
        pairs = {pair.symbol: pair for pair in PAIRS}
        self._books = {
            name: {
                listing.symbol: SimulatedBook(
                    listing,
                    pair=pairs[listing.symbol],
                    profile=offer.profile,
                    rng=Random(f"{seed}/{name}/{listing.symbol}"),  # noqa: S311
                )
                for listing in offer.listings
            }
            for name, offer in offers.items()
        }

    def books(self, name: str) -> dict[str, SimulatedBook]:
        """Return one exchange's books by symbol."""
        return self._books[name]

    def move(self) -> None:
        """Step every reference price."""
        self._steps += 1
        for reference in self._references.values():
            reference.move()

    def step(
        self, name: str, symbols: Iterable[str] | None = None
    ) -> Iterator[tuple[str, LevelChanges]]:
        """Step an exchange's books to their references; yields the changes by symbol."""
        books = self._books[name]
        for symbol in books if symbols is None else symbols:
            yield symbol, books[symbol].step(self._references[symbol])


def units(text: str, decimals: int) -> int:
    """Convert decimal text to an integer of 10^-decimals; truncates further digits."""
    whole, _, fraction = text.partition(".")
    return int(whole + fraction[:decimals].ljust(decimals, "0"))


# Cached, because most levels of a window were formatted before.
@lru_cache(TEXTS_CACHED_MAX)
def decimal_text(value: int, decimals: int, *, places: int = 0) -> str:
    """Format an integer of 10^-decimals with at least `places` decimals."""
    digits = str(value).rjust(decimals + 1, "0")
    whole, fraction = digits[: len(digits) - decimals], digits[len(digits) - decimals :]
    fraction = fraction.rstrip("0").ljust(places, "0")
    return f"{whole}.{fraction}" if fraction else whole
