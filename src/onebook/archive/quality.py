"""Quality of each recorded book by hour: uptime, failures, ages and crossings (`quality.parquet`).

Everything is measured from the recorded rows when the hour is closed. The state of a book at the
start of an hour is that at the end of the hour before.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from onebook.archive.format import (
    HOUR_US,
    SCHEMA,
    HistoryKind,
    Interval,
    file_name,
    hour_folder,
)
from onebook.archive.stores import FileStore
from onebook.clock import iso_ms
from onebook.model import Health, Reason

VERSION: Final = 2
QUALITY: Final = "quality.parquet"
SECOND_US: Final = 1_000_000
HOUR_S: Final = HOUR_US // SECOND_US
# The end of a slice of work in Python, and the pause after it, in which the event loop runs.
SLICE_S: Final = 0.002
PAUSE_S: Final = 0.001
COUNTED: Final = {
    "gaps": (Reason.GAP,),
    "checksum_misses": (Reason.CHECKSUM,),
    "silences": (Reason.SILENT, Reason.QUIET, Reason.DEAD_STREAM),
    "refusals": (Reason.REFUSED, Reason.RATE_LIMITED, Reason.UNAVAILABLE),
    "audit_mismatches": (Reason.AUDIT,),
}
AGES: Final = {"age_p50_ms": 0.5, "age_p90_ms": 0.9, "age_p99_ms": 0.99, "age_max_ms": 1.0}
OUTAGE: Final = pa.struct({"reason": pa.string(), "count": pa.int32(), "seconds": pa.float64()})
QUALITY_SCHEMA: Final = pa.schema(
    [
        pa.field("exchange", pa.string(), nullable=False),
        pa.field("symbol", pa.string(), nullable=False),
        pa.field("hour", SCHEMA.field("received").type, nullable=False),
        pa.field("observed_s", pa.float64(), nullable=False),
        pa.field("live_s", pa.float64(), nullable=False),
        pa.field("messages", pa.int64(), nullable=False),
        *(pa.field(name, pa.int32(), nullable=False) for name in COUNTED),
        pa.field("audits", pa.int32(), nullable=False),
        pa.field("outages", pa.list_(OUTAGE), nullable=False),
        pa.field("timed_messages", pa.int64(), nullable=False),
        *(pa.field(name, pa.float64()) for name in AGES),
        pa.field("compared_s", pa.int32(), nullable=False),
        pa.field("crossed_s", pa.int32(), nullable=False),
        pa.field("crossings", pa.int32(), nullable=False),
    ],
    metadata={b"onebook.quality": json.dumps({"version": VERSION}).encode()},
)
CHANGES: Final = pa.array([HistoryKind.SNAPSHOT, HistoryKind.DELTA, HistoryKind.TOP], pa.string())
STATES: Final = pa.array([HistoryKind.KEYFRAME, HistoryKind.HEALTH], pa.string())
PRICED: Final = pa.array(
    [HistoryKind.KEYFRAME, HistoryKind.SNAPSHOT, HistoryKind.DELTA], pa.string()
)
STATE_COLUMNS: Final = ["run", "kind", "received", "audits", "health", "reason"]
MEASURED: Final = (
    "exchange", "symbol", *STATE_COLUMNS, "exchange_time", "price_scale", "best_bid", "best_ask",
)  # fmt: skip
SHOWN: Final = (str(Health.LIVE), None)  # health and reason of a book that is shown


class RecordedHealth(NamedTuple):
    """The state of a book from a time on."""

    run: int
    kind: str
    at_us: int
    audits: int | None  # of a keyframe: comparisons with a REST snapshot until then
    health: str
    reason: str | None


class HourPrices(NamedTuple):
    """Best prices at the end of each second of an hour; None while the book is not shown."""

    bids: list[float | None]
    asks: list[float | None]


def measured(
    files: FileStore,
    hour_us: int,
    coverage: Sequence[Interval],
    books: Iterable[pa.Table],
    cancelled: Callable[[], bool],
) -> pa.Table | None:
    """Return the quality of every book of an hour; None if it was cancelled.

    Args:
        files: The history.
        hour_us: The hour.
        coverage: Its recorded times.
        books: The rows of each book, in order of the symbol.
        cancelled: Whether to return.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file is damaged.
    """
    found: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []  # of one symbol
    prices: list[HourPrices] = []
    pace = _Pace()
    for table in books:
        if cancelled():
            return None
        exchange, symbol = (str(table[name][0]) for name in ("exchange", "symbol"))
        if rows and rows[-1]["symbol"] != symbol:
            found += _with_crossings(rows, prices)
            rows, prices = [], []
        earlier = f"{hour_folder(hour_us - HOUR_US)}/{exchange}/{file_name(symbol)}.parquet"
        before = _last_state(files, earlier)
        states = _states(table)
        rows.append(_measured_book(table, states, hour_us, coverage, before))
        prices.append(_best_prices(table, states, hour_us, coverage, before))
        pace.rest()
    found += _with_crossings(rows, prices)
    found.sort(key=lambda row: (row["exchange"], row["symbol"]))
    return pa.Table.from_pylist(found, schema=QUALITY_SCHEMA)


def read_rows(files: FileStore, path: str) -> pa.Table:
    """Return what the quality of a book is measured from.

    Raises:
        OSError: The file cannot be read.
    """
    with files.open(path) as file:
        reader = pq.ParquetFile(file, read_dictionary=["kind"])
        return reader.read(columns=[*MEASURED], use_threads=False)


def _last_state(files: FileStore, path: str) -> RecordedHealth | None:
    """Return the last state of a book in another hour's file."""
    try:
        with files.open(path) as file:
            reader = pq.ParquetFile(file)
            last = max(reader.num_row_groups - 1, 0)  # it begins with a keyframe
            rows = reader.read_row_groups([last], columns=STATE_COLUMNS, use_threads=False)
    except FileNotFoundError:
        return None
    states = _states(rows)
    return states[-1] if states else None


