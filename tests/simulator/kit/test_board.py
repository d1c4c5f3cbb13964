"""Published state of an exchange: windows, numbers, clients."""

from collections import Counter, deque
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onebook.clock import ManualClock
from onebook.simulator import DIALECTS
from onebook.simulator.binance import Binance
from onebook.simulator.kit.board import (
    FIRST_SEQUENCE,
    ChannelKey,
    Dropped,
    ExchangeBoard,
    ExchangeRules,
    Most,
    Now,
    SimulatedSession,
    Spelling,
    TextChanges,
    Windows,
    loaded,
)
from onebook.simulator.kit.loopback import Front
from onebook.simulator.kit.market import MarketBooks


def board_of(
    name: str, rules: ExchangeRules, *, seed: int = 1
) -> tuple[MarketBooks, ExchangeBoard]:
    market = MarketBooks({name: DIALECTS[name].offer()}, seed=seed)
    return market, ExchangeBoard(DIALECTS[name].listings, market.books(name), rules=rules)


def best(book: dict[str, str], depth: int, *, highest: bool) -> dict[str, str]:
    ordered = sorted(book, key=float, reverse=highest)[:depth]
    return {price: book[price] for price in ordered}


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    depth=st.sampled_from([10, 25, 100]),
    cuts=st.booleans(),
    replaced=st.booleans(),
)
def test_a_client_that_applies_every_change_and_cuts_has_the_window(
    seed: int, depth: int, cuts: bool, replaced: bool
) -> None:
    rules = ExchangeRules(silent_cuts=cuts, replaced_levels=replaced)
    market, board = board_of("kraken", rules, seed=seed)
    session = SimulatedSession("/", now_s=0)
    board.sessions.append(session)
    channel = board.subscribe(session, "t", ChannelKey("BTC/USD", depth))
    assert channel is not None
    mine = [dict(levels) for levels in channel.snapshot()]
    for _ in range(20):
        market.move()
        list(market.step("kraken", ["BTC/USD"]))
        changes = channel.advance()
        if changes is None:
            continue
        for book, levels in zip(mine, changes, strict=True):
            for price, amount in levels:
                assert cuts or amount != "0" or price in book, "a window announces what it held"
                assert not replaced or (price in book) == (amount == "0"), (
                    "it is removed, then added"
                )
                book[price] = amount
                if amount == "0":
                    del book[price]
            assert cuts or len(book) == depth, "a server-kept window needs no cutting"
        mine = [best(mine[0], depth, highest=True), best(mine[1], depth, highest=False)]
        assert tuple(mine) == channel.truth()


def test_numbers_rise_by_the_changed_levels_and_updates_by_one() -> None:
    market, board = board_of("okx", ExchangeRules())
    channel = board.channel(ChannelKey("BTC-USDT", 400))
    assert channel is not None
    assert (channel.previous, channel.sequence) == (FIRST_SEQUENCE, FIRST_SEQUENCE)
    list(market.step("okx", ["BTC/USDT"]))
    changes = channel.advance()
    assert changes is not None
    assert channel.sequence == FIRST_SEQUENCE + len(changes.bids) + len(changes.asks)
    assert (channel.previous, channel.updates) == (FIRST_SEQUENCE, 2)
    assert channel.advance() is None
    assert channel.updates == 2


def test_a_window_that_slept_is_up_to_date_for_the_next_client() -> None:
    market, board = board_of("okx", ExchangeRules())
    key = ChannelKey("BTC-USDT", 400)
    board.channel(key)
    list(market.step("okx"))
    channel = board.channel(key)
    assert channel is not None
    assert dict(channel.bids) == market.books("okx")["BTC/USDT"].bids.amounts


