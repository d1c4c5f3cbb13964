"""What the mapping of an exchange's rows needs: texts, numbers, required fields, amounts of money.

In rows "" means absent and "0" means zero, and a number may be text or a JSON number: both are read
exactly.

A *pattern* is a record that already has what all rows of one kind have in common: of fills those
of one market, side and type, of deposits those of one coin and status. It is made once, by a
cached function; a row's record is the pattern with what is the row's own replaced. Two rules:

- What a pattern says follows from the arguments of its function alone. They are its key in the
  cache, so a pattern cannot be out of date: a market that was loaded anew is another argument.
- One `replace` names at most 14 fields: CPython makes a call with more than 30 values (a name
  counts as one) through a dict, at five times the cost. Where `Record(...)` in full is fast enough,
  as of orders and of all rare rows, it is written so.
"""

from typing import Any, Final

from onebook.core import canonical, texts
from onebook.transactions.decimals import negated
from onebook.transactions.record import Description, Direction, Fee, Ids, Money, Record, money

PATTERNS_MAX: Final = 4_096  # of one kind; a busy account needs about a hundred

Row = dict[str, Any]


def blank_record(exchange: str) -> Record:
    """Return the record of an exchange from which its patterns are made."""
    return Record(
        transactionId="",
        timestamp=0,
        label="Other",
        description=Description("", ""),
        datetime="",
        exchange=exchange,
        environment="",
        type="",
        kind="other",
        ids=Ids(),
    )


def text(row: Row, name: str) -> str | None:
    """A text that is there."""
    return texts(row, name)[0]


def text_or_empty(row: Row, name: str) -> str:
    """A text, "" where it is absent: for ids."""
    value = row.get(name)
    return "" if value is None else str(value)


def digits(row: Row, name: str) -> str | None:
    """A number in canonical text."""
    return canonical(row.get(name))


def nonzero(row: Row, name: str) -> str | None:
    """A number that is neither absent nor zero, else None."""
    found = canonical(row.get(name))
    return None if found == "0" else found


def require(value: str | None, name: str) -> str:
    """Return a field without which a row is unreadable.

    Two rows without an id would count as one event, and a row without an amount or a coin as an
    event that moved nothing.

    Raises:
        ValueError: The field is absent or empty.
    """
    if not value:
        raise ValueError(f"The row has no {name}.")
    return value


def require_unsigned(amount: str | None) -> str:
    """Return an amount without a sign; another field has its direction.

    Raises:
        ValueError: The amount is absent, or below zero.
    """
    found = require(amount, "amount")
    if found[0] == "-":
        raise ValueError("The amount is below zero.")
    return found


def as_money(currency: str | None, amount: str | None) -> Money | None:
    """An unsigned amount of a known currency."""
    if currency is None or amount is None:
        return None
    return money(currency, amount.removeprefix("-"))


def first_fee(fees: tuple[Fee, ...]) -> Money | None:
    """The documented single fee: the first of all."""
    if not fees or fees[0].currency is None:
        return None
    return money(fees[0].currency, fees[0].amount)


def opposite(amount: str | None) -> str | None:
    """The other sign: what an account paid is what it did not gain."""
    return None if amount is None else negated(amount)


def direction_of(change: str) -> Direction:
    """Which way a signed amount went."""
    if change == "0":
        return Direction.NONE
    return Direction.OUT if change[0] == "-" else Direction.IN
