"""Generates the history of an account: deterministic, with Bybit's balance identities.

By construction, so that clients can be verified: every ledger balance of a coin is the previous one
plus the change; `change = cashFlow + funding - fee` minus taxes; the fills of an order add up to
the order; `closedPnl` is exit minus entry minus fees, and the ledger books exit minus entry;
balances are the sums of all events; ids rise with time. Deliberately, several events share a
millisecond.
"""

from collections import Counter
from functools import partial
from typing import NamedTuple

from onebook.simulator.accounts.bybit.facts import MARKETS, Deposit, ExecutionRow
from onebook.simulator.accounts.bybit.funds import FundHistory
from onebook.simulator.accounts.bybit.generator import (
    CONTRACT,
    UID,
    UNIFIED,
    USDC,
    AccountBooks,
    AccountTables,
    History,
    HistoryParts,
    Modes,
    Positions,
    Timeline,
    hash_of,
    uuid_of,
)
from onebook.simulator.accounts.bybit.trading import ContractHistory, OrderHistory
from onebook.simulator.accounts.history import UNIT, Entry, HistoryTable, product


class AccountStep(NamedTuple):
    """The results of a step of time, each with its category; whether the unified wallet changed."""

    fills: list[tuple[str, Entry]]
    orders: list[tuple[str, Entry]]
    wallet: bool


class Account(AccountTables):
    """A generated account: tables, wallet ledgers and balances."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history
        self.uid = UID
        self.inserted: set[str] = set()
        self.modes = Modes(history.unified_ms, history.merged_ms)
        self._timeline = Timeline(history.from_ms, history.to_ms, history.seed)
        self.books = AccountBooks(self.modes, self._timeline.number)
        self.ledger = self.books.tables[UNIFIED]
        self.contract_ledger = self.books.tables[CONTRACT]
        self.usdc_ledger = self.books.tables[USDC]
        self.unified = self.books.held(UNIFIED)
        self.fund = self._generate()

    @property
    def status(self) -> int:
        """Return the `unifiedMarginStatus` at the end of the history."""
        return self.modes.status(self.history.to_ms)

    def _generate(self) -> Counter[str]:
        """Generate the tables and ledgers; returns the final balances of the funding wallet."""
        history, timeline, books, modes = self.history, self._timeline, self.books, self.modes
        parts = HistoryParts(history, timeline, self, books, modes, Positions())
        funds, contracts, orders = FundHistory(parts), ContractHistory(parts), OrderHistory(parts)
        self._funds, self._orders = funds, orders
        funds.schedule_funds()
        contracts.schedule()
        funds.schedule_odds()
        orders.schedule()
        funds.schedule_modes()
        timeline.run()
        _sort(*self.orders.values())
        orders.close_open_orders()
        _sort(*self.closed.values(), self.deposits)
        self.split(modes, history.to_ms)
        return funds.held

    # What happens after the history ---------------------------------------------------

    def advance(self, to_ms: int) -> "AccountStep":
        """Advance the time; returns the new fills, and the orders that were placed or changed."""
        before, lines = self._timeline.last, len(self.ledger)
        self._timeline.advance(to_ms)
        _sort(*self.orders.values(), *self.closed.values(), self.deposits)
        fills = [
            (category, entry)
            for category, table in self.executions.items()
            for entry in table.entries
            if entry.seq > before
        ]
        ids = {entry.facts.order_id for _, entry in fills}
        orders = [
            (category, entry)
            for category, table in self.orders.items()
            for entry in table.entries
            if entry.seq > before or entry.facts.order_id in ids
        ]
        return AccountStep(fills, orders, len(self.ledger) > lines)

    def trade(self, at_ms: int, category: str) -> None:
        """Schedule an order in a market of a category."""
        markets = [market for market in MARKETS if market.category == category]
        market = self._timeline.random.choice(markets)
        self._timeline.at(at_ms, partial(self._orders.order, market=market))

    def move(self, at_ms: int, kind: str) -> None:
        """Schedule a deposit, a withdrawal or a transfer."""
        act = {
            "deposit": self._funds.some_deposit,
            "withdrawal": self._funds.withdraw,
            "transfer": self._funds.some_transfer,
        }[kind]
        self._timeline.at(at_ms, partial(act, index=self._timeline.random.randrange(1_000)))

    # What tests change -----------------------------------------------------------------

    def insert_execution(self, category: str, at_ms: int) -> str:
        """Insert a fill in the past, like a late booking, without a ledger line."""
        seq = self._timeline.number()
        market = next(market for market in MARKETS if market.category == category)
        fill = ExecutionRow(
            market, uuid_of(seq), uuid_of(seq + 1), "", "Buy", market.price, market.size_step,
            product(market.price, market.size_step), 0, "", False, "0", "Trade", False, 0, 0,
        )  # fmt: skip
        self.executions[category].insert(at_ms, seq, fill)
        self.inserted.add(fill.execution_id)
        return fill.execution_id

    def pend_deposit(self, at_ms: int) -> Deposit:
        """Insert a deposit that is not credited yet."""
        seq = self._timeline.number()
        deposit = Deposit("USDT", UNIT, at_ms, hash_of(seq), internal=False)
        self.deposits.insert(at_ms, seq, deposit)
        return deposit


def _sort(*tables: HistoryTable) -> None:
    for table in tables:
        table.entries.sort(key=lambda entry: (entry.at_ms, entry.seq))