def _states(rows: pa.Table) -> list[RecordedHealth]:
    kinds = rows["kind"].cast(pa.string())
    found = rows.select(STATE_COLUMNS).filter(pc.is_in(kinds, STATES))
    return [
        RecordedHealth(*row)
        for row in zip(
            found["run"].to_pylist(),
            found["kind"].to_pylist(),
            found["received"].cast(pa.int64()).to_pylist(),
            found["audits"].to_pylist(),
            found["health"].to_pylist(),
            found["reason"].to_pylist(),
            strict=True,
        )
    ]


def _measured_book(
    rows: pa.Table,
    states: Sequence[RecordedHealth],
    hour_us: int,
    coverage: Iterable[Interval],
    before: RecordedHealth | None,
) -> dict[str, Any]:
    """Return the row of a book, but for its crossings."""
    seconds, counts = Counter[str](), Counter[str]()
    observed_us = live_us = audits = 0
    for interval in coverage:
        of_run = [each for each in states if each.run == interval.run]
        carried = [before] if before is not None and before.run == interval.run else []
        audits += _audits([*carried, *of_run])
        for state, previous, start_us, end_us in _spans(carried, of_run, interval):
            if state.health == Health.OFFLINE and state.reason == Reason.NOT_WANTED:
                continue
            observed_us += end_us - start_us
            if state.health == Health.LIVE:
                live_us += end_us - start_us
            if state.reason is None:
                continue
            seconds[state.reason] += end_us - start_us
            is_new = state.at_us >= interval.start_us and state.at_us >= hour_us
            known = previous is not None or state.kind == HistoryKind.HEALTH
            if is_new and known and (previous is None or previous[-2:] != state[-2:]):
                counts[state.reason] += 1
    changes = rows.select(["received", "exchange_time"]).filter(
        pc.is_in(rows["kind"].cast(pa.string()), CHANGES)
    )
    return {
        "exchange": rows["exchange"][0].as_py(),
        "symbol": rows["symbol"][0].as_py(),
        "hour": hour_us,
        "observed_s": observed_us / SECOND_US,
        "live_s": live_us / SECOND_US,
        "messages": len(changes),
        **{name: sum(counts[each] for each in reasons) for name, reasons in COUNTED.items()},
        "audits": audits,
        "outages": [
            {"reason": reason, "count": counts[reason], "seconds": seconds[reason] / SECOND_US}
            for reason in sorted(seconds)
        ],
        **_ages(changes),
    }


def _audits(states: Iterable[RecordedHealth]) -> int:
    """Return how many comparisons keyframes count; a book that was opened again counts from 0."""
    counts = [each.audits for each in states if each.audits is not None]
    return sum(max(0, after - before) for before, after in pairwise(counts))


