"""The simulated Kraken account: rows in any order and range, balances, what really happened.

The history is generated once from its beginning to learn where each block begins and what is in
it; its rows are generated again when they are read, some blocks at a time. Live events, which tests
add, make a last block that stays in memory.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from random import Random
from typing import Any, Final, NamedTuple

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
    BLOCK_STEPS,
    ROWS_A_PLAN,
    ROWS_A_STEP,
    TABLES,
    AccountState,
    Acts,
    Block,
    BlockBooks,
    planned,
    run_block,
    run_pending,
)
from onebook.simulator.accounts.kraken.names import MS_TICKS
from onebook.simulator.accounts.kraken.trading import SpotTrading

BLOCKS_KEPT: Final = 6
Place = tuple[float, float]  # time and number of a row
FIRST, LAST = (-1.0, -1.0), (float("inf"), float("inf"))


def all_acts(books: BlockBooks) -> Acts:
    """Return everything that can happen to an account, by name."""
    return {
        **SpotTrading(books).acts(), **FundMovements(books).acts(),
        **DerivativesTrading(books).acts(),
    }  # fmt: skip


def label_of(table: str, row: Any) -> Hashable:
    """Return what filters of a table compare."""
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
    """Return one tuple for all rows of a type and an asset: the extents keep many of them."""
    return kind, asset


class BlockExtent(NamedTuple):
    """The first and last place of a table in a block, and how many rows have each label."""

    first: Place
    last: Place
    labels: Counter[Hashable]


class RowSelection(NamedTuple):
    """The rows of a page, and how many rows the whole query has."""

    rows: list[Any]
    total: int


class KrakenAccount:
    """A generated account.

    Args:
        history: What to generate; the same history makes the same account.
    """

    def __init__(self, history: KrakenHistory) -> None:
        self.history = history
        self.until = history.to_ms * MS_TICKS  # the time of the newest thing that happened
        self.movements: list[Movement] = []
        self.closed: dict[int, ClosedPosition] = {}
        self._starts: list[AccountState] = []
        self._extents: dict[str, list[BlockExtent | None]] = {name: [] for name in TABLES}
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._head: Block | None = None
        self._plan = planned(history)
        ordered = history.rows - len(self._plan) * ROWS_A_PLAN
        self._steps = max(1, round(ordered / ROWS_A_STEP))
        self.state = AccountState()
        self._last = self.state  # before the live events
        for index in range(-(-self._steps // BLOCK_STEPS)):
            self._starts.append(self.state.copy())
            self._add(self._run(self.state, index))

    def _run(self, state: AccountState, index: int) -> Block:
        return run_block(self.history, state, index, all_acts, self._plan, steps=self._steps)

    def _add(self, block: Block) -> None:
        self.movements += block.movements
        self.closed |= {each.trade: each for each in block.closed}
        for name in TABLES:
            self._extents[name].append(_extent(name, block.table(name)))

    def _block(self, index: int) -> Block:
        if index == len(self._starts):
            assert self._head is not None
            return self._head
        block = self._blocks.get(index)
        if block is None:
            block = self._run(self._starts[index].copy(), index)
            self._blocks[index] = block
            if len(self._blocks) > BLOCKS_KEPT:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(index)
        return block

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
        """Return rows of a table after one place and up to another; `wanted` takes labels."""
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

    def _within(
        self,
        table: str,
        index: int,
        after: Place,
        until: Place,
        wanted: Callable[[Any], bool] | None,
    ) -> list[Any]:
        rows = self._block(index).table(table)
        low = bisect_right(rows, after, key=_place)
        found = rows[low : bisect_right(rows, until, key=_place)]
        return [row for row in found if wanted is None or wanted(label_of(table, row))]

    def numbered(self, table: str, number: int) -> Any | None:
        """Return the row of a number; None if there is none."""
        for index, extent in enumerate(self._extents[table]):
            # Numbers rise from block to block, but not with the places within one.
            if extent is not None and self._highest(table, index) >= number:
                rows = self._block(index).table(table)
                return next((row for row in rows if row.seq == number), None)
        return None

    def _highest(self, table: str, index: int) -> int:
        """Return the highest number that a table has at the end of a block."""
        kind = {"trades": "trade", "orders": "order", "fills": "fill"}.get(table, table)
        following = [*self._starts, self.state][index + 1] if index < len(self._starts) else None
        return (following or self.state).numbers.get(kind, 0)

    def log_place(self, number: int) -> Place:
        """Return the place of the last row of the futures log whose id is not above a number."""
        place = FIRST
        for index, extent in enumerate(self._extents["log"]):
            if extent is None:
                continue
            if self._highest("log", index) < number:
                place = extent.last
                continue
            rows = self._block(index).table("log")
            below = bisect_right(rows, number, key=lambda row: row.seq)
            return _place(rows[below - 1]) if below else place
        return place

    def rows(self, table: str) -> Iterator[Any]:
        """Iterate over a whole table, oldest first."""
        for index in range(len(self._extents[table])):
            yield from self._block(index).table(table)

    def trade_shown(self, trade: SpotTrade) -> ClosedPosition | None:
        """Return how the position that a trade opened has ended."""
        return self.closed.get(trade.seq)

    # Truth ----------------------------------------------------------------------------------

    def balances(self, at_ms: int | None = None) -> dict[tuple[str, str], int]:
        """Return what the account holds, by (wallet, asset id), now or at the end of a time.

        The wallet is `spot` or a margin account of Kraken Futures; amounts are in 10^-12. Sizes of
        positions are left out. Zero balances are kept.
        """
        if at_ms is None:
            return _held(self.state)
        place = (at_ms * MS_TICKS + MS_TICKS - 1, float("inf"))
        held: dict[tuple[str, str], int] = {}
        for table in ("ledger", "log"):
            extents = self._extents[table]
            index = bisect_left(
                range(len(extents)), True, key=lambda n: self._starts_after(extents, n, place)
            )
            if not index:
                continue
            start = self._starts[index - 1] if index <= len(self._starts) else self._last
            spot = table == "ledger"
            held |= {key: n for key, n in _held(start).items() if (key[0] == SPOT) == spot}
            for row in self._within(table, index - 1, FIRST, place, None):
                if spot:
                    held[SPOT, row.asset] = row.balance
                elif row.asset != row.contract:
                    held[row.account, row.asset] = row.new
        return held

    def _starts_after(self, extents: list[BlockExtent | None], index: int, place: Place) -> bool:
        """Whether all rows from a block on are after a place."""
        following = (extent for extent in extents[index:] if extent is not None)
        return next(following, BlockExtent(LAST, LAST, Counter())).first > place

    def events(self) -> Iterator[AccountEvent]:
        """Iterate over everything that happened, in the order in which it was booked."""
        for index in range(len(self._extents["ledger"])):
            for done in self._block(index).done:
                yield event_of(done)

    def ledger(self) -> Iterator[BookedRow]:
        """Iterate over the spot ledger, oldest first."""
        yield from self.rows("ledger")

    # Live -----------------------------------------------------------------------------------

    def happen(self, kind: str, at_ms: int) -> list[AccountEvent]:
        """Let something happen now, after all that was due; returns what was booked.

        `kind` is a name in `generator.PLAN`, `order` or `futures step`; "" books only what is due,
        such as deposits that were confirmed meanwhile.
        """
        if self._head is None:
            self._last = self.state.copy()
            self._head = Block()
            for name in TABLES:
                self._extents[name].append(None)
        block, at = Block(), max(self.until, at_ms * MS_TICKS)
        books = BlockBooks(self.history, self.state, block, Random(0))  # noqa: S311
        books.random.seed(f"live {self.history.seed} {books.number('live')}")
        acts = all_acts(books)
        run_pending(self.state, self._plan, acts, until=at)
        if kind:
            acts[kind](at)
        block.sort()
        self.until = at
        self.movements += block.movements
        self.closed |= {each.trade: each for each in block.closed}
        self._head.done += block.done
        for name in TABLES:
            rows = self._head.table(name)
            rows += block.table(name)
            rows.sort()
            self._extents[name][-1] = _extent(name, rows)
        return [event_of(done) for done in block.done]


def _extent(table: str, rows: list[Any]) -> BlockExtent | None:
    if not rows:
        return None
    labels = Counter(label_of(table, row) for row in rows)
    return BlockExtent(_place(rows[0]), _place(rows[-1]), labels)


def _place(row: Any) -> Place:
    return row.time, row.seq


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
