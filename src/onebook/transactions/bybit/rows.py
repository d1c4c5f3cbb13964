"""Context, ids and times needed by all mappings of Bybit rows.

In Bybit's rows "" means absent and "0" means zero; nearly all values are text, some ids and times
are numbers. https://bybit-exchange.github.io/docs/v5/enum
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from msgspec import Struct

from onebook.core import record_id
from onebook.transactions.mapping import Row, blank_record
from onebook.transactions.markets import Markets
from onebook.transactions.record import Record

EXCHANGE: Final = "bybit"
ORDER: Final = "order"  # a part of ids: never changes
NS_FROM: Final = 10**16  # closed-pnl once returned createdTime in nanoseconds

BLANK: Final = blank_record(EXCHANGE)


class Context(Struct, frozen=True):
    """Facts that a row does not contain.

    Args:
        environment: mainnet, testnet or demo: a part of every id.
        markets: Base, quote and settle coin of every symbol.
        category: spot, linear, inverse or option, where the endpoint has one.
        fallback_time_ms: Time assigned to a row without one: the end of its window, or now.
        uid: The user id of the account; None if Bybit did not state it.
    """

    environment: str
    markets: Markets
    category: str = ""
    fallback_time_ms: int = 0
    uid: str | None = None


Mapper = Callable[[Row, Context], Record]


def make_id(context: Context, source: str, native_key: str) -> str:
    """The id of a Bybit event."""
    return record_id(EXCHANGE, context.environment, source, native_key)


@lru_cache(maxsize=4_096)
def order_id_of(environment: str, category: str, order_id: str) -> tuple[str, ...]:
    """The id of an order, for `related`."""
    return (record_id(EXCHANGE, environment, ORDER, f"{category}:{order_id}"),)


def ms(row: Row, name: str) -> int | None:
    """A time in Unix ms; None if absent or zero."""
    value = row.get(name)
    if not value:
        return None
    found = int(value)
    return found // 1_000_000 if found >= NS_FROM else found or None


def seconds(row: Row, name: str) -> int | None:
    """A time in Unix seconds, as ms."""
    found = ms(row, name)
    return None if found is None else found * 1_000
