"""Proof that nothing is missing, from what the exchange itself says: pure, one pass, any length.

Three identities, each of which a lost record breaks:

1. ledger chain: per wallet and coin, every balance is the one before plus the change;
2. fills make orders: quantities and values of an order's fills add up to what it executed;
3. opening + changes = closing, per wallet and coin.

Records come newest first. Memory: one balance per coin, one sum per order still open.
"""

from collections import Counter
from decimal import Decimal
from itertools import groupby
from typing import Final

from msgspec import Struct

from onebook.core import show
from onebook.transactions.decimals import ZERO, add, subtract
from onebook.transactions.record import NO_FILLS, Record, View

BREAKS_MAX: Final = 100  # named in an answer; the rest is counted
OPEN_ORDERS_MAX: Final = 100_000


class Break(Struct, frozen=True):
    """Where an identity does not hold."""

    transactionId: str  # noqa: N815
    expected: str
    found: str
    difference: str


class ChainReport(Struct, frozen=True):
    """One wallet's coin over the range."""

    wallet: str
    asset: str
    records: int
    opening: str
    changes: str
    closing: str
    difference: str
    holds: bool
    breaks: tuple[Break, ...]


class OrderReport(Struct, frozen=True):
    """Orders against their fills."""

    checked: int
    holds: bool
    breaks: tuple[Break, ...]
    fills_without_order: int


class Verification(Struct, frozen=True):
    """What was proven."""

    holds: bool
    ledger: tuple[ChainReport, ...]
    orders: OrderReport


class _Chain:
    """One wallet's coin on the way back in time."""

    def __init__(self, wallet: str, asset: str) -> None:
        self.wallet = wallet
        self.asset = asset
        self.records = 0
        self.changes = ZERO
        self.closing: Decimal | None = None
        self.before: Decimal | None = None  # what the next older line must end with
        self.breaks: list[Break] = []
        self._rounds: list[list[Record]] = []

    def take(self, lines: list[Record]) -> None:
        """Take the lines of one instant: their order is not known, the chain itself gives it."""
        newest = _newest_balance(lines) if self.before is None else self.before
        if newest is None:
            # They end where they began: where that is, the next older instant tells.
            self._rounds.append(lines)
            return
        self._take_rounds(newest)
        if all(_after(line) != newest for line in lines):
            # A break is before these lines, not between them.
            newest = _newest_balance(lines) or _after(lines[0])
        for line in chained(lines, newest):
            self._append(line)

    def _take_rounds(self, balance: Decimal) -> None:
        for lines in self._rounds:
            for line in chained(lines, balance):
                self._append(line)
        self._rounds = []

    def _append(self, line: Record) -> None:
        after, change = _after(line), _change(line)
        if self.before is not None and after != self.before and len(self.breaks) < BREAKS_MAX:
            self.breaks.append(
                Break(
                    line.transactionId,
                    expected=show(self.before),
                    found=show(after),
                    difference=show(subtract(self.before, after)),
                )
            )
        if self.closing is None:
            self.closing = after
        self.before = subtract(after, change)
        self.changes = add(self.changes, change)
        self.records += 1

    def report(self) -> ChainReport:
        """What was found."""
        if self._rounds:
            self._take_rounds(_after(self._rounds[0][0]))
        opening, closing = self.before or ZERO, self.closing or ZERO
        difference = subtract(closing, add(opening, self.changes))
        return ChainReport(
            self.wallet,
            self.asset,
            self.records,
            opening=show(opening),
            changes=show(self.changes),
            closing=show(closing),
            difference=show(difference),
            holds=not self.breaks and not difference,
            breaks=tuple(self.breaks),
        )


class _Fills:
    """What the fills of one order add up to."""

    __slots__ = ("quantity", "value")

    def __init__(self) -> None:
        self.quantity = ZERO
        self.value = ZERO


