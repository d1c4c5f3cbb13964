"""Live nodes, served books, subscriptions, faults, and handover of books: without I/O."""

import importlib.util
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from onebook.nodes import membership, wire
from onebook.nodes.handover import Ownership
from onebook.nodes.interest import (
    PAGE_KEYS,
    GatewayInterest,
    LocalInterest,
    encode_interest,
    interest_of,
    page_asked,
)
from onebook.nodes.membership import (
    CLOCKS_KEPT_S,
    Members,
    NodeHeartbeat,
    NodeRole,
    NodeState,
    encode_heartbeat,
    heartbeat_of,
    ranking,
)
from onebook.nodes.payloads import WireError
from onebook.nodes.subjects import BookKey, Subjects, key_of, token

ME = 1
MEMBERSHIP = membership.__file__
TICK_S = 0.05


def beat(node, role=NodeRole.FEEDS, state=NodeState.UP, sent_s=0.0, **more):
    return NodeHeartbeat(
        node=node,
        name=f"n{node}",
        role=role,
        state=state,
        sent_us=round(sent_s * 1e6),
        states={"okx": "active"},
        **({"wire": wire.VERSION} | more),
    )


def members():
    return Members(ME, timeout_s=1.0, tick_s=TICK_S)


def pass_time(view, begin, seconds, beats=()):
    """Check every 50 ms; the nodes in `beats` send heartbeats."""
    now, changed = begin, False
    while now < begin + seconds:
        now += TICK_S
        for node in beats:
            view.received(beat(node, sent_s=now), now)
        changed = view.tick(now) or changed
    return now, changed


def test_a_node_without_heartbeats_is_dead_after_the_timeout_and_not_before():
    view = members()
    for node in (ME, 2):
        view.received(beat(node, sent_s=10.0), 10.0)
    now, _ = pass_time(view, 10.0, 0.85, [ME])
    assert set(view.alive(NodeRole.FEEDS)) == {ME, 2}
    _, changed = pass_time(view, now, 0.25, [ME])
    assert changed
    assert set(view.alive(NodeRole.FEEDS)) == {ME}


def test_a_node_that_does_not_hear_itself_knows_nobody():
    view = members()
    view.received(beat(ME, sent_s=10.0), 10.0)
    view.tick(10.0)
    assert view.connected
    now, changed = pass_time(view, 10.0, 1.2, [2, 3])
    assert changed
    assert not view.connected
    assert view.alive(NodeRole.FEEDS) == {}
    assert view.received(beat(ME, sent_s=now), now)
    assert set(view.alive(NodeRole.FEEDS)) >= {2, 3}


def test_an_echo_that_was_long_on_its_way_proves_nothing():
    view = members()
    view.received(beat(ME, sent_s=10.0), 11.5)
    assert not view.connected


SLOW = (0.8, 0.5, 0.3)  # of what a node sends, so much can leave it
CLOCK_S = 12_345.0  # how far the clock of the feeds node is ahead


@pytest.mark.parametrize("share", SLOW)
def test_a_feeds_node_whose_messages_come_late_is_dead_until_they_come_in_time(share):
    """Each heartbeat was later than the last one: books that were seconds old were live."""
    feeds, gateway = Members(2, timeout_s=1.0, tick_s=TICK_S), members()
    queue, longest_s = [], 0.0
    for step in range(400):
        now = step * TICK_S
        mine = beat(ME, NodeRole.GATEWAY, sent_s=now)
        gateway.received(mine, now)
        feeds.received(mine, now + CLOCK_S)
        clocks = feeds.clocks(now + CLOCK_S)
        queue.append((now, beat(2, sent_s=now + CLOCK_S, clocks=clocks)))
        while queue and (step >= 200 or queue[0][0] / share <= now):
            sent_at, heartbeat = queue.pop(0)
            gateway.received(heartbeat, now)
        gateway.tick(now)
        if gateway.serving("okx"):
            longest_s = max(longest_s, now - sent_at)
        if step == 199:
            assert set(gateway.late) == {2}
    assert longest_s < 2.0
    assert (gateway.serving("okx"), gateway.late) == ([2], {})