def _spans(
    carried: list[RecordedHealth], states: list[RecordedHealth], interval: Interval
) -> Iterator[tuple[RecordedHealth, RecordedHealth | None, int, int]]:
    """Yield each state of an interval with the one before, its start and its end."""
    known = [*carried, *states]
    ends = [*(each.at_us for each in known[1:]), interval.end_us]
    for at, (state, until_us) in enumerate(zip(known, ends, strict=False)):
        start_us = max(state.at_us, interval.start_us)
        end_us = min(until_us, interval.end_us)
        if end_us >= start_us:
            yield state, known[at - 1] if at else None, start_us, end_us


def _ages(changes: pa.Table) -> dict[str, Any]:
    received, sent = (changes[name].cast(pa.int64()) for name in ("received", "exchange_time"))
    ages = pc.drop_null(pc.divide(pc.subtract(received, sent).cast(pa.float64()), 1_000.0))
    found = pc.quantile(ages, [*AGES.values()]).to_pylist() if len(ages) else [None] * len(AGES)
    return {"timed_messages": len(ages), **dict(zip(AGES, found, strict=True))}


# Crossings


class _Pace:
    """Pauses between slices of work, because this thread shares the interpreter with the feeds."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def rest(self) -> None:
        if time.perf_counter() - self._began > SLICE_S:
            time.sleep(PAUSE_S)
            self._began = time.perf_counter()


def _best_prices(
    rows: pa.Table,
    states: Sequence[RecordedHealth],
    hour_us: int,
    coverage: Iterable[Interval],
    before: RecordedHealth | None,
) -> HourPrices:
    """Return the best prices of a book at the end of each second of the hour."""
    prices = HourPrices([None] * HOUR_S, [None] * HOUR_S)
    of_runs = _last_prices(rows, hour_us)
    for interval in coverage:
        known = [each for each in states if each.run == interval.run]
        if before is not None and before.run == interval.run:
            known.insert(0, before)
        stop = min((interval.end_us - hour_us) // SECOND_US, HOUR_S)
        found = of_runs.get(interval.run, [])
        last = HourPrices([None] * HOUR_S, [None] * HOUR_S)  # whether the book is shown or not
        ends = [*(each[0] for each in found[1:]), stop]
        for (second, bid, ask), end in zip(found, ends, strict=False):
            last.bids[second:end] = [bid] * (end - second)
            last.asks[second:end] = [ask] * (end - second)
        first = found[0][0] if found else stop
        begins = [max(each.at_us - hour_us - 1, 0) // SECOND_US for each in known]
        for state, begin, end in zip(known, begins, [*begins[1:], stop], strict=False):
            if state[-2:] == SHOWN:
                shown = slice(max(begin, first), min(end, stop))
                prices.bids[shown], prices.asks[shown] = last.bids[shown], last.asks[shown]
    return prices


def _last_prices(
    rows: pa.Table, hour_us: int
) -> dict[int, list[tuple[int, float | None, float | None]]]:
    """Return, by run, the last best prices of each second of the hour in which some came."""
    priced = pc.is_in(rows["kind"].cast(pa.string()), PRICED)
    found = rows.select(["run", "best_bid", "best_ask", "price_scale"])
    since_us = pc.subtract(rows["received"].cast(pa.int64()), pa.scalar(hour_us + 1, pa.int64()))
    found = found.append_column("second", pc.divide(since_us, pa.scalar(SECOND_US, pa.int64())))
    found = found.filter(priced)
    later, earlier = found.slice(1), found.slice(0, max(len(found) - 1, 0))
    ends = pc.or_(*(pc.not_equal(later[name], earlier[name]) for name in ("run", "second")))
    last = [*pc.indices_nonzero(ends).to_pylist(), *([len(found) - 1] if len(found) else [])]
    prices: dict[int, list[tuple[int, float | None, float | None]]] = {}
    for row in found.take(pa.array(last, pa.int64())).to_pylist():
        unit = 10.0 ** row["price_scale"]
        bid, ask = (row[side] and row[side] / unit for side in ("best_bid", "best_ask"))
        prices.setdefault(row["run"], []).append((row["second"], bid, ask))
    return prices


def _with_crossings(
    rows: list[dict[str, Any]], prices: list[HourPrices]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one symbol with their crossings."""
    for row, crossed in zip(rows, _crossings(prices) if rows else (), strict=True):
        yield row | crossed


