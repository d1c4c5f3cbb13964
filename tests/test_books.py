"""Books: only live ones are shown, and any invalidation takes effect at once."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from onebook.books import MOVES, Books, Event
from onebook.core.types import ABSURD, CROSSED
from onebook.exchanges import coinbase, kraken, okx
from onebook.exchanges.kit import Delta, Snapshot, Verify
from onebook.model import Health, Instrument, Reason

BTC = Instrument("kraken", "BTC/USD", "XBT/USD")
ETH = Instrument("kraken", "ETH/USD", "ETH/USD")


class Heard:
    """Books whose hooks record their calls."""

    def __init__(self, *instruments: Instrument) -> None:
        self.books = Books()
        self.changed: list[str] = []
        self.moves: list[tuple[str, Health, Health, str]] = []
        self.books.subscribe(on_changed=lambda book: self.changed.append(book.instrument.symbol))
        self.books.subscribe(
            on_health=lambda book, previous: self.moves.append(
                (book.instrument.symbol, previous, book.health, book.reason)
            )
        )
        for instrument in instruments:
            self.books.open(instrument, levels_max=100)

    def snapshot(self, bids: bytes, asks: bytes, *, at: float = 1.0) -> str | None:
        return self.books.fill(Snapshot(BTC, Raw(bids), Raw(asks)), at)

    def delta(self, bids: bytes, asks: bytes = b"[]", *, at: float = 2.0) -> str | None:
        return self.books.change(Delta(BTC, Raw(bids), Raw(asks)), at)

    def top(self) -> tuple[str | None, str | None]:
        book = self.books.get(BTC)
        assert book is not None
        return book.core.best()

    def health(self) -> tuple[Health, str]:
        book = self.books.get(BTC)
        assert book is not None
        return book.health, book.reason


def live() -> Heard:
    heard = Heard(BTC)
    assert heard.snapshot(b'[["100","1"],["99","2"]]', b'[["101","1"]]') is None
    return heard


def test_a_book_begins_syncing_and_a_snapshot_makes_it_live():
    heard = Heard(BTC)
    assert heard.health() == (Health.SYNCING, Reason.SUBSCRIBING)
    assert list(heard.books.live()) == []
    assert heard.snapshot(b'[["100","1"]]', b'[["101","1"]]', at=7.0) is None
    book = heard.books.get(BTC)
    assert book is not None
    assert (book.updated_at, book.changed_at) == (7.0, 7.0)
    assert list(heard.books.live()) == [book]
    assert heard.moves == [("BTC/USD", Health.SYNCING, Health.LIVE, None)]
    assert heard.changed == ["BTC/USD"]


def test_opening_twice_gives_the_same_book_and_closing_states_who_shows_it():
    heard = live()
    book = heard.books.get(BTC)
    assert heard.books.open(BTC) is book
    assert (len(heard.books), list(heard.books)) == (1, [book])
    heard.books.close(BTC)
    heard.books.close(BTC)
    assert heard.books.get(BTC) is None
    assert len(heard.books) == 0
    assert heard.moves[1:] == [("BTC/USD", Health.LIVE, Health.OFFLINE, Reason.NOT_WANTED)]


def test_hooks_do_nothing_without_a_listener():
    books = Books()
    books.open(BTC)
    assert books.fill(Snapshot(BTC, Raw(b"[]")), 0.0) is None
    assert [book.health for book in books] == [Health.LIVE]


def test_changes_are_applied_and_reported_only_while_live():
    heard = Heard(BTC)
    assert heard.delta(b'[["100","1"]]') is None
    assert heard.changed == []
    assert heard.top() == (None, None)
    heard.snapshot(b'[["100","1"]]', b'[["101","1"]]')
    assert heard.delta(b'[["100","0"],["99.5","1"]]', at=3.5) is None
    assert heard.top() == ("99.5", "101")
    assert heard.changed == ["BTC/USD"] * 2
    book = heard.books.get(BTC)
    assert book is not None
    assert book.updated_at == 3.5


def test_a_removal_of_an_unknown_level_is_ignored():
    heard = live()
    assert heard.delta(b'[["98.5","0"]]') is None
    assert heard.top() == ("100", "101")


def test_data_of_a_book_that_is_not_open_is_ignored():
    heard = live()
    assert heard.books.fill(Snapshot(ETH, Raw(b'[["1","1"]]')), 1.0) is None
    assert heard.books.change(Delta(ETH, Raw(b'[["1","1"]]')), 1.0) is None
    heard.books.set_health(ETH, Health.STALE, Reason.GAP, 1.0)
    assert heard.books.get(ETH) is None


@pytest.mark.parametrize("shape", [kraken.LEVELS, coinbase.CHANGES], ids=["objects", "sided"])
def test_the_shape_of_the_levels_is_handed_on(shape):
    bids, asks = {
        kraken.LEVELS: (b'[{"price":100,"qty":1}]', b'[{"price":101,"qty":1}]'),
        coinbase.CHANGES: (b'[["buy","100","1"],["sell","101","1"]]', b"[]"),
    }[shape]
    heard = Heard(BTC)
    assert heard.books.fill(Snapshot(BTC, Raw(bids), Raw(asks), shape), 1.0) is None
    assert heard.top() == ("100", "101")
    assert (
        heard.books.change(Delta(BTC, Raw(bids.replace(b"100", b"99")), Raw(b"[]"), shape), 1.0)
        is None
    )


BAD_LEVELS = [
    b'[["NaN","1"]]',
    b'[["Infinity","1"]]',
    b'[["1e400","1"]]',
    b'[["-1","1"]]',
    b'[["0","1"]]',
    b'[["","1"]]',
    b'[["100",""]]',
    b"[[null,1]]",
    b"[[true,1]]",
    b'[["100","-1"]]',
    b'[["' + b"9" * 100_000 + b'","1"]]',
    b'[["100","1"]',
    b'{"bids":[]}',
    b'[["\xff","1"]]',
]


@pytest.mark.parametrize("levels", BAD_LEVELS, ids=lambda each: each[:16].decode("latin-1"))
def test_fault_nan_infinity_null_and_their_kin_invalidate_and_nothing_escapes(levels):
    heard = live()
    assert heard.delta(levels) == Reason.LEVELS
    assert heard.health() == (Health.STALE, Reason.LEVELS)
    assert heard.snapshot(levels, b"[]") == Reason.LEVELS
    assert heard.moves[1:] == [("BTC/USD", Health.LIVE, Health.STALE, Reason.LEVELS)]
    assert heard.snapshot(b'[["100","1"]]', b'[["101","1"]]') is None
    assert heard.health() == (Health.LIVE, None)


def test_b3_a_book_crossed_inside_one_exchange_is_never_shown():
    heard = live()
    assert heard.delta(b'[["101.5","1"]]') == CROSSED
    assert heard.health() == (Health.STALE, CROSSED)
    assert heard.changed == ["BTC/USD"]
    assert heard.snapshot(b'[["102","1"]]', b'[["101","1"]]') == CROSSED
    assert list(heard.books.live()) == []
    assert heard.changed == ["BTC/USD"]


def test_b3_a_locked_book_is_allowed():
    heard = live()
    assert heard.delta(b'[["101","1"]]') is None
    assert heard.health() == (Health.LIVE, None)
    assert heard.snapshot(b'[["101","1"]]', b'[["101","1"]]') is None
    assert heard.health() == (Health.LIVE, None)
    assert Reason.CROSSED.meaning == "The best bid is above the best ask."


@pytest.mark.parametrize(
    ("bids", "asks"),
    [
        (b'[["2001","1"]]', b'[["101","0"],["2002","1"]]'),
        (b'[["100","0"],["99","0"],["9","1"]]', b'[["10","1"]]'),
    ],
)
def test_fault_price_ten_times_from_mid_is_quarantined_and_accepted_when_repeated(bids, asks):
    heard = live()
    assert heard.delta(bids, asks) == ABSURD
    assert heard.health() == (Health.STALE, ABSURD)
    assert heard.snapshot(b'[["2001","1"]]', b'[["2002","1"]]') is None
    assert heard.health() == (Health.LIVE, None)


def test_fault_price_ten_times_from_mid_is_seen_in_a_snapshot_of_a_stale_book_too():
    heard = live()
    heard.books.set_health(BTC, Health.STALE, Reason.GAP, 2.0)
    assert heard.snapshot(b'[["2001","1"]]', b'[["2002","1"]]') == ABSURD


def test_a_side_that_thins_out_is_not_absurd():
    heard = live()
    assert heard.delta(b'[["100","0"],["99","0"],["1","1"]]', b'[["101","0"],["5000","1"]]') is None
    assert heard.delta(b'[["1","0"]]') is None
    assert heard.top() == (None, "5000")
    assert heard.delta(b"[]", b'[["5000","0"]]') is None
    assert heard.top() == (None, None)


def test_fault_checksum_wrong_invalidates_and_right_does_not():
    heard = live()
    right = zlib.crc32(b"1011" + b"1001" + b"992")
    assert heard.books.verify(Verify(BTC, kraken.CHECKSUM, right), 2.0) is None
    assert heard.books.verify(Verify(BTC, kraken.CHECKSUM, right ^ 1), 2.0) == Reason.CHECKSUM
    assert heard.health() == (Health.STALE, Reason.CHECKSUM)
    assert heard.books.verify(Verify(BTC, kraken.CHECKSUM, right ^ 1), 2.0) is None


def test_a_text_checksum_may_be_signed_or_unsigned():
    heard = live()
    crc = zlib.crc32(b"100:1:101:1:99:2")
    for expected in (crc, crc - (1 << 32)):
        assert heard.books.verify(Verify(BTC, okx.CHECKSUM, expected), 2.0) is None
    assert heard.books.verify(Verify(BTC, okx.CHECKSUM, 1), 2.0) == Reason.CHECKSUM


@pytest.mark.parametrize("health", [Health.SYNCING, Health.STALE, Health.OFFLINE])
def test_what_leaves_live_leaves_at_once_and_takes_its_levels_with_it(health):
    heard = live()
    heard.books.set_health(BTC, health, Reason.GAP, 9.0)
    assert heard.health() == (health, Reason.GAP)
    assert heard.top() == (None, None)
    assert heard.moves[1:] == [("BTC/USD", Health.LIVE, health, Reason.GAP)]
    heard.books.set_health(BTC, health, Reason.GAP, 10.0, detail="again")
    assert len(heard.moves) == 2


def test_a_book_that_stays_stale_gets_the_newer_reason():
    heard = live()
    heard.books.set_health(BTC, Health.STALE, Reason.GAP, 9.0, detail="5 follows 3")
    heard.books.set_health(BTC, Health.STALE, Reason.SNAPSHOT_FAILED, 10.0, detail="404")
    book = heard.books.get(BTC)
    assert book is not None
    assert (book.reason, book.detail, book.changed_at) == (Reason.SNAPSHOT_FAILED, "404", 9.0)
    assert heard.moves[2:] == [("BTC/USD", Health.STALE, Health.STALE, Reason.SNAPSHOT_FAILED)]


def test_an_offline_book_hears_nothing_until_it_is_started_again():
    heard = live()
    heard.books.set_health(BTC, Health.OFFLINE, Reason.HALTED, 2.0)
    assert heard.snapshot(b'[["100","1"]]', b'[["101","1"]]') is None
    heard.books.set_health(BTC, Health.STALE, Reason.GAP, 2.0)
    assert heard.health() == (Health.OFFLINE, Reason.HALTED)
    heard.books.set_health(BTC, Health.SYNCING, Reason.SUBSCRIBING, 2.0)
    assert heard.snapshot(b'[["100","1"]]', b'[["101","1"]]') is None
    assert heard.health() == (Health.LIVE, None)


def test_only_a_snapshot_makes_a_book_live():
    with pytest.raises(KeyError):
        live().books.set_health(BTC, Health.LIVE, Reason.GAP, 1.0)


def test_every_move_of_health_is_written_down_and_only_filling_leads_to_live():
    assert set(MOVES) == {(health, event) for health in Health for event in Event}
    to_live = {event for (_, event), health in MOVES.items() if health is Health.LIVE}
    assert to_live == {Event.FILLED}


prices = st.integers(1, 12).map(str)
amounts = st.integers(0, 3).map(str)
level = st.tuples(prices, amounts)
levels = st.lists(level, max_size=4)
whole = st.lists(level, max_size=4, unique_by=lambda each: each[0])
step = st.one_of(
    st.tuples(st.just("snapshot"), whole, whole),
    st.tuples(st.just("delta"), levels, levels),
    st.tuples(st.just("stale")),
)


def text(pairs) -> Raw:
    return Raw(b"[" + b",".join(f'["{p}","{a}"]'.encode() for p, a in pairs) + b"]")


@given(st.lists(step, max_size=30))
def test_b1_a_book_equals_the_reference_or_is_not_live_and_is_never_crossed(steps):
    heard = Heard(BTC)
    reference: tuple[dict[int, str], dict[int, str]] = ({}, {})
    for kind, *sides in steps:
        if kind == "stale":
            heard.books.set_health(BTC, Health.STALE, Reason.GAP, 1.0)
        elif kind == "snapshot":
            reference = ({}, {})
            heard.books.fill(Snapshot(BTC, text(sides[0]), text(sides[1])), 1.0)
        else:
            heard.books.change(Delta(BTC, text(sides[0]), text(sides[1])), 1.0)
        for book, changes in zip(reference, sides, strict=False):
            for price, amount in changes:
                book[int(price)] = amount
        book = heard.books.get(BTC)
        assert book is not None
        if book.health is Health.LIVE:
            bids = sorted(((p, a) for p, a in reference[0].items() if a != "0"), reverse=True)
            asks = sorted((p, a) for p, a in reference[1].items() if a != "0")
            shown = book.core.top(20)
            assert [(int(p), a) for p, a in shown[0]] == bids
            assert [(int(p), a) for p, a in shown[1]] == asks
            assert not (bids and asks) or bids[0][0] <= asks[0][0]
        else:
            assert book.core.best() == (None, None)


def test_any_number_may_subscribe_and_are_called_in_order():
    books, heard = Books(), []
    for name in ("first", "second", "third"):
        books.subscribe(
            on_changed=lambda book, name=name: heard.append((name, "changed")),
            on_health=lambda book, previous, name=name: heard.append((name, previous)),
        )
    books.open(BTC)
    assert books.fill(Snapshot(BTC, Raw(b'[["1","1"]]'), Raw(b"[]")), 1.0) is None
    moves = [(name, Health.SYNCING) for name in ("first", "second", "third")]
    changes = [(name, "changed") for name in ("first", "second", "third")]
    assert heard == moves + changes