def test_digits_are_spelled_as_the_exchange_does() -> None:
    for spelling, price, amount in (
        (Spelling(None, None), "64249.0", "1.50000000"),
        (Spelling(8, 8), "64249.00000000", "1.50000000"),
        (Spelling(), "64249", "1.5"),
    ):
        market, board = board_of("kraken", ExchangeRules(spelling=spelling))
        book = market.books("kraken")["BTC/USD"]
        book.bids.set(642490, 150_000_000)
        channel = board.channel(ChannelKey("BTC/USD", 130))
        assert channel is not None
        assert (price, amount) in channel.snapshot().bids


def test_a_phantom_keeps_the_book_crossed_until_a_snapshot() -> None:
    market, board = board_of("okx", ExchangeRules())
    channel = board.channel(ChannelKey("BTC-USDT", 400))
    assert channel is not None
    [(price, amount)] = channel.cross().bids
    assert float(price) > float(channel.top(1).asks[0][0])
    assert channel.top(1).bids == [(price, amount)]
    list(market.step("okx"))
    changes = channel.advance()
    assert changes is not None
    assert price not in dict(changes.bids)
    assert price not in channel.truth()[0]
    assert channel.top(1).bids == [(price, amount)]
    assert price not in dict(channel.snapshot().bids)
    assert channel.advance() is None


def test_unknown_muted_and_refused_symbols() -> None:
    _, board = board_of("okx", ExchangeRules())
    session = SimulatedSession("/", now_s=0)
    board.sessions.append(session)
    assert board.channel(ChannelKey("NO-NO", 1)) is None
    board.muted.add("BTC-USDT")
    assert board.subscribe(session, "t", ChannelKey("BTC-USDT", 400)) is None
    assert not session.topics
    assert board.lists("ETH-USDT")
    board.refused.add("ETH-USDT")
    assert not board.lists("ETH-USDT")
    assert board.followed() == []


def test_one_frame_too_many_in_a_second_ends_the_connection() -> None:
    session = SimulatedSession("/", now_s=0)
    session.messages = Windows([Most(3)])
    for moment in (0.0, 0.2, 0.4, 1.1):
        session.received(moment)
    with pytest.raises(Dropped, match="Too many") as dropped:
        session.received(1.15)
    assert dropped.value.code == 1008
    assert session.received_s == 1.15


def test_connections_of_one_address_share_its_windows_and_nothing_else() -> None:
    address: dict[Most, deque[float]] = {}
    limits = (Most(2, 1.0), Most(3, 10.0, per_address=True))
    one, other = Windows(limits, address), Windows(limits, address)
    assert [one.allow(0.0) for _ in range(3)] == [True, True, False]
    assert [other.allow(5.0) for _ in range(2)] == [True, False]
    assert one.allow(9.9) is False
    assert other.allow(10.0) is True


def test_what_is_one_too_many_is_counted_by_its_kind() -> None:
    breaches: Counter[str] = Counter()
    windows = [
        Windows([Most(1)], breaches=breaches, kind=kind) for kind in ("requests", "connects")
    ]
    for moment in (0.0, 0.1, 0.2, 5.0):
        windows[0].allow(moment)
    assert breaches == {"requests": 2}
    assert [windows[1].allow(moment) for moment in (0.0, 0.1)] == [True, False]
    assert breaches == {"requests": 2, "connects": 1}


def test_requests_weigh_what_the_exchange_says_and_beyond_its_budget_get_429() -> None:
    clock = ManualClock()
    board = ExchangeBoard(
        Binance.listings,
        MarketBooks({"binance": Binance.offer()}, seed=1).books("binance"),
        rules=Binance.rules,
    )
    front = Front(Binance(board), board, clock=clock, instead=lambda path, query: None)
    depth = {"symbol": "BTCUSDT", "limit": "5000"}  # 250 of 6,000 a minute
    answers = [front.get("/api/v3/depth", depth).status for _ in range(25)]
    assert answers == [200] * 24 + [429]
    assert front.breaches == {"fetches": 1}
    clock.now_s = 60.1
    assert front.get("/api/v3/exchangeInfo", {}).status == 200


def test_times_are_printed_with_microseconds() -> None:
    assert Now(0, 1_700_000_000_123).rfc3339() == "2023-11-14T22:13:20.123000Z"


