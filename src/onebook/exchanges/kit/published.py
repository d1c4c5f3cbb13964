"""Published taker fees: the base tier that an exchange states itself, with its date.

A fee is known from the exchange's instrument list (`Instrument.taker_fee`), which is read every
hour, or from a page of the exchange (`fees.toml`). An exchange with neither has no published fee:
tables of other projects are no source. ccxt's, for example, have fees that are years old.
"""

import tomllib
from datetime import date
from functools import cache
from importlib import resources
from typing import Final

import msgspec
from msgspec import Struct

from onebook.fees import PublishedFee
from onebook.model import Instrument

PUBLISHED_OLD_DAYS: Final = 180  # after which a fee is marked as old


class FeePage(Struct, frozen=True, forbid_unknown_fields=True):
    """The fees on a page of an exchange; `fees.toml` explains the fields."""

    page: str
    date: date
    taker: str = ""
    classes: dict[str, str] = {}

    def __str__(self) -> str:
        """Return the fee, or those of all classes, in percent."""
        return self.taker or " / ".join(self.classes.values())


@cache
def fee_pages() -> dict[str, FeePage]:
    """Return the pages of `fees.toml` by exchange."""
    text = resources.files(__package__).joinpath("fees.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, FeePage])


def is_old_fee(day: date, today: date) -> bool:
    """Return whether a fee of this day is marked as old."""
    return (today - day).days > PUBLISHED_OLD_DAYS


def published_fee(instrument: Instrument, read_on: date | None, today: date) -> PublishedFee | None:
    """Return the published taker fee of a pair; None if it is unknown.

    `read_on` is the day on which the exchange's instrument list was last read.
    """
    page = fee_pages().get(instrument.exchange)
    percent = instrument.taker_fee or ("" if page is None else page.taker)
    day = read_on if page is None else page.date
    if not percent or day is None:
        return None
    return PublishedFee(
        exchange=instrument.exchange,
        symbol=instrument.symbol,
        percent=percent,
        source="instruments" if page is None else "page",
        date=day,
        page="" if page is None else page.page,
        old=is_old_fee(day, today),
    )
