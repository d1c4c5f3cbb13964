"""Parts of an oracle's account: rows of lists, with the expected record of each."""

from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal, getcontext
from random import Random
from typing import Any, NamedTuple

getcontext().prec = 100

DAY_MS = 86_400_000
UID = "1001"
PENDING, COMPLETED, FAILED, UNKNOWN = "pending", "completed", "failed", "unknown"
CANCELLED, REVERSED = "cancelled", "reversed"
TIMES = {
    "fills": "execTime", "spot_fills": "execTime", "withdrawals": "createTime",
    "internal_transfers": "timestamp", "ledger": "transactionTime", "token_orders": "orderTime",
    "fund_ledger": "createTime", "sessions": "createdTime",
}  # fmt: skip
UNMOVED = (FAILED, CANCELLED, REVERSED)

Row = dict[str, Any]
Amount = tuple[str, Decimal]


@dataclass
class Expected:
    """An expected record."""

    type: str
    kind: str
    at_ms: int | None  # None: the row has no time of its own
    status: str = COMPLETED
    view: str = "primary"
    sent: Amount | None = None
    received: Amount | None = None
    fees: list[Amount] = field(default_factory=list)
    unreadable: bool = False


class Sent(NamedTuple):
    """A transfer to another account of the same owner."""

    coin: str
    amount: Decimal
    at_ms: int
    tx_hash: str
    address: str


@dataclass
class Served:
    """A row of a list, the time that the exchange filters by, and its records."""

    filter_ms: int
    seq: int
    row: Row
    expected: list[Expected]
    late: bool  # booked while it was read: it may be in the answer or not


class RandomRows:
    """Rows of every list between two times, and the numbers, names and times in them."""

    def __init__(self, seed: int, *, from_ms: int, to_ms: int, tokens_to_ms: int) -> None:
        self.random = Random(seed)
        self.from_ms, self.to_ms, self.tokens_to_ms = from_ms, to_ms, tokens_to_ms
        self.lists: defaultdict[str, list[Served]] = defaultdict(list)
        self.gained: defaultdict[str, Decimal] = defaultdict(Decimal)
        self.late = False
        self.dense = self.random.random() < 0.6
        self.nonsense = seed % 2 == 1
        self._seq = 0

    def number(self, digits: int = 0) -> Decimal:
        """An amount above zero with up to 18 places."""
        digits = digits or self.random.choice((1, 4, 8, 15, 24))
        return Decimal(self.random.randrange(1, 10**digits)).scaleb(
            -self.random.choice((0, 2, 6, 18))
        )

    def shown(self, value: Decimal) -> str:
        """The exchange's form of an amount: sometimes with trailing zeros."""
        text = f"{value:f}"
        return text + "00" if "." in text and self.random.random() < 0.2 else text

    def text(self) -> str:
        return self.shown(self.number())

    def name(self) -> str:
        self._seq += 1
        return f"{self._seq:06d}-{self.random.randrange(10**9)}"

    def time(self, to_ms: int = 0) -> int:
        """A time, sometimes shared with other rows."""
        if self.late:
            return self.to_ms - self.random.randrange(5 * DAY_MS)
        if self.dense and self.random.random() < 0.8:  # a busy hour, so that windows have pages
            return self.from_ms + 9 * DAY_MS + self.random.randrange(3_600_000)
        at_ms = self.random.randrange(self.from_ms, to_ms or self.to_ms)
        return max(self.from_ms, at_ms // DAY_MS * DAY_MS if self.random.random() < 0.1 else at_ms)

    def second(self) -> int:
        return max(self.from_ms, self.time() // 1_000 * 1_000)

    def put(
        self, name: str, filter_ms: int, row: Row, *expected: Expected, spoil: str = ""
    ) -> None:
        """A row of a list; now and then `spoil` makes a field unreadable."""
        if spoil and self.nonsense and self.random.random() < 0.08:
            row = row | self._spoilt(row, spoil, TIMES.get(name.removeprefix("linear_"), ""))
            expected = tuple(
                Expected(one.type, "other", None, UNKNOWN, unreadable=True) for one in expected
            )
        self._seq += 1
        self.lists[name].append(Served(filter_ms, self._seq, row, list(expected), self.late))

    def _spoilt(self, row: Row, spoil: str, time: str) -> Row:
        """An unreadable field, or a time that is missing or in the wrong unit."""
        if time and self.random.random() < 0.4:
            return {time: self.random.choice(["", None, str(int(row[time]) // 1_000)])}
        values = ["", None] if spoil.lower().endswith("id") else ["", None, "nonsense", "-"]
        return {spoil: self.random.choice(values)}

    def gain(self, served: str, *changes: Amount) -> None:
        """Add to the account's gains, if the row is readable."""
        if self.late or self.lists[served][-1].expected[0].unreadable:
            return
        for coin, change in changes:
            self.gained[coin] += change
