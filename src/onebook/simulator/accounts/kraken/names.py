"""Assets, pairs and contracts of the simulated Kraken, and the ids that it derives from numbers.

The ledger and the balances are kept by asset id: `XXBT`, `ZEUR`, and with a suffix for each product
that holds a coin separately (`.S` staked, `.M` opt-in rewards, `.B` yield-bearing, `.F` Kraken
Rewards, `.T` tokenized, `.HOLD` not yet released). Spot orders are placed in `PAIRS`, contracts in
`CONTRACTS`. https://docs.kraken.com/api-reference/market-data/get-asset-info
"""

import hashlib
from base64 import b32decode, b32encode
from binascii import Error as Base32Error
from datetime import UTC, datetime
from itertools import accumulate
from random import Random
from typing import Final, NamedTuple

from onebook.simulator.accounts.history import SCALE, UNIT

TICKS: Final = 10_000_000  # per second: times of spot rows have up to seven decimals
MS_TICKS: Final = 10_000
HOUR_TICKS: Final = 3_600 * TICKS


def ticks_of(date: str) -> int:
    """Return the time of a date, `2024-01-31`, at midnight UTC."""
    return round(datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp()) * TICKS


# The smallest amount with each number of decimals.
STEPS: Final[tuple[int, ...]] = tuple(
    int(10 ** (SCALE - decimals)) for decimals in range(SCALE + 1)
)


def cut(units: int, decimals: int) -> int:
    """Round an amount towards zero to a number of decimals."""
    step = STEPS[decimals]
    return units // step * step if units >= 0 else -(-units // step * step)


