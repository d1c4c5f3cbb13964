"""Histories in blocks: any range of rows, in any order of generation."""

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from onebook.simulator.accounts.blocks import (
    BLOCK_STEPS,
    FIRST,
    LAST,
    BlockHistory,
    HistoryState,
    Planned,
    RowBlock,
    place_of,
    planned_events,
    step_times,
)

STEPS = 5 * BLOCK_STEPS // 2
END = 1_000_000


class Entry(NamedTuple):
    time: int
    seq: int
    facts: tuple[str, int]


@dataclass
class TallyState(HistoryState):
    """Counts the events."""

    total: int = 0
    seen: list[int] = field(default_factory=list)


class TallyBlock(RowBlock):
    """Rows that contain the count so far."""

    tables = ("tally",)

    def __init__(self) -> None:
        super().__init__()
        self.tally: list[Entry] = []


class Tally(BlockHistory[TallyState, TallyBlock]):
    """Each step creates a row, now or later; "rare" is planned."""

    def __init__(self) -> None:
        super().__init__(TallyBlock, TallyState(), STEPS)
        self.generated: list[int] = []
        self._plan = sorted(
            planned_events([Planned("rare", 5)], [], Random(1), start=0, end=END, rows=STEPS)
        )
        self._generate_all()

    def _generate(self, state: TallyState, index: int) -> TallyBlock:
        self.generated.append(index)
        block, random = TallyBlock(), Random(f"tally {index}")

        def add(at: int, fact: str = "step") -> None:
            state.total += 1
            block.tally.append(Entry(at, state.number("row"), (fact, state.total)))

        acts = {"late": lambda at: add(at, "late"), "rare": lambda at: add(at, "rare")}
        for at in step_times(random, index, STEPS, start=0, end=END):
            state.run_due(self._plan, acts, until=at)
            if random.random() < 0.3:
                state.later(at + random.randrange(5_000), "late")
            else:
                add(at)
        block.sort()
        return block

    def _label(self, table: str, row: Entry) -> str:
        return str(row.facts[0])

    def live(self, at: int) -> None:
        self._begin_live()
        block = TallyBlock()
        self.state.total += 1
        block.tally.append(Entry(at, self.state.number("row"), ("live", self.state.total)))
        self._append_live(block)


def test_rows_are_the_same_whenever_they_are_generated() -> None:
    tally = Tally()
    assert tally.generated == [0, 1, 2]
    rows = list(tally.rows("tally"))
    assert rows == list(tally.rows("tally")) == sorted(rows)
    assert sum(row.facts[0] == "rare" for row in rows) == 5
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert rows[-1].facts[1] == tally.state.total


def test_any_range_newest_first() -> None:
    tally, random = Tally(), Random(4)
    tally.live(END + 7)
    rows = list(tally.rows("tally"))
    for _ in range(60):
        low, high = sorted(random.sample(range(len(rows)), 2))
        after = FIRST if random.random() < 0.3 else place_of(rows[low])
        until = LAST if random.random() < 0.3 else place_of(rows[high])
        expected = [row for row in reversed(rows) if after < place_of(row) <= until]
        assert list(tally.newest("tally", after=after, until=until)) == expected
        late = [row for row in expected if row.facts[0] == "late"]
        wanted = "late".__eq__
        assert list(tally.newest("tally", after=after, until=until, wanted=wanted)) == late


def test_a_block_without_wanted_rows_is_not_generated() -> None:
    tally = Tally()
    tally.live(END + 7)
    tally.generated.clear()
    (row,) = tally.newest("tally", wanted="live".__eq__)
    assert (row.time, tally.generated) == (END + 7, [])


def test_places_of_numbers() -> None:
    tally = Tally()
    rows = list(tally.rows("tally"))
    for number in (1, 2, 500, len(rows) - 1, len(rows)):
        assert tally.place_at("tally", number) == place_of(rows[number - 1])
    assert tally.place_at("tally", 0) == FIRST
    assert tally.place_at("tally", 10**9) == place_of(rows[-1])


def test_a_state_and_the_rows_after_it_lead_to_any_time() -> None:
    tally, random = Tally(), Random(6)
    tally.live(END + 7)
    rows = list(tally.rows("tally"))
    assert tally._until("tally", (-0.5, 0.0)) == (None, [])
    for row in [*random.sample(rows, 40), rows[0], rows[-1]]:
        state, found = tally._until("tally", place_of(row))
        assert state is not None
        assert state.total + len(found) == row.facts[1]


def test_copies_of_a_state_share_nothing_that_changes() -> None:
    state = TallyState(total=3)
    state.later(5, "late")
    other = state.copy()
    other.later(6, "late")
    other.number("row")
    other.seen.append(1)
    assert (state.pending, state.numbers, state.seen) == (
        [(5, 10**9 + 1, "late", ())], {"pending": 1}, [],
    )  # fmt: skip
