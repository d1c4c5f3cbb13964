"""Generated histories of simulated accounts, in blocks that can be regenerated on demand.

A history is a sequence of steps; a block is some hundred of them. A block begins with the state
that the previous one left and has its own random numbers, so that only a state (some kilobytes) is
kept of a block whose rows are not being read: memory does not grow with the size of a history. Rare
events are planned over the whole history; later consequences (a reversal, the end of a position)
are pending in the state. Times are whole numbers in a unit that the exchange's package chooses.
"""

import heapq
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

BLOCK_STEPS: Final = 800  # per block
BLOCKS_KEPT: Final = 6
FOREVER: Final = 2**63

Pending = tuple[int, int, str, tuple[Any, ...]]
Acts = dict[str, Callable[..., object]]
Place = tuple[float, float]  # time and number of a row
FIRST: Final[Place] = (-1.0, -1.0)
LAST: Final[Place] = (float("inf"), float("inf"))


# Generation -------------------------------------------------------------------------------


class Planned(NamedTuple):
    """Frequency of an event: minimum, number per thousand rows, and maximum."""

    kind: str
    least: int
    rate: float = 0.0
    most: int = 1_000
    since: int = 0
    until: int = FOREVER


def planned_events(
    plan: Iterable[Planned], work: list[Pending], random: Random, *, start: int, end: int, rows: int
) -> list[Pending]:
    """Draw the times of planned events; returns `work` with them added."""
    for each in plan:
        low, high = max(start, each.since), min(end, each.until)
        if low >= high:
            continue
        count = max(each.least, min(each.most, round(each.rate * rows / 1_000)))
        work += [(random.randrange(low, high), len(work) + n, each.kind, ()) for n in range(count)]
    return work


@dataclass
class HistoryState:
    """State carried from block to block; values in its collections are immutable."""

    numbers: dict[str, int] = field(default_factory=dict)
    pending: list[Pending] = field(default_factory=list)
    planned: int = 0  # number of planned events that have happened

    def copy(self) -> Self:
        """Return an independent copy."""
        values: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, value in values.items():
            if isinstance(value, dict | list):
                values[name] = value.copy()
        return type(self)(**values)

    def number(self, kind: str) -> int:
        """Return the next number of a kind."""
        value = self.numbers.get(kind, 0) + 1
        self.numbers[kind] = value
        return value

    def later(self, at: int, kind: str, *facts: Any) -> None:
        """Schedule an event."""
        heapq.heappush(self.pending, (at, 10**9 + self.number("pending"), kind, facts))

    def run_due(self, plan: list[Pending], acts: Acts, *, until: int) -> None:
        """Run the planned and pending events up to a time, in order."""
        while True:
            due = self.pending[0] if self.pending else None
            following = plan[self.planned] if self.planned < len(plan) else None
            if following is not None and (due is None or following < due):
                if following[0] > until:
                    return
                self.planned += 1
                due = following
            elif due is None or due[0] > until:
                return
            else:
                heapq.heappop(self.pending)
            at, _, kind, facts = due
            acts[kind](at, *facts)


def step_times(random: Random, index: int, steps: int, *, start: int, end: int) -> Iterator[int]:
    """Draw the time of each step of a block; `steps` is the number in the history."""
    span = end - start
    for step in range(index * BLOCK_STEPS, min(steps, (index + 1) * BLOCK_STEPS)):
        yield start + span * step // steps + random.randrange(max(1, span // steps))


class RowBlock:
    """The rows of some steps: a list per name in `tables`, and the events.

    Rows begin with their time and number, by which each table is sorted.
    """

    tables: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.done: list[Any] = []

    def table(self, name: str) -> list[Any]:
        """Return the rows of a table."""
        rows: list[Any] = getattr(self, name)
        return rows

    def sort(self) -> None:
        """Sort each table."""
        for name in self.tables:
            self.table(name).sort()


StateT = TypeVar("StateT", bound=HistoryState)
BlockT = TypeVar("BlockT", bound=RowBlock)


# Access -----------------------------------------------------------------------------------


class BlockExtent(NamedTuple):
    """The first and last place of a table in a block, and the number of rows per label."""

    first: Place
    last: Place
    labels: Counter[Hashable]


