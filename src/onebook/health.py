"""Health of a book, and the reasons why one is not live; shared by the server, library and SDK."""

from enum import StrEnum


class Health(StrEnum):
    """Whether a book may be shown: only `LIVE` ones are."""

    SYNCING = "syncing"
    LIVE = "live"
    STALE = "stale"
    OFFLINE = "offline"


class Reason(StrEnum):
    """Reason why a book is not live: `exchange_status.reason` and label of metrics.

    `meaning` explains it in one sentence; details of the case are in `LiveBook.detail`.
    """

    meaning: str

    def __new__(cls, code: str, meaning: str = "") -> "Reason":
        """Create a code with its meaning."""
        reason = str.__new__(cls, code)
        reason._value_ = code
        reason.meaning = meaning
        return reason

    SUBSCRIBING = "subscribing", "The first snapshot has been requested and has not arrived yet."
    GAP = "gap", "An update was lost: the sequence numbers have a gap."
    CHECKSUM = "checksum", "The book does not match the exchange's checksum."
    AUDIT = "audit", "The book differs from a REST snapshot with the same number."
    CROSSED = "crossed", "The best bid is above the best ask."
    ABSURD_PRICE = "absurd_price", "The best price jumped by an implausible factor."
    LEVELS = "levels", "The exchange sent invalid levels or inexact numbers."
    PROTOCOL_ERROR = "protocol_error", "The exchange sent an unreadable message."
    INTERNAL_ERROR = (
        "internal_error",
        "A message could not be processed because of a bug in Onebook.",
    )
    SILENT = "silent", "The connection delivers no data, though its socket may be open."
    QUIET = "quiet", "This instrument delivers no data, though its connection does."
    DEAD_STREAM = "dead_stream", "The subscription was accepted, but no updates arrive."
    NO_SNAPSHOT = "no_snapshot", "No usable snapshot arrived in time."
    SNAPSHOT_FAILED = "snapshot_failed", "The request for the snapshot failed."
    REFUSED = "refused", "The exchange refused the subscription."
    RATE_LIMITED = (
        "rate_limited",
        "The exchange's rate limit was reached; the request is repeated later.",
    )
    UNAVAILABLE = (
        "unavailable",
        "The exchange could not serve the request; it is repeated later.",
    )
    MAINTENANCE = "maintenance", "The exchange announced that matching is suspended."
    CLOSING = "closing", "The exchange announced that it will close the connection."
    DISCONNECTED = "disconnected", "The connection was lost."
    RENEWING = "renewing", "The connection is being replaced before its lifetime ends."
    UNREACHABLE = "unreachable", "The exchange is unreachable."
    FLOOD = "flood", "The exchange sent too many messages without data."
    HALTED = "halted", "Trading of this instrument is suspended."
    NOT_LISTED = "not_listed", "The exchange no longer lists this instrument."
    UNKNOWN_FEE = "unknown_fee", "The fee table of the view has no fee for this exchange."
    NO_CONVERSION = (
        "no_conversion",
        "None of the view's exchanges lists a pair that converts this book into the view's quote.",
    )
    SWITCHED_OFF = "switched_off", "The operator of this service has disabled this exchange."
    NOT_WANTED = "not_wanted", "The book is closed because no client is subscribed."
    NOT_RECORDED = "not_recorded", "The history has no data of this book at this time."
    IDENTITY_CONFLICT = (
        "identity_conflict",
        "The price deviates so much from other exchanges that this is probably another coin.",
    )
    UNCONFIRMED_IDENTITY = (
        "unconfirmed_identity",
        "The exchanges' prices disagree, and too few agree to tell which are right.",
    )
    SHARED_BOOK = (
        "shared_book",
        "Another book has identical levels: probably the same order book under another name.",
    )
