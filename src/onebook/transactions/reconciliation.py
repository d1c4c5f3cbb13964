"""Compares two reports of an exchange: ledgers, orders and fills, events and ledger lines.

Everything here is pure and takes records newest first, in one pass. `verify.Verifier` decides which
records each check gets.

- `WalletChains`: each balance of a ledger equals the previous one plus the change.
- `Orders`: an order's quantity and value are the sums of its fills.
- `Booked`, `Trades`, `Moves`, `Closings`: match events with ledger entries. Every event that moved
  money is reported twice: as its own record and as lines of a wallet's ledger. Pairs that agree
  cancel out once both have been read; the rest was lost or falsified on one side.
- `Comparisons`: differences found by an exchange's reader.
- `Holdings`: if no ledger has balances, all changes add up to the holdings, or to the difference
  between two readings of them.
- `Verification`, `ProofCheck` and `TypeGrade`: the results.

Memory: one balance per wallet and coin, two sums per open order, and all unmatched entries.

Over 800 lines, because all checks report the same results (`Unmatched`, `Break`, `ProofCheck`), and
the result of one check affects how others and the grades are interpreted.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from enum import StrEnum
from itertools import groupby
from typing import Final, NamedTuple, Protocol, runtime_checkable

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from onebook.core import show
from onebook.transactions.adapter import Bookkeeping, CheckId, EventType, Unproven
from onebook.transactions.decimals import ZERO, add, negate, subtract
from onebook.transactions.record import Direction, Fee, Record, RecordView, Status

BREAKS_MAX: Final = 100  # listed in an answer; the rest is only counted
LEFT_MAX: Final = 100_000  # unmatched entries held per check; more would prove nothing
TAX: Final = "tax"
UNCERTAIN_FILLS: Final = frozenset({"delivery", "liquidation", "adl", "adjustment", "other"})
OPEN_ORDERS_MAX: Final = 100_000
ALWAYS_UNPROVEN: Final = (
    Unproven(
        "the oldest lines of events that are only in the ledger (interest, airdrops, conversions, "
        "earn), if they are lost together",
        "They begin their chain, and no other list contains their events.",
    ),
    Unproven("orders without a fill", "They appear neither in fills nor in ledgers."),
    Unproven(
        "pending, cancelled and failed events",
        "Ledgers contain only completed events, so only these are compared.",
    ),
)
LEFT_OVER: Final = "It was lost, or the exchange books events that no list contains."
OVERFLOWED: Final = "Too many unmatched entries; request a shorter range."

# Each check and the types that it compares. Checks of types that an exchange lacks are omitted.
CHECKS: Final[Mapping[CheckId, tuple[EventType, ...]]] = {
    CheckId.LEDGER_ARITHMETIC: (EventType.LEDGER,),
    CheckId.LEDGER_CHAIN: (EventType.LEDGER,),
    CheckId.HOLDINGS: (EventType.LEDGER, EventType.HOLDINGS),
    CheckId.ORDERS: (EventType.TRADES,),
    CheckId.SPOT_FILLS: (EventType.LEDGER, EventType.TRADES),
    CheckId.FUTURES_FILLS: (EventType.LEDGER, EventType.FUTURES),
    CheckId.CLOSED_PNL: (EventType.LEDGER, EventType.FUTURES),
    CheckId.SETTLEMENTS: (EventType.LEDGER, EventType.FUTURES),
    CheckId.DEPOSITS: (EventType.LEDGER, EventType.DEPOSITS),
    CheckId.WITHDRAWALS: (EventType.LEDGER, EventType.WITHDRAWALS),
    CheckId.TRANSFERS: (EventType.LEDGER, EventType.TRANSFERS),
    CheckId.LEVERAGE_TOKENS: (EventType.LEDGER, EventType.TOKENS),
    CheckId.EVENTS: (EventType.LEDGER,),
    CheckId.SUMS: (EventType.HOLDINGS,),
    CheckId.READINGS: (EventType.HOLDINGS,),
}
# Checks that compare an event with its ledger entries prove it as far as the ledger is proven.
OF_EVENTS: Final = frozenset(CHECKS) - {
    CheckId.LEDGER_ARITHMETIC, CheckId.LEDGER_CHAIN, CheckId.HOLDINGS, CheckId.ORDERS, CheckId.SUMS,
    CheckId.READINGS,
}  # fmt: skip
NOTHING_TO_COMPARE: Final = "The exchange provides no data to compare these records with."

Key = tuple[str, ...]


class Break(Struct, frozen=True):
    """A violation: the expected figure and the actual one."""

    transactionId: str  # noqa: N815
    expected: str
    found: str
    difference: str
    what: str = ""


class ChainReport(Struct, frozen=True):
    """One coin of a wallet over the range; `held` is the balance that the exchange reports now."""

    wallet: str
    asset: str
    records: int
    opening: str
    changes: str
    closing: str
    difference: str
    holds: bool
    breaks: tuple[Break, ...]
    held: str | None = None


class Unmatched(NamedTuple):
    """A record without a counterpart in the other list.

    Args:
        record: The entry; the newest one if there are several.
        what: The fault, for people.
        expected, found: The figures that differ.
        certain: Whether it is certainly a loss; if not, the exchange may have booked it
        differently. undone: Whether its counterpart, a reversal or the reversed entry, may be a
        month away.
    """

    record: Record
    what: str
    expected: str
    found: str
    certain: bool = True
    undone: bool = False


class CheckState(StrEnum):
    """Result of a check."""

    HOLDS = "holds"
    BROKEN = "broken"
    OPEN = "open"  # something is left over that the exchange's data cannot decide
    NOT_CHECKED = "not_checked"


class ProofCheck(Struct, frozen=True):
    """Result of one check.

    Args:
        name: One of `CHECKS`.
        checked: Number of comparisons.
        broken, open: How many comparisons failed or are undecided; `breaks` lists the first
            hundred.
        reason: Why nothing was checked, or why a result is undecided.
    """

    name: str
    state: CheckState
    checked: int
    broken: int
    open: int
    breaks: tuple[Break, ...]
    reason: str | None = None


class ProofGrade(StrEnum):
    """Grade of the proof of a type's records."""

    PROVEN = "proven"
    PARTLY_PROVEN = "partly_proven"
    CONTRADICTED = "contradicted"
    AS_ANSWERED = "as_answered"  # not proven


