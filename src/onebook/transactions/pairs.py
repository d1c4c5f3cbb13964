"""Events against the lines that wallets' books have of them: pure, one pass, newest first.

Every event that moved money is twice in an exchange's data: as a record of its own, and as
lines of a wallet's book. Two of a pair that agree cancel out as soon as both were read; what is
left over at the end was lost, or falsified, on one side.
"""

from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Final, NamedTuple

from msgspec import UNSET

from onebook.core import show
from onebook.transactions.decimals import ZERO, add, negate, subtract
from onebook.transactions.record import Direction, Fee, Record, Status

LEFT_MAX: Final = 100_000  # unmatched entries of one check that are held; more prove nothing
TAX: Final = "tax"
UNSURE_FILLS: Final = frozenset({"delivery", "liquidation", "adl", "adjustment", "other"})


class Left(NamedTuple):
    """What has no counterpart.

    Args:
        record: Of several, the newest.
        what: What is wrong with it, for people.
        expected, found: The figures that differ.
        sure: Whether it can only be a loss; otherwise the exchange does not always book it so.
    """

    record: Record
    what: str
    expected: str
    found: str
    sure: bool = True


class Trades:
    """Fills and funding payments, each with the lines that name its id."""

    def __init__(self) -> None:
        self.checked = 0
        self.overflowed = False
        self._fills: dict[str, Record] = {}
        self._lines: dict[str, list[Record]] = {}

    def event(self, fill: Record) -> None:
        """Take a fill or a funding payment."""
        self._fills[fill.transactionId] = fill
        self._settle(fill.transactionId)

    def line(self, line: Record) -> None:
        """Take a line that names a fill."""
        self._lines.setdefault(line.related[0], []).append(line)
        self._settle(line.related[0])

    def _settle(self, key: str) -> None:
        fill, lines = self._fills.get(key), self._lines.get(key)
        if fill is not None and lines and difference_of(fill, lines) is None:
            del self._fills[key], self._lines[key]
            self.checked += 1
        self.overflowed |= len(self._fills) + len(self._lines) > LEFT_MAX
        if self.overflowed:
            self._fills.clear()
            self._lines.clear()

    def left(self) -> Iterator[Left]:
        """What does not agree."""
        for key, fill in self._fills.items():
            lines = self._lines.pop(key, None)
            if lines is None:
                sure = fill.kind not in UNSURE_FILLS
                yield Left(fill, "no line of the ledger books it", "1 line", "none", sure)
            elif (found := difference_of(fill, lines)) is not None:
                yield Left(fill, *found)
        for lines in self._lines.values():
            sure = lines[0].kind not in UNSURE_FILLS
            yield Left(lines[0], "the fill that it books is missing", "a fill", "none", sure)


def difference_of(fill: Record, lines: list[Record]) -> tuple[str, str, str] | None:
    """How a fill differs from its lines: what, the lines' figure, the fill's; None where it does
    not.
    """
    if fill.kind == "funding":
        booked = show(add(*(Decimal(_funding(line) or 0) for line in lines)))
        paid = _funding(fill) or "0"
        return None if booked == paid else ("its funding is not the ledger's", booked, paid)
    for line in lines:
        if line.price is not None and line.price != fill.price:
            return "its price is not the ledger's", line.price, fill.price or ""
    if fill.position is None:  # of spot, all that it moved is in the lines
        return _amounts(_changes(lines), [_moved(fill, taxes=True), _moved(fill, taxes=False)])
    quantity = lines[0].quantity
    if len(lines) == 1 and quantity is not None and quantity != fill.quantity:
        return "its quantity is not the ledger's", quantity, fill.quantity or ""
    charged = _charged([fee for line in lines for fee in line.fees])
    return _amounts(charged, [_charged(fill.fees), _charged(untaxed(fill.fees))], "fee")


