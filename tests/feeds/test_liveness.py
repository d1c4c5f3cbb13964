"""Silences of one connection, and their meaning."""

import pytest
from msgspec.structs import replace

from feeds.toy import TOY, A, B
from onebook.books import Books
from onebook.exchanges.kit.contract import Snapshot
from onebook.feeds.limits import LIMITS
from onebook.feeds.liveness import NO_DATA, NO_HEARTBEAT, Liveness
from onebook.feeds.subscriptions import Cadences, Watch
from onebook.model import Health, Instrument, Reason


def liveness(**facts: float) -> Liveness:
    made = Liveness(replace(TOY, **facts), Cadences())
    made.opened(0.0)
    return made


def live(made: Liveness, instrument: Instrument = A, now: float = 0.0) -> Watch:
    books = Books()
    book = books.open(instrument)
    books.set_health(instrument, Health.SYNCING, Reason.SUBSCRIBING, now)
    books.fill(Snapshot(instrument, b'[["1","1"]]', b'[["2","1"]]'), now)
    return Watch(book, now, made.cadences.of(instrument))


def moved(made: Liveness, watch: Watch, seconds: int, *, start: int = 0) -> float:
    """A book that changes every half second."""
    for half in range(start * 2, (start + seconds) * 2):
        watch.book.updated_at = half / 2
        made.received_at = half / 2
        assert made.check([watch], half / 2 + 0.1) is None
    return watch.book.updated_at


def test_a_socket_is_asked_once_in_a_silence_and_is_dead_at_its_limit() -> None:
    made = liveness(silence_max_s=10.0)
    made.received_at = 1.0
    assert not made.wants_ping(5.9)
    assert [made.wants_ping(6.0), made.wants_ping(6.1)] == [True, False]
    made.received_at = 6.2
    assert [made.wants_ping(11.1), made.wants_ping(11.3)] == [False, True]
    assert [made.is_dead(16.1), made.is_dead(16.2)] == [False, True]


def test_a_promised_heartbeat_that_does_not_come_is_the_end_without_any_book() -> None:
    made = liveness(heartbeat_max_s=5.0)
    made.alive_at = 3.0
    assert made.check([], 7.9) is None
    assert made.check([], 8.0) == NO_HEARTBEAT


def test_data_is_as_good_as_a_heartbeat() -> None:
    made = liveness(heartbeat_max_s=5.0)
    watch = live(made, now=6.0)
    assert made.check([watch], 10.9) is None
    assert made.check([watch], 11.0) == NO_HEARTBEAT


def test_books_that_always_moved_and_stand_still_are_the_end_though_pongs_come() -> None:
    made = liveness(silence_max_s=1e9)
    watch = live(made)
    last = moved(made, watch, 60)
    assert made.check([watch], last + 1) is None
    assert made.check([watch], last + LIMITS.silent_min_s + 5) == NO_DATA
    assert made.overdue([watch], last + LIMITS.silent_min_s + 5) == [watch]


def test_without_evidence_a_silence_means_nothing() -> None:
    made = liveness(silence_max_s=1e9)
    watch = live(made)
    assert made.check([watch], 500.0) is None
    assert made.overdue([watch], 500.0) == []


def test_one_quiet_book_is_checked_by_its_own_gaps_and_the_verdict_teaches() -> None:
    made = liveness(quiet_max_s=1e9)
    watch, other = live(made), live(made, B)
    last = moved(made, watch, 60)
    silent = last + LIMITS.quiet_min_s + 1
    assert made.is_quiet(watch, silent)
    assert not made.is_quiet(other, silent), "nothing is known of it"
    assert not made.is_quiet(watch, silent), "so long a silence has happened now"


def test_a_heartbeat_of_the_instrument_keeps_it_within_what_the_exchange_promises() -> None:
    made = liveness(quiet_max_s=40.0)
    watch = live(made)
    watch.alive_at = 30.0
    assert [made.is_quiet(watch, 70.0), made.is_quiet(watch, 70.1)] == [False, True]