class BlockHistory(ABC, Generic[StateT, BlockT]):
    """A generated history: rows of each table in any range.

    It is generated once to find the state and the extent of each block; rows are regenerated when
    they are read, a few blocks at a time. Live events, which tests add, form a last block that
    stays in memory.
    """

    def __init__(self, kind: type[BlockT], state: StateT, steps: int) -> None:
        self.state = state
        self._kind = kind
        self._steps = steps
        self._last = state  # before the live events
        self._starts: list[StateT] = []
        self._extents: dict[str, list[BlockExtent | None]] = {name: [] for name in kind.tables}
        self._blocks: OrderedDict[int, BlockT] = OrderedDict()
        self._head: BlockT | None = None

    @abstractmethod
    def _generate(self, state: StateT, index: int) -> BlockT:
        """Generate a block, advancing the state to its end."""

    def _collect(self, block: BlockT) -> None:
        """Keep the part of a new block that stays in memory."""

    def _label(self, table: str, row: Any) -> Hashable:
        """Return the label of a row, which filters use."""
        return ""

    def _generate_all(self) -> None:
        for index in range(-(-self._steps // BLOCK_STEPS)):
            self._starts.append(self.state.copy())
            block = self._generate(self.state, index)
            self._collect(block)
            for name in self._kind.tables:
                self._extents[name].append(self._extent(name, block.table(name)))

    def _begin_live(self) -> None:
        if self._head is None:
            self._last = self.state.copy()
            self._head = self._kind()
            for name in self._kind.tables:
                self._extents[name].append(None)

    def _append_live(self, block: BlockT) -> None:
        assert self._head is not None
        block.sort()
        self._collect(block)
        self._head.done += block.done
        for name in self._kind.tables:
            rows = self._head.table(name)
            rows += block.table(name)
            rows.sort()
            self._extents[name][-1] = self._extent(name, rows)

    def _extent(self, table: str, rows: list[Any]) -> BlockExtent | None:
        if not rows:
            return None
        labels = Counter(self._label(table, row) for row in rows)
        return BlockExtent(place_of(rows[0]), place_of(rows[-1]), labels)

    def _block(self, index: int) -> BlockT:
        if index == len(self._starts):
            assert self._head is not None
            return self._head
        block = self._blocks.get(index)
        if block is None:
            block = self._generate(self._starts[index].copy(), index)
            self._blocks[index] = block
            if len(self._blocks) > BLOCKS_KEPT:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(index)
        return block

    def _within(
        self,
        table: str,
        index: int,
        after: Place,
        until: Place,
        wanted: Callable[[Any], bool] | None = None,
    ) -> list[Any]:
        rows = self._block(index).table(table)
        low = bisect_right(rows, after, key=place_of)
        found = rows[low : bisect_right(rows, until, key=place_of)]
        return [row for row in found if wanted is None or wanted(self._label(table, row))]

    def rows(self, table: str) -> Iterator[Any]:
        """Iterate over an entire table, oldest first."""
        for index in range(len(self._extents[table])):
            yield from self._block(index).table(table)

    def newest(
        self,
        table: str,
        *,
        after: Place = FIRST,
        until: Place = LAST,
        wanted: Callable[[Any], bool] | None = None,
    ) -> Iterator[Any]:
        """Iterate over the rows after one place and up to another, newest first.

        `wanted` selects labels; blocks without such rows are not generated.
        """
        extents = self._extents[table]
        for index in reversed(range(len(extents))):
            extent = extents[index]
            if extent is None or extent.first > until:
                continue
            if extent.last <= after:
                return
            if wanted is None or any(wanted(label) for label in extent.labels):
                yield from reversed(self._within(table, index, after, until, wanted))

    def place_at(self, table: str, number: int) -> Place:
        """Return the place of the last row up to a number, in a table with rising numbers."""
        place = FIRST
        for index, extent in enumerate(self._extents[table]):
            if extent is None:
                continue
            if extent.last[1] < number:
                place = extent.last
                continue
            rows = self._block(index).table(table)
            below = bisect_right(rows, number, key=lambda row: row.seq)
            return place_of(rows[below - 1]) if below else place
        return place

    def _until(self, table: str, place: Place) -> tuple[StateT | None, list[Any]]:
        """Return the state at the start of a place's block, and the block's rows up to that place.

        A balance at a time is that of the state plus the rows. None before the first block.
        """
        extents = self._extents[table]
        index = bisect_left(
            range(len(extents)), True, key=lambda n: self._starts_after(extents, n, place)
        )
        if not index:
            return None, []
        start = self._starts[index - 1] if index <= len(self._starts) else self._last
        return start, self._within(table, index - 1, FIRST, place)

    def _starts_after(self, extents: list[BlockExtent | None], index: int, place: Place) -> bool:
        """Whether all rows from a block on are after a place."""
        following = (extent for extent in extents[index:] if extent is not None)
        return next(following, BlockExtent(LAST, LAST, Counter())).first > place

    def _done(self) -> Iterator[Any]:
        """Iterate over all events in booking order."""
        tables = self._kind.tables
        for index in range(len(self._extents[tables[0]])):
            yield from self._block(index).done


def place_of(row: Any) -> Place:
    """Return the place of a row in its table."""
    return row.time, row.seq
