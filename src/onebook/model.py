"""The nouns that every layer shares: values without behaviour, and nothing that does I/O."""

from enum import StrEnum

from msgspec import Struct


class Health(StrEnum):
    """Whether a book may be shown: only `LIVE` books ever are."""

    SYNCING = "syncing"
    LIVE = "live"
    STALE = "stale"
    OFFLINE = "offline"


class InstrumentStatus(StrEnum):
    """Whether an exchange trades an instrument now."""

    TRADING = "trading"
    HALTED = "halted"


class Instrument(Struct, frozen=True, eq=False):
    """One pair on one exchange.

    Compared and hashed by identity, because it is looked up on every frame: the catalogue keeps
    one object per (exchange, native) as long as its facts do not change.

    `symbol` is ours (`BTC/USDT`), `native` the exchange's own (`btcusdt`, `XBT/USD`); `tick` and
    `lot` are the smallest steps of price and amount as decimal text, "" where the exchange does
    not say.
    """

    exchange: str
    symbol: str
    native: str
    tick: str = ""
    lot: str = ""
    status: InstrumentStatus = InstrumentStatus.TRADING


class Tier(StrEnum):
    """A billing tier; its numbers are in `config.TIERS`."""

    BASIC = "basic"
    PREMIUM = "premium"
    DEVELOPER = "developer"
    ENTERPRISE = "enterprise"


class KeyStatus(StrEnum):
    """The states of an API key; the allowed moves are a table in `accounts.keys`."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


SECOND_MS = 1_000
MINUTE_MS = 60_000
DAY_MS = 86_400_000
GIB_BYTES = 1 << 30
