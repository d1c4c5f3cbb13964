"""The columns of an hour or a day before a past moment: which books are requested, and when."""

import re
from typing import Any

from web.in_node import needs_node, run

pytestmark = needs_node
HOUR_MS, COLUMN_MS, COLUMNS = 3_600_000, 30_000, 120
UNTIL_MS = 1_800_000_000_000 + 7_300  # within a column

# A service whose books are empty: it notes the moments that are requested, and how many at a time.
SERVICE = """
  const zoom = ZOOMS.find(({ name }) => name === "1 h");
  const ends = [], asked = [];
  let open = 0, most = 0;
  const iso = (ms) => new Date(ms).toISOString();
  const reply = { type: "aggregated_orderbook_data", symbol: "BTC/USDT", checksum: 0,
    data: { bids: [], asks: [], market_stats: {}, stale_exchanges: [] } };
  const columns = new Columns({
    ask: async (options, atMs) => {
      const number = asked.push(atMs);
      most = Math.max(most, ++open);
      await new Promise((done) => setTimeout(done));
      open -= 1;
      if (given.missing?.includes(atMs)) {
        throw Object.assign(new Error("a gap"), { code: "history_not_found" });
      }
      if (given.refused === number) throw new Error("This key may send 5 messages a minute.");
      return reply;
    },
    recorded: async (fromMs, toMs) => ({
      recorded: given.recorded.map(([from, to]) => ({ from: iso(from), to: iso(to) })),
    }),
    ended: (problem) => ends.push(problem),
  });
  const begin = (untilMs, options = {}) => columns.begin(zoom, untilMs, options, {});
  const kinds = ({ columns }) => columns.map((each) => (each ? 1 : each === null ? 0 : -1));
"""


async def columns(script: str, **given: Any) -> Any:
    given.setdefault("recorded", [[0, UNTIL_MS + HOUR_MS]])
    return await run("columns.js", "Columns, ZOOMS, originOf", SERVICE + script, given)


def ends_before(until_ms: int) -> list[int]:
    """When the columns end, newest first: at multiples of their length, the last at the moment."""
    start = until_ms // COLUMN_MS * COLUMN_MS
    return [until_ms, *(start - at * COLUMN_MS - 1 for at in range(COLUMNS - 1))]


async def test_what_is_not_recorded_is_said_with_the_next_recorded_times() -> None:
    """Near the moment, else the ends of the history, else how to find them."""
    at, ends = 5 * HOUR_MS, {"first": HOUR_MS, "last": 9 * HOUR_MS}
    near = [[HOUR_MS, 2 * HOUR_MS], [2 * HOUR_MS, 4 * HOUR_MS], [6 * HOUR_MS, 9 * HOUR_MS]]
    cases = {
        ": it is recorded until TIME and again from TIME on": (near, at, ends),
        ": it is recorded until TIME": (near[:2], at, ends),
        ": it is recorded from TIME on": (near[2:], at, ends),
        "; choose a longer time to see when it is": ([], at, ends),
        ": the history begins on TIME": ([], 0, ends),
        ": the history ends on TIME": ([], 10 * HOUR_MS, ends),
    }
    script = "return given.cases.map((each) => unrecorded('BTC/USDT on okx', ...each));"
    said = await run("past.js", "unrecorded", script, {"cases": [*cases.values()]})
    assert [re.sub(r"Jan 1, \d\d:00:00", "TIME", each) for each in said] == [
        f"Nothing of BTC/USDT on okx is recorded then{each}." for each in cases
    ]


async def test_each_column_is_requested_once_newest_first_and_a_few_at_a_time() -> None:
    asked, most, ends, shown, origin = await columns(
        "await begin(given.until);"
        "return [asked, most, ends, kinds(columns.take()), originOf(zoom, given.until)];",
        until=UNTIL_MS,
    )
    assert asked == ends_before(UNTIL_MS)
    assert most == 3
    assert ends == [""]
    assert shown == [1] * COLUMNS
    assert origin == UNTIL_MS // COLUMN_MS * COLUMN_MS + COLUMN_MS - HOUR_MS


async def test_a_moment_that_was_not_recorded_is_a_gap_and_costs_no_request() -> None:
    first, *others = ends_before(UNTIL_MS)
    recorded = [[0, others[50] - 2], [others[9] - 2, UNTIL_MS + 1]]
    asked, shown = await columns(
        "await begin(given.until); return [asked, kinds(columns.take())];",
        until=UNTIL_MS,
        recorded=recorded,
        missing=[others[5]],  # an exchange has the whole hour, but no book then
    )
    gaps = {*others[10:51], others[5]}
    assert asked == [each for each in (first, *others) if each not in gaps or each == others[5]]
    assert shown == [int(each not in gaps) for each in reversed((first, *others))]


async def test_another_moment_requests_what_it_adds_and_other_options_everything() -> None:
    counts = await columns(
        """const counts = [];
        const count = async (...given) => {
          const before = asked.length;
          await begin(...given);
          counts.push(asked.length - before);
        };
        await count(given.until);
        await count(given.until + 4 * zoom.columnMs);
        await count(given.until);
        await count(given.until, { group: "5" });
        return counts;""",
        until=UNTIL_MS,
    )
    # The column of the first moment had not ended then.
    assert counts == [COLUMNS, 5, 0, COLUMNS]


async def test_leaving_ends_the_requests_and_the_next_moment_has_what_was_read() -> None:
    asked, ends, taken, again = await columns(
        """const begun = begin(given.until);
        while (asked.length < 10) await new Promise((done) => setTimeout(done));
        columns.leave();
        await begun;
        const [count, taken] = [asked.length, columns.take()];
        await begin(given.until);
        return [count, ends, taken, asked.length - count];""",
        until=UNTIL_MS,
    )
    assert asked < 14
    assert ends == [""]  # only of the second time
    assert taken is None
    assert again == COLUMNS - asked


async def test_a_refusal_ends_the_reading_and_leaves_the_rest_unread() -> None:
    asked, ends, shown = await columns(
        """await begin(given.until);
        await new Promise((done) => setTimeout(done, 10));
        return [asked.length, ends, kinds(columns.take())];""",
        until=UNTIL_MS,
        refused=20,
    )
    assert asked <= 22
    assert ends == ["This key may send 5 messages a minute."]
    assert shown.count(1) == asked - 1
    assert shown.count(-1) == COLUMNS - shown.count(1)
