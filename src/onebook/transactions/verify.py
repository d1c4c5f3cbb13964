"""Verifies from the exchange's own data that no record is missing: pure, one pass, any length.

Compares what an exchange reports twice: a loss or falsification on one side breaks a check;
`reconciliation.CHECKS` lists the checks. A check is `open`, neither proven nor broken, if the
counterpart of an entry may be lost, or if the exchange may book it differently. Facts that the
exchange's data cannot prove are listed as `unproven`, with the reason.

Records arrive newest first. Memory: one balance per coin, and the unmatched entries.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from onebook.core import show
from onebook.model import DAY_MS, MINUTE_MS, SECOND_MS
from onebook.transactions.adapter import AdapterEntry, CheckId, EventType, Unproven
from onebook.transactions.decimals import ZERO, add, subtract
from onebook.transactions.reconciliation import (
    ALWAYS_UNPROVEN,
    BREAKS_MAX,
    CHECKS,
    LEFT_OVER,
    Booked,
    Break,
    ChainReport,
    CheckState,
    Closings,
    Comparisons,
    Holdings,
    HoldingsReading,
    Moves,
    OrderReport,
    Orders,
    ProofCheck,
    Trades,
    Unmatched,
    Verification,
    WalletChains,
    check_of_breaks,
    check_of_unmatched,
    grades_of,
    legs_of,
    net_of,
    opening_unproven,
    place_of,
    verdict,
)
from onebook.transactions.record import Record, RecordView, Status

WRONG_LINES_MAX: Final = 100_000
GIVEN_UP_MAX: Final = 100_000
EDGE_MS: Final = 10 * SECOND_MS  # an event has two times: entries nearer to an end are not checked
TRANSFER_MS: Final = MINUTE_MS  # maximum distance between the times of one event
DEPOSIT_MS: Final = 60 * MINUTE_MS
WITHDRAWAL_MS: Final = DAY_MS  # a withdrawal can wait for approval
EVENT_MS: Final = 60 * MINUTE_MS  # maximum spread of the lines of one event
UNDONE_MS: Final = 30 * DAY_MS  # until a deposit or withdrawal can be reversed
SNAPSHOT_LAG_MS: Final = MINUTE_MS  # a snapshot this long after the range proves nothing
CLOSING_LINES: Final = frozenset({"trade", "liquidation", "adl"})


class Span(NamedTuple):
    """The time range in which two types are both complete; other times are not checked."""

    from_ms: int
    below_ms: int

    def holds(self, at_ms: int, margin_ms: int) -> bool:
        """Whether the counterpart of an event must lie in the range."""
        return self.from_ms + margin_ms <= at_ms < self.below_ms - margin_ms


NOWHEN: Final = Span(1 << 62, 0)


class Verifier:
    """Checks every record of an answer; reports the results at the end.

    Args:
        entry: The exchange: its types, and how it books them.
        below_ms: Records from this time on may have counterparts on an earlier page.
        asked: The types of the answer.
        moving: The types whose records add up to every change of the holdings.
        orders: Whether the state of spot orders was requested in addition to their fills.
        readings: Our own readings of the holdings in the range, newest first.
    """

    def __init__(
        self,
        entry: AdapterEntry,
        *,
        below_ms: int,
        asked: Iterable[str] = (),
        moving: Iterable[str] = (),
        orders: bool = True,
        readings: Sequence[HoldingsReading] = (),
    ) -> None:
        self._own = deque(readings)
        self._entry = entry
        self._books = entry.bookkeeping
        self._below_ms = below_ms
        self._asked = frozenset(asked)
        self._moving = tuple(moving)
        self._orders_asked = orders
        self._chains = WalletChains(below_ms=below_ms, disorder_ms=self._books.disorder_ms)
        self._orders = Orders(below_ms=below_ms)
        self._lines = 0
        self._wrong_lines: list[Unmatched] = []
        self._holdings: dict[tuple[str, str], Record] = {}
        self._spot = Trades()
        self._futures = Trades()
        self._closings = Closings()
        self._settlements = Moves(EDGE_MS)
        self._deposits = Moves(DEPOSIT_MS)
        self._withdrawals = Moves(WITHDRAWAL_MS)
        self._transfers = Moves(TRANSFER_MS)
        self._tokens = Moves(0)
        self._booked = Booked()
        self._compared = Comparisons()
        self._readings = Holdings(self._books.held or frozenset())
        self._given_up: list[tuple[tuple[str, ...], Record]] = []
        self._covered: dict[str, int | None] = {}
        # Checks made elsewhere, or not at all, hold no records.
        self._idle = self._left_out() | self._books.compared

    # Records --------------------------------------------------------------------------

    def add(self, record: Record) -> None:
        """Check one record."""
        if record.type != EventType.HOLDINGS:
            self._take_readings(after_ms=record.timestamp)
        if record.type == EventType.LEDGER:
            self._arithmetic(record)
            self._chains.add(record)
            self._booked_line(record)
            self._line(record)
            return
        if record.type == EventType.HOLDINGS:
            self._readings.holding(record)
        else:
            self._readings.event(record)
            self._booked_event(record)
        if record.type == self._books.trades:
            if CheckId.ORDERS not in self._idle:
                self._orders.add(record)
            used = CheckId.SPOT_FILLS not in self._idle
            if used and record.kind != "order" and self._both(record.type):
                self._spot.event(record)
        elif record.type == EventType.HOLDINGS:
            self._holdings.setdefault(place_of(record), record)  # only the newest
        elif self._both(record.type):
            self._event(record)

    def _take_readings(self, *, after_ms: int) -> None:
        """Insert our own readings that are later than a time at their place in the sequence."""
        while self._own and self._own[0].at_ms > after_ms:
            reading = self._own.popleft()
            for holding in reading.holdings:  # as of one time, whatever each wallet reports
                self._readings.holding(replace(holding, timestamp=reading.at_ms))

    def _both(self, kind: str) -> bool:
        return EventType.LEDGER in self._asked and kind in self._asked

    def _arithmetic(self, line: Record) -> None:
        balance = line.balance
        if balance is None or balance.change is None or balance.cash_flow is None:
            return
        self._lines += 1
        funding = line.position.funding if line.position else None
        parts = [Decimal(balance.cash_flow), Decimal(funding or 0)]
        fees = add(*(Decimal(fee.amount) for fee in line.fees))
        expected = subtract(add(*parts), fees)
        if expected != Decimal(balance.change) and len(self._wrong_lines) < WRONG_LINES_MAX:
            what = "its change is not its cash flow, funding and fee"
            self._wrong_lines.append(Unmatched(line, what, show(expected), balance.change))

    def _booked_event(self, record: Record) -> None:
        named = self._books.lines_name_events and self._both(record.type)
        if named and record.view is RecordView.PRIMARY:
            self._booked.event(record)

    def _booked_line(self, line: Record) -> None:
        if not self._books.lines_name_events or not line.related:
            return
        if line.view is RecordView.LEDGER and line.related_type in self._asked:
            self._booked.line(line)

    def _line(self, line: Record) -> None:
        """Pass a line to the check of its event."""
        kind, change = line.kind, (line.balance.change if line.balance else None) or "0"
        wallet, coin = place_of(line)
        key = (wallet, coin, change)
        if kind == "transfer":
            self._transfers.line(key, line)
        elif kind == "deposit" and self._both(EventType.DEPOSITS):
            self._deposits.line((coin, change), line)
        elif kind == "withdrawal" and self._both(EventType.WITHDRAWALS):
            self._withdrawals.line((coin, change), line)
        elif kind == "leverage_token" and self._both(self._books.tokens):
            self._tokens.line((line.transactionId,), line)
        elif line.instrument is not None:
            self._contract_line(line)

    def _contract_line(self, line: Record) -> None:
        market = line.instrument
        assert market is not None
        kind = self._books.type_of(market.category)
        if not self._both(kind):
            return
        if line.related:
            (self._spot if kind == self._books.trades else self._futures).line(line)
        if kind == self._books.trades:
            return
        cash_flow = line.balance.cash_flow if line.balance else None
        if line.kind in CLOSING_LINES:
            self._closings.line(line)
        elif cash_flow not in (None, "0"):  # of a session or delivery
            self._settlements.line((market.symbol, cash_flow or "0"), line)

    def _event(self, record: Record) -> None:
        kind, moved = record.kind, show(net_of(record))
        if record.type in self._books.contracts.values():
            self._contract_event(record)
        elif kind == "transfer":
            for key in legs_of(record):
                self._transfers.event(key, record)
        elif kind == "leverage_token":
            if record.view is RecordView.PRIMARY:
                for related in record.related:
                    self._tokens.event((related,), record)
        elif record.status is not Status.COMPLETED:
            self._given_up.append(((record.asset or "", record.amount or "0"), record))
            del self._given_up[:-GIVEN_UP_MAX]
        elif kind == "deposit":
            self._deposits.event((record.asset or "", moved), record)
        elif kind == "withdrawal":
            self._withdrawals.event((record.asset or "", moved), record)

    def _contract_event(self, record: Record) -> None:
        symbol = record.instrument.symbol if record.instrument else ""
        if record.kind == "closed_pnl":
            if record.view is RecordView.PRIMARY and CheckId.CLOSED_PNL not in self._idle:
                self._closings.event(record)
        elif record.ids.trade_id is not None:
            if CheckId.FUTURES_FILLS not in self._idle:
                self._futures.event(record)
        elif CheckId.SETTLEMENTS in self._idle:
            return
        elif (gained := net_of(record)) or record.kind == "delivery":
            self._settlements.event((symbol, show(gained)), record)

    # The report -----------------------------------------------------------------------

    def report(
        self,
        *,
        cut: bool,
        covered: Mapping[str, int | None] | None = None,
        compared: Comparisons | None = None,
    ) -> Verification:
        """Report the results of all checked records.

        Args:
            cut: Whether the answer ended before its last record.
            covered: Start of the complete coverage of each type; null: none.
            compared: Comparisons made by the reader of the account.
        """
        self._compared = compared or self._compared
        self._take_readings(after_ms=0)
        self._covered.update(dict.fromkeys(self._asked, 0) if covered is None else covered)
        chains = tuple(self._held(found) for found in self._chains.reports(cut=cut))
        orders = self._orders.report(cut=cut)
        checks = tuple(self._results(chains, orders))
        types = [kind for kind in self._entry.types if kind in self._asked]
        grades = grades_of(types, checks, self._books)
        return Verification(verdict(checks), checks, self._unproven(), chains, orders, grades)

    def _results(
        self, chains: tuple[ChainReport, ...], orders: OrderReport
    ) -> Iterable[ProofCheck]:
        known = frozenset(self._entry.types)
        makers: dict[str, Callable[[], ProofCheck]] = {
            CheckId.LEDGER_ARITHMETIC: lambda: check_of_unmatched(
                CheckId.LEDGER_ARITHMETIC, self._lines, self._wrong_lines
            ),
            CheckId.LEDGER_CHAIN: lambda: _chain_check(chains),
            CheckId.HOLDINGS: lambda: self._holdings_check(chains),
            CheckId.ORDERS: lambda: self._order_check(orders),
            CheckId.SPOT_FILLS: lambda: self._trades_check(CheckId.SPOT_FILLS, self._spot),
            CheckId.FUTURES_FILLS: lambda: self._trades_check(CheckId.FUTURES_FILLS, self._futures),
            CheckId.CLOSED_PNL: self._closings_check,
            CheckId.SETTLEMENTS: self._settlements_check,
            CheckId.TRANSFERS: self._transfers_check,
            CheckId.DEPOSITS: lambda: self._funds_check(CheckId.DEPOSITS, self._deposits),
            CheckId.WITHDRAWALS: lambda: self._funds_check(CheckId.WITHDRAWALS, self._withdrawals),
            CheckId.LEVERAGE_TOKENS: lambda: self._funds_check(
                CheckId.LEVERAGE_TOKENS, self._tokens
            ),
            CheckId.EVENTS: self._events_check,
            CheckId.SUMS: self._sums_check,
            CheckId.READINGS: self._readings_check,
        }
        makers |= {name: partial(self._compared_check, name) for name in self._books.compared}
        left_out = self._left_out()
        for name, needed in CHECKS.items():
            if name in left_out or not all(self._books.types_of(e) & known for e in needed):
                continue
            missing = [each for each in needed if not self._has(each)]
            if missing and self._asked:
                words = " and ".join(self._books.word(each) for each in needed)
                reason = f"It needs {words} in one request."
                yield ProofCheck(name, CheckState.NOT_CHECKED, 0, 0, 0, (), reason)
            else:
                yield makers[name]()

    def _left_out(self) -> frozenset[CheckId]:
        """Checks that do not apply to this exchange."""
        books = self._books
        offered = {
            CheckId.EVENTS: books.lines_name_events,
            CheckId.SUMS: books.sums_from_ms is not None,
            CheckId.READINGS: books.readings,
        }
        return books.without | {name for name, has in offered.items() if not has}

    def _has(self, name: str) -> bool:
        return bool(self._asked & self._books.types_of(name))

    def _span(self, *kinds: str) -> Span:
        """The time range in which all of these types are complete."""
        starts = [self._covered.get(kind) for kind in kinds]
        known = [start for start in starts if start is not None]
        whole = len(known) == len(starts)
        return Span(max(known, default=0), self._below_ms) if whole else NOWHEN

    def _checkable(self, left: Iterable[Unmatched]) -> list[Unmatched]:
        """Entries whose counterpart must lie in the range."""
        return [o for o in left if self._span_of(o.record).holds(o.record.timestamp, EDGE_MS)]

    def _span_of(self, record: Record) -> Span:
        """The time range in which both the ledger and the type of an event are complete."""
        kind = record.type
        if kind == EventType.LEDGER and self._books.lines_name_events:
            kind = record.related_type or kind
        elif kind == EventType.LEDGER:
            market = record.instrument
            kind = (self._books.type_of(market.category) if market else "") or kind
        return self._span(EventType.LEDGER, kind)

    def _order_check(self, orders: OrderReport) -> ProofCheck:
        if not self._orders_asked:
            reason = f"It needs {self._books.trades}, not only trades."
            return ProofCheck(CheckId.ORDERS, CheckState.NOT_CHECKED, 0, 0, 0, (), reason)
        span = self._span(*([self._books.trades] if self._asked else []))
        opened = [
            Unmatched(fill, "its order is not in the range", "1", "0", certain=False)
            for fill in self._orders.left
            if fill.timestamp < span.below_ms
        ]
        overflowed = self._orders.overflowed
        found = check_of_unmatched(
            CheckId.ORDERS,
            orders.checked,
            opened,
            self._reason(CheckId.ORDERS),
            overflowed=overflowed,
        )
        if not orders.breaks:
            return found
        breaks = (*orders.breaks, *found.breaks)[:BREAKS_MAX]
        return replace(found, state=CheckState.BROKEN, broken=len(orders.breaks), breaks=breaks)

    def _trades_check(self, name: CheckId, trades: Trades) -> ProofCheck:
        left = self._checkable(trades.left())
        reason = self._reason(name)
        return check_of_unmatched(name, trades.checked, left, reason, overflowed=trades.overflowed)

    def _reason(self, name: CheckId) -> str:
        """The reason why an unmatched entry of a check may not be a loss."""
        return self._books.reasons.get(name, LEFT_OVER)

    def _closings_check(self) -> ProofCheck:
        closings = self._closings
        left = self._checkable(closings.left())
        reason = "The order began before the range, which therefore lacks a part of its P&L."
        checked = closings.checked + len(closings.wrong)
        return check_of_unmatched(
            CheckId.CLOSED_PNL,
            checked,
            [*closings.wrong, *left],
            reason,
            overflowed=closings.overflowed,
        )

    def _settlements_check(self) -> ProofCheck:
        events, lines = self._settlements.left()
        left = [
            Unmatched(r, "no ledger line has this amount", key[-1], "none", r.kind != "delivery")
            for key, r in events
        ] + [
            Unmatched(
                r, "no session or delivery has this amount", key[-1], "none", r.kind != "delivery"
            )
            for key, r in lines
        ]
        left = self._checkable(left)
        return check_of_unmatched(
            CheckId.SETTLEMENTS,
            self._settlements.checked,
            left,
            self._reason(CheckId.SETTLEMENTS),
            overflowed=self._settlements.overflowed,
        )

    def _transfers_check(self) -> ProofCheck:
        moves, span = self._transfers, self._span(EventType.LEDGER, EventType.TRANSFERS)
        events, lines = moves.left()
        left = [
            Unmatched(record, f"the ledger of {key[0]} has no line for it", key[2], "none")
            for key, record in events
            if key[0] in self._chains.wallets and span.holds(record.timestamp, TRANSFER_MS)
        ]
        unlisted = _unlisted(lines, self._books.funding_wallet)
        left += [one for one in unlisted if span.holds(one.record.timestamp, TRANSFER_MS)]
        reason = self._reason(CheckId.TRANSFERS)
        return check_of_unmatched(
            CheckId.TRANSFERS, moves.checked, left, reason, overflowed=moves.overflowed
        )

    def _events_check(self) -> ProofCheck:
        booked = self._booked
        left = [
            one
            for one in booked.left()
            if self._span_of(one.record).holds(
                one.record.timestamp, UNDONE_MS if one.undone else EVENT_MS
            )
        ]
        reason = self._reason(CheckId.EVENTS)
        return check_of_unmatched(
            CheckId.EVENTS, booked.checked, left, reason, overflowed=booked.overflowed
        )

    def _compared_check(self, name: CheckId) -> ProofCheck:
        """The check of comparisons made by the account's reader."""
        found = self._compared
        left = self._checkable(found.left(name))
        return check_of_unmatched(name, found.checked[name], left, self._reason(name))

    def _funds_check(self, name: CheckId, moves: Moves) -> ProofCheck:
        """The check of deposits, withdrawals and leverage tokens against their ledger lines."""
        kind = self._books.word(CHECKS[name][1])
        span, margin_ms = self._span(EventType.LEDGER, kind), max(EDGE_MS, moves.tolerance_ms)
        events, lines = moves.left()
        left: list[Unmatched] = []
        for key, record in events:
            # If credited directly to the trading wallet, or sent from it, it is a transfer there.
            wallet = self._books.trading_wallet
            if self._transfers.pop_line((wallet, *key), record.timestamp) is not None:
                continue
            left.append(Unmatched(record, "no ledger contains it", key[-1], "none"))
        refunds = {key for key, _ in self._given_up}
        for key, line in lines:
            undone = (key[0], key[-1].removeprefix("-")) in refunds
            left.append(Unmatched(line, f"none of the {kind} matches", key[-1], "none", not undone))
        left = [one for one in left if span.holds(one.record.timestamp, margin_ms)]
        reason = self._reason(name)
        return check_of_unmatched(name, moves.checked, left, reason, overflowed=moves.overflowed)

    # Holdings --------------------------------------------------------------------------

    def _held(self, chain: ChainReport) -> ChainReport:
        holding = self._holdings.get((chain.wallet, chain.asset))
        if holding is None or holding.balance is None:
            return chain
        return replace(chain, held=holding.balance.total)

    def _holdings_check(self, chains: tuple[ChainReport, ...]) -> ProofCheck:
        why_not = self._no_holdings()
        if why_not is not None:
            return ProofCheck(CheckId.HOLDINGS, CheckState.NOT_CHECKED, 0, 0, 0, (), why_not)
        breaks, checked = [], 0
        for chain in chains:
            if self._books.held is not None and chain.wallet not in self._books.held:
                continue
            checked += 1
            holding = self._holdings.get((chain.wallet, chain.asset))
            total, accepted = ZERO, [ZERO]
            if holding is not None and holding.balance is not None:
                total = Decimal(holding.balance.total or 0)
                # The reported figure of a wallet may include borrowed coins; its ledger does not.
                accepted = [total, subtract(total, Decimal(holding.balance.borrowed or 0))]
            closing = Decimal(chain.closing)
            if closing not in accepted:
                name = holding.transactionId if holding else f"{chain.wallet}:{chain.asset}"
                what = (
                    f"{chain.asset} in {chain.wallet} differs from the last balance of its ledger"
                )
                difference = show(subtract(closing, total))
                breaks.append(Break(name, chain.closing, show(total), difference, what))
        return check_of_breaks(CheckId.HOLDINGS, checked, breaks)

    def _sums_check(self) -> ProofCheck:
        """Check the sum of all changes since the beginning against the holdings."""
        start_ms = self._books.sums_from_ms
        assert start_ms is not None
        why_not = self._no_sums(start_ms) or self._no_snapshot()
        if why_not is not None:
            return ProofCheck(CheckId.SUMS, CheckState.NOT_CHECKED, 0, 0, 0, (), why_not)
        breaks, checked = [], 0
        for coin, moved, held in self._readings.sums():
            checked += 1
            if moved != held:
                what = f"all changes of {coin} do not add up to the holdings"
                difference = show(subtract(held, moved))
                breaks.append(Break(coin, show(held), show(moved), difference, what))
        return check_of_breaks(CheckId.SUMS, checked, breaks)

    def _readings_check(self) -> ProofCheck:
        """Check the changes between two readings of the holdings."""
        why_not = self._no_sums(None)
        if why_not is None and len(self._readings.readings) < 2:
            why_not = "The holdings are known at only one time."
        if why_not is not None:
            return ProofCheck(CheckId.READINGS, CheckState.NOT_CHECKED, 0, 0, 0, (), why_not)
        span = self._span(*self._moving)
        breaks, checked = [], 0
        for at_ms, coin, moved, gained in self._readings.intervals(span.from_ms):
            checked += 1
            if moved != gained:
                what = f"changes of {coin} before {at_ms} do not add up to the earlier holdings"
                difference = show(subtract(gained, moved))
                breaks.append(Break(coin, show(gained), show(moved), difference, what))
        return check_of_breaks(CheckId.READINGS, checked, breaks)

    def _no_sums(self, start_ms: int | None) -> str | None:
        """The reason why changes cannot be added up for this answer."""
        missing = [kind for kind in self._moving if kind not in self._asked]
        if missing:
            return f"It also needs {', '.join(missing)} in the same request."
        covered = [self._covered.get(kind) for kind in self._moving]
        known = [each for each in covered if each is not None]
        if len(known) < len(covered):
            return "Not all types could be read."
        if start_ms is not None and max(known, default=0) > start_ms:
            return "It needs the whole history of the account."
        return None

    def _no_holdings(self) -> str | None:
        """The reason why holdings prove nothing for this answer."""
        if self._covered.get(EventType.LEDGER) is None:
            return "These records, or the ledger, could not be read."
        return self._no_snapshot()

    def _no_snapshot(self) -> str | None:
        """The reason why the holdings cannot be compared."""
        if self._covered.get(EventType.HOLDINGS) is None:
            return "These records, or the ledger, could not be read."
        seen_ms = max((holding.timestamp for holding in self._holdings.values()), default=None)
        if seen_ms is None:
            return "This answer has no such records."
        if seen_ms - self._below_ms > SNAPSHOT_LAG_MS:
            return "The range does not reach the present."
        return None

    def _unproven(self) -> tuple[Unproven, ...]:
        own = self._books
        found = [opening_unproven(self._entry.display), *ALWAYS_UNPROVEN]
        if EventType.LEDGER not in self._entry.types:
            found = [*ALWAYS_UNPROVEN[1:]]
        if own.unheld is not None and self._chains.wallets - (own.held or frozenset()):
            found.append(own.unheld)
        return (*found, *(each for name, each in own.unproven if self._has(name)))


