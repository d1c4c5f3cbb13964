"""Generates the history of an OKX account: frequencies of events, and their booking.

Two of three steps are an order of a pair, the others open a position in contracts; rare events are
planned over the whole history by `PLAN`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from onebook.model import DAY_MS
from onebook.simulator.accounts.blocks import (
    BLOCK_STEPS,
    Acts,
    HistoryState,
    Pending,
    Planned,
    RowBlock,
    planned_events,
    step_times,
)
from onebook.simulator.accounts.okx.facts import (
    FUNDING,
    ISOLATED,
    TRADING,
    ClosedPart,
    FundingBill,
    InterestRow,
    LendingRow,
    OkxFill,
    OkxHistory,
    OkxOrder,
    OpenPosition,
    ProductRow,
    TradingBill,
    WalletEvent,
)
from onebook.simulator.accounts.okx.names import (
    HOUR_MS,
    MATIC_ENDED,
    SETTLED_DAILY,
    funding_bill_id,
    ms_of,
    trading_id,
)

ROWS_A_STEP: Final = 4.0  # on average
CONTRACTS_SHARE: Final = 0.3  # of the steps
TABLES: Final = (
    "bills", "funding", "products", "fills", "orders", "closings", "interest", "lendings",
)  # fmt: skip

_EUR, _OKUSD = ms_of("2023-10-01"), ms_of("2026-03-01")
PLAN: Final = (
    Planned("deposit", 8, 8, 250),
    Planned("deposits at once", 2, 0.5, 20),
    Planned("internal deposit", 3, 0.5, 20),
    Planned("held deposit", 3),
    Planned("fiat deposit", 4, 1, 30, _EUR),
    Planned("withdrawal", 8, 6, 200),
    Planned("internal withdrawal", 3, 0.5, 20),
    Planned("failed withdrawal", 2, 0.2, 10),
    Planned("cancelled withdrawal", 2, 0.2, 10),
    Planned("fiat withdrawal", 3, 0.5, 20, _EUR + 60 * DAY_MS),
    Planned("transfer", 12, 12, 600),
    Planned("sub-account transfer", 4, 2, 60),
    Planned("conversion", 6, 5, 200),
    Planned("conversion in the trading account", 4, 3, 100),
    Planned("simple trade", 4, 3, 100),
    Planned("easy convert", 2, 0.5, 20),
    Planned("token conversion", 1),
    Planned("strategy", 3, 1, 40),
    Planned("profit share", 2, 0.5, 20),
    Planned("auto earn", 4, 2, 60, ms_of("2025-03-01")),
    Planned("dust", 2, 0.2, 10, ms_of("2023-06-01")),
    Planned("savings", 6, 4, 120),
    Planned("savings redemption", 4, 2, 60),
    Planned("savings earnings", 20, 20, 1_000),
    Planned("stake", 4, 1, 30),
    Planned("ETH stake", 3, 1, 30, ms_of("2022-12-01")),
    Planned("SOL stake", 3, 1, 30, ms_of("2024-06-01")),
    Planned("fixed savings", 2, 0.5, 20, ms_of("2024-10-01")),
    Planned("OKUSD", 2, 1, 30, _OKUSD),
    Planned("dual investment", 2, 0.5, 20),
    Planned("loan", 2, 0.2, 10),
    Planned("buy with a card", 2, 0.2, 10),
    Planned("peer to peer", 2, 0.5, 20),
    Planned("gain", 8, 4, 200),
    Planned("charge", 3, 0.5, 20),
    Planned("margin trade", 5, 3, 100),
    Planned("isolated margin", 3, 1, 40),
    Planned("borrowing", 3, 1, 40),
    Planned("one-click repay", 2, 0.2, 10),
    Planned("forced repayment", 1, 0.1, 5),
    Planned("liquidation", 2, 0.5, 20),
    Planned("deleveraging", 2, 0.3, 10),
    Planned("clawback", 1),
    Planned("dated contract", 3, 1, 40),
    Planned("settled contract", 2, 0.5, 20, SETTLED_DAILY),
    Planned("option", 4, 2, 60),
    Planned("block trade", 2, 0.5, 20),
    Planned("spread trade", 2, 0.5, 20),
    Planned("structured order", 2, 0.3, 10),
    Planned("custody", 3, 1, 30),
)  # fmt: skip
CONTRACT_KINDS: Final = frozenset(
    each.kind for each in PLAN[[each.kind for each in PLAN].index("margin trade") : -1]
)
ONCE: Final = {"delisting": MATIC_ENDED + 3 * HOUR_MS}  # on a fixed date


def planned(history: OkxHistory) -> list[Pending]:
    """Return the planned events of a history, by time."""
    start, end = history.from_ms, history.to_ms
    random = Random(f"okx plan {history.seed}")  # noqa: S311  # a simulation
    left_out = set() if history.derivatives else set(CONTRACT_KINDS)
    left_out |= set() if history.custody else {"custody"}
    work: list[Pending] = [(start, 0, "opening", ())]
    planned_events(
        [each for each in PLAN if each.kind not in left_out], work, random,
        start=start + 2 * HOUR_MS, end=end - 2 * HOUR_MS, rows=history.rows,
    )  # fmt: skip
    for kind, at in ONCE.items():
        if start + DAY_MS < at < end - DAY_MS:
            work.append((at, len(work), kind, ()))
    return sorted(work)


@dataclass
class OkxState(HistoryState):
    """State carried from block to block."""

    held: dict[tuple[str, str], int] = field(default_factory=dict)  # by wallet and currency
    positions: dict[tuple[str, str], OpenPosition] = field(default_factory=dict)  # by id and side
    accrued: dict[str, int] = field(default_factory=dict)  # interest that no bill has deducted
    debts: dict[str, int] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)  # no later row of a table is older


class OkxBlock(RowBlock):
    """The rows of some steps; `kept` has those of the short lists, with the name of the list."""

    tables = TABLES

    def __init__(self) -> None:
        super().__init__()
        self.bills: list[TradingBill] = []
        self.funding: list[FundingBill] = []
        self.products: list[ProductRow] = []
        self.fills: list[OkxFill] = []
        self.orders: list[OkxOrder] = []
        self.closings: list[ClosedPart] = []
        self.interest: list[InterestRow] = []
        self.lendings: list[LendingRow] = []
        self.kept: list[tuple[str, Any]] = []


class OkxBooks:
    """Books events of one block: rows, balances, numbers, later events."""

    def __init__(
        self, history: OkxHistory, state: OkxState, block: OkxBlock, random: Random
    ) -> None:
        self.history = history
        self.state = state
        self.block = block
        self.random = random

    def held(self, wallet: str, ccy: str) -> int:
        """Return the balance of a currency."""
        return self.state.held.get((wallet, ccy), 0)

    def moment(self, table: str, at: int) -> int:
        """Return a time for a row of a table, not before those of its existing rows."""
        at = max(at, self.state.floors.get(table, 0))
        self.state.floors[table] = at
        return at

    def share(self, wallet: str, ccy: str, most: int, step: int) -> int:
        """Return a part of a balance, up to `most` thousandths, in multiples of a step."""
        part = self.random.randrange(max(1, most // 3), most + 1)
        return max(0, self.held(wallet, ccy) * part // 1_000 // step * step)

    def _book(self, wallet: str, ccy: str, change: int) -> int:
        balance = self.held(wallet, ccy) + change
        self.state.held[wallet, ccy] = balance
        return balance

    def bill(
        self,
        at: int,
        ccy: str,
        change: int,
        type_: str,
        sub: str,
        *,
        isolated: int = 0,
        **facts: Any,
    ) -> TradingBill:
        """Book a bill of the trading account; returns it."""
        at, seq = self.moment("bills", at), self.state.number("bill")
        balance = self._book(TRADING, ccy, change)
        apart = self._book(ISOLATED, ccy, isolated) if isolated else 0
        ts = at + self.random.choice((0, 0, 0, 1, 1, 2, -1))
        bill = TradingBill(
            at, seq, ts, ccy, change, balance, type_, sub, isolated=isolated, isolated_after=apart,
            **facts,
        )  # fmt: skip
        self.block.bills.append(bill)
        return bill

    def fund(self, at: int, ccy: str, change: int, type_: int, **facts: Any) -> FundingBill:
        """Book a bill of the funding account; returns it."""
        at, seq = self.moment("funding", at), self.state.number("funding")
        bill = FundingBill(
            at, seq, ccy, change, self._book(FUNDING, ccy, change), str(type_), **facts
        )
        self.block.funding.append(bill)
        return bill

    def product(self, at: int, wallet: str, ccy: str, change: int) -> ProductRow:
        """Book a change of an earn product or a loan; returns it."""
        at, seq = self.moment("products", at), self.state.number("product")
        row = ProductRow(at, seq, wallet, ccy, change, self._book(wallet, ccy, change))
        self.block.products.append(row)
        return row

    def keep(self, name: str, row: Any) -> None:
        """Add a row of a short list."""
        self.block.kept.append((name, row))

    def done(
        self,
        kind: str,
        reference: str,
        *rows: TradingBill | FundingBill | ProductRow,
        fees: tuple[tuple[str, str, int], ...] = (),
    ) -> None:
        """Record an event with its rows; `fees` are those that no bill shows."""
        changes: list[tuple[str, str, int]] = []
        charged = list(fees)
        bills, funding = [], []
        for row in rows:
            if isinstance(row, TradingBill):
                bills.append(str(trading_id(row.time, row.seq)))
                changes.append((TRADING, row.ccy, row.change))
                if row.isolated:
                    changes.append((ISOLATED, row.ccy, row.isolated))
                if row.fee:
                    charged.append((TRADING, row.ccy, -row.fee))
            elif isinstance(row, FundingBill):
                funding.append(str(funding_bill_id(row.seq)))
                changes.append((FUNDING, row.ccy, row.change))
            else:
                changes.append((row.wallet, row.ccy, row.change))
        self.block.done.append(
            WalletEvent(
                min(row.time for row in rows),
                kind,
                reference,
                tuple(changes),
                tuple(charged),
                tuple(bills),
                tuple(funding),
            )
        )  # fmt: skip


def run_block(
    history: OkxHistory,
    state: OkxState,
    index: int,
    acts: Callable[[OkxBooks], Acts],
    plan: list[Pending],
    *,
    steps: int,
) -> OkxBlock:
    """Generate a block, advancing the state to its end; `steps` is the number in the history."""
    block = OkxBlock()
    random = Random(f"okx block {history.seed} {index}")  # noqa: S311  # a simulation
    kinds = acts(OkxBooks(history, state, block, random))
    start, end = history.from_ms + HOUR_MS, history.to_ms
    for at in step_times(random, index, steps, start=start, end=end):
        state.run_due(plan, kinds, until=at)
        contracts = history.derivatives and random.random() < CONTRACTS_SHARE
        kinds["position" if contracts else "order"](at)
    if steps <= (index + 1) * BLOCK_STEPS:
        state.run_due(plan, kinds, until=end)
    block.sort()
    return block