class TypeGrade(Struct, frozen=True):
    """Grade of the proof of one type.

    Args:
        why: The data that the exchange does not provide, if the records are not proven.
    """

    transaction_type: str
    grade: ProofGrade
    why: str | None = None


class OrderReport(Struct, frozen=True):
    """Orders against their fills."""

    checked: int
    holds: bool
    breaks: tuple[Break, ...]
    fills_without_order: int


class Verification(Struct, frozen=True):
    """Result of a verification.

    Args:
        holds: Whether all comparisons agree; null if nothing was compared or a check is open.
        accounts: For several accounts: the verification of each, instead of the other fields, but
            for `unproven`: the records that could be a transfer between the accounts.
    """

    holds: bool | None
    checks: tuple[ProofCheck, ...]
    unproven: tuple[Unproven, ...]
    ledger: tuple[ChainReport, ...]
    orders: OrderReport
    grades: tuple[TypeGrade, ...] = ()
    accounts: "dict[str, Verification] | UnsetType" = UNSET


class Numbered(NamedTuple):
    """A line numbered by its booking order."""

    order: int
    line: Record

    def __lt__(self, other: "Numbered") -> bool:  # type: ignore[override]
        return self.order < other.order


class WalletChains:
    """The chains of every wallet and coin of an answer.

    Args:
        below_ms: Lines from this time on are ignored, because an earlier page may have more of
            them.
        disorder_ms: See `Bookkeeping`.
    """

    def __init__(self, *, below_ms: int, disorder_ms: int = 0) -> None:
        self.wallets: set[str] = set()
        self._below_ms = below_ms
        self._disorder_ms = disorder_ms
        self._chains: dict[tuple[str, str], LedgerChain] = {}
        self._instant: list[Record] = []
        self._held: dict[tuple[str, str], list[Numbered]] = defaultdict(list)  # newest first

    def add(self, line: Record) -> None:
        """Add a line; one without a balance belongs to no chain."""
        if line.balance is None or line.balance.after is None:
            return
        self.wallets.add(place_of(line)[0])
        if line.timestamp >= self._below_ms:
            return
        if self._disorder_ms:
            self._hold(line)
            return
        if self._instant and self._instant[0].timestamp != line.timestamp:
            self._close_instant()
        self._instant.append(line)

    def _hold(self, line: Record) -> None:
        """Hold a line until no line booked after it can arrive."""
        place = place_of(line)
        held = self._held[place]
        heapq.heappush(held, Numbered(-int(line.ids.sequence or 0), line))
        while held[0].line.timestamp > line.timestamp + self._disorder_ms:
            self._chain(place).add([heapq.heappop(held).line])

    def _close_instant(self) -> None:
        lines = sorted(self._instant, key=place_of)
        self._instant = []
        for place, group in groupby(lines, key=place_of):
            self._chain(place).add(list(group))

    def _chain(self, place: tuple[str, str]) -> "LedgerChain":
        chain = self._chains.get(place)
        if chain is None:
            chain = self._chains[place] = LedgerChain(*place)
        return chain

    def reports(self, *, cut: bool) -> list[ChainReport]:
        """Results; `cut` drops the oldest lines, some of which a truncated answer lacks."""
        if cut:
            self._instant = []
        self._close_instant()
        for place, held in self._held.items():
            while held and not cut:
                self._chain(place).add([heapq.heappop(held).line])
        return [chain.report() for _, chain in sorted(self._chains.items())]


