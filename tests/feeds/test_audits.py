"""Live books compared with REST snapshots: Binance's connector in a session, time as a number."""

import json
from itertools import pairwise

import pytest
from msgspec.structs import replace

from feeds import test_reseeding
from feeds.test_reseeding import BTC, ETH, LIMITS, LIVE, Talk, asked, event, live
from onebook.exchanges import EXCHANGES
from onebook.feeds.audits import AUDIT_CHANCE, AUDIT_S
from onebook.model import Health, Reason

AUDITED = replace(LIMITS, audits=True, probe_quiet_s=1e9)
EXPECTED = "the bid at 9998 is 3, the exchange's is 1"


def body(sequence: int, *, levels: int = 5, changed: dict[str, str] | None = None) -> bytes:
    """Return a snapshot of a few levels, whose amounts are 1 unless another is given."""
    amounts = changed or {}
    bids, asks = (
        [[str(price), amounts.get(str(price), "1")] for price in prices]
        for prices in (range(9_999, 9_999 - levels, -1), range(10_001, 10_001 + levels))
    )
    return json.dumps({"lastUpdateId": sequence, "bids": bids, "asks": asks}).encode()


def audited(jitter: float = 0.0, limits=AUDITED) -> Talk:
    """Return a live book of a session that asks for audits as soon as they are due."""
    talk = Talk(BTC, limits=limits)
    assert talk.session._reseeding is not None
    talk.session._reseeding._jitter = lambda: jitter
    talk.fetched(body(100))
    talk.hear(event(101, 101, [["9998", "3"]]))
    assert talk.health() == LIVE
    return talk


def test_a_book_is_compared_at_the_number_of_the_stream() -> None:
    talk = audited()
    assert asked(talk.wait(AUDIT_S - 1)) == []
    assert asked(talk.wait(2)) == [True], "a request that yields to all others"
    talk.hear(event(102, 103, [["9997", "0"], ["9990", "8"]]))
    talk.fetched(body(102, changed={"9998": "3", "9990": "5"}))  # between two deltas
    assert (talk.health(), talk.stats.audits) == (LIVE, 1)
    assert not talk.stats.invalidations
    assert asked(talk.wait(AUDIT_S - 2)) == []
    assert asked(talk.wait(4)) == [True]


def test_a_book_that_differs_by_one_level_is_stale_and_requested_again(caplog) -> None:
    talk = audited()
    assert asked(talk.wait(AUDIT_S + 1)) == [True]
    assert asked(talk.fetched(body(101))) == [False], "not one that may be postponed"
    assert talk.health() == (Health.STALE, Reason.AUDIT)
    assert talk.stats.invalidations == {Reason.AUDIT: 1}
    assert f"binance: BTC/USDT differs from the exchange's snapshot 101: {EXPECTED}." in caplog.text
    talk.fetched(body(101))
    assert (talk.health(), talk.stats.audits) == (LIVE, 1)


def test_a_body_that_the_stream_has_not_reached_proves_nothing() -> None:
    talk = audited()
    assert asked(talk.wait(AUDIT_S + 1)) == [True]
    talk.fetched(body(150))
    assert (talk.health(), talk.stats.audits) == (LIVE, 0)
    talk.hear(event(102, 151, [["9998", "4"]]))
    assert talk.health() == LIVE


@pytest.mark.parametrize("differs", [False, True])
def test_prices_beyond_the_nearer_horizon_are_not_compared(differs) -> None:
    talk = live(limits=AUDITED)  # 1,000 levels a side, so that it ends there
    assert talk.session._reseeding is not None
    talk.session._reseeding._jitter = lambda: 0.0
    assert asked(talk.wait(AUDIT_S + 1)) == [True]
    whole = json.loads(test_reseeding.body(101, levels=1_500))
    whole["bids"] = whole["bids"][:1_000]  # ends where ours does
    whole["asks"][1_200][1] = "9"  # beyond our horizon
    whole["asks"][999][1] = "9" if differs else "1"
    talk.fetched(json.dumps(whole).encode())
    assert talk.health() == ((Health.STALE, Reason.AUDIT) if differs else LIVE)


def test_one_audit_a_minute_of_all_connections_of_an_exchange() -> None:
    talk = Talk(BTC, ETH, limits=AUDITED)
    assert talk.session._reseeding is not None
    talk.session._reseeding._jitter = lambda: 0.0
    talk.fetched(body(100))
    talk.fetched(body(100), ETH)
    talk.hear(event(101, 101), event(101, 101, native="ETHUSDT"))
    found = []
    for _ in range(8 * 60):
        for action in talk.wait(1):
            found.append((action.fetch.instrument, talk.now))
            talk.fetched(body(101), action.fetch.instrument)
    assert [each for each, _ in found] == [BTC, ETH] * 3 + [BTC]
    seconds = [later[1] - earlier[1] for earlier, later in pairwise(found)]
    assert min(seconds) >= AUDIT_S - 1.01, "the times are those of whole seconds"
    talk.stats.audit_at = talk.now + 1_000  # another connection of this exchange had its turn
    assert talk.wait(120) == []


def test_nothing_is_requested_while_a_book_waits_for_its_body() -> None:
    talk = Talk(BTC, ETH, limits=AUDITED)
    assert talk.session._reseeding is not None
    talk.session._reseeding._jitter = lambda: 0.0
    talk.fetched(body(100))
    talk.hear(event(101, 101))
    assert asked(talk.wait(AUDIT_S + 10)) == []
    talk.fetched(body(100), ETH)
    assert asked(talk.wait(5)) == [True]


@pytest.mark.parametrize(
    ("jitter", "limits"), [(AUDIT_CHANCE, AUDITED), (0.0, replace(AUDITED, audits=False))]
)
def test_neither_another_ones_turn_nor_the_setting_is_ignored(jitter, limits) -> None:
    talk = audited(jitter, limits)
    assert talk.wait(3 * AUDIT_S) == []


def test_which_exchanges_are_audited() -> None:
    found = {
        name for name, each in EXCHANGES.items() if getattr(each.connector(()), "comparable", 0)
    }
    assert found == {"backpack", "binance", "binanceus", "mexc", "xt"}
