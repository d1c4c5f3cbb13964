"""Helpers that map rows of an exchange: texts, numbers, required fields, amounts of money.

In rows "" means absent and "0" means zero. A number may be text or a JSON number; both are read
exactly.

A *pattern* is a record with the fields shared by rows of one kind, such as fills of one market,
side and type, or deposits of one coin and status. A cached function creates it once; the record of
a row is the pattern with the row's own fields replaced. Two rules:

- A pattern depends only on the arguments of its function. They are its cache key, so it is never
  out of date: a reloaded market is a different argument.
- One `replace` sets at most 14 fields: CPython makes calls with more than 30 values (a name counts
  as one) through a dict, at five times the cost. Orders and all rare rows are written as
  `Record(...)` in full, which is fast enough for them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from onebook.core import canonical, texts
from onebook.transactions.decimals import negated
from onebook.transactions.record import (
    Description,
    Direction,
    Fee,
    Holder,
    Ids,
    Money,
    Record,
    Transfer,
    money,
)

PATTERNS_MAX: Final = 4_096  # per kind; a busy account needs about a hundred
LINE: Final = "ledger"  # the type of ledger entries; a part of ids: never changes

# Looked up once: a member of an enumeration is slow to find, and every row has a direction.
_IN, _OUT, _NONE = Direction.IN, Direction.OUT, Direction.NONE

Row = dict[str, Any]
RowT = TypeVar("RowT")


class Meaning(NamedTuple):
    """The meaning of an exchange's type: our type, kind and label, and the kind of its fee."""

    type: str
    kind: str
    label: str
    fee: str = "trading"


class Leg(Struct, Generic[RowT], frozen=True, gc=False):
    """The rows of one asset in an exchange, and the sum of their changes without fees."""

    rows: Sequence[RowT]
    currency: str
    amount: str
    moved: Money

    @property
    def unsigned(self) -> str:
        """The amount without its sign."""
        return self.moved.amount_str


def blank_record(exchange: str) -> Record:
    """Return the blank record from which an exchange's patterns are made."""
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


def event_patterns(
    blank: Record, titles: Mapping[str, str], other: str, unified: Mapping[str, str]
) -> Callable[[str, Meaning, str], Record]:
    """Return the function that makes the patterns of an exchange's events.

    Its arguments are the environment, the meaning, and the exchange's own type.

    Args:
        blank: The exchange's `blank_record`.
        titles: Titles by our types.
        other: The title of all other types.
        unified: Unified names by our types.
    """

    @lru_cache(maxsize=PATTERNS_MAX)
    def pattern_of(environment: str, meaning: Meaning, native_type: str) -> Record:
        return replace(
            blank,
            label=meaning.label,
            description=Description(titles.get(meaning.type, other), ""),
            environment=environment,
            type=meaning.type,
            unified_type=unified.get(meaning.type),
            kind=meaning.kind,
            native_type=native_type,
            related_type=LINE,
        )

    return pattern_of


def move_patterns(
    pattern_of: Callable[[str, Meaning, str], Record], meaning: Meaning
) -> Callable[[str, str, str, str, str], Record]:
    """Return the function that makes the patterns of moves between an exchange's own wallets.

    Its arguments are the environment, the exchange's own type, the currency, and both wallets.

    Args:
        pattern_of: Makes the patterns of the exchange's events.
        meaning: The meaning of a move.
    """

    @lru_cache(maxsize=PATTERNS_MAX)
    def move_pattern(
        environment: str, native_type: str, currency: str, source: str, target: str
    ) -> Record:
        return replace(
            pattern_of(environment, meaning, native_type),
            direction=Direction.BOTH,
            asset=currency,
            transfer=Transfer(source, target),
        )

    return move_pattern


@lru_cache(maxsize=PATTERNS_MAX)
def holder_of(wallet: str) -> Holder:
    """Return the `account` of a wallet."""
    return Holder(wallet, None)


def change_words(pattern: Record, currency: str, change: str, amount: str) -> str:
    """Describe one change of one currency: its route if it is a transfer, else the signed change.

    Args:
        pattern: The pattern of the event, with its label as description.
        currency: The currency that changed.
        change: The signed change after fees.
        amount: The unsigned change before fees.
    """
    route = pattern.transfer
    if route is None:
        return f"{pattern.description.desc} {change} {currency}"
    source, target = route.from_account or "elsewhere", route.to_account or "elsewhere"
    return f"{amount} {currency} from {source} to {target}"


def text(row: Row, name: str) -> str | None:
    """Text; None if absent or empty."""
    return texts(row, name)[0]


def text_or_empty(row: Row, name: str) -> str:
    """Text, "" if absent: for ids."""
    value = row.get(name)
    return "" if value is None else str(value)


def digits(row: Row, name: str) -> str | None:
    """A number as canonical text."""
    return canonical(row.get(name))


def nonzero(row: Row, name: str) -> str | None:
    """A number that is neither absent nor zero, else None."""
    found = canonical(row.get(name))
    return None if found == "0" else found


def require(value: str | None, name: str) -> str:
    """Return a field without which a row is unreadable.

    Otherwise two rows without an id would count as one event, and a row without an amount or coin
    as an event that moved nothing.

    Raises:
        ValueError: The field is absent or empty.
    """
    if not value:
        raise ValueError(f"The row has no {name}.")
    return value


def require_unsigned(amount: str | None) -> str:
    """Return an unsigned amount; its direction is in another field.

    Raises:
        ValueError: The amount is absent or negative.
    """
    found = require(amount, "amount")
    if found[0] == "-":
        raise ValueError("The amount is negative.")
    return found


def as_money(currency: str | None, amount: str | None) -> Money | None:
    """An unsigned amount of money; None if currency or amount is unknown."""
    if currency is None or amount is None:
        return None
    return money(currency, amount.removeprefix("-"))


def moved_by(currency: str, amount: str) -> Money | UnsetType:
    """A signed amount as an unsigned amount of money; UNSET for zero."""
    if amount == "0":
        return UNSET
    text = amount[1:] if amount[0] == "-" else amount
    return Money(currency, Raw(text), text)


def first_fee(fees: tuple[Fee, ...]) -> Money | None:
    """The first fee, for the documented field that takes only one."""
    if not fees or fees[0].currency is None:
        return None
    return money(fees[0].currency, fees[0].amount)


def opposite(amount: str | None) -> str | None:
    """Return an amount with the opposite sign."""
    return None if amount is None else negated(amount)


def exchange_direction(sent: object | None, received: object | None) -> Direction:
    """The direction of an exchange, by its two sides; None for one that is absent."""
    if sent is not None and received is not None:
        return Direction.BOTH
    return _OUT if sent is not None else _IN if received is not None else _NONE


def sides_lacking(sent: object | None, received: object | None) -> tuple[str, ...]:
    """The fields that an exchange with one side lacks."""
    if sent is not None and received is not None:
        return ()
    return ("sentCurrency",) * (sent is None) + ("receivedCurrency",) * (received is None)


def direction_of(change: str) -> Direction:
    """The direction of a signed amount."""
    if change[0] == "-":
        return _OUT
    return _IN if change != "0" else _NONE