class LedgerChain:
    """The ledger of one wallet's coin, newest line first."""

    def __init__(self, wallet: str, asset: str) -> None:
        self.wallet = wallet
        self.asset = asset
        self.records = 0
        self.changes = ZERO
        self.closing: Decimal | None = None
        self.before: Decimal | None = None  # the balance that the next older line must end with
        self.breaks: list[Break] = []
        self._cycles: list[list[Record]] = []

    def add(self, lines: list[Record]) -> None:
        """Add the lines of one instant; the chain determines their order."""
        newest = _newest_balance(lines) if self.before is None else self.before
        if newest is None:
            # They form a cycle: only the next older instant shows where it begins.
            self._cycles.append(lines)
            return
        self._add_cycles(newest)
        if all(after_of(line) != newest for line in lines):
            # The break is before these lines, not between them.
            newest = _newest_balance(lines) or after_of(lines[0])
        for line in chained(lines, newest):
            self._append(line)

    def _add_cycles(self, balance: Decimal) -> None:
        for lines in self._cycles:
            for line in chained(lines, balance):
                self._append(line)
        self._cycles = []

    def _append(self, line: Record) -> None:
        after, change = after_of(line), change_of(line)
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
        """Results."""
        if self._cycles:
            self._add_cycles(_common_balance(self._cycles))
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


def place_of(record: Record) -> tuple[str, str]:
    """The wallet and coin of a line or a holding."""
    wallet = record.account.wallet if record.account else None
    return wallet or "", record.asset or ""


def after_of(record: Record) -> Decimal:
    """The balance after a line."""
    assert record.balance is not None
    return Decimal(record.balance.after or 0)


def change_of(record: Record) -> Decimal:
    """The change of a line."""
    assert record.balance is not None
    return Decimal(record.balance.change or 0)


def _before(line: Record) -> Decimal:
    return subtract(after_of(line), change_of(line))


def _newest_balance(lines: list[Record]) -> Decimal | None:
    """The balance after the last line of an instant, where more lines end than begin.

    None if they form a cycle.
    """
    surplus = Counter(after_of(line) for line in lines)
    surplus.subtract(_before(line) for line in lines)
    return next((balance for balance, count in surplus.items() if count > 0), None)


def _common_balance(cycles: list[list[Record]]) -> Decimal:
    """A balance in every cycle at which it can begin and end; preferably zero."""
    passed = [{after_of(line) for line in lines} for lines in cycles]
    common = set.intersection(*passed)
    if not common or ZERO in common:
        return ZERO if common else after_of(cycles[0][0])
    return min(common)


def chained(lines: list[Record], start: Decimal) -> list[Record]:
    """Lines of one instant, newest first, so that each begins where the next older one ends.

    Balances are the nodes of a graph and lines its edges: the order is a path that uses every edge
    once (Hierholzer 1873). If there is none, the lines are returned unchanged.
    """
    if len(lines) == 1:
        return lines
    ends_at: dict[Decimal, list[Record]] = {}
    for line in lines:
        ends_at.setdefault(after_of(line), []).append(line)
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