def test_only_objects_are_loaded() -> None:
    assert loaded('{"a":1}') == {"a": 1}
    assert loaded("[1]") is loaded("ping") is None


def test_levels_that_change_one_by_one_lead_to_the_same_window_and_never_cross() -> None:
    rules = ExchangeRules(single_levels=True)
    market, board = board_of("okx", rules)
    key = ChannelKey("BTC-USDT", 20)
    plain = ExchangeBoard(board.listings.values(), market.books("okx"), rules=ExchangeRules())
    one_by_one, at_once = board.channel(key), plain.channel(key)
    assert one_by_one is not None
    assert at_once is not None
    for _ in range(60):
        market.move()
        for _ in market.step("okx", {"BTC/USDT"}):
            pass
        at_once.advance()
        while (changes := one_by_one.advance()) is not None:
            assert len(changes.bids) + len(changes.asks) == 1
            bids, asks = one_by_one.levels()
            assert max(bids, default=0) < min(asks, default=10**9)
            assert [*bids] == sorted(bids, reverse=True)
        assert one_by_one.levels() == at_once.levels()


def test_a_frame_that_is_lost_was_given_its_form_before() -> None:
    session = SimulatedSession("/", now_s=0.0)
    assert session.formed(["a"], "a") == ["a"]
    numbers = count(1)
    session.form = lambda frame: f"{frame}{next(numbers)}"
    assert session.formed(["a"], "a") == ["a1"]
    assert session.formed([], "b") == []
    assert session.formed(["c", "d"], "c") == ["c3", "d4"]


def test_a_whole_window_has_what_changed_and_what_a_fault_made_of_it() -> None:
    market, board = board_of("kraken", ExchangeRules(spelling=Spelling(amount_places=None)))
    channel = board.channel(ChannelKey("BTC/USD", 10))
    assert channel is not None
    gone = 0
    for _ in range(20):
        market.move()
        list(market.step("kraken", ["BTC/USD"]))
        changes = channel.advance()
        if changes is not None:
            gone += sum(float(amount) == 0 for _, amount in (*changes.bids, *changes.asks))
            assert channel.whole(changes) == channel.top(10)
    assert gone, "what is gone is not in the window"
    faulty = channel.whole(TextChanges([("NaN", "1")], []))
    assert faulty == ([*channel.top(10).bids, ("NaN", "1")], channel.top(10).asks)


# Rate limits


def test_as_many_as_allowed_pass_and_one_more_when_the_first_is_old():
    windows = Windows([Most(2, 1.0)])
    assert [windows.allow(now) for now in (0.0, 0.5, 0.9)] == [True, True, False]
    assert windows.allow(1.0)
    assert not windows.allow(1.4)


def test_all_limits_hold_at_once_and_a_refusal_is_counted_in_none():
    windows = Windows([Most(1, 1.0), Most(2, 10.0)])
    assert [windows.allow(now) for now in (0.0, 0.5, 1.0, 2.0)] == [True, False, True, False]
    assert windows.allow(10.0)


def test_a_weight_counts_as_so_many():
    windows = Windows([Most(10, 1.0)])
    assert windows.allow(0.0, 8)
    assert not windows.allow(0.0, 3)
    assert windows.allow(0.0, 2)


def test_connections_of_an_address_share_its_windows_and_no_others():
    limits, address = [Most(3, 1.0, per_address=True), Most(2, 1.0)], {}
    one, other = Windows(limits, address), Windows(limits, address)
    assert [one.allow(0.0), one.allow(0.0), one.allow(0.0)] == [True, True, False]
    assert [other.allow(0.0), other.allow(0.0)] == [True, False]


def test_breaches_are_counted_by_kind():
    breaches = Counter()
    windows = Windows([Most(1)], breaches=breaches, kind="subscribe")
    for _ in range(3):
        windows.allow(0.0)
    assert breaches == {"subscribe": 2}
