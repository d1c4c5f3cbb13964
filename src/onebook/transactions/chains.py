"""The chain of a wallet's book: each balance is the one before plus the change. Pure, one pass.

Lines come newest first. Memory: one balance per wallet and coin.
"""

from collections import Counter
from decimal import Decimal
from itertools import groupby
from typing import Final

from msgspec import Struct

from onebook.core import show
from onebook.transactions.decimals import ZERO, add, subtract
from onebook.transactions.record import Record

BREAKS_MAX: Final = 100  # named in an answer; the rest is counted


class Break(Struct, frozen=True):
    """Where something that must hold does not."""

    transactionId: str  # noqa: N815
    expected: str
    found: str
    difference: str
    what: str = ""


class ChainReport(Struct, frozen=True):
    """One wallet's coin over the range; `held` is the balance that the exchange reports now."""

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


class LedgerChain:
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
            # They end where they began: the next older instant shows where that is.
            self._rounds.append(lines)
            return
        self._take_rounds(newest)
        if all(after_of(line) != newest for line in lines):
            # A break is before these lines, not between them.
            newest = _newest_balance(lines) or after_of(lines[0])
        for line in chained(lines, newest):
            self._append(line)

    def _take_rounds(self, balance: Decimal) -> None:
        for lines in self._rounds:
            for line in chained(lines, balance):
                self._append(line)
        self._rounds = []

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
        """What was found."""
        if self._rounds:
            self._take_rounds(after_of(self._rounds[0][0]))
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


class WalletChains:
    """The chains of every wallet and coin of an answer.

    Args:
        below_ms: Lines from here on may have company that an earlier page had: they are left out.
    """

    def __init__(self, *, below_ms: int) -> None:
        self.wallets: set[str] = set()
        self._below_ms = below_ms
        self._chains: dict[tuple[str, str], LedgerChain] = {}
        self._instant: list[Record] = []

    def take(self, line: Record) -> None:
        """Take a line; one without a balance is in no chain."""
        if line.balance is None or line.balance.after is None:
            return
        self.wallets.add(place_of(line)[0])
        if line.timestamp >= self._below_ms:
            return
        if self._instant and self._instant[0].timestamp != line.timestamp:
            self._close_instant()
        self._instant.append(line)

    def _close_instant(self) -> None:
        lines = sorted(self._instant, key=place_of)
        self._instant = []
        for place, group in groupby(lines, key=place_of):
            chain = self._chains.get(place)
            if chain is None:
                chain = self._chains[place] = LedgerChain(*place)
            chain.take(list(group))

    def reports(self, *, cut: bool) -> list[ChainReport]:
        """What was found; where the answer was cut, its last instant is not whole."""
        if cut:
            self._instant = []
        self._close_instant()
        return [chain.report() for _, chain in sorted(self._chains.items())]


def place_of(record: Record) -> tuple[str, str]:
    """The wallet and coin of a line or a holding."""
    wallet = record.account.wallet if record.account else None
    return wallet or "", record.asset or ""


def after_of(record: Record) -> Decimal:
    """The balance after a line."""
    assert record.balance is not None
    return Decimal(record.balance.after or 0)


def change_of(record: Record) -> Decimal:
    """What a line changed."""
    assert record.balance is not None
    return Decimal(record.balance.change or 0)


def _before(line: Record) -> Decimal:
    return subtract(after_of(line), change_of(line))


def _newest_balance(lines: list[Record]) -> Decimal | None:
    """The balance after the last line of an instant: more lines end there than begin there.

    None where they make a round.
    """
    surplus = Counter(after_of(line) for line in lines)
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