class Booked:
    """Compares events of any type with the ledger lines that name them.

    Per coin, the lines of an event add up to the amounts moved by the event and its parts; an event
    that did not complete moved nothing.
    """

    def __init__(self) -> None:
        self.checked = 0
        self.overflowed = False
        self._events: dict[str, list[Record]] = {}  # the event and its parts
        self._lines: dict[str, list[Record]] = {}

    def event(self, record: Record) -> None:
        """Add an event."""
        if record.status is Status.COMPLETED or record.related:
            self._events.setdefault(_event_id(record), []).append(record)
            self._match(_event_id(record))

    def line(self, line: Record) -> None:
        """Add a line that names its event."""
        self._lines.setdefault(line.related[0], []).append(line)
        self._match(line.related[0])

    def _match(self, key: str) -> None:
        events, lines = self._events.get(key, []), self._lines.get(key, [])
        whole = any(len(lines) >= max(1, len(_lines_of(each))) for each in _heads(key, events))
        if whole and booked_difference(events, lines) is None:
            del self._events[key], self._lines[key]
            self.checked += 1
        self.overflowed |= len(self._events) + len(self._lines) > LEFT_MAX
        if self.overflowed:
            self._events.clear()
            self._lines.clear()

    def left(self) -> Iterator[Unmatched]:
        """Yield the events and lines that do not agree."""
        for key, events in self._events.items():
            lines = self._lines.pop(key, [])
            event = next(_heads(key, events), events[0])
            undone = event.status is not Status.COMPLETED and len(lines) < len(_lines_of(event))
            if not lines:
                if booked_difference(events, []) is None and _is_part(event):
                    continue  # part of an event that agreed without it
                sure = bool(event.related)
                yield Unmatched(event, "it has no ledger line", "a line", "none", sure)
            elif (found := booked_difference(events, lines)) is not None:
                yield Unmatched(event, *found, undone=undone)
            else:
                yield Unmatched(
                    event, "one of its ledger lines is missing", "a line", "none", undone=undone
                )
        for lines in self._lines.values():
            undone = all(_takes_back(line) for line in lines)
            what = "its event is missing"
            yield Unmatched(lines[0], what, "an event", "none", undone=undone)


def _is_part(record: Record) -> bool:
    """Whether an event is part of another one, with which it shares ledger lines."""
    return record.related_type not in (None, EventType.LEDGER)


def _event_id(record: Record) -> str:
    return record.related[0] if _is_part(record) else record.transactionId


def _heads(key: str, events: list[Record]) -> Iterator[Record]:
    return (each for each in events if each.transactionId == key)


def _lines_of(event: Record) -> tuple[str, ...]:
    return () if _is_part(event) else event.related


def booked_difference(events: list[Record], lines: list[Record]) -> tuple[str, str, str] | None:
    """Difference of an event and its parts from its lines: (what, their figure, its figure).

    None if they agree.
    """
    done = [each for each in events if each.status is Status.COMPLETED]
    reported = [_total(_moved(each, taxes=taxes) for each in done) for taxes in (True, False)]
    return _amounts(_changes(lines), reported)


def _takes_back(line: Record) -> bool:
    """Whether a line reverses a deposit or withdrawal."""
    ways = {"deposit": Direction.OUT, "withdrawal": Direction.IN}
    return line.direction is ways.get(line.kind)


class HoldingsReading(Struct, frozen=True):
    """Holdings of all wallets as read at a time, Unix ms."""

    at_ms: int
    holdings: tuple[Record, ...]


