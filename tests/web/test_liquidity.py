"""The model of the heat map against an oracle that keeps every book."""

import math
import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from web.in_node import needs_node, run

pytestmark = needs_node
COLUMNS, COLUMN_MS = 600, 1_000
NAMES = "Liquidity, stepOf, COLUMNS, ROWS"

# Every amount of the shown columns, each as [column, bin, amount or null, lower bound].
FEED = """
  const map = new Liquidity(given.rows);
  map.percent = given.percent;
  const play = ([kind, at, book, left, unit]) =>
    kind === "add" ? map.add(book, left, at, unit) : map[kind](at);
  given.events.forEach(play);
"""
READ = (
    FEED
    + """
  const cells = [];
  for (let column = Math.max(0, map.last - COLUMNS + 1); column <= map.last; column += 1) {
    const mid = map.bin(map.mid(column));
    for (let bin = mid - given.rows / 2; bin < mid + given.rows / 2; bin += 1) {
      const amount = map.amount(column, bin);
      cells.push([column, bin, Number.isNaN(amount) ? null : amount, map.least(column, bin)]);
    }
  }
  const columns = Array.from({ length: COLUMNS }, (_, at) => map.last - COLUMNS + 1 + at);
  const known = columns.map((column) => map.has(column));
  const flags = columns.map((column) => map.flags(column));
  return { step: map.step, last: map.last, cells, known, flags, events: map.events };
"""
)


