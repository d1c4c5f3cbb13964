"""The delay of exchanges over time, against an oracle that keeps every age."""

import random

import pytest

from web.in_node import needs_node, run

EVERY_MS, POINTS = 5_000, 120
pytestmark = needs_node


@pytest.mark.parametrize("seed", range(4))
async def test_a_point_is_the_highest_age_of_its_seconds(seed: int) -> None:
    rng = random.Random(seed)
    kept: dict[str, dict[int, float]] = {"okx": {}, "kraken": {}}
    given, at_ms = [], rng.randrange(100_000)
    for _ in range(800):
        at_ms += rng.choice([200, 900, 3_000]) + (rng.random() < 0.01) * 40_000
        ages = {name: rng.randrange(5_000) for name in kept if rng.random() < 0.7}
        late = rng.randrange(300)
        given.append([ages, late, at_ms])
        for name, age in ages.items():
            point = at_ms // EVERY_MS
            kept[name][point] = max(kept[name].get(point, 0), age + late)
    found = await run(
        "delays.js",
        "Delays, figuresOf",
        """const delays = new Delays();
           for (const [ages, late, at] of given) delays.add(ages, late, at);
           return ["okx", "kraken"].map((name) => {
             const ages = delays.of(name);
             return [ages.map((age) => (Number.isNaN(age) ? null : age)), figuresOf(ages)];
           });""",
        given,
    )
    newest = at_ms // EVERY_MS
    for name, (ages, figures) in zip(kept, found, strict=True):
        points = range(newest - POINTS + 1, newest + 1)
        assert given[0][2] // EVERY_MS < points[0], "the ring went round"
        assert ages == [kept[name].get(point) for point in points]
        known = sorted(age for age in ages if age is not None)
        assert figures == {"median": known[(len(known) - 1) // 2], "highest": known[-1]}


async def test_a_path_has_a_gap_where_there_is_no_data_and_rises_with_the_delay() -> None:
    script = """
      const path = pathOf([10, 10, NaN, 100, NaN, 1e9]);
      const height = (age) => Number(pathOf([age]).split(" ").at(-1));
      const heights = [1, 10, 100, 1_000, 10_000, 60_000, 1e9].map(height);
      return { path, heights, none: pathOf([NaN, NaN]), figures: figuresOf([NaN]) };"""
    found = await run("delays.js", "pathOf, figuresOf", script)
    assert found["path"].count("M") == 3
    assert found["path"].startswith("M0 19L1 19L2 19M3 ")
    assert found["none"] == ""
    assert found["figures"] is None
    heights = found["heights"]
    assert heights == sorted(heights, reverse=True)
    assert [heights[0], heights[-1]] == [heights[1], heights[-2]] == [19, 1]
    assert heights[2] - heights[3] == pytest.approx(heights[3] - heights[4], abs=0.11)


async def test_the_memory_of_delays_is_bounded() -> None:
    script = """
      const delays = new Delays();
      for (let at = 0; at < 400; at += 1) delays.add({ [`x${at}`]: 1 }, 0, at * 9_000);
      const known = Array.from({ length: 400 }, (_, at) => delays.of(`x${at}`).length);
      return [known.filter(Boolean).length, Math.max(...known), EXCHANGES_MAX];"""
    assert await run("delays.js", "Delays, EXCHANGES_MAX", script) == [100, 120, 100]