def test_a_heartbeat_has_the_clocks_of_others_as_of_its_sending():
    view = members()
    view.received(beat(ME, sent_s=10.0), 10.0)
    view.received(beat(2, sent_s=500.0), 10.0)
    assert view.clocks(10.75) == {2: 500_750_000}
    assert view.clocks(10.0 + CLOCKS_KEPT_S) == {}
    view.received(beat(2, sent_s=600.0), 100.0)
    view.received(beat(2, state=NodeState.GONE), 100.0)
    assert view.clocks(100.0) == {}


def test_a_late_heartbeat_is_as_late_in_its_first_as_in_any():
    view = members()
    view.received(beat(ME, NodeRole.GATEWAY, sent_s=10.0), 10.0)
    assert not view.received(beat(2, clocks={ME: 8_900_000}), 10.0)
    assert (view.serving("okx"), set(view.late)) == ([], {2})
    view.received(beat(2, state=NodeState.GONE), 10.1)
    assert view.late == {}


def test_a_pause_of_this_process_kills_nobody():
    view = members()
    for node in (ME, 2):
        view.received(beat(node, sent_s=10.0), 10.0)
    view.tick(10.0)
    assert not view.tick(100.0)
    assert set(view.alive(NodeRole.FEEDS)) == {ME, 2}


def test_a_node_that_says_goodbye_is_gone_at_once_and_a_draining_one_takes_no_books():
    view = members()
    for node in (ME, 2, 3):
        view.received(beat(node, sent_s=1.0), 1.0)
    assert view.received(beat(2, state=NodeState.GONE), 1.1)
    assert view.received(beat(3, state=NodeState.DRAINING), 1.1)
    assert view.serving("okx") == [ME]
    assert view.draining() == [3]
    assert view.serving("kraken") == []


def test_another_version_is_a_stranger():
    view = members()
    view.received(beat(ME, sent_s=1.0), 1.0)
    assert not view.received(beat(2, wire=wire.VERSION + 1), 1.0)
    assert set(view.incompatible) == {2}
    assert set(view.alive(NodeRole.FEEDS)) == {ME}


def test_a_heartbeat_states_the_version_of_its_sender_to_a_build_of_another(monkeypatch):
    """Builds of the next version omitted their version, which this build took for its own."""
    monkeypatch.setattr(wire, "VERSION", wire.VERSION + 1)
    spec = importlib.util.spec_from_file_location("membership_of_the_next_build", MEMBERSHIP)
    next_build = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, next_build)
    spec.loader.exec_module(next_build)
    role = next_build.NodeRole.FEEDS
    sent = next_build.NodeHeartbeat(node=2, name="n2", role=role, wire=wire.VERSION)
    payload = next_build.encode_heartbeat(sent)
    assert heartbeat_of(payload).wire == wire.VERSION
    monkeypatch.undo()
    view = members()
    view.received(heartbeat_of(payload), 1.0)
    assert set(view.incompatible) == {2}


def test_a_stranger_is_forgotten_when_it_falls_silent_or_says_that_it_goes():
    view = members()
    for stranger in (2, 3):
        view.received(beat(stranger, wire=wire.VERSION + 1), 1.0)
    view.received(beat(3, wire=wire.VERSION + 1, state=NodeState.GONE), 1.0)
    assert set(view.incompatible) == {2}
    now, _ = pass_time(view, 1.0, 0.85, [ME])
    assert set(view.incompatible) == {2}
    _, changed = pass_time(view, now, 0.25, [ME])
    assert not view.incompatible
    assert not changed


def test_a_heartbeat_of_a_later_release_is_read_and_noise_is_not():
    from msgspec import msgpack

    payload = msgpack.encode({**msgpack.decode(encode_heartbeat(beat(5))), "later": [1, 2]})
    assert heartbeat_of(payload) == beat(5)
    with pytest.raises(WireError):
        heartbeat_of(b"noise")