def _amounts(
    booked: dict[str, Decimal], reported: list[dict[str, Decimal]], what: str = "amount"
) -> tuple[str, str, str] | None:
    """Whether one of two readings is what was booked: an exchange's `fee` may hold taxes or not."""
    if booked in reported:
        return None
    coins = sorted(booked.keys() | reported[0].keys())
    coin = next(coin for coin in coins if booked.get(coin, ZERO) != reported[0].get(coin, ZERO))
    expected, found = (show(each.get(coin, ZERO)) for each in (booked, reported[0]))
    return f"its {what} in {coin} is not the ledger's", expected, found


def _moved(record: Record, *, taxes: bool) -> dict[str, Decimal]:
    """Per coin what a record moved: received less sent less fees."""
    moved: dict[str, Decimal] = defaultdict(lambda: ZERO)
    if (received := record.receivedCurrency) is not UNSET:
        moved[received.currency] = Decimal(received.amount_str)
    if (sent := record.sentCurrency) is not UNSET:
        moved[sent.currency] = subtract(moved[sent.currency], Decimal(sent.amount_str))
    for coin, amount in _charged(record.fees if taxes else untaxed(record.fees)).items():
        moved[coin] = subtract(moved[coin], amount)
    return {coin: amount for coin, amount in moved.items() if amount}


def net_of(record: Record) -> Decimal:
    """What a record of one coin moved."""
    return _moved(record, taxes=True).get(record.asset or "", ZERO)


def untaxed(fees: tuple[Fee, ...]) -> tuple[Fee, ...]:
    """Fees without the taxes on them."""
    return tuple(fee for fee in fees if fee.kind != TAX)


def _charged(fees: tuple[Fee, ...] | list[Fee]) -> dict[str, Decimal]:
    charged: dict[str, Decimal] = defaultdict(lambda: ZERO)
    for fee in fees:
        coin = fee.currency or ""
        charged[coin] = add(charged[coin], Decimal(fee.amount))
    return {coin: amount for coin, amount in charged.items() if amount}


def _changes(lines: list[Record]) -> dict[str, Decimal]:
    changes: dict[str, Decimal] = defaultdict(lambda: ZERO)
    for line in lines:
        coin = line.asset or ""
        change = line.balance.change if line.balance else None
        changes[coin] = add(changes[coin], Decimal(change or 0))
    return {coin: amount for coin, amount in changes.items() if amount}


def _funding(record: Record) -> str | None:
    return record.position.funding if record.position else None


Key = tuple[str, ...]


class Moves:
    """Events and lines that share no id: same wallet, coin and amount, at about the same time.

    Args:
        tolerance_ms: How far apart the two times may be.
    """

    def __init__(self, tolerance_ms: int) -> None:
        self.tolerance_ms = tolerance_ms
        self.checked = 0
        self.overflowed = False
        self._events: dict[Key, list[Record]] = defaultdict(list)
        self._lines: dict[Key, list[Record]] = defaultdict(list)
        self._count = 0

    def event(self, key: Key, record: Record) -> None:
        """Take an event."""
        self._add(key, record, self._events, self._lines)

    def line(self, key: Key, record: Record) -> None:
        """Take a line."""
        self._add(key, record, self._lines, self._events)

    def _add(
        self, key: Key, record: Record, own: dict[Key, list[Record]], other: dict[Key, list[Record]]
    ) -> None:
        near = self._near(other, key, record.timestamp)
        if near is not None:
            other[key].remove(near)
            self._count -= 1
            self.checked += 1
            return
        own[key].append(record)
        self._count += 1
        if self._count > LEFT_MAX:
            self.overflowed = True
            self._events.clear()
            self._lines.clear()
            self._count = 0

    def _near(self, side: dict[Key, list[Record]], key: Key, at_ms: int) -> Record | None:
        if key not in side:
            return None
        return next((r for r in side[key] if abs(r.timestamp - at_ms) <= self.tolerance_ms), None)

    def take_line(self, key: Key, at_ms: int) -> Record | None:
        """A line that is left, taken out."""
        found = self._near(self._lines, key, at_ms)
        if found is not None:
            self._lines[key].remove(found)
        return found

    def left(self) -> tuple[list[tuple[Key, Record]], list[tuple[Key, Record]]]:
        """Events without a line, and lines without an event."""
        events, lines = (
            [(key, record) for key, found in side.items() for record in found]
            for side in (self._events, self._lines)
        )
        return events, lines


