"""What every mapping of a Bybit row needs: the context, ids, texts and times, and patterns.

In Bybit's rows "" means absent and "0" means zero; nearly everything is text, some ids and times
are numbers. https://bybit-exchange.github.io/docs/v5/enum

A *pattern* is a record that already has what all rows of one kind have in common: of fills those
of one market, side and type, of deposits those of one coin and status. It is made once, by a
cached function; a row's record is the pattern with what is the row's own replaced. Two rules:

- What a pattern says follows from the arguments of its function alone. They are its key in the
  cache, so a pattern cannot be out of date: a market that was loaded anew is another argument.
- One `replace` names at most 14 fields: CPython makes a call with more than 30 values (a name
  counts as one) through a dict, at five times the cost. Where `Record(...)` in full is fast enough,
  as of orders and of all rare rows, it is written so.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from onebook.core import canonical, record_id, texts
from onebook.transactions.decimals import negated
from onebook.transactions.markets import Markets
from onebook.transactions.record import (
    Description,
    Direction,
    Fee,
    Ids,
    Money,
    Record,
    money,
)

EXCHANGE: Final = "bybit"
ORDER: Final = "order"  # a part of ids: never changes
NS_FROM: Final = 10**16  # closed-pnl once gave createdTime in nanoseconds
PATTERNS_MAX: Final = 4_096  # of one kind; a busy account needs about a hundred

# What patterns begin with; each row fills in the rest.
BLANK: Final = Record(
    transactionId="",
    timestamp=0,
    label="Other",
    description=Description("", ""),
    datetime="",
    exchange=EXCHANGE,
    environment="",
    type="",
    kind="other",
    ids=Ids(),
)

Row = dict[str, Any]


class Context(Struct, frozen=True):
    """What a row does not say itself.

    Args:
        environment: mainnet, testnet or demo: a part of every id.
        markets: Base, quote and settle coin of every symbol.
        category: spot, linear, inverse or option, where the endpoint has one.
        asked_at_ms: When a row without a time counts as seen: the end of its window, or now.
        uid: The user id of the account; None where Bybit did not state it.
    """

    environment: str
    markets: Markets
    category: str = ""
    asked_at_ms: int = 0
    uid: str | None = None


Mapper = Callable[[Row, Context], Record]


def make_id(context: Context, source: str, native_key: str) -> str:
    """The id of a Bybit event."""
    return record_id(EXCHANGE, context.environment, source, native_key)


@lru_cache(maxsize=4_096)
def order_id_of(environment: str, category: str, order_id: str) -> tuple[str, ...]:
    """The id of an order, as `related` takes it."""
    return (record_id(EXCHANGE, environment, ORDER, f"{category}:{order_id}"),)


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


def ms(row: Row, name: str) -> int | None:
    """A time in Unix ms; None where it is absent or zero."""
    value = row.get(name)
    if not value:
        return None
    found = int(value)
    return found // 1_000_000 if found >= NS_FROM else found or None


def seconds(row: Row, name: str) -> int | None:
    """A time in Unix seconds, as ms."""
    found = ms(row, name)
    return None if found is None else found * 1_000


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