class Holdings:
    """Compares holdings at one or several times with the changes in between, newest first.

    Args:
        wallets: The wallets whose holdings are read; empty: all.
    """

    def __init__(self, wallets: frozenset[str]) -> None:
        self.readings: list[tuple[int, dict[tuple[str, str], Decimal]]] = []
        self.moved: list[dict[tuple[str, str], Decimal]] = []  # before each reading
        self._wallets = wallets

    def holding(self, record: Record) -> None:
        """Add a holding; holdings of the same time form one reading."""
        if record.balance is None or record.balance.total is None:
            return
        if not self.readings or self.readings[-1][0] != record.timestamp:
            self.readings.append((record.timestamp, {}))
            self.moved.append({})
        self.readings[-1][1][place_of(record)] = Decimal(record.balance.total)

    def event(self, record: Record) -> None:
        """Add the changes of an event."""
        if not self.moved or record.view is not RecordView.PRIMARY:
            return
        if record.status is not Status.COMPLETED:
            return
        if record.kind == "transfer" and record.transfer is not None:
            for wallet, coin, change in legs_of(record):
                self._move((wallet, coin), Decimal(change))
            for coin, amount in _charged(record.fees).items():
                self._move((place_of(record)[0], coin), negate(amount))
            return
        wallet = place_of(record)[0]
        for coin, amount in _moved(record, taxes=True).items():
            self._move((wallet, coin), amount)

    def _move(self, place: tuple[str, str], amount: Decimal) -> None:
        if not self._wallets or place[0] in self._wallets:
            moved = self.moved[-1]
            moved[place] = add(moved.get(place, ZERO), amount)

    def sums(self) -> Iterator[tuple[str, Decimal, Decimal]]:
        """Per coin: the sum of all changes before the newest reading, and the holding."""
        held: dict[str, Decimal] = defaultdict(lambda: ZERO)
        moved: dict[str, Decimal] = defaultdict(lambda: ZERO)
        for (_, coin), amount in self.readings[0][1].items():
            held[coin] = add(held[coin], amount)
        for part in self.moved:
            for (_, coin), amount in part.items():
                moved[coin] = add(moved[coin], amount)
        for coin in sorted(held.keys() | moved.keys()):
            yield coin, moved[coin], held[coin]

    def intervals(self, from_ms: int) -> Iterator[tuple[int, str, Decimal, Decimal]]:
        """Per pair of complete readings and coin: the sum of changes, and the difference."""
        for index, (at_ms, newer) in enumerate(self.readings[:-1]):
            older_ms, older = self.readings[index + 1]
            if older_ms < from_ms:
                return
            moved = self.moved[index]
            for place in sorted(newer.keys() | older.keys() | moved.keys()):
                gained = subtract(newer.get(place, ZERO), older.get(place, ZERO))
                yield at_ms, place[1], moved.get(place, ZERO), gained


class Trades:
    """Compares fills and funding payments with the ledger lines that name their ids."""

    def __init__(self) -> None:
        self.checked = 0
        self.overflowed = False
        self._fills: dict[str, Record] = {}
        self._lines: dict[str, list[Record]] = {}

    def event(self, fill: Record) -> None:
        """Add a fill or a funding payment."""
        self._fills[fill.transactionId] = fill
        self._match(fill.transactionId)

    def line(self, line: Record) -> None:
        """Add a line that names a fill."""
        self._lines.setdefault(line.related[0], []).append(line)
        self._match(line.related[0])

    def _match(self, key: str) -> None:
        fill, lines = self._fills.get(key), self._lines.get(key)
        if fill is not None and lines and difference_of(fill, lines) is None:
            del self._fills[key], self._lines[key]
            self.checked += 1
        self.overflowed |= len(self._fills) + len(self._lines) > LEFT_MAX
        if self.overflowed:
            self._fills.clear()
            self._lines.clear()

    def left(self) -> Iterator[Unmatched]:
        """Yield the fills and lines that do not agree."""
        for key, fill in self._fills.items():
            lines = self._lines.pop(key, None)
            if lines is None:
                sure = fill.kind not in UNCERTAIN_FILLS
                yield Unmatched(fill, "it has no ledger line", "1 line", "none", sure)
            elif (found := difference_of(fill, lines)) is not None:
                yield Unmatched(fill, *found)
        for lines in self._lines.values():
            sure = lines[0].kind not in UNCERTAIN_FILLS
            yield Unmatched(lines[0], "its fill is missing", "a fill", "none", sure)