def nearest(units: int, decimals: int) -> int:
    """Round an amount half up to a number of decimals."""
    step = STEPS[decimals]
    return (units + step // 2) // step * step


class ListedAsset(NamedTuple):
    """An asset id; amounts are printed with all of its decimals."""

    id: str
    altname: str
    decimals: int
    name: str  # in exports
    wallet: str = "spot / main"  # in exports
    aclass: str = "currency"
    subclass: str = "crypto"
    listed: bool = True  # whether it is still in the list of assets
    display: int = 5


def _coin(id_: str, altname: str, decimals: int, name: str = "") -> ListedAsset:
    return ListedAsset(id_, altname, decimals, name or altname)


def _fiat(id_: str, name: str) -> ListedAsset:
    return ListedAsset(id_, name, 4, name, subclass="fiat", display=2)


def _product(id_: str, name: str, decimals: int, wallet: str) -> ListedAsset:
    return ListedAsset(id_, id_, decimals, name, wallet)


ASSETS: Final = {
    each.id: each
    for each in (
        _fiat("ZEUR", "EUR"),
        _fiat("ZUSD", "USD"),
        _fiat("ZGBP", "GBP"),
        _coin("XXBT", "XBT", 10, "BTC"),
        _coin("XETH", "ETH", 10),
        _coin("XXRP", "XRP", 8),
        _coin("XXDG", "XDG", 8, "DOGE"),
        _coin("XXLM", "XLM", 8),
        _coin("USDT", "USDT", 8),
        _coin("USDC", "USDC", 8),
        _coin("SOL", "SOL", 10),
        _coin("DOT", "DOT", 10),
        _coin("ADA", "ADA", 8),
        _coin("ATOM", "ATOM", 8),
        _coin("XTZ", "XTZ", 8),  # no prefix, although it looks like one
        _coin("ZRX", "ZRX", 10),
        _coin("ETHW", "ETHW", 7),
        _coin("SYRUP", "SYRUP", 5),
        _coin("MATIC", "MATIC", 10),
        _coin("POL", "POL", 10),
        _coin("XREP", "REP", 10),
        _coin("REPV2", "REPV2", 10),
        ListedAsset("XICN", "ICN", 10, "ICN", listed=False),
        ListedAsset("KFEE", "FEE", 2, "FEE", display=2),
        ListedAsset("EUR.HOLD", "EUR.HOLD", 4, "EUR.HOLD", subclass="fiat", display=2),
        ListedAsset("TSLAx.T", "TSLAx", 10, "TSLAx", "spot / main", "tokenized_asset", "equity"),
        ListedAsset("SPYx.T", "SPYx", 10, "SPYx", "spot / main", "tokenized_asset", "equity"),
        _coin("ETH2", "ETH2", 10),
        _product("ETH2.S", "ETH2", 10, "earn / bonded"),
        _product("DOT.S", "DOT", 10, "earn / liquid"),
        _product("DOT28.S", "DOT", 10, "earn / bonded"),
        _product("XTZ.S", "XTZ", 8, "earn / liquid"),
        _product("ATOM21.S", "ATOM", 8, "earn / bonded"),
        _product("XBT.M", "BTC", 10, "earn / liquid"),
        _product("EUR.M", "EUR", 4, "earn / liquid"),
        _product("ETH.B", "ETH", 10, "earn / bonded"),
        _product("XBT.F", "BTC", 10, "earn / flexible"),
        _product("SOL.F", "SOL", 10, "earn / flexible"),
        _product("USDT.F", "USDT", 8, "earn / flexible"),
    )
}


class ListedPair(NamedTuple):
    """A pair; prices move around `price`, and `weight` is its relative trading frequency."""

    id: str
    altname: str
    base: str
    quote: str
    price: int
    price_decimals: int
    cost_decimals: int
    weight: int
    until: int = 0  # delisted at this time; 0: never

    @property
    def wsname(self) -> str:
        """Its name on the WebSocket API."""
        return f"{ASSETS[self.base].altname}/{ASSETS[self.quote].altname}"

    def open(self, at: int) -> bool:
        """Return whether it is traded at a time."""
        return not self.until or at < self.until

    def price_at(self, at: int, random: Random) -> int:
        """Draw a price: within two years it falls from 1.5 to 0.6 of the usual price and rises
        again."""
        wave = abs(at // HOUR_TICKS % 17_520 - 8_760)
        step = STEPS[self.price_decimals]
        moved = self.price * (6_000 + wave) // 10_000 * random.randrange(9_950, 10_051) // 10_000
        return max(step, moved // step * step)


REP_DELISTED: Final = ticks_of("2023-03-01")
ICN_DELISTED: Final = ticks_of("2022-10-01")
MATIC_DELISTED: Final = ticks_of("2024-10-01")
CENT, MILLI = UNIT // 100, UNIT // 1_000
PAIRS: Final = {
    each.id: each
    for each in (
        ListedPair("XXBTZEUR", "XBTEUR", "XXBT", "ZEUR", 50_000 * UNIT, 1, 5, 24),
        ListedPair("XXBTZUSD", "XBTUSD", "XXBT", "ZUSD", 55_000 * UNIT, 1, 5, 18),
        ListedPair("XETHZEUR", "ETHEUR", "XETH", "ZEUR", 2_600 * UNIT, 2, 5, 16),
        ListedPair("XETHXXBT", "ETHXBT", "XETH", "XXBT", 52 * MILLI, 5, 8, 8),
        ListedPair("ETHUSDT", "ETHUSDT", "XETH", "USDT", 2_800 * UNIT, 2, 8, 6),
        ListedPair("USDTZUSD", "USDTUSD", "USDT", "ZUSD", UNIT, 4, 8, 4),
        ListedPair("XXRPZEUR", "XRPEUR", "XXRP", "ZEUR", 55 * CENT, 5, 5, 5),
        ListedPair("XDGEUR", "XDGEUR", "XXDG", "ZEUR", 12 * CENT, 6, 5, 4),
        ListedPair("SOLEUR", "SOLEUR", "SOL", "ZEUR", 90 * UNIT, 2, 5, 5),
        ListedPair("DOTEUR", "DOTEUR", "DOT", "ZEUR", 6 * UNIT, 4, 5, 4),
        ListedPair("ATOMEUR", "ATOMEUR", "ATOM", "ZEUR", 9 * UNIT, 4, 5, 2),
        ListedPair("XTZEUR", "XTZEUR", "XTZ", "ZEUR", UNIT, 4, 5, 2),
        ListedPair("ADAEUR", "ADAEUR", "ADA", "ZEUR", 45 * CENT, 6, 5, 2),
        ListedPair("ZRXEUR", "ZRXEUR", "ZRX", "ZEUR", 40 * CENT, 6, 5, 1),
        ListedPair("MATICEUR", "MATICEUR", "MATIC", "ZEUR", 80 * CENT, 4, 5, 2, MATIC_DELISTED),
        ListedPair("XREPZEUR", "REPEUR", "XREP", "ZEUR", 9 * UNIT, 3, 5, 2, REP_DELISTED),
        ListedPair("XICNXETH", "ICNETH", "XICN", "XETH", 2 * MILLI, 6, 8, 1, ICN_DELISTED),
    )
}  # fmt: skip
LOT_DECIMALS: Final = 8
MARKETS, WEIGHTS = tuple(PAIRS.values()), tuple(accumulate(p.weight for p in PAIRS.values()))
TOKENS: Final = {"TSLAx.T": 250 * UNIT, "SPYx.T": 560 * UNIT}  # prices in dollars


class Contract(NamedTuple):
    """A perpetual or dated contract; an inverse one is sized in dollars and settled in its coin."""

    symbol: str
    account: str  # the wallet whose collateral it uses
    settle: str
    price: int
    price_decimals: int
    size_decimals: int
    decimals: int  # of booked amounts
    inverse: bool = False

    @property
    def id(self) -> str:
        """Its name in the account log."""
        return self.symbol.lower()

    @property
    def currency(self) -> str:
        """The currency in which fees are shown."""
        return "BTC" if self.settle == "xbt" else self.settle.upper()


CONTRACTS: Final = {
    each.symbol: each
    for each in (
        Contract("PF_XBTUSD", "flex", "usd", 55_000 * UNIT, 0, 4, 4),
        Contract("PF_ETHUSD", "flex", "usd", 2_800 * UNIT, 1, 3, 4),
        Contract("PF_SOLUSD", "flex", "usd", 100 * UNIT, 2, 2, 4),
        Contract("PI_XBTUSD", "fi_xbtusd", "xbt", 55_000 * UNIT, 1, 0, 10, inverse=True),
    )
}


def dated(at: int) -> Contract:
    """Return the dated contract on ETH that expires on a day."""
    day = datetime.fromtimestamp(at // TICKS, UTC)
    return Contract(f"FF_ETHUSD_{day:%y%m%d}", "flex", "usd", 2_800 * UNIT, 1, 3, 4)


# Ids --------------------------------------------------------------------------------------

_SPACE: Final = 1 << 80
_FACTORS: Final = {
    kind: int.from_bytes(hashlib.sha256(kind.encode()).digest()[:10], "big") | 1
    for kind in ("L", "T", "O", "EL", "ES", "S")
}
_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def id_of(kind: str, number: int) -> str:
    """Derive an id such as `L4UESK-KG3EQ-UFO4T5` from a number; it begins with `kind`."""
    mixed = number * _FACTORS[kind] % _SPACE
    text = b32encode(mixed.to_bytes(10, "big")).decode()
    return f"{kind}{text[:5]}-{text[5:10]}-{text[10:]}"


def number_of(kind: str, text: str) -> int | None:
    """Return the number of an id; None if it is not an id of this kind."""
    letters = text.removeprefix(kind).replace("-", "")
    try:
        mixed = int.from_bytes(b32decode(letters), "big")
    except Base32Error:
        return None
    number = mixed * pow(_FACTORS[kind], -1, _SPACE) % _SPACE
    return number if id_of(kind, number) == text else None


def funding_id(kind: str, number: int) -> str:
    """Derive the reference of a deposit or withdrawal: `QGBCOYA-UNP53O-F2JDNS`, or `FT` and 27."""
    digest = hashlib.sha256(f"{kind}{number}".encode()).digest()
    if kind != "FT":
        text = b32encode(digest).decode()
        return f"{kind}{text[:6]}-{text[6:12]}-{text[12:18]}"
    text = "".join(_BASE58[byte % 58] for byte in digest)
    return f"FT{text[:5]}-{text[5:27]}"


def uuid_of(kind: str, number: int) -> str:
    """Derive a UUID from a number."""
    text = hashlib.md5(f"{kind}{number}".encode(), usedforsecurity=False).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def hash_of(number: int) -> str:
    """Derive the hash of a blockchain transaction from a number."""
    return hashlib.sha256(b"kraken%d" % number).hexdigest()