def _crossings(books: Sequence[HourPrices]) -> Iterator[dict[str, int]]:
    """Yield the crossings of each book with the others of its symbol."""
    bids = [pa.array(each.bids, pa.float64()) for each in books]
    asks = [pa.array(each.asks, pa.float64()) for each in books]
    highest, lowest = pc.max_element_wise(*bids), pc.min_element_wise(*asks)
    shown = [
        pc.or_(pc.is_valid(bid), pc.is_valid(ask)) for bid, ask in zip(bids, asks, strict=True)
    ]
    count = shown[0].cast(pa.int32())
    for each in shown[1:]:
        count = pc.add(count, each.cast(pa.int32()))
    for bid, ask, own in zip(bids, asks, shown, strict=True):
        # A live book does not cross itself, so its own prices need not be left out.
        above = pc.fill_null(pc.greater(bid, lowest), False)
        below = pc.fill_null(pc.less(ask, highest), False)
        crossed = pc.or_(above, below)
        begins = pc.and_not(crossed.slice(1), crossed.slice(0, len(crossed) - 1))
        compared = pc.and_(own, pc.greater(count, 1))
        yield {
            "compared_s": pc.sum(compared).as_py(),
            "crossed_s": pc.sum(crossed).as_py(),
            "crossings": pc.sum(begins).as_py() + int(crossed[0].as_py()),
        }


# Summaries

GROUPS: Final = {
    "exchange": ("exchange",),
    "symbol": ("exchange", "symbol"),
    "hour": ("exchange", "hour"),
    "book": ("exchange", "symbol", "hour"),
}
SUMS: Final = (
    "observed_s", "live_s", "messages", *COUNTED, "audits", "timed_messages", "compared_s",
    "crossed_s", "crossings",
)  # fmt: skip


def selected(rows: pa.Table, exchanges: Collection[str], symbols: Collection[str]) -> pa.Table:
    """Return the rows of these exchanges and symbols; an empty collection selects all."""
    for name, wanted in (("exchange", exchanges), ("symbol", symbols)):
        if wanted:
            rows = rows.filter(pc.is_in(rows[name], pa.array([*wanted], pa.string())))
    return rows


def write_rows(rows: pa.Table, path: Path) -> None:
    """Write rows as one Parquet file.

    Raises:
        OSError: It cannot be written.
    """
    with path.open("wb") as file:
        pq.write_table(rows, file)


def summary(rows: pa.Table, by: str) -> list[dict[str, Any]]:
    """Return the quality of each group of books and hours, in order.

    Counts and seconds are sums. `age_p50_ms` is the median over books and hours, the other ages are
    those of the worst book and hour.

    Args:
        rows: Rows of `quality.parquet`.
        by: One of `GROUPS`.
    """
    keys = [*GROUPS[by]]
    place = rows.schema.get_field_index("hour")
    rows = rows.set_column(place, "hour", rows["hour"].cast(pa.int64()))
    found = rows.group_by(keys, use_threads=False).aggregate(
        [
            *((name, "sum") for name in SUMS),
            ("age_p50_ms", "approximate_median"),
            *((name, "max") for name in AGES if name != "age_p50_ms"),
        ]
    )
    outages = _outages(rows, keys)
    groups = []
    for row in found.sort_by([(key, "ascending") for key in keys]).to_pylist():
        named = {key: iso_ms(row[key] // 1_000) if key == "hour" else row[key] for key in keys}
        observed_s, live_s = row["observed_s_sum"], row["live_s_sum"]
        named["uptime"] = round(live_s / observed_s, 6) if observed_s else None
        named |= {name: row[f"{name}_sum"] for name in SUMS}
        named["age_p50_ms"] = row["age_p50_ms_approximate_median"]
        named |= {name: row[f"{name}_max"] for name in AGES if name != "age_p50_ms"}
        named["outages"] = outages.get(tuple(row[key] for key in keys), [])
        groups.append(named)
    return groups


def _outages(rows: pa.Table, keys: list[str]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Return the outages of each group, the longest first."""
    lists = rows["outages"].combine_chunks()
    of_row, each = pc.list_parent_indices(lists), lists.flatten()
    table = rows.select(keys).take(of_row)
    for name in ("reason", "count", "seconds"):
        table = table.append_column(name, each.field(name))
    sums = table.group_by([*keys, "reason"], use_threads=False).aggregate(
        [("count", "sum"), ("seconds", "sum")]
    )
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in sums.sort_by([("seconds_sum", "descending"), ("reason", "ascending")]).to_pylist():
        outage = {
            "reason": row["reason"],
            "count": row["count_sum"],
            "seconds": row["seconds_sum"],
        }
        found.setdefault(tuple(row[key] for key in keys), []).append(outage)
    return found