def difference_of(fill: Record, lines: list[Record]) -> tuple[str, str, str] | None:
    """Difference of a fill from its lines: (what, their figure, the fill's), or None."""
    if fill.kind == "funding":
        booked = show(add(*(Decimal(_funding(line) or 0) for line in lines)))
        paid = _funding(fill) or "0"
        return None if booked == paid else ("its funding differs from the ledger", booked, paid)
    for line in lines:
        if line.price is not None and line.price != fill.price:
            return "its price differs from the ledger", line.price, fill.price or ""
    if fill.position is None:  # for spot, the lines contain everything that it moved
        return _amounts(_changes(lines), [_moved(fill, taxes=True), _moved(fill, taxes=False)])
    quantity = lines[0].quantity
    if len(lines) == 1 and quantity is not None and quantity != fill.quantity:
        return "its quantity differs from the ledger", quantity, fill.quantity or ""
    charged = _charged([fee for line in lines for fee in line.fees])
    return _amounts(charged, [_charged(fill.fees), _charged(untaxed(fill.fees))], "fee")


def _amounts(
    booked: dict[str, Decimal], reported: list[dict[str, Decimal]], what: str = "amount"
) -> tuple[str, str, str] | None:
    """Whether the booked figures match, with or without taxes in the exchange's `fee`."""
    if booked in reported:
        return None
    coins = sorted(booked.keys() | reported[0].keys())
    coin = next(coin for coin in coins if booked.get(coin, ZERO) != reported[0].get(coin, ZERO))
    expected, found = (show(each.get(coin, ZERO)) for each in (booked, reported[0]))
    return f"its {what} in {coin} is not the ledger's", expected, found


def _moved(record: Record, *, taxes: bool) -> dict[str, Decimal]:
    """Change of each coin by a record: received less sent less fees."""
    moved: dict[str, Decimal] = defaultdict(lambda: ZERO)
    if (received := record.receivedCurrency) is not UNSET:
        moved[received.currency] = Decimal(received.amount_str)
    if (sent := record.sentCurrency) is not UNSET:
        moved[sent.currency] = subtract(moved[sent.currency], Decimal(sent.amount_str))
    for coin, amount in _charged(record.fees if taxes else untaxed(record.fees)).items():
        moved[coin] = subtract(moved[coin], amount)
    return {coin: amount for coin, amount in moved.items() if amount}


