"""The report of a check: what was found at each exchange, without keys, addresses or paths."""

import platform
import sys
from typing import Final

from msgspec import Struct

from onebook import __version__
from onebook.core import COMPILED
from onebook.ops.livecheck.kinds import FindingKind, Grade

FORMAT: Final = "onebook-exchanges-check/1"


class LiveFinding(Struct, frozen=True):
    """One thing that differs from what the connector states, or that a person should know.

    `symbol` is "" where it is about the whole exchange; `example` is a frame, redacted and cut.
    """

    kind: FindingKind
    grade: Grade
    sentence: str
    symbol: str = ""
    detail: str = ""
    count: int = 1
    example: str = ""


class Measure(Struct, frozen=True):
    """A stated quantity beside the measured one; None where one of them is unknown."""

    name: str
    unit: str
    stated: float | None
    measured: float | None
    symbol: str = ""


class Comparison(Struct, frozen=True):
    """A live book beside another snapshot of it.

    `by` is "ids" (both at the same sequence number), "time" (a second subscription's snapshot,
    `apart_s` later) or "none", with the reason in `detail`. `differing` counts the levels that
    differ among the `levels` best of both sides.
    """

    symbol: str
    by: str
    levels: int = 0
    differing: int = 0
    apart_s: float = 0.0
    detail: str = ""


class BookReport(Struct, frozen=True):
    """What one followed book did."""

    symbol: str
    native: str
    state: str
    reason: str
    live_after_s: float | None
    data_frames: int
    bids: int
    asks: int
    resubscribed: bool


class SeenForm(Struct, frozen=True):
    """A form of frame, how often it came, and one example."""

    form: str
    kind: str
    count: int
    example: str


class ListReport(Struct, frozen=True):
    """The instrument list."""

    pairs: int = 0
    rows_refused: int = 0
    seconds: float = 0.0
    problem: str = ""


class Traffic(Struct, frozen=True):
    """What passed on the connections of an exchange."""

    connections: int = 0
    frames: int = 0
    bytes: int = 0
    largest_frame_bytes: int = 0
    messages_sent: int = 0


class ExchangeReport(Struct, frozen=True):
    """What was found at one exchange; `addresses` is "published", or "own" where overridden."""

    exchange: str
    addresses: str
    seconds: float
    interrupted: bool
    instruments: ListReport
    traffic: Traffic
    books: tuple[BookReport, ...]
    comparisons: tuple[Comparison, ...]
    measures: tuple[Measure, ...]
    outputs: dict[str, int]
    forms: tuple[SeenForm, ...]
    findings: tuple[LiveFinding, ...]

    @property
    def well(self) -> bool:
        """Whether there is nothing but notes."""
        return all(each.grade is Grade.NOTE for each in self.findings)


class LiveReport(Struct, frozen=True):
    """The whole report."""

    format: str
    onebook: str
    compiled: bool
    python: str
    platform: str
    started_at_ms: int
    seconds_each: float
    interrupted: bool
    well: bool
    exchanges: tuple[ExchangeReport, ...]


def whole_report(
    exchanges: tuple[ExchangeReport, ...],
    *,
    started_at_ms: int,
    seconds: float,
    interrupted: bool,
) -> LiveReport:
    """Make the report of all exchanges on this platform."""
    return LiveReport(
        format=FORMAT,
        onebook=__version__,
        compiled=COMPILED,
        python=".".join(map(str, sys.version_info[:3])),
        platform=f"{platform.system()} {platform.machine()}",
        started_at_ms=started_at_ms,
        seconds_each=seconds,
        interrupted=interrupted,
        well=bool(exchanges) and not interrupted and all(each.well for each in exchanges),
        exchanges=exchanges,
    )
