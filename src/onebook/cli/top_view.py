"""The screen of `onebook top`, from two scrapes of a node's metrics."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onebook.cli.common import size
from onebook.model import Health

LAG_HIGH_S: Final = 0.1
FLUSH_AGE_HIGH_S: Final = 3.0
CHROME_ROWS: Final = 3  # rows without exchanges: title, empty line, column headers
ROWS_MIN: Final = 3
TABLE_WIDTH: Final = 93  # a narrower terminal would cut the table of exchanges
NONE: Final = "-"

Labels = frozenset[tuple[str, str]]


class Scrape:
    """The samples of one scrape, taken at `at_s` (seconds of any clock)."""

    def __init__(self, text: str, at_s: float) -> None:
        self.at_s = at_s
        self._samples: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._samples[sample.name][frozenset(sample.labels.items())] = sample.value

    def total(self, name: str, **labels: str) -> float:
        """Sum of the samples of a metric with these labels."""
        return sum(value for _, value in self._of(name, labels))

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Sums of a metric by the values of one label."""
        found: defaultdict[str, float] = defaultdict(float)
        for names, value in self._of(name, labels):
            found[names.get(label, "")] += value
        return dict(found)

    def label(self, name: str, label: str) -> str:
        """The value of a label of a single-sample metric; "" if absent."""
        return next((names.get(label, "") for names, _ in self._of(name, {})), "")

    def _of(self, name: str, labels: Mapping[str, str]) -> Iterator[tuple[dict[str, str], float]]:
        for names, value in self._samples.get(name, {}).items():
            if labels.items() <= set(names):
                yield dict(names), value


class Between:
    """The difference of two scrapes; a counter that fell was reset."""

    def __init__(self, before: Scrape, now: Scrape) -> None:
        self.now = now
        self._before = before
        self._seconds = max(now.at_s - before.at_s, 1e-9)

    def rate(self, name: str, **labels: str) -> float:
        """Increase of a counter per second."""
        grown = self.now.total(name, **labels) - self._before.total(name, **labels)
        return max(0.0, grown) / self._seconds

    def quantile(self, share: float, name: str, **labels: str) -> float | None:
        """Quantile of a histogram between the scrapes; None without observations.

        Interpolates linearly within a bucket, as Prometheus does; values above the highest bound
        count as that bound.
        """
        bounds = sorted(
            (float(bound), max(0.0, count - self._earlier(name, bound, labels)))
            for bound, count in self.now.by(f"{name}_bucket", "le", **labels).items()
        )
        if not bounds or not bounds[-1][1]:
            return None
        wanted = share * bounds[-1][1]
        if bounds[0][1] >= wanted:
            return bounds[0][0]
        for (low, under), (high, count) in pairwise(bounds):
            if count >= wanted:
                if high == float("inf"):
                    return low
                return low + (high - low) * (wanted - under) / (count - under)
        return bounds[-1][0]

    def _earlier(self, name: str, bound: str, labels: Mapping[str, str]) -> float:
        return self._before.total(f"{name}_bucket", le=bound, **labels)


class Readiness(NamedTuple):
    """The answer of `/readyz`."""

    ready: bool
    problems: tuple[str, ...]


class ExchangeLine(NamedTuple):
    """Line of one exchange; `trouble` sorts those with problems to the top."""

    name: str
    up: bool
    books: dict[str, float]
    frames: float
    age_s: float | None
    last_s: float | None
    reconnects: float
    invalidations: float

    @property
    def trouble(self) -> bool:
        """Whether any book is stale, offline or disconnected; an exchange without books is idle."""
        down = not self.up and any(self.books.values())
        return down or any(self.books.get(each, 0) for each in (Health.STALE, Health.OFFLINE))


