"""The simulated Kraken account: rows in any order and range, balances, and the true events.

`select` pages and counts like Kraken's lists, `happen` adds live events.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from random import Random
from typing import Any, NamedTuple

from onebook.simulator.accounts.blocks import (
    FIRST,
    LAST,
    Acts,
    BlockHistory,
    Place,
)
from onebook.simulator.accounts.kraken.derivatives import DerivativesTrading
from onebook.simulator.accounts.kraken.facts import (
    SPOT,
    AccountEvent,
    BookedRow,
    ClosedPosition,
    KrakenHistory,
    Movement,
    SpotTrade,
    event_of,
)
from onebook.simulator.accounts.kraken.funds import FundMovements
from onebook.simulator.accounts.kraken.generator import (
    ROWS_A_PLAN,
    ROWS_A_STEP,
    AccountState,
    Block,
    BlockBooks,
    planned,
    run_block,
)
from onebook.simulator.accounts.kraken.names import MS_TICKS
from onebook.simulator.accounts.kraken.trading import SpotTrading


def all_acts(books: BlockBooks) -> Acts:
    """Return the possible events, by name."""
    return {
        **SpotTrading(books).acts(), **FundMovements(books).acts(),
        **DerivativesTrading(books).acts(),
    }  # fmt: skip


def label_of(table: str, row: Any) -> Hashable:
    """Return the label of a row, which filters use."""
    label: Hashable = ""
    if table == "ledger":
        label = _pair(row.type, row.asset)
    elif table == "trades":
        label = "closing" if row.opened else "opening" if row.margin else ""
    elif table == "log":
        label = row.info
    elif table == "fills":
        label = row.contract.symbol
    return label


@cache
def _pair(kind: str, asset: str) -> tuple[str, str]:
    """Return one tuple for all rows of a type and an asset, because the extents keep many of
    them."""
    return kind, asset


class RowSelection(NamedTuple):
    """The rows of a page, and the number of rows of the entire query."""

    rows: list[Any]
    total: int


class KrakenAccount(BlockHistory[AccountState, Block]):
    """A generated account.

    Args:
        history: What to generate; the same history produces the same account.
    """

    def __init__(self, history: KrakenHistory) -> None:
        self._plan = planned(history)
        ordered = history.rows - len(self._plan) * ROWS_A_PLAN
        super().__init__(Block, AccountState(), max(1, round(ordered / ROWS_A_STEP)))
        self.history = history
        self.until = history.to_ms * MS_TICKS  # the time of the newest event
        self.movements: list[Movement] = []
        self.closed: dict[int, ClosedPosition] = {}
        self._generate_all()

    def _generate(self, state: AccountState, index: int) -> Block:
        return run_block(self.history, state, index, all_acts, self._plan, steps=self._steps)

    def _collect(self, block: Block) -> None:
        self.movements += block.movements
        self.closed |= {each.trade: each for each in block.closed}

    def _label(self, table: str, row: Any) -> Hashable:
        return label_of(table, row)

    # Rows -----------------------------------------------------------------------------------

    def select(
        self,
        table: str,
        *,
        after: Place = FIRST,
        until: Place = LAST,
        wanted: Callable[[Any], bool] | None = None,
        skip: int = 0,
        limit: int = 1,
        oldest_first: bool = False,
        counted: bool = True,
    ) -> RowSelection:
        """Return rows of a table after one place and up to another; `wanted` selects labels."""
        rows: list[Any] = []
        count = 0
        extents = self._extents[table]
        for index in range(len(extents)) if oldest_first else reversed(range(len(extents))):
            extent = extents[index]
            if extent is None or extent.last <= after or extent.first > until:
                continue
            if len(rows) == limit and not counted:
                break
            inside = extent.first > after and extent.last <= until
            total = _total(extent.labels, wanted) if inside else -1
            if inside and (count + total <= skip or len(rows) == limit):
                count += total
                continue
            found = self._within(table, index, after, until, wanted)
            if not oldest_first:
                found.reverse()
            begin = max(0, skip - count)
            rows += found[begin : begin + limit - len(rows)]
            count += len(found)
        return RowSelection(rows, count)

    def numbered(self, table: str, number: int) -> Any | None:
        """Return the row with a number; None if there is none."""
        for index, extent in enumerate(self._extents[table]):
            # Numbers rise from block to block, but not with the places within one.
            if extent is not None and self._highest(table, index) >= number:
                rows = self._block(index).table(table)
                return next((row for row in rows if row.seq == number), None)
        return None

    def _highest(self, table: str, index: int) -> int:
        """Return the highest number in a table at the end of a block."""
        kind = {"trades": "trade", "orders": "order", "fills": "fill"}.get(table, table)
        following = [*self._starts, self.state][index + 1] if index < len(self._starts) else None
        return (following or self.state).numbers.get(kind, 0)

    def log_place(self, number: int) -> Place:
        """Return the place of the last row of the futures log whose id is not above a number."""
        return self.place_at("log", number)

    def trade_shown(self, trade: SpotTrade) -> ClosedPosition | None:
        """Return how the position opened by a trade has ended."""
        return self.closed.get(trade.seq)

    # Truth ----------------------------------------------------------------------------------

    def balances(self, at_ms: int | None = None) -> dict[tuple[str, str], int]:
        """Return the balances by (wallet, asset id), now or at the end of a time.

        The wallet is `spot` or a margin account of Kraken Futures; amounts are in 10^-12. Sizes of
        positions are excluded. Zero balances are included.
        """
        if at_ms is None:
            return _held(self.state)
        place = (at_ms * MS_TICKS + MS_TICKS - 1, float("inf"))
        held: dict[tuple[str, str], int] = {}
        for table in ("ledger", "log"):
            start, rows = self._until(table, place)
            if start is None:
                continue
            spot = table == "ledger"
            held |= {key: n for key, n in _held(start).items() if (key[0] == SPOT) == spot}
            for row in rows:
                if spot:
                    held[SPOT, row.asset] = row.balance
                elif row.asset != row.contract:
                    held[row.account, row.asset] = row.new
        return held

    def events(self) -> Iterator[AccountEvent]:
        """Iterate over all events in booking order."""
        return map(event_of, self._done())

    def ledger(self) -> Iterator[BookedRow]:
        """Iterate over the spot ledger, oldest first."""
        yield from self.rows("ledger")

    # Live -----------------------------------------------------------------------------------

    def happen(self, kind: str, at_ms: int) -> list[AccountEvent]:
        """Run an event now, after all due ones; returns the booked events.

        `kind` is a name in `generator.PLAN`, `order` or `futures step`; "" books only what is due,
        such as deposits that have been confirmed.
        """
        self._begin_live()
        block, at = Block(), max(self.until, at_ms * MS_TICKS)
        books = BlockBooks(self.history, self.state, block, Random(0))  # noqa: S311
        books.random.seed(f"live {self.history.seed} {books.number('live')}")
        acts = all_acts(books)
        self.state.run_due(self._plan, acts, until=at)
        if kind:
            acts[kind](at)
        self.until = at
        self._append_live(block)
        return [event_of(done) for done in block.done]


def _total(labels: Counter[Hashable], wanted: Callable[[Any], bool] | None) -> int:
    if wanted is None:
        return labels.total()
    return sum(count for label, count in labels.items() if wanted(label))


def _held(state: AccountState) -> dict[tuple[str, str], int]:
    held = {(SPOT, asset): balance for asset, balance in state.held.items()}
    return held | {
        (account, asset): balance
        for (account, asset), balance in state.wallets.items()
        if "_" not in asset  # the size of a position
    }