class _Closing:
    __slots__ = ("booked", "line_size", "lines", "newest", "oldest_ms", "reported", "size")

    def __init__(self, record: Record) -> None:
        self.reported: Decimal | None = None
        self.booked = ZERO
        self.size = ZERO
        self.line_size = ZERO
        self.lines = 0
        self.newest = record
        self.oldest_ms = record.timestamp


class Closings:
    """Per order: the gain that its closed position states, and what the ledger booked."""

    def __init__(self) -> None:
        self.checked = 0
        self.overflowed = False
        self.wrong: list[Left] = []  # that contradict themselves
        self._orders: dict[str, _Closing] = {}

    def event(self, record: Record) -> None:
        """Take a closed position."""
        self._arithmetic(record)
        closing = self._of(record)
        if closing is None or record.position is None:
            return
        closing.reported = add(closing.reported or ZERO, net_of(record))
        closing.size = add(closing.size, Decimal(record.position.closed_size or 0))
        self._settle(record, closing)

    def line(self, line: Record) -> None:
        """Take a line of a trade in a contract."""
        if line.balance is None:
            return
        opens = line.balance.cash_flow in (None, "0")  # nothing is gained by opening
        if opens and line.ids.order_id not in self._orders:
            return
        closing = self._of(line)
        if closing is None:
            return
        closing.booked = add(closing.booked, Decimal(line.balance.cash_flow or 0))
        closing.line_size = add(closing.line_size, Decimal(line.quantity or 0))
        closing.lines += 1
        self._settle(line, closing)

    def _arithmetic(self, record: Record) -> None:
        position = record.position
        if position is None or position.open_fee is None or position.close_fee is None:
            return
        fees = add(Decimal(position.open_fee), Decimal(position.close_fee))
        net = show(subtract(net_of(record), fees))
        if net != position.realised_pnl:
            what = "exit less entry less fees is not its P&L"
            self.wrong.append(Left(record, what, net, position.realised_pnl or ""))

    def _of(self, record: Record) -> _Closing | None:
        order_id = record.ids.order_id
        if order_id is None or self.overflowed:
            return None
        closing = self._orders.get(order_id)
        if closing is None:
            self.overflowed = len(self._orders) >= LEFT_MAX
            closing = self._orders[order_id] = _Closing(record)
        closing.oldest_ms = min(closing.oldest_ms, record.timestamp)
        return closing

    def _settle(self, record: Record, closing: _Closing) -> None:
        """Drop an order that is complete and agrees."""
        whole = closing.reported is not None and closing.line_size == closing.size
        if whole and closing.reported == closing.booked:
            del self._orders[record.ids.order_id or ""]
            self.checked += 1

    def left(self) -> Iterator[Left]:
        """Orders whose figures do not agree."""
        for closing in self._orders.values():
            reported = ZERO if closing.reported is None else closing.reported
            if reported == closing.booked:
                continue
            if closing.reported is None:
                what = "the closed position that it belongs to is missing"
                sure = True
            else:
                what = "what it gained is not what the ledger booked"
                # Fewer contracts in lines than were closed: the rest is before the range.
                sure = not 0 < closing.line_size < closing.size
            yield Left(closing.newest, what, show(closing.booked), show(reported), sure)


def legs_of(transfer: Record) -> Iterator[Key]:
    """The wallet, coin and amount of each line that a transfer makes in this account's books."""
    ways = transfer.transfer
    if ways is None or transfer.status is not Status.COMPLETED:
        return
    coin, amount = transfer.asset or "", transfer.amount or "0"
    if transfer.direction in (Direction.OUT, Direction.BOTH):
        yield ways.from_account or "", coin, show(negate(Decimal(amount)))
    if transfer.direction in (Direction.IN, Direction.BOTH):
        yield ways.to_account or "", coin, amount
