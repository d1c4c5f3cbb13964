"""Classifies ccxt's exceptions by the names of their classes.

By name, because ccxt is imported only where it is used; an exception is classified by the first
class of its own method resolution order that the table knows.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from onebook.exchanges.kit import short
from onebook.model import Reason


class Extent(Enum):
    """What an exception invalidates."""

    BOOK = auto()  # it is asked for again
    REFUSAL = auto()  # one book, which is asked for again much later
    CONNECTION = auto()  # every book of the client, which is made anew


class ErrorVerdict(NamedTuple):
    """How far an exception reaches, and the code for `exchange_status` where a connection ends."""

    extent: Extent
    reason: Reason = Reason.GAP


LOST: Final = ErrorVerdict(Extent.BOOK)
REFUSED: Final = ErrorVerdict(Extent.REFUSAL, Reason.REFUSED)

# https://docs.ccxt.com/#/README?id=exception-hierarchy
VERDICTS: Final[dict[str, ErrorVerdict]] = {
    "ChecksumError": ErrorVerdict(Extent.BOOK, Reason.CHECKSUM),
    "InvalidNonce": LOST,
    "UnsubscribeError": LOST,
    "BadResponse": LOST,
    "OnMaintenance": ErrorVerdict(Extent.CONNECTION, Reason.MAINTENANCE),
    "RateLimitExceeded": ErrorVerdict(Extent.CONNECTION, Reason.RATE_LIMITED),
    "DDoSProtection": ErrorVerdict(Extent.CONNECTION, Reason.RATE_LIMITED),
    "NetworkError": ErrorVerdict(Extent.CONNECTION, Reason.DISCONNECTED),
    "ExchangeClosedByUser": ErrorVerdict(Extent.CONNECTION, Reason.DISCONNECTED),
    "AuthenticationError": REFUSED,
    "ArgumentsRequired": REFUSED,
    "BadRequest": REFUSED,
    "OperationRejected": REFUSED,
    "NotSupported": REFUSED,
    # ccxt cancels the tasks that wait for a connection it has closed.
    "CancelledError": ErrorVerdict(Extent.CONNECTION, Reason.DISCONNECTED),
    "OSError": ErrorVerdict(Extent.CONNECTION, Reason.DISCONNECTED),
    "ClientError": ErrorVerdict(Extent.CONNECTION, Reason.DISCONNECTED),  # of aiohttp
}


def verdict_of(error: BaseException) -> ErrorVerdict:
    """Classify an exception; an unknown one concerns one book."""
    for kind in type(error).__mro__:
        if kind.__name__ in VERDICTS:
            return VERDICTS[kind.__name__]
    return LOST


def words_of(error: BaseException) -> str:
    """Name an exception in one short line."""
    text = " ".join(str(error).split())
    return short(f"{type(error).__name__}: {text}" if text else type(error).__name__)