class Verifier:
    """Hears every record of an answer and says at the end what holds.

    An answer can begin and end in the middle of an instant (pages do): such an instant is not
    the whole of what happened then, and proves nothing.

    Args:
        below_ms: Everything in the answer is below this time, exclusive, or at it and partial.
    """

    def __init__(self, *, below_ms: int) -> None:
        self._below_ms = below_ms
        self._chains: dict[tuple[str, str], _Chain] = {}
        self._instant: list[Record] = []
        self._orders: list[Record] = []  # of one instant: their fills may bear the same time
        self._open: dict[str, _Fills] = {}
        self._overflowed = False
        self._checked = 0
        self._breaks: list[Break] = []

    def heard(self, record: Record) -> None:
        """Take one record."""
        if record.view is View.LEDGER and record.type == "ledger":
            self._ledger(record)
        elif record.type == "spot_orders":
            if self._orders and self._orders[0].timestamp != record.timestamp:
                self._close_orders()
            if record.kind == "order":
                if NO_FILLS not in record.incomplete:
                    self._orders.append(record)
            else:
                self._fill(record)

    def report(self, *, cut: bool) -> Verification:
        """What was proven of all records heard; `cut`: more would have come."""
        if cut:
            self._instant, self._orders = [], []
        self._close_instant()
        self._close_orders()
        chains = tuple(chain.report() for _, chain in sorted(self._chains.items()))
        orders = OrderReport(
            self._checked,
            holds=not self._breaks,
            breaks=tuple(self._breaks),
            fills_without_order=len(self._open),
        )
        return Verification(
            holds=orders.holds and all(chain.holds for chain in chains),
            ledger=chains,
            orders=orders,
        )

    def _ledger(self, record: Record) -> None:
        if record.balance is None or record.balance.after is None:
            return
        if record.timestamp >= self._below_ms:
            return
        if self._instant and self._instant[0].timestamp != record.timestamp:
            self._close_instant()
        self._instant.append(record)

    def _close_instant(self) -> None:
        lines = sorted(self._instant, key=_place)
        self._instant = []
        for place, group in groupby(lines, key=_place):
            chain = self._chains.get(place)
            if chain is None:
                chain = self._chains[place] = _Chain(*place)
            chain.take(list(group))

    def _fill(self, record: Record) -> None:
        order_id = record.ids.order_id
        if order_id is None:
            return
        if len(self._open) >= OPEN_ORDERS_MAX:
            self._overflowed = True
            return
        fills = self._open.setdefault(order_id, _Fills())
        fills.quantity = add(fills.quantity, Decimal(record.quantity or 0))
        fills.value = add(fills.value, Decimal(record.value or 0))

    def _close_orders(self) -> None:
        for order in self._orders:
            self._order(order)
        self._orders = []

    def _order(self, order: Record) -> None:
        fills = self._open.pop(order.ids.order_id or "", None) or _Fills()
        if self._overflowed or (order.updated_at or order.timestamp) >= self._below_ms:
            return  # not all of its fills were heard
        self._checked += 1
        for found, said in ((fills.quantity, order.quantity), (fills.value, order.value)):
            expected = Decimal(said or 0)
            if found != expected and len(self._breaks) < BREAKS_MAX:
                difference = show(subtract(expected, found))
                self._breaks.append(
                    Break(order.transactionId, show(expected), show(found), difference)
                )


def _place(record: Record) -> tuple[str, str]:
    wallet = record.account.wallet if record.account else None
    return wallet or "", record.asset or ""


def _after(record: Record) -> Decimal:
    assert record.balance is not None
    return Decimal(record.balance.after or 0)


def _change(record: Record) -> Decimal:
    assert record.balance is not None
    return Decimal(record.balance.change or 0)


def _before(line: Record) -> Decimal:
    return subtract(_after(line), _change(line))


def _newest_balance(lines: list[Record]) -> Decimal | None:
    """The balance after the last line of an instant: more lines end there than begin there.

    None where they make a round.
    """
    surplus = Counter(_after(line) for line in lines)
    surplus.subtract(_before(line) for line in lines)
    return next((balance for balance, count in surplus.items() if count > 0), None)


def chained(lines: list[Record], start: Decimal) -> list[Record]:
    """Lines of one instant, newest first, so that each begins where the next older one ends.

    Balances are the nodes of a graph and lines its edges: the order is a path that takes every
    edge once (Hierholzer 1873). Where there is none, the lines come as they are.
    """
    if len(lines) == 1:
        return lines
    ends_at: dict[Decimal, list[Record]] = {}
    for line in lines:
        ends_at.setdefault(_after(line), []).append(line)
    path: list[Record] = []
    stack: list[tuple[Decimal, Record | None]] = [(start, None)]
    while stack:
        balance, newer = stack[-1]
        if onward := ends_at.get(balance):
            older = onward.pop()
            stack.append((_before(older), older))
        else:
            stack.pop()
            if newer is not None:
                path.append(newer)
    path.reverse()
    return path if len(path) == len(lines) else lines