def test_one_frozen_book_ends_no_connection_and_each_wrong_verdict_waits_longer() -> None:
    made = liveness(silence_max_s=1e9, quiet_max_s=600.0)
    frozen, moving = live(made), live(made, B)
    for half in range(120):
        frozen.book.updated_at = moving.book.updated_at = half / 2
        assert made.check([frozen, moving], half / 2 + 0.1) is None
    since, verdicts = 59.5, []
    for second in range(60, 2_000):
        moving.book.updated_at = float(second)
        assert made.check([frozen, moving], second + 0.1) is None
        assert not made.is_quiet(moving, second + 0.1)
        if made.is_quiet(frozen, second + 0.1):
            verdicts.append(round(second - since))
            since = frozen.book.updated_at = float(second)  # the answer to a new subscription
            made.cadences.of(A).restart(since)
    first, second, third = verdicts[:3]
    assert first == 10
    assert 4 <= second / first <= 4.5
    assert 4 <= third / second <= 4.5
    assert max(verdicts) <= 601


def beside(made: Liveness) -> tuple[Watch, Watch]:
    """A book that changes every half second, and one that rarely changes."""
    busy, slow = live(made), live(made, B, now=1.0)
    for half in range(120):
        busy.book.updated_at = half / 2
        assert made.check([busy, slow], half / 2 + 0.1) is None
    return busy, slow


def lose(watch: Watch, now: float, health: Health = Health.STALE) -> None:
    watch.book.health = health
    watch.book.changed_at = now


def test_a_busy_book_that_is_out_of_sync_leaves_no_silence_to_its_neighbours() -> None:
    made = liveness(silence_max_s=1e9)
    busy, slow = beside(made)
    lose(busy, 62.0)
    assert made.check([busy, slow], 90.0) is None
    busy.book.health = Health.LIVE
    busy.book.updated_at = 100.0
    assert made.check([busy, slow], 100.1) is None
    busy.book.updated_at = 100.5
    assert made.check([busy, slow], 104.9) is None
    assert made.check([busy, slow], 105.5) == NO_DATA, "the pause is no gap of the exchange"


@pytest.mark.parametrize("gone", ["removed", "offline", "long"])
def test_without_its_busy_book_a_connection_is_measured_anew(gone: str) -> None:
    made = liveness(silence_max_s=1e9)
    busy, slow = beside(made)
    left = [slow]
    assert made.check([busy, slow], 62.0) is None
    if gone == "removed":
        made.cadences.forget(busy.instrument)
    else:
        lose(busy, 62.0 if gone == "offline" else 30.0)
        busy.book.health = Health.OFFLINE if gone == "offline" else Health.STALE
        left = [busy, slow]
    slow.book.updated_at = 89.5
    assert made.check(left, 90.0) is None
    for second in range(90, 300):
        slow.book.updated_at = float(second)
        assert made.check(left, second + 0.1) is None
    assert made.check(left, 304.5) == NO_DATA


def test_the_next_connection_is_not_dead_before_its_busy_book_is_there() -> None:
    made = liveness(silence_max_s=1e9)
    busy, slow = beside(made)
    later = Liveness(TOY, made.cadences)
    later.opened(100.0)
    lose(busy, 100.0, Health.SYNCING)
    slow.book.updated_at = 100.5
    assert later.check([busy, slow], 130.0) is None


def test_while_a_book_is_out_of_sync_the_others_are_compared_with_themselves() -> None:
    made = liveness(silence_max_s=1e9)
    watches = [live(made), live(made, B)]
    for half in range(120):
        for watch in watches:
            watch.book.updated_at = half / 2
        assert made.check(watches, half / 2 + 0.1) is None
    lose(watches[0], 60.0)
    assert made.check(watches, 64.0) is None
    made.withheld(60.0)
    assert made.check(watches, 64.9) is None, "its frames show that the connection delivers"
    assert made.check(watches, 65.0) == NO_DATA


@pytest.mark.parametrize("withheld", [True, False])
def test_data_that_is_not_shown_is_as_good_as_a_heartbeat(withheld: bool) -> None:
    made = liveness(heartbeat_max_s=5.0)
    watch = live(made)
    watch.book.health = Health.STALE
    if withheld:
        made.withheld(6.0)
    else:
        watch.book.updated_at = 6.0
    assert made.check([watch], 10.9) is None
    assert made.check([watch], 11.0) == NO_HEARTBEAT
