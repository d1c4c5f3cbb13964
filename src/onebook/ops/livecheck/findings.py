"""Turns the observations of an exchange into its report: findings and measures."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median, quantiles
from typing import Final

from onebook.exchanges.kit import LossDetection
from onebook.model import Health, Reason
from onebook.ops.livecheck.observer import FollowedBook, Observer
from onebook.ops.livecheck.report import (
    BookReport,
    Comparison,
    ExchangeReport,
    FastPrices,
    FindingKind,
    Grade,
    ListReport,
    LiveFinding,
    Measure,
    SeenForm,
    Traffic,
)

FRAMES_MIN: Final = 5  # intervals of a book before its rate is judged
SLOWER_FACTOR: Final = 3.0  # "slower": the median is this multiple of the stated interval,
SLOWER_MIN_S: Final = 0.25  # and at least this much longer, because networks and event loops jitter
AHEAD_S: Final = 1.0  # data this far in the future indicates a wrong clock
SILENT_MIN_S: Final = 5.0  # "silent": no data for this time,
SILENT_FACTOR: Final = 20.0  # and for this multiple of the usual interval
SAME_LOOKS_MIN: Final = 3  # inspections with equal books before they count as the same
UNSHOWN_FRAMES: Final = 20  # a finding: this many depth frames and no top before them
INTERVAL: Final = "data interval, median"
DEPTH: Final = "depth"
ORDER: Final = {Grade.FAULT: 0, Grade.WARNING: 1, Grade.NOTE: 2}


def exchange_report(
    observer: Observer,
    *,
    listed: ListReport,
    missing: Sequence[str],
    own_addresses: bool,
    seconds: float,
    interrupted: bool,
    old_s: float,
    now: float,
) -> ExchangeReport:
    """Return the report of one exchange.

    Args:
        observer: The observations.
        listed: The instrument list.
        missing: Requested symbols that are not traded there.
        own_addresses: Whether the operator overrides the addresses.
        seconds: How long the books were followed.
        interrupted: Whether the check was ended early.
        old_s: Age on arrival above which data is old (`FeedLimits.old_s`).
        now: Monotonic seconds.
    """
    exchange = observer.exchange
    books = tuple(observer.followed.values())
    findings = [
        *_of_list(listed, missing),
        *_of_notes(observer),
        *(found for book in books for found in _of_book(book, now)),
        *_of_pace(observer),
        *_of_silence(observer, now),
        *_of_clock(observer, old_s),
        *_of_fast_prices(observer),
    ]
    findings.sort(key=lambda each: (ORDER[each.grade], each.kind))
    return ExchangeReport(
        exchange=exchange.name,
        addresses="own" if own_addresses else "published",
        seconds=round(seconds, 1),
        interrupted=interrupted,
        instruments=listed,
        traffic=Traffic(
            connections=observer.connections,
            frames=observer.frames,
            bytes=observer.bytes,
            largest_frame_bytes=observer.largest,
            messages_sent=len(observer.sent),
        ),
        books=tuple(_book(each) for each in books),
        comparisons=_comparisons(observer, books),
        measures=tuple(_measures(observer, now)),
        fast_prices=_fast_prices(observer),
        outputs=dict(sorted(observer.outputs.items())),
        forms=tuple(
            SeenForm(form, kind, noted.count, noted.example)
            for (kind, form), noted in observer.forms.items()
        ),
        findings=tuple(findings),
    )


def finding(
    kind: FindingKind, detail: str = "", *, symbol: str = "", count: int = 1, example: str = ""
) -> LiveFinding:
    """Return a finding with the grade and sentence of its kind."""
    return LiveFinding(kind, kind.grade, kind.sentence, symbol, detail, count, example)


def _of_list(listed: ListReport, missing: Sequence[str]) -> Iterator[LiveFinding]:
    if listed.problem:
        yield finding(FindingKind.LIST_UNREADABLE, listed.problem)
    for symbol in missing:
        yield finding(FindingKind.SYMBOL_MISSING, symbol=symbol)


def _of_notes(observer: Observer) -> Iterator[LiveFinding]:
    for (kind, symbol, detail), noted in observer.noted.items():
        if kind is FindingKind.SAME_BOOK and noted.count < SAME_LOOKS_MIN:
            continue
        yield finding(kind, detail, symbol=symbol, count=noted.count, example=noted.example)


def _of_book(book: FollowedBook, now: float) -> Iterator[LiveFinding]:
    symbol = book.instrument.symbol
    if book.live_at is None:
        waited = f"{_state(book)} after {now - book.acquired_at:.1f} s"
        yield finding(FindingKind.NEVER_LIVE, waited, symbol=symbol)
    elif book.health is not Health.LIVE:
        detail = f"it was live, and is {_state(book)} at the end"
        yield finding(FindingKind.STALE, detail, symbol=symbol)
    if book.live_at is not None and book.data_frames <= 1 and now > book.acquired_at:
        words = "the stream delivered nothing after the snapshot"
        if book.behind:
            words += ", and REST bodies are newer than it"
        yield finding(FindingKind.SILENT, words, symbol=symbol)


def _state(book: FollowedBook) -> str:
    words = f"{book.health}: {book.reason or Reason.SUBSCRIBING}"
    return f"{words} ({book.detail})" if book.detail else words


def _of_pace(observer: Observer) -> Iterator[LiveFinding]:
    stated_ms = observer.exchange.interval_ms
    if not stated_ms:
        return
    stated_s = stated_ms / 1_000
    for book in observer.followed.values():
        if len(book.intervals_s) < FRAMES_MIN:
            continue
        middle_s = median(book.intervals_s)
        if middle_s > max(stated_s * SLOWER_FACTOR, stated_s + SLOWER_MIN_S):
            words = f"stated every {stated_ms} ms, measured every {middle_s * 1_000:.0f} ms"
            yield finding(FindingKind.SLOWER, words, symbol=book.instrument.symbol)


def _of_silence(observer: Observer, now: float) -> Iterator[LiveFinding]:
    """Find books whose data stopped during the check."""
    for book in observer.followed.values():
        if book.heard_at is None or len(book.intervals_s) < FRAMES_MIN:
            continue
        middle_s, silent_s = median(book.intervals_s), now - book.heard_at
        if silent_s > max(SILENT_MIN_S, middle_s * SILENT_FACTOR):
            words = f"nothing in the last {silent_s:.1f} s, before that every {middle_s:.2f} s"
            yield finding(FindingKind.SILENT, words, symbol=book.instrument.symbol)


def _of_clock(observer: Observer, old_s: float) -> Iterator[LiveFinding]:
    if observer.ages_s is None:
        return
    least_s, _ = observer.ages_s
    if least_s < -AHEAD_S:
        yield finding(FindingKind.CLOCK_SKEW, f"its times are {-least_s:.1f} s ahead")
    elif least_s > old_s:
        yield finding(FindingKind.CLOCK_SKEW, f"its newest data was {least_s:.1f} s old")


def _of_fast_prices(observer: Observer) -> Iterator[LiveFinding]:
    tops = observer.tops
    if tops is None:
        return
    wrong = {"of equal numbers that differed": tops.disagreed, "ahead of the levels": tops.ahead}
    for words, count in wrong.items():
        if count:
            yield finding(FindingKind.TOPS_DISAGREE, words, count=count)
    changes = max((book.data_frames for book in observer.followed.values()), default=0)
    if not tops.shown and changes >= UNSHOWN_FRAMES:
        arrived = tops.unproven + tops.late + tops.refused
        yield finding(FindingKind.TOPS_MISSING, f"none shown of {arrived} that arrived")


def _fast_prices(observer: Observer) -> FastPrices | None:
    tops, leads_s = observer.tops, observer.leads_s
    if tops is None:
        return None
    tenths = quantiles(leads_s, n=10) if len(leads_s) > 1 else ()
    return FastPrices(
        shown=tops.shown,
        equal=tops.agreed + observer.tied_equal,
        mismatches=tops.disagreed + observer.tied - observer.tied_equal,
        books_off=tops.off,
        lead_ms=round(median(leads_s) * 1_000, 1) if leads_s else None,
        lead_p90_ms=round(tenths[-1] * 1_000, 1) if tenths else None,
    )


def _book(book: FollowedBook) -> BookReport:
    return BookReport(
        symbol=book.instrument.symbol,
        native=book.instrument.native,
        state=book.health.value,
        reason="" if book.reason is None else book.reason.value,
        live_after_s=None if book.live_at is None else round(book.live_at - book.acquired_at, 3),
        data_frames=book.data_frames,
        bids=book.bids,
        asks=book.asks,
        resubscribed=book.resubscribed,
    )


def _comparisons(observer: Observer, books: Sequence[FollowedBook]) -> tuple[Comparison, ...]:
    """Return the comparisons, or the reason why a book has none."""
    made = observer.comparisons
    compared = {each.symbol for each in made}
    return (
        *made,
        *(
            Comparison(book.instrument.symbol, "none", detail=_not_comparable(observer, book))
            for book in books
            if book.instrument.symbol not in compared
        ),
    )


def _not_comparable(observer: Observer, book: FollowedBook) -> str:
    if book.live_at is None:
        return "the book was never live"
    if observer.exchange.guard is LossDetection.WHOLE:
        return "each frame has the whole book"
    if book.behind:
        return "every REST body was newer than the stream"
    return "no second snapshot with a matching sequence number arrived during the check"


def _measures(observer: Observer, now: float) -> Iterator[Measure]:
    exchange = observer.exchange
    for book in observer.followed.values():
        symbol, intervals = book.instrument.symbol, book.intervals_s
        stated = exchange.interval_ms
        middle_ms = round(median(intervals) * 1_000, 1) if intervals else None
        since = () if book.heard_at is None else (now - book.heard_at,)
        longest_s = round(max((*intervals, *since)), 3) if intervals or since else None
        yield Measure(INTERVAL, "ms", stated, middle_ms, symbol)
        yield Measure("book without data, longest", "s", exchange.quiet_max_s, longest_s, symbol)
        levels = max(book.bids, book.asks) or None
        yield Measure(DEPTH, "levels", exchange.depth or None, levels, symbol)
    unheard_s = None
    if observer.heard_at is not None:
        unheard_s = round(max(observer.unheard_max_s, now - observer.heard_at), 3)
    yield Measure(
        "connection without data or heartbeat, longest", "s", exchange.heartbeat_max_s, unheard_s
    )
    yield Measure("heartbeat of the exchange, median", "s", None, _middle_s(observer.heartbeats))
    if exchange.heartbeat is not None:
        stated_s = exchange.heartbeat.every_s
        yield Measure("heartbeat of ours, median", "s", stated_s, _middle_s(observer.pings))
    for limit in exchange.limits.messages:
        yield Measure(
            f"messages sent in {limit.per_s:g} s, most",
            "messages",
            limit.count,
            _most_in(observer.sent, limit.per_s),
        )
    yield Measure("delay of this process, maximum", "s", None, round(observer.late_max_s, 3))
    if observer.ages_s is not None:
        yield Measure("age of data, least", "s", None, round(observer.ages_s[0], 3))
        yield Measure("age of data, most", "s", None, round(observer.ages_s[1], 3))


def _middle_s(times: Sequence[float]) -> float | None:
    """Return the median interval, None for fewer than two times."""
    intervals = [after - before for before, after in pairwise(times)]
    return round(median(intervals), 3) if intervals else None


def _most_in(times: Sequence[float], window_s: float) -> int:
    """Return the most events in any window."""
    most = first = 0
    ordered = list(times)
    for last, at in enumerate(ordered):
        while at - ordered[first] > window_s:
            first += 1
        most = max(most, last - first + 1)
    return most


def counts(report: ExchangeReport) -> Counter[Grade]:
    """Count the findings of a report by grade."""
    return Counter(each.grade for each in report.findings)
