"""The report of a check and the kinds of its findings, without keys, addresses or paths."""

import platform
import sys
from enum import StrEnum
from typing import Final

from msgspec import Struct

from onebook import __version__
from onebook.core import COMPILED

FORMAT: Final = "onebook-exchanges-check/1"


class Grade(StrEnum):
    """Severity of a finding; notes leave the exit status at 0."""

    NOTE = "note"
    WARNING = "warning"
    FAULT = "fault"


class FindingKind(StrEnum):
    """A kind of finding; `grade` is its severity, `sentence` its meaning."""

    grade: Grade
    sentence: str

    def __new__(cls, code: str, grade: Grade = Grade.NOTE, sentence: str = "") -> "FindingKind":
        """Create a member from its code, grade and sentence."""
        kind = str.__new__(cls, code)
        kind._value_ = code
        kind.grade = grade
        kind.sentence = sentence
        return kind

    LIST_UNREADABLE = (
        "list_unreadable",
        Grade.FAULT,
        "The instrument list could not be read, so that no book was followed.",
    )
    SYMBOL_MISSING = (
        "symbol_missing",
        Grade.WARNING,
        "The exchange does not trade this symbol.",
    )
    UNREACHABLE = (
        "unreachable",
        Grade.FAULT,
        "The connection was refused or could not be opened.",
    )
    CLOSED = "closed", Grade.WARNING, "The connection ended before the check did."
    CLOSE_ANNOUNCED = (
        "close_announced",
        Grade.NOTE,
        "The exchange announced that it will close the connection.",
    )
    FRAME_TOO_LARGE = (
        "frame_too_large",
        Grade.FAULT,
        "A frame is longer than the connector accepts, so that its book cannot start.",
    )
    REFUSED = "refused", Grade.FAULT, "The exchange refused a subscription."
    REQUEST_REFUSED = (
        "request_refused",
        Grade.FAULT,
        "The exchange refused a request that is not a subscription, such as an unsubscription.",
    )
    SLOW_DOWN = "slow_down", Grade.WARNING, "The exchange reported too many requests."
    MAINTENANCE = "maintenance", Grade.WARNING, "The exchange does not match orders now."
    UNKNOWN_FRAMES = (
        "unknown_frames",
        Grade.WARNING,
        "Frames of an unknown kind.",
    )
    UNREADABLE_FRAMES = (
        "unreadable_frames",
        Grade.FAULT,
        "Frames or REST bodies that the connector cannot read.",
    )
    NEVER_LIVE = "never_live", Grade.FAULT, "The book did not become live."
    STALE = "stale", Grade.WARNING, "A book became stale."
    SILENT = "silent", Grade.WARNING, "No data arrived for a followed book."
    EMPTY_BOOK = (
        "empty_book",
        Grade.FAULT,
        "A live book has no levels on one side.",
    )
    SAME_BOOK = (
        "same_book",
        Grade.FAULT,
        "Two symbols have the same book level by level: their orders would be counted twice.",
    )
    DIFFERS = (
        "differs",
        Grade.FAULT,
        "The live book differs from another snapshot of it.",
    )
    SLOWER = "slower", Grade.NOTE, "Data arrived less often than the connector states."
    NO_CONSEQUENCE = (
        "no_consequence",
        Grade.NOTE,
        "Unrecognized frames, without data, of a followed book.",
    )
    CLOCK_SKEW = (
        "clock_skew",
        Grade.WARNING,
        "The exchange's times and this machine's clock differ, or its data is late.",
    )
    TOPS_DISAGREE = (
        "tops_disagree",
        Grade.WARNING,
        "Best prices of the fast channel contradict the depth, so that books ignore them.",
    )
    TOPS_MISSING = (
        "tops_missing",
        Grade.WARNING,
        "No best prices of the fast channel were shown: none arrived, or their numbers did not "
        "match.",
    )
    DEFECT = "defect", Grade.FAULT, "Processing a frame failed because of a defect in Onebook."


class LiveFinding(Struct, frozen=True):
    """A deviation from the connector's facts, or something an operator should know.

    `symbol` is "" if it concerns the whole exchange; `example` is a frame, redacted and cut.
    """

    kind: FindingKind
    grade: Grade
    sentence: str
    symbol: str = ""
    detail: str = ""
    count: int = 1
    example: str = ""


class Measure(Struct, frozen=True):
    """A quantity with its stated and measured value; None if unknown."""

    name: str
    unit: str
    stated: float | None
    measured: float | None
    symbol: str = ""


class Comparison(Struct, frozen=True):
    """Comparison of a live book with another snapshot.

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


class FastPrices(Struct, frozen=True):
    """Outcomes of the best prices of a fast channel, in all followed books.

    Args:
        shown: How often they were shown over the depth.
        equal: Successful checks of both channels at the same number; at the same time if the
            exchange orders them by time.
        mismatches: Failed checks. At the same time both may be of different states, which is no
            fault.
        books_off: Books that finally ignored them, after two mismatches or because of another
            counter.
        lead_ms: Median time from a new best price to the depth that includes it; None if unknown.
        lead_p90_ms: The 90th percentile of these times.
    """

    shown: int = 0
    equal: int = 0
    mismatches: int = 0
    books_off: int = 0
    lead_ms: float | None = None
    lead_p90_ms: float | None = None


class BookReport(Struct, frozen=True):
    """Summary of one followed book."""

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
    """A form of frames with its count and an example."""

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
    """Traffic of an exchange's connections."""

    connections: int = 0
    frames: int = 0
    bytes: int = 0
    largest_frame_bytes: int = 0
    messages_sent: int = 0


class ExchangeReport(Struct, frozen=True):
    """Report of one exchange; `addresses` is "published", or "own" if overridden."""

    exchange: str
    addresses: str
    seconds: float
    interrupted: bool
    instruments: ListReport
    traffic: Traffic
    books: tuple[BookReport, ...]
    comparisons: tuple[Comparison, ...]
    measures: tuple[Measure, ...]
    fast_prices: FastPrices | None  # None if the exchange has no such channel
    outputs: dict[str, int]
    forms: tuple[SeenForm, ...]
    findings: tuple[LiveFinding, ...]

    @property
    def well(self) -> bool:
        """Whether all findings are notes."""
        return all(each.grade is Grade.NOTE for each in self.findings)


class LiveReport(Struct, frozen=True):
    """The complete report."""

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
    """Return the report of all exchanges on this platform."""
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