nodes_of = st.sets(st.integers(0, 2**63 - 1), min_size=2, max_size=8)


@given(nodes_of, st.lists(st.text(max_size=12), min_size=1, max_size=50))
def test_a_node_that_leaves_moves_its_own_books_only(nodes, names):
    gone = min(nodes)
    for name in names:
        before, after = ranking(name, nodes), ranking(name, nodes - {gone})
        assert [node for node in before if node != gone] == list(after)


def test_books_are_spread_evenly():
    counts = dict.fromkeys(range(4), 0)
    for number in range(4_000):
        counts[ranking(f"okx C{number}/USDT", counts)[0]] += 1
    assert all(900 < count < 1_100 for count in counts.values())


@given(st.text(min_size=1, max_size=20))
def test_a_symbol_is_one_token_of_a_subject_and_unlike_every_other(symbol):
    text = token(symbol) if symbol.isprintable() else token("x")
    assert not set(text) & set(". *>\r\n\t")
    subject = f"c.{wire.VERSION}.book.okx.BTC%2FUSDT"
    assert Subjects("c").book(BookKey("okx", "BTC/USDT")) == subject
    assert key_of(BookKey("okx", "BTC/USDT").text) == BookKey("okx", "BTC/USDT")


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=60), st.data())
def test_demand_is_what_gateways_want_whatever_is_lost(changes, data):
    """Two gateways; changes are lost at random, then everything is requested."""
    wants = {gateway: LocalInterest(gateway) for gateway in (1, 2)}
    interests = GatewayInterest()
    for number, (name, last) in enumerate(changes):
        mine = wants[1 + number % 2]
        key = f"okx {name}"
        if key in mine.keys:
            mine.drop(key)
        else:
            mine.add(key)
        for interest in mine.changes() if last else ():
            if data.draw(st.booleans()):
                interests.changed(interest_of(encode_interest(interest), whole=False))
    for gateway, mine in wants.items():
        for interest in mine.changes():
            interests.changed(interest)
        if not interests.current(gateway, mine.seq) or mine.seq == 0:
            page = mine.page(0)
            interests.replaced(gateway, page.seq, page.added)
    assert set(interests.keys()) == set(wants[1].keys) | set(wants[2].keys)
    interests.forget(1)
    assert set(interests.keys()) == set(wants[2].keys)
    interests.forget(2)
    assert set(interests.keys()) == set()


CHANGE = {
    "gateway": 1,
    "seq": 2,
    "added": ["okx BTC/USDT"],
    "dropped": [],
    "whole": False,
    "pages": 1,
}


def test_a_change_is_no_page_of_everything_and_a_page_no_change():
    change, page = (msgpack.encode(CHANGE | {"whole": whole}) for whole in (False, True))
    assert interest_of(change, whole=False).added == ["okx BTC/USDT"]
    assert interest_of(page, whole=True).whole
    for payload, whole in ((change, True), (page, False)):
        with pytest.raises(WireError):
            interest_of(payload, whole=whole)


@pytest.mark.parametrize(
    "foreign",
    [
        {"seq": -1},
        {"gateway": -1},
        {"gateway": "1"},
        {"added": ["okx"]},
        {"dropped": ["okx "]},
        {"added": [" BTC/USDT"]},
        {"added": "okx BTC/USDT"},
        {"pages": 0},
        {"pages": 10**9},
    ],
)
def test_interest_of_another_shape_is_refused(foreign):
    for whole in (False, True):
        payload = msgpack.encode(CHANGE | {"whole": whole} | foreign)
        with pytest.raises(WireError):
            interest_of(payload, whole=whole)
    with pytest.raises(WireError):
        interest_of(b"", whole=False)


def test_a_request_names_its_page():
    assert [page_asked(payload) for payload in (b"0", b"12")] == [0, 12]


@pytest.mark.parametrize("payload", [b"", b"-1", b"1" * 5_000])
def test_a_request_without_a_page_is_refused(payload):
    with pytest.raises(WireError):
        page_asked(payload)