def _total(moved: Iterable[dict[str, Decimal]]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = defaultdict(lambda: ZERO)
    for each in moved:
        for coin, amount in each.items():
            total[coin] = add(total[coin], amount)
    return {coin: amount for coin, amount in total.items() if amount}


def net_of(record: Record) -> Decimal:
    """The signed amount of a record of one coin."""
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


class Comparisons:
    """Comparisons made by the reader of an exchange, by check."""

    def __init__(self) -> None:
        self.checked: Counter[CheckId] = Counter()
        self._left: dict[CheckId, list[Unmatched]] = defaultdict(list)

    def add(self, check: CheckId, left: Unmatched | None) -> None:
        """Count a comparison; `left` is its difference, if any."""
        if left is None:
            self.checked[check] += 1
        elif len(self._left[check]) < LEFT_MAX:
            self._left[check].append(left)

    def left(self, check: CheckId) -> list[Unmatched]:
        """The differences of a check."""
        return self._left[check]


@runtime_checkable
class ComparingReader(Protocol):
    """A reader that compares two reports of an exchange while reading; see
    `Bookkeeping.compared`."""

    compared: Comparisons


class Moves:
    """Matches events and lines without a common id: equal wallet, coin and amount, similar time.

    Args:
        tolerance_ms: Maximum difference of the two times.
    """

    def __init__(self, tolerance_ms: int) -> None:
        self.tolerance_ms = tolerance_ms
        self.checked = 0
        self.overflowed = False
        self._events: dict[Key, list[Record]] = defaultdict(list)
        self._lines: dict[Key, list[Record]] = defaultdict(list)
        self._count = 0

    def event(self, key: Key, record: Record) -> None:
        """Add an event."""
        self._add(key, record, self._events, self._lines)

    def line(self, key: Key, record: Record) -> None:
        """Add a line."""
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

    def pop_line(self, key: Key, at_ms: int) -> Record | None:
        """Remove and return an unmatched line; None if there is none."""
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
    """Compares the P&L of closed positions with the ledger, by order."""

    def __init__(self) -> None:
        self.checked = 0
        self.overflowed = False
        self.wrong: list[Unmatched] = []  # closed positions that contradict themselves
        self._orders: dict[str, _Closing] = {}

    def event(self, record: Record) -> None:
        """Add a closed position."""
        self._arithmetic(record)
        closing = self._of(record)
        if closing is None or record.position is None:
            return
        closing.reported = add(closing.reported or ZERO, net_of(record))
        closing.size = add(closing.size, Decimal(record.position.closed_size or 0))
        self._drop_if_agreed(record, closing)

    def line(self, line: Record) -> None:
        """Add a ledger line of a trade in a contract."""
        if line.balance is None:
            return
        opens = line.balance.cash_flow in (None, "0")  # opening yields no P&L
        if opens and line.ids.order_id not in self._orders:
            return
        closing = self._of(line)
        if closing is None:
            return
        closing.booked = add(closing.booked, Decimal(line.balance.cash_flow or 0))
        closing.line_size = add(closing.line_size, Decimal(line.quantity or 0))
        closing.lines += 1
        self._drop_if_agreed(line, closing)

    def _arithmetic(self, record: Record) -> None:
        position = record.position
        if position is None or position.open_fee is None or position.close_fee is None:
            return
        fees = add(Decimal(position.open_fee), Decimal(position.close_fee))
        net = show(subtract(net_of(record), fees))
        if net != position.realised_pnl:
            what = "exit less entry less fees is not its P&L"
            self.wrong.append(Unmatched(record, what, net, position.realised_pnl or ""))

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

    def _drop_if_agreed(self, record: Record, closing: _Closing) -> None:
        """Drop an order that is complete and agrees."""
        whole = closing.reported is not None and closing.line_size == closing.size
        if whole and closing.reported == closing.booked:
            del self._orders[record.ids.order_id or ""]
            self.checked += 1

    def left(self) -> Iterator[Unmatched]:
        """Yield the orders whose figures do not agree."""
        for closing in self._orders.values():
            reported = ZERO if closing.reported is None else closing.reported
            if reported == closing.booked:
                continue
            if closing.reported is None:
                what = "its closed position is missing"
                sure = True
            else:
                what = "its P&L differs from the ledger"
                # If lines have fewer contracts than were closed, the others are before the range.
                sure = not 0 < closing.line_size < closing.size
            yield Unmatched(closing.newest, what, show(closing.booked), show(reported), sure)


def legs_of(transfer: Record) -> Iterator[Key]:
    """The wallet, coin and amount of each ledger line that a transfer produces in this account."""
    ways = transfer.transfer
    if ways is None or transfer.status is not Status.COMPLETED:
        return
    coin, amount = transfer.asset or "", transfer.amount or "0"
    if transfer.direction in (Direction.OUT, Direction.BOTH):
        yield ways.from_account or "", coin, show(negate(Decimal(amount)))
    if transfer.direction in (Direction.IN, Direction.BOTH):
        yield ways.to_account or "", coin, amount


def opening_unproven(display: str) -> Unproven:
    """Why the opening balances of an exchange are unproven."""
    return Unproven(
        "the opening balances",
        f"{display} reports only current balances; a range that starts with the account "
        "starts at zero.",
    )


def check_of_unmatched(
    name: str, checked: int, left: list[Unmatched], reason: str = "", *, overflowed: bool = False
) -> ProofCheck:
    """The check of unmatched entries."""
    if overflowed:
        return ProofCheck(name, CheckState.OPEN, checked, 0, 0, (), OVERFLOWED)
    unsure = [one for one in left if not one.certain]
    breaks = [
        Break(o.record.transactionId, o.expected, o.found, _difference(o), o.what)
        for o in sorted(left, key=lambda one: not one.certain)
    ]
    found = check_of_breaks(name, checked + len(left), breaks)
    if not unsure:
        return found
    broken = len(left) - len(unsure)
    state = CheckState.BROKEN if broken else CheckState.OPEN
    return replace(found, state=state, broken=broken, open=len(unsure), reason=reason)


def _difference(left: Unmatched) -> str:
    try:
        return show(subtract(Decimal(left.expected), Decimal(left.found)))
    except ArithmeticError:  # one of them is not a number
        return ""


def check_of_breaks(name: str, checked: int, breaks: list[Break]) -> ProofCheck:
    """The check of a list of breaks."""
    if not checked:
        reason = "There are no records to compare."
        return ProofCheck(name, CheckState.NOT_CHECKED, 0, 0, 0, (), reason)
    state = CheckState.BROKEN if breaks else CheckState.HOLDS
    return ProofCheck(name, state, checked, len(breaks), 0, tuple(breaks[:BREAKS_MAX]))


def verdict(checks: Iterable[ProofCheck]) -> bool | None:
    """Whether all checks hold; null if nothing was compared or a check is open."""
    states = {check.state for check in checks}
    if CheckState.BROKEN in states:
        return False
    return True if CheckState.OPEN not in states and CheckState.HOLDS in states else None


def grades_of(
    types: Iterable[str], checks: Iterable[ProofCheck], books: Bookkeeping
) -> tuple[TypeGrade, ...]:
    """The grade of each type, from the checks that concern it."""
    found = {CheckId(check.name): check for check in checks}
    return tuple(grade_of(kind, found, books) for kind in types)


def grade_of(kind: str, checks: Mapping[CheckId, ProofCheck], books: Bookkeeping) -> TypeGrade:
    """The grade of a type.

    Its records are proven if no check is open and one of these holds: the sum of all changes, the
    readings of holdings, or a complete ledger together with the comparison with it.
    """
    of_all = (CheckId.SUMS, CheckId.READINGS)
    states = {
        name: check.state
        for name, check in checks.items()
        if check.state is not CheckState.NOT_CHECKED
        and (
            any(kind in books.types_of(each) for each in CHECKS[name])
            or (name in of_all and kind not in books.withheld)
            or (name is CheckId.EVENTS and kind != EventType.HOLDINGS)
        )
    }
    if kind != EventType.LEDGER:  # of a ledger with another event, they prove nothing here
        other = {CheckId.LEDGER_ARITHMETIC, CheckId.LEDGER_CHAIN}
        own = {name: state for name, state in states.items() if name not in other}
    else:
        ledger = {CheckId.LEDGER_ARITHMETIC, CheckId.LEDGER_CHAIN, CheckId.HOLDINGS, CheckId.EVENTS}
        own = {name: state for name, state in states.items() if name in ledger | {*of_all}}
    if CheckState.BROKEN in own.values():
        return TypeGrade(kind, ProofGrade.CONTRADICTED)
    holding = {name for name, state in own.items() if state is CheckState.HOLDS}
    chain = checks.get(CheckId.LEDGER_CHAIN)
    whole = chain is not None and chain.state is CheckState.HOLDS
    complete = (
        bool(holding & {*of_all})
        or (whole and bool(holding & OF_EVENTS))
        or (kind == EventType.LEDGER and CheckId.LEDGER_CHAIN in holding)
        or (kind == EventType.HOLDINGS and CheckId.HOLDINGS in holding)
    )
    if complete and CheckState.OPEN not in own.values():
        return TypeGrade(kind, ProofGrade.PROVEN)
    if holding:
        return TypeGrade(kind, ProofGrade.PARTLY_PROVEN)
    return TypeGrade(kind, ProofGrade.AS_ANSWERED, books.withheld.get(kind, NOTHING_TO_COMPARE))


class _Fills:
    """Sums of the fills of one order."""

    __slots__ = ("newest", "quantity", "value")

    def __init__(self, newest: Record) -> None:
        self.newest = newest
        self.quantity = ZERO
        self.value = ZERO


class Orders:
    """Compares orders with the sums of their fills.

    Args:
        below_ms: Orders that changed at this time or later may have unread fills.
    """

    def __init__(self, *, below_ms: int) -> None:
        self.overflowed = False
        self._below_ms = below_ms
        self._instant: list[Record] = []  # orders of one time: their fills may have the same time
        self._open: dict[str, _Fills] = {}
        self._checked = 0
        self._breaks: list[Break] = []

    @property
    def left(self) -> list[Record]:
        """The newest fill of each order without a record."""
        return [fills.newest for fills in self._open.values()]

    def add(self, record: Record) -> None:
        """Add a fill or an order."""
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
        """Results; `cut` drops the last instant, which a truncated answer has only in part."""
        if cut:
            self._instant = []
        self._close_instant()
        return OrderReport(
            self._checked,
            holds=not self._breaks,
            breaks=tuple(self._breaks),
            fills_without_order=len(self._open),
        )