def book(
    bids: list[tuple[float, float]],
    asks: list[tuple[float, float]],
    horizons: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """The parts of `readBook`'s result that the heat map uses."""
    best = [side[0][0] if side else None for side in (bids, asks)]
    ends = [[{"exchange": "okx", "price": price}] for price in horizons] if horizons else [[], []]
    return {
        "bids": [{"price": price, "amount": amount} for price, amount in bids],
        "asks": [{"price": price, "amount": amount} for price, amount in asks],
        "stats": {
            "best_bid": best[0],
            "best_ask": best[1],
            "crossed": None not in best and best[0] >= best[1],
        },
        "horizons": dict(zip(("bids", "asks"), ends, strict=True)),
    }


def random_book(rng: random.Random, ticks: int, tick: Fraction) -> dict[str, Any]:
    """Levels at distinct ticks; sometimes the sides cross."""
    gap = -2 if rng.random() < 0.1 else 1
    sides = []
    for sign in (-1, 1):
        places = sorted(rng.sample(range(40), rng.randint(3, 30)))
        sides.append(
            [
                (float((ticks + sign * (gap + each)) * tick), round(rng.uniform(0.01, 9), 3))
                for each in places
            ]
        )
    ends = sides[0][-1][0], sides[1][-1][0]
    return book(*sides, horizons=ends if rng.random() < 0.5 else None)


class Binned:
    """The amounts of a book by bin, and the bins within its horizons."""

    def __init__(self, one: dict[str, Any], step: Fraction) -> None:
        self.amounts: Counter[int] = Counter()
        for side in ("bids", "asks"):
            for each in one[side]:
                self.amounts[_bin(each, step)] += each["amount"]
        lowest, highest = one["horizons"]["bids"], one["horizons"]["asks"]
        self.nearest = _bin(lowest[0], step) if lowest else -math.inf
        self.furthest = _bin(highest[0], step) if highest else math.inf


def _bin(level: dict[str, Any], step: Fraction) -> int:
    return Fraction(str(level["price"])) // step


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 6))]
)
async def test_each_column_is_the_last_book_of_its_second(seed: int) -> None:
    rng = random.Random(seed)
    tick = Fraction(rng.choice(["0.1", "0.01", "5", "0.00000001"]))
    at_ms, ticks = rng.randrange(5_000_000), 5_000
    events: list[list[Any]] = []
    shown: dict[int, dict[str, Any] | None] = {}  # the book at the end of each second
    standing: dict[str, Any] | None = None

    def pass_to(now_ms: int) -> None:
        """The seconds before now end with the current book."""
        nonlocal standing
        last = max(shown, default=now_ms // COLUMN_MS)
        missed = now_ms // COLUMN_MS - last
        if missed > 3:
            standing = None  # nobody looked: not known until the next book
        for column in range(last + 1, now_ms // COLUMN_MS + 1):
            shown[column] = standing

    for _ in range(700):
        at_ms += rng.choice([120, 200, 350, 900, 2_000])
        if rng.random() < 0.01:
            at_ms += rng.choice([4_500, 9_000])  # longer than a quiet book is carried on
        if rng.random() < 0.02:
            pass_to(at_ms)
            standing = None
            events.append(["gap", at_ms])
        elif rng.random() < 0.1:
            pass_to(at_ms)
            events.append(["advance", at_ms])
        else:
            pass_to(at_ms)
            ticks += rng.randint(-2, 2)
            standing = random_book(rng, ticks, tick)
            shown[at_ms // COLUMN_MS] = standing
            events.append(["add", at_ms, standing, [], 0])
    found = await run("liquidity.js", NAMES, READ, {"rows": 96, "percent": 1.0, "events": events})
    last = found["last"]
    assert last == at_ms // COLUMN_MS
    first = min(shown)
    known = [
        column >= first and shown[column] is not None for column in range(last - 599, last + 1)
    ]
    assert found["known"] == known
    step = Fraction(str(found["step"])).limit_denominator(10**12)
    assert step / tick == step // tick, "the chosen step is a multiple of these ticks"
    assert len(found["cells"]) > 5_000
    truth = {column: Binned(one, step) for column, one in shown.items() if one is not None}
    for column, bin_, amount, least in found["cells"]:
        one = truth[column]
        if not min(one.amounts) <= bin_ <= max(one.amounts):
            assert amount is None
            continue
        assert math.isclose(amount, one.amounts[bin_], rel_tol=1e-5), (column, bin_)
        assert least is not (one.nearest <= bin_ <= one.furthest)
    for column, flags in zip(range(last - 599, last + 1), found["flags"], strict=True):
        if known[column - last + 599]:
            assert bool(flags & 1) is shown[column]["stats"]["crossed"]


async def test_an_outage_a_lost_exchange_and_an_unwatched_time_are_told_apart() -> None:
    one = book([(99, 1)], [(101, 1)])
    events: list[list[Any]] = [
        ["add", 1_000, one, ["kraken"], 0],  # absent from the start: nothing was lost
        ["add", 2_000, one, ["kraken", "okx"], 0],
        ["add", 3_000, one, ["okx"], 0],
        ["gap", 4_000],
        ["advance", 6_000],
        ["add", 7_000, one, ["kraken", "okx"], 0],  # lost while there was no connection
        ["add", 20_000, one, ["kraken", "okx"], 0],  # the tab was hidden
    ]
    found = await run("liquidity.js", NAMES, READ, {"rows": 96, "percent": None, "events": events})
    flags = dict(zip(range(20 - 599, 21), found["flags"], strict=True))
    assert [flags[column] for column in range(1, 9)] == [0, 2, 0, 4, 4, 4, 2, 0]
    known = dict(zip(range(20 - 599, 21), found["known"], strict=True))
    assert [column for column in range(21) if known[column]] == [1, 2, 3, 4, 7, 20]
    assert found["events"] == [
        {"column": 2, "text": "okx lost"},
        {"column": 7, "text": "kraken lost"},
    ]


async def test_binned_levels_are_in_the_bin_of_their_prices() -> None:
    """A bin of bids is named by its lower bound, a bin of asks by its upper bound."""
    one = book([(100, 3), (90, 5)], [(110, 7), (120, 9)])
    given = {"rows": 40, "percent": None, "events": [["add", 500, one, [], 10]]}
    script = FEED + "return [8, 9, 10, 11, 12].map((bin) => [map.step, map.amount(0, bin)]);"
    found = await run("liquidity.js", NAMES, script, given)
    assert found == [[10, None], [10, 5], [10, 10], [10, 9], [10, None]]


async def test_another_step_keeps_the_amounts() -> None:
    """Where both steps have data, the sums are equal."""
    rng = random.Random(3)
    events = [
        ["add", second * 1_000, random_book(rng, 5_000, Fraction("0.1")), [], 0]
        for second in range(30)
    ]
    script = (
        FEED
        + """
      const sum = (column) => {
        let total = 0;
        const lowest = map.bin(map.mid(column)) - ROWS / 2;
        for (let row = 0; row < ROWS; row += 1) total += map.amount(column, lowest + row) || 0;
        return total;
      };
      const columns = Array.from({ length: 29 }, (_, at) => at);
      const steps = [map.step], sums = [columns.map(sum)];
      for (const percent of [1.8, 4, 0.9]) {
        map.percent = percent;
        play(given.events[29]);
        steps.push(map.step);
        sums.push(columns.map(sum));
      }
      return { steps, sums };"""
    )
    found = await run(
        "liquidity.js", NAMES, script, {"rows": 100, "percent": 0.9, "events": events}
    )
    assert found["steps"] == [0.1, 0.2, 0.5, 0.1]
    expected = [
        sum(level["amount"] for side in ("bids", "asks") for level in one[side])
        for _, _, one, _, _ in events[:29]
    ]
    for sums in found["sums"]:
        assert sums == pytest.approx(expected, rel=1e-4)


async def test_a_step_is_round_and_a_multiple_of_that_of_the_levels() -> None:
    rng = random.Random(11)
    asked = [
        (10 ** rng.uniform(-10, 6), rng.choice([0, 1, 5, 10, 0.5, 0.05, 0.001, 1e-8, 3]))
        for _ in range(500)
    ]
    steps = await run(
        "liquidity.js", NAMES, "return given.map(([least, unit]) => stepOf(least, unit));", asked
    )
    for (least, unit), step in zip(asked, steps, strict=True):
        assert step >= least * (1 - 2e-6)
        assert step <= max(least, unit) * 10
        if unit:
            assert step / unit == pytest.approx(round(step / unit))
        if unit != 3:
            digit = step / 10 ** math.floor(math.log10(step) + 1e-9)
            digits = (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if unit else (1, 2, 5, 10)
            assert min(abs(digit - each) for each in digits) < 1e-6


async def test_the_colour_scale_grows_at_once_and_fades_slowly() -> None:
    def at(second: int, amount: float) -> list[Any]:
        return ["add", second * 1_000, book([(99, amount)], [(101, amount)]), [], 0]

    events = [
        at(0, 1),
        *(at(each, 100) for each in range(1, 5)),
        *(at(each, 1) for each in range(5, 90)),
    ]
    script = """
      const map = new Liquidity(96), tops = [];
      for (const [, at, book, left, unit] of given) {
        map.add(book, left, at, unit);
        tops.push([map.top, map.revision]);
      }
      return tops;"""
    tops = await run("liquidity.js", NAMES, script, events)
    assert tops[0][0] == 1
    assert [top for top, _ in tops[2:60]] == [128] * 58  # the column of second 1 has ended
    assert tops[89][0] == 1
    assert len({revision for _, revision in tops}) == 3, "columns are painted anew three times"


async def test_memory_does_not_grow_with_time() -> None:
    """Ten hours of books with an exchange that comes and goes."""
    script = """
      const map = new Liquidity(96);
      const book = given;
      const size = () => { global.gc?.(); return process.memoryUsage().heapUsed; };
      let early = 0;
      for (let second = 0; second < 36_000; second += 1) {
        map.add(book, second % 2 ? ["okx"] : [], second * 1_000, 0);
        if (second === 1_200) early = map.events.length;
      }
      return { early, events: map.events.length, first: map.last - map.first };"""
    found = await run("liquidity.js", NAMES, script, book([(99, 1)], [(101, 1)]))
    assert found == {"early": 200, "events": 200, "first": 599}


async def test_a_book_whose_sides_cross_altogether_has_a_step() -> None:
    """Both sides lie beyond the mid, so that the book reaches less than nowhere."""
    crossed = book([(105.0, 1.0), (104.0, 2.0)], [(95.0, 1.0), (96.0, 2.0)])
    given = {"rows": 16, "percent": None, "events": [["add", 0, crossed, [], 0]]}
    found = await run("liquidity.js", NAMES, FEED + "return map.step;", given)
    assert found > 0
