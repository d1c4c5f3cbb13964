"""Generates the history of a Kraken account: frequencies of events, and their booking.

Three of four steps are an order; rare events are planned over the whole history by `PLAN`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

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
from onebook.simulator.accounts.kraken.facts import (
    FLEX_OPENED,
    SEVEN_DECIMALS,
    STAKING_ENDED,
    TRADESPOT,
    BookedRow,
    ClosedPosition,
    Done,
    FuturesFill,
    KrakenHistory,
    LoggedRow,
    Movement,
    SpotOrder,
    SpotTrade,
)
from onebook.simulator.accounts.kraken.names import (
    HOUR_TICKS,
    ICN_DELISTED,
    MATIC_DELISTED,
    MS_TICKS,
    REP_DELISTED,
    ticks_of,
)

ROWS_A_STEP, ROWS_A_PLAN = 2.33, 1.6  # average ledger rows per step and per planned event
DAY_TICKS: Final = 24 * HOUR_TICKS
TABLES: Final = ("ledger", "trades", "orders", "log", "fills")

_XSTOCKS, _NFTS, _AUTO = ticks_of("2025-07-01"), ticks_of("2022-11-15"), ticks_of("2025-02-01")
PLAN: Final = (
    Planned("coin deposit", 8, 8, 250),
    Planned("fiat deposit", 5, 5, 150),
    Planned("held deposit", 1),
    Planned("returned deposit", 2),
    Planned("refused deposit", 1),
    Planned("coin withdrawal", 6, 5, 200),
    Planned("fiat withdrawal", 4, 3, 100),
    Planned("failed withdrawal", 3, 0.5, 20),
    Planned("cancelled withdrawal", 2, 0.5, 20),
    Planned("conversion", 8, 10),
    Planned("conversion with two fees", 2, 1, 50),
    Planned("sale", 1),
    Planned("native conversion", 1),
    Planned("token trade", 6, 4, 200, _XSTOCKS),
    Planned("token dividend", 1, 0.2, 10, _XSTOCKS + 30 * DAY_TICKS),
    Planned("dust trade", 3, 1, 50),
    Planned("fork", 2, until=ticks_of("2024-06-01")),
    Planned("airdrop", 2, since=ticks_of("2023-01-01")),
    Planned("airdrop from futures", 2, since=ticks_of("2022-09-01")),
    Planned("earn airdrop", 1, since=STAKING_ENDED),
    Planned("adjustment", 2),
    Planned("stake", 6, 2, 60, until=STAKING_ENDED - 10 * DAY_TICKS),
    Planned("unstake", 3, 1, 30, until=STAKING_ENDED - 10 * DAY_TICKS),
    Planned("staking rewards", 10, 8, 300, until=STAKING_ENDED),
    Planned("virtual reward", 1, until=STAKING_ENDED),
    Planned("earn allocation", 6, 3, 60, STAKING_ENDED),
    Planned("earn deallocation", 3, 1, 30, STAKING_ENDED + 30 * DAY_TICKS),
    Planned("auto allocation", 5, 3, 100, _AUTO),
    Planned("earn rewards", 10, 8, 500, STAKING_ENDED + DAY_TICKS),
    Planned("margin position", 6, 3, 120),
    Planned("fee credit", 2, 0.2, 20),
    Planned("reward", 1),
    Planned("invite bonus", 1),
    Planned("nft", 2, since=_NFTS, until=ticks_of("2024-11-01")),
    Planned("custody", 1, since=ticks_of("2024-03-01")),
    Planned("transfer to futures", 4, 1, 60, FLEX_OPENED),
    Planned("transfer from futures", 3, 0.5, 30, FLEX_OPENED + 20 * DAY_TICKS),
    Planned("collateral conversion", 2, 0.5, 30, FLEX_OPENED),
    Planned("interest", 3, 0.5, 30, FLEX_OPENED),
    Planned("fee rebate", 1, since=FLEX_OPENED),
    Planned("tax", 2, since=ticks_of("2026-01-01")),
    Planned("admin transfer", 1),
    Planned("subaccount transfer", 1),
    Planned("liquidation", 2, 0.5, 20, FLEX_OPENED + 10 * DAY_TICKS),
    Planned("assignment", 2, 0.2, 10, FLEX_OPENED + 10 * DAY_TICKS),
    Planned("unwind", 1, since=FLEX_OPENED + 10 * DAY_TICKS),
    Planned("dated contract", 2, 0.2, 10, FLEX_OPENED + 10 * DAY_TICKS),
    Planned("margin account transfer", 3, 0.2, 20),
)  # fmt: skip
FUTURES_KINDS: Final = frozenset(
    each.kind for each in PLAN[[each.kind for each in PLAN].index("transfer to futures") :]
)
ONCE: Final = {  # events on fixed dates
    "ICN delisting": ICN_DELISTED + 2 * HOUR_TICKS,
    "REP delisting": REP_DELISTED + 3 * HOUR_TICKS,
    "staking migration": STAKING_ENDED + HOUR_TICKS,
    "MATIC migration": MATIC_DELISTED + 5 * HOUR_TICKS,
}


def planned(history: KrakenHistory) -> list[Pending]:
    """Return the planned events of a history, by time."""
    start, end = history.from_ms * MS_TICKS, history.to_ms * MS_TICKS
    random = Random(f"plan {history.seed}")  # noqa: S311  # a simulation
    work: list[Pending] = [(start, 0, "opening", ())]
    plan = [each for each in PLAN if history.futures or each.kind not in FUTURES_KINDS]
    planned_events(
        plan, work, random,
        start=start + 2 * HOUR_TICKS, end=end - 2 * HOUR_TICKS, rows=history.rows,
    )  # fmt: skip
    for kind, at in ONCE.items():
        if start + DAY_TICKS < at < end - DAY_TICKS:
            work.append((at, len(work), kind, ()))
    return sorted(work)


@dataclass
class AccountState(HistoryState):
    """State carried from block to block."""

    held: dict[str, int] = field(default_factory=dict)
    wallets: dict[tuple[str, str], int] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)  # entry values of futures positions
    margin: dict[int, SpotTrade] = field(default_factory=dict)  # open positions by trade
    positions: dict[str, tuple[int, int]] = field(default_factory=dict)  # time and funding, open
    floor: int = 0  # no later row is older
    log_floor: int = 0


class Block(RowBlock):
    """The rows of some steps."""

    tables = TABLES

    def __init__(self) -> None:
        super().__init__()
        self.ledger: list[BookedRow] = []
        self.trades: list[SpotTrade] = []
        self.orders: list[SpotOrder] = []
        self.log: list[LoggedRow] = []
        self.fills: list[FuturesFill] = []
        self.movements: list[Movement] = []
        self.closed: list[ClosedPosition] = []


class BlockBooks:
    """Books events of one block: rows, balances, numbers, later events."""

    def __init__(
        self, history: KrakenHistory, state: AccountState, block: Block, random: Random
    ) -> None:
        self.history = history
        self.state = state
        self.block = block
        self.random = random
        self._floor = state.floor
        self._latest: dict[str, int] = {}

    def number(self, kind: str) -> int:
        """Return the next number of a kind."""
        return self.state.number(kind)

    def held(self, asset: str) -> int:
        """Return the balance of an asset id."""
        return self.state.held.get(asset, 0)

    def later(self, at: int, kind: str, *facts: Any) -> None:
        """Schedule an event."""
        self.state.later(at, kind, *facts)

    def moment(self, at: int) -> int:
        """Return a time for a row, not before those of earlier blocks."""
        at = max(at, self._floor)
        self.state.floor = max(self.state.floor, at)
        return at

    def row(
        self,
        at: int,
        kind: str,
        asset: str,
        amount: int,
        refid: str | tuple[str, int],
        *,
        fee: int = 0,
        subtype: str = "",
    ) -> BookedRow:
        """Book a ledger row; returns it. Rows of an asset never go back in time."""
        step = 1_000 if at < SEVEN_DECIMALS else 10 if at >= TRADESPOT else 1
        at = max(at // step * step, self._latest.get(asset, self._floor))
        self._latest[asset] = at
        balance = self.state.held.get(asset, 0) + amount - fee
        self.state.held[asset] = balance
        self.state.floor = max(self.state.floor, at)
        seq = self.number("ledger")
        row = BookedRow(at, seq, refid, kind, subtype, asset, amount, fee, balance)
        self.block.ledger.append(row)
        return row

    def log(
        self, at: int, account: str, asset: str, info: str, change: int, **facts: Any
    ) -> LoggedRow:
        """Book a row of the futures log; returns it. Its ids rise with time."""
        state = self.state
        state.log_floor = at = max(at // MS_TICKS * MS_TICKS, state.log_floor)
        old = state.wallets.get((account, asset), 0)
        state.wallets[account, asset] = old + change
        seq = self.number("log")
        if self.history.log_gaps and self.random.random() < 0.1:
            seq = self.number("log")
        row = LoggedRow(at, seq, account, asset, info, old, old + change, **facts)
        self.block.log.append(row)
        return row

    def done(
        self,
        kind: str,
        reference: str | tuple[str, int],
        ledger: tuple[BookedRow, ...] | list[BookedRow] = (),
        log: tuple[LoggedRow, ...] | list[LoggedRow] = (),
    ) -> None:
        """Record an event with its rows."""
        self.block.done.append(Done(kind, reference, tuple(ledger), tuple(log)))


def run_block(
    history: KrakenHistory,
    state: AccountState,
    index: int,
    acts: Callable[[BlockBooks], Acts],
    plan: list[Pending],
    *,
    steps: int,
) -> Block:
    """Generate a block, advancing the state to its end; `steps` is the number in the history."""
    block = Block()
    random = Random(f"block {history.seed} {index}")  # noqa: S311  # a simulation
    books = BlockBooks(history, state, block, random)
    kinds = acts(books)
    start, end = history.from_ms * MS_TICKS, history.to_ms * MS_TICKS
    for at in step_times(random, index, steps, start=start + HOUR_TICKS, end=end):
        state.run_due(plan, kinds, until=at)
        futures = history.futures and random.random() < 0.25
        kinds["futures step" if futures else "order"](at)
    if steps <= (index + 1) * BLOCK_STEPS:
        state.run_due(plan, kinds, until=end)
    block.sort()
    return block
