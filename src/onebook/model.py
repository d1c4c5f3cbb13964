"""Value types shared by all layers; no I/O."""

from enum import StrEnum

from msgspec import Struct

from onebook.health import Health as Health
from onebook.health import Reason as Reason

VIA_CCXT = "ccxt"  # `Instrument.via` of the long tail


class InstrumentStatus(StrEnum):
    """Whether an exchange trades an instrument now."""

    TRADING = "trading"
    HALTED = "halted"


class Instrument(Struct, frozen=True, eq=False):
    """A trading pair on one exchange.

    Compared and hashed by identity, because it is looked up on every frame: the catalogue keeps
    one object per (exchange, native) as long as its facts do not change.

    `symbol` is ours (`BTC/USDT`), `native` the exchange's own (`btcusdt`, `XBT/USD`); `tick` and
    `lot` are the price and amount steps as decimal text, "" if the exchange does not state them.
    `least_amount` (base currency) and `least_notional` (quote currency) are the minimum amount and
    value of an order, in the same form. `taker_fee` is the base taker fee of this pair in percent,
    "" if the list does not state it. `codes` is the pair in the exchange's own currency codes, in
    capitals (`XBT/USDT`). `via` is the library that provides its books, "" for a native
    connector. `scales` are for exchanges that send scaled integers: the decimals of prices and of
    amounts (`core.LevelShape`).
    """

    exchange: str
    symbol: str
    native: str
    tick: str = ""
    lot: str = ""
    status: InstrumentStatus = InstrumentStatus.TRADING
    codes: str = ""
    via: str = ""
    scales: tuple[int, int] = (0, 0)
    least_amount: str = ""
    least_notional: str = ""
    taker_fee: str = ""


class Tier(StrEnum):
    """A billing tier; its numbers are in `config.TIERS`."""

    BASIC = "basic"
    PREMIUM = "premium"
    DEVELOPER = "developer"
    ENTERPRISE = "enterprise"


class KeyStatus(StrEnum):
    """State of an API key; `accounts.keys` has the table of transitions."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


SECOND_MS = 1_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
GIB_BYTES = 1 << 30