def _chain_check(chains: tuple[ChainReport, ...]) -> ProofCheck:
    breaks = [one for chain in chains for one in chain.breaks]
    return check_of_breaks(CheckId.LEDGER_CHAIN, sum(chain.records for chain in chains), breaks)


def _unlisted(lines: list[tuple[tuple[str, ...], Record]], funding_wallet: str) -> list[Unmatched]:
    """Ledger lines of transfers that no list contains.

    A line out of one wallet and a line of the same amount into another are a transfer within the
    account. The lists contain every transfer of the funding wallet, but not all transfers between
    trading wallets.
    """
    left: list[Unmatched] = []
    waiting: dict[tuple[str, str], list[tuple[str, Record]]] = {}
    for (wallet, coin, change), line in lines:
        opposite = change[1:] if change[0] == "-" else f"-{change}"
        others = waiting.get((coin, opposite), [])
        near = [o for o in others if o[0] != wallet and _near(o[1], line, TRANSFER_MS)]
        if not near:
            waiting.setdefault((coin, change), []).append((wallet, line))
            continue
        others.remove(near[0])
        if funding_wallet in (wallet, near[0][0]):
            left.append(Unmatched(line, "its transfer is missing", change, "none"))
    single = [line for found in waiting.values() for _, line in found]
    what = "no transfer has this amount"
    return left + [Unmatched(r, what, r.amount or "", "none", certain=False) for r in single]


def _near(one: Record, other: Record, tolerance_ms: int) -> bool:
    return abs(one.timestamp - other.timestamp) <= tolerance_ms
