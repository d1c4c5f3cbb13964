"""Orders against their fills: an order's quantity and value are the sums of its fills'. Pure.

Records come newest first. Memory: two sums for each order whose own record has not come yet.
"""

from decimal import Decimal
from typing import Final

from onebook.core import show
from onebook.transactions.chains import BREAKS_MAX, Break
from onebook.transactions.decimals import ZERO, add, subtract
from onebook.transactions.proof import OrderReport
from onebook.transactions.record import Record

OPEN_ORDERS_MAX: Final = 100_000


class _Fills:
    """What the fills of one order add up to."""

    __slots__ = ("newest", "quantity", "value")

    def __init__(self, newest: Record) -> None:
        self.newest = newest
        self.quantity = ZERO
        self.value = ZERO


class Orders:
    """Takes fills and orders, and says which orders their fills do not add up to.

    Args:
        below_ms: Of orders that changed from here on, not all fills are read.
    """

    def __init__(self, *, below_ms: int) -> None:
        self.overflowed = False
        self._below_ms = below_ms
        self._instant: list[Record] = []  # orders: their fills may bear the same time
        self._open: dict[str, _Fills] = {}
        self._checked = 0
        self._breaks: list[Break] = []

    @property
    def left(self) -> list[Record]:
        """The newest fill of each order that did not come."""
        return [fills.newest for fills in self._open.values()]

    def take(self, record: Record) -> None:
        """Take a fill or an order."""
        if self._instant and self._instant[0].timestamp != record.timestamp:
            self._close_instant()
        if record.kind != "order":
            self._fill(record)
        else:
            self._instant.append(record)

    def _fill(self, record: Record) -> None:
        order_id = record.ids.order_id
        if order_id is None:
            return
        if len(self._open) >= OPEN_ORDERS_MAX:
            self.overflowed = True
            return
        fills = self._open.setdefault(order_id, _Fills(record))
        fills.quantity = add(fills.quantity, Decimal(record.quantity or 0))
        fills.value = add(fills.value, Decimal(record.value or 0))

    def _close_instant(self) -> None:
        for order in self._instant:
            self._order(order)
        self._instant = []

    def _order(self, order: Record) -> None:
        fills = self._open.pop(order.ids.order_id or "", None) or _Fills(order)
        if self.overflowed or (order.updated_at or order.timestamp) >= self._below_ms:
            return  # not all of its fills were read
        self._checked += 1
        for found, said in ((fills.quantity, order.quantity), (fills.value, order.value)):
            expected = Decimal(said or 0)
            if found != expected and len(self._breaks) < BREAKS_MAX:
                difference = show(subtract(expected, found))
                what = "its fills do not add up to it"
                self._breaks.append(
                    Break(order.transactionId, show(expected), show(found), difference, what)
                )

    def report(self, *, cut: bool) -> OrderReport:
        """What was found; where the answer was cut, its last instant is not whole."""
        if cut:
            self._instant = []
        self._close_instant()
        return OrderReport(
            self._checked,
            holds=not self._breaks,
            breaks=tuple(self._breaks),
            fills_without_order=len(self._open),
        )