def screen(
    between: Between, readiness: Readiness, *, url: str, wall_s: float, width: int, height: int
) -> RenderableType:
    """Render the screen for a terminal size."""
    head = [_title(between, readiness, url, wall_s)]
    head += [Text(f"  {each}", style="yellow") for each in readiness.problems]
    fields = _fields(between)
    columns = 3 if width >= 110 else 2
    rows_used = len(head) + -(-len(fields) // columns) + CHROME_ROWS
    lines = sorted(
        _exchanges(between, wall_s), key=lambda each: (not each.trouble, not each.up, each.name)
    )
    shown = max(ROWS_MIN, height - rows_used - 2)
    parts: list[RenderableType] = [*head, _grid(fields, columns), Text()]
    parts.append(_table(lines[:shown], narrow=width < TABLE_WIDTH))
    if len(lines) > shown:
        parts.append(Text(f"... {len(lines) - shown} more exchanges"))
    return Group(*parts)


def _title(between: Between, readiness: Readiness, url: str, wall_s: float) -> Text:
    now = between.now
    up_s = wall_s - now.total("process_start_time_seconds")
    state = ("ready", "green") if readiness.ready else ("NOT READY", "bold red")
    version = now.label("onebook_build_info", "version")
    compiled = "" if now.label("onebook_build_info", "compiled") == "yes" else ", not compiled"
    return Text.assemble(
        ("onebook top", "bold"), f"  {url}  ", state, f"  {version}{compiled}  up {span(up_s)}"
    )


def _fields(between: Between) -> list[tuple[str, Text]]:
    now, rate = between.now, between.rate
    lag_s = between.quantile(0.99, "onebook_event_loop_lag_seconds")
    flush_s = now.total("onebook_usage_flush_age_seconds")
    away = now.total("onebook_database_unavailable") > 0
    delivery = [
        between.quantile(share, "onebook_delivery_latency_seconds") for share in (0.5, 0.99)
    ]
    slow = now.total("onebook_ws_behind")
    refused = rate("onebook_authentication_failures_total")
    errors = sum(
        rate("onebook_http_requests_total", status=status)
        for status in now.by("onebook_http_requests_total", "status")
        if status.startswith("5")
    )
    return [
        ("cpu", Text(f"{rate('process_cpu_seconds_total') * 100:.0f} %")),
        ("memory", Text(size(now.total("process_resident_memory_bytes")))),
        ("open files", _files(between)),
        ("loop lag p99", _marked(seconds(lag_s), lag_s is not None and lag_s >= LAG_HIGH_S)),
        ("sockets", Text(count(now.total("onebook_sockets")))),
        ("http", Text(f"{rate('onebook_http_requests_total'):.1f}/s")),
        ("http 5xx", _marked(f"{errors:.1f}/s", errors > 0)),
        ("database", _marked("away" if away else "ok", away)),
        ("usage written", _marked(f"{flush_s:.1f} s ago", flush_s >= FLUSH_AGE_HIGH_S)),
        ("clients", Text(count(now.total("onebook_ws_connections")))),
        ("slow clients", _marked(count(slow), slow > 0)),
        ("refused keys", _marked(f"{refused:.1f}/s", refused > 0)),
        ("streams", Text(count(now.total("onebook_ws_streams")))),
        ("updates", Text(f"{rate('onebook_ws_published_total'):.1f}/s")),
        ("delivered", Text(f"{size(rate('onebook_ws_sent_bytes_total'))}/s")),
        ("delivery", Text(f"p50 {seconds(delivery[0])}, p99 {seconds(delivery[1])}")),
        ("conflated", Text(f"{rate('onebook_ws_conflated_total'):.1f}/s")),
        ("transactions", Text(f"{count(now.total('onebook_transactions_running'))} running")),
    ]


def _files(between: Between) -> Text:
    now = between.now
    return Text(f"{count(now.total('process_open_fds'))} of {count(now.total('process_max_fds'))}")


def _grid(fields: list[tuple[str, Text]], columns: int) -> Table:
    grid = Table.grid(padding=(0, 2))
    rows = -(-len(fields) // columns)
    for _ in range(columns):
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(no_wrap=True)
    for row in range(rows):
        cells = [each for field in fields[row::rows] for each in field]
        grid.add_row(*cells)
    return grid


def _exchanges(between: Between, wall_s: float) -> Iterable[ExchangeLine]:
    now = between.now
    last = now.by("onebook_exchange_last_frame_timestamp_seconds", "exchange")
    for name, up in now.by("onebook_exchange_up", "exchange").items():
        yield ExchangeLine(
            name=name,
            up=up > 0,
            books=now.by("onebook_books", "health", exchange=name),
            frames=between.rate("onebook_exchange_frames_total", exchange=name),
            age_s=between.quantile(0.5, "onebook_exchange_latency_seconds", exchange=name),
            last_s=wall_s - last[name] if name in last else None,
            reconnects=now.total("onebook_exchange_reconnects_total", exchange=name),
            invalidations=now.total("onebook_book_invalidations_total", exchange=name),
        )


def _table(lines: list[ExchangeLine], *, narrow: bool) -> Table:
    padding = (0, 1 if narrow else 2, 0, 0)
    table = Table(box=None, padding=padding, pad_edge=False, header_style="bold")
    table.add_column("exchange", no_wrap=True)
    table.add_column("state", no_wrap=True)
    frames, invalid = ("fr/s", "inval") if narrow else ("frames/s", "invalid")
    for name in ("live", "sync", "stale", "off", frames, "age", "last", "reconn", invalid):
        table.add_column(name, justify="right", no_wrap=True)
    for each in lines:
        idle = not each.up and not any(each.books.values())  # its books have no subscribers
        table.add_row(
            each.name,
            _state(each.up, idle),
            count(each.books.get(Health.LIVE, 0)),
            count(each.books.get(Health.SYNCING, 0)),
            count(each.books.get(Health.STALE, 0)),
            count(each.books.get(Health.OFFLINE, 0)),
            f"{each.frames:.1f}",
            seconds(each.age_s),
            NONE if each.last_s is None else span(each.last_s),
            count(each.reconnects),
            count(each.invalidations),
            style="yellow" if each.trouble else "",
        )
    return table


def _state(up: bool, idle: bool) -> Text:
    if up:
        return Text("up")
    return Text("idle") if idle else Text("DOWN", "bold red")


def _marked(text: str, bad: bool) -> Text:
    """Format a value; bad ones are also marked without colour."""
    return Text(f"{text} !", style="bold red") if bad else Text(text)


def count(value: float) -> str:
    """A whole number."""
    return f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """A short duration; a hyphen if unknown."""
    if value is None:
        return NONE
    return f"{value:.1f} s" if abs(value) >= 1 else f"{value * 1e3:.0f} ms"


def span(value_s: float) -> str:
    """A long duration in its two largest units."""
    whole = max(0, round(value_s))
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    parts: list[str] = []
    for name, size_s in units:
        number, whole = divmod(whole, size_s)
        if number or parts or name == "s":
            parts.append(f"{number}{name}")
    return " ".join(parts[:2])
