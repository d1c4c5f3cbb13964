"""The health of each exchange in an update, and how far its levels are known."""

from decimal import Decimal
from typing import Final, NamedTuple

from onebook.model import Health, Reason


class Horizon(NamedTuple):
    """The outermost prices up to which a book is known; None where every level is known."""

    bid: Decimal | None
    ask: Decimal | None


class ExchangeHealth(NamedTuple):
    """How the book of one exchange is.

    `shown` says whether its levels are in the update. `reason` says why it is not live or not
    shown, None while it is; `detail` is text for people. `age_s` is how long ago its data last
    arrived, None where it is not shown. Beyond `horizon` its levels are not known.
    """

    exchange: str
    state: Health
    shown: bool
    reason: Reason | None
    detail: str
    age_s: float | None
    horizon: Horizon


class ExchangeCondition(NamedTuple):
    """The part of `ExchangeHealth` that changes rarely; shared by many updates."""

    exchange: str
    state: Health
    shown: bool
    reason: Reason | None
    detail: str


Moment = tuple[float, tuple[str | None, str | None]]  # when data last arrived, and the horizon
UNSEEN: Final[Moment] = (0.0, (None, None))