def test_a_large_interest_has_pages():
    wants = LocalInterest(1)
    for number in range(PAGE_KEYS + 5):
        wants.add(f"okx {number}")
    assert [len(each.added) for each in wants.changes()] == [PAGE_KEYS, 5]
    first, second = wants.page(0), wants.page(1)
    assert (first.pages, len(first.added), len(second.added)) == (2, PAGE_KEYS, 5)


class Holder:
    """The books of a node, and the known nodes."""

    def __init__(self, *nodes):
        self.nodes = nodes
        self.interests = GatewayInterest()
        self.interests.replaced(9, 1, ["okx A"])
        self.ownership = Ownership(
            ME, ranking=lambda key: self.nodes, linger_s=5.0, handover_max_s=10.0, grace_s=0.2
        )

    def at(self, now):
        changes = self.ownership.update(self.interests, now)
        return changes.opened, changes.closed


def test_a_book_is_kept_until_the_next_node_has_it_live_and_a_moment_longer():
    here = Holder(ME, 2)
    assert here.at(0.0) == (["okx A"], [])
    here.nodes = (2, ME)
    assert here.at(1.0) == ([], [])
    assert here.ownership.leaving() == {"okx A": 2}
    here.ownership.live_elsewhere(["okx A"], 2.0)
    assert here.at(2.1) == ([], [])
    assert here.at(2.3) == ([], ["okx A"])


def test_a_book_that_nobody_takes_over_is_not_kept_for_ever():
    here = Holder(ME, 2)
    here.at(0.0)
    here.nodes = (2, ME)
    here.at(1.0)
    assert here.at(10.9) == ([], [])
    assert here.at(11.1) == ([], ["okx A"])


def test_a_node_that_was_the_next_and_died_leaves_the_book_where_it_is():
    here = Holder(ME, 2)
    here.at(0.0)
    here.nodes = (2, ME)
    here.at(1.0)
    here.nodes = (ME,)
    assert here.at(2.0) == ([], [])
    assert not here.ownership.moving
    assert here.at(100.0) == ([], [])


def test_a_book_that_nobody_wants_lingers_and_only_where_it_belongs():
    here = Holder(ME, 2)
    here.at(0.0)
    here.interests.forget(9)
    assert here.at(1.0) == ([], [])
    assert here.at(5.9) == ([], [])
    here.nodes = (2, ME)
    assert here.at(5.95) == ([], ["okx A"])
    here.nodes = (ME,)
    here.interests.replaced(9, 1, ["okx A"])
    assert here.at(6.0) == (["okx A"], [])
    here.interests.forget(9)
    here.at(7.0)
    assert here.at(12.1) == ([], ["okx A"])


def test_while_no_node_is_there_to_take_it_a_book_stays():
    here = Holder(ME)
    here.at(0.0)
    here.nodes = ()
    assert here.at(100.0) == ([], [])
    assert here.ownership.abandon() == ["okx A"]
    assert len(here.ownership) == 0


BOOKS = [f"okx C{number}/USDT" for number in range(2_000)]


def test_the_text_of_a_key_can_be_read_back():
    key = BookKey("okx", "BTC/USDT")
    assert key.text == "okx BTC/USDT"
    assert key_of(key.text) == key


@given(st.permutations([1, 2, 3, 2**63]))
def test_the_order_in_which_nodes_are_known_does_not_matter(nodes):
    assert ranking("okx BTC/USDT", nodes) == ranking("okx BTC/USDT", [1, 2, 3, 2**63])


def test_a_ranking_holds_every_node_once():
    assert sorted(ranking("okx BTC/USDT", range(10))) == [*range(10)]
    assert ranking("okx BTC/USDT", []) == ()


def test_books_of_a_node_that_leaves_go_to_the_next_and_no_other_moves():
    for book in BOOKS:
        before = ranking(book, [1, 2, 3, 4])
        assert ranking(book, [1, 2, 4]) == tuple(node for node in before if node != 3)
