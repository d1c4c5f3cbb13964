"""Value types shared by all layers; no I/O."""

from enum import StrEnum

from msgspec import Struct


class Health(StrEnum):
    """Whether a book may be shown: only `LIVE` books ever are."""

    SYNCING = "syncing"
    LIVE = "live"
    STALE = "stale"
    OFFLINE = "offline"


class Reason(StrEnum):
    """Why a book is not shown or not trusted: `exchange_status.reason` and labels of metrics.

    Each has a `meaning`, one sentence for people; the case at hand is in `LiveBook.detail`.
    """

    meaning: str

    def __new__(cls, code: str, meaning: str = "") -> "Reason":
        """Make a code with its message."""
        reason = str.__new__(cls, code)
        reason._value_ = code
        reason.meaning = meaning
        return reason

    SUBSCRIBING = "subscribing", "The first snapshot has been requested and has not arrived yet."
    GAP = "gap", "An update was lost: the sequence numbers do not follow each other."
    CHECKSUM = "checksum", "The book differs from the exchange's checksum."
    CROSSED = "crossed", "The best bid is above the best ask."
    ABSURD_PRICE = "absurd_price", "The best price jumped by a factor that is not plausible."
    LEVELS = "levels", "The exchange sent levels that are not valid or not exact numbers."
    PROTOCOL_ERROR = "protocol_error", "The exchange sent a message that cannot be read."
    INTERNAL_ERROR = "internal_error", "A message was not processed because of a defect of Onebook."
    SILENT = "silent", "The connection delivers no data, though its socket may be open."
    QUIET = "quiet", "This instrument delivers no data, though its connection does."
    DEAD_STREAM = "dead_stream", "The subscription was accepted, but its changes do not come."
    NO_SNAPSHOT = "no_snapshot", "No usable snapshot came in time."
    SNAPSHOT_FAILED = "snapshot_failed", "The request for the snapshot failed."
    REFUSED = "refused", "The exchange refused the subscription."
    RATE_LIMITED = "rate_limited", "The exchange asked for fewer requests; it is asked again later."
    UNAVAILABLE = (
        "unavailable",
        "The exchange could not serve the request for now; it is asked again later.",
    )
    MAINTENANCE = "maintenance", "The exchange announced that it does not match orders."
    CLOSING = "closing", "The exchange announced that it ends the connection."
    DISCONNECTED = "disconnected", "The connection was lost."
    RENEWING = "renewing", "The connection is replaced before the exchange ends it."
    UNREACHABLE = "unreachable", "The exchange cannot be reached."
    FLOOD = "flood", "The exchange sent more messages without data than are accepted."
    HALTED = "halted", "The exchange does not trade this instrument now."
    NOT_LISTED = "not_listed", "The exchange no longer lists this instrument."
    SWITCHED_OFF = "switched_off", "The operator of this service does not use this exchange now."
    NOT_WANTED = "not_wanted", "The book is closed because no client is subscribed."
    IDENTITY_CONFLICT = (
        "identity_conflict",
        "The price is so far from other exchanges' that this is probably another coin.",
    )
    UNCONFIRMED_IDENTITY = (
        "unconfirmed_identity",
        "Exchanges disagree about the price, and too few agree to say which of them is right.",
    )
    SHARED_BOOK = (
        "shared_book",
        "Another book has the same levels: probably the same orders under another name.",
    )


VIA_CCXT = "ccxt"  # `Instrument.via` of the long tail


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
    not say. `codes` is the pair in the exchange's own currency codes, in capitals (`XBT/USDT`).
    `via` is the library that its books come through, "" where a connector of ours reads them.
    `scales` are for exchanges that send integers: by how many decimals the point of its prices and
    of its amounts is moved to the left (`core.LevelShape`).
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
