"""Owners take turns in a queue, and publishing is fair between keys when the core is full."""

from statistics import mean

import pytest

from onebook.streams import StreamKey, ViewOptions
from onebook.streams.streams import PUBLISHES_PER_TICK_MAX, FairQueue

from .test_streams import SYMBOL, Rig


def drained(queue):
    return [queue.take() for _ in range(len(queue))]


def test_one_owner_is_first_in_first_out():
    queue = FairQueue()
    for number in range(5):
        queue.put("key", number)
    assert drained(queue) == [0, 1, 2, 3, 4]
    with pytest.raises(IndexError):
        queue.take()


def test_owners_take_turns_however_much_one_has():
    queue = FairQueue()
    for number in range(1_000):
        queue.put("many", number)
    for number in range(2):
        queue.put("few", number)
        queue.put("other", number)
    taken = drained(queue)
    assert taken[:6] == [0, 0, 0, 1, 1, 1]
    assert taken[6:] == [*range(2, 1_000)]


def test_an_owner_that_comes_back_comes_after_the_others():
    queue = FairQueue()
    queue.put("a", "a1")
    queue.put("b", "b1")
    assert queue.take() == "a1"
    queue.put("a", "a2")
    assert drained(queue) == ["b1", "a2"]


def test_items_that_are_not_wanted_any_more_are_dropped_and_the_others_keep_their_places():
    queue = FairQueue()
    for number in range(10):
        queue.put("many", number)
    queue.put("gone", 11)
    queue.put("few", 12)
    queue.keep(lambda each: each % 2 == 0)
    assert len(queue) == 6
    assert drained(queue) == [0, 12, 2, 4, 6, 8]


def test_a_key_with_many_views_does_not_delay_the_views_of_others():
    many = [f"M{number}/USDT" for number in range(4 * PUBLISHES_PER_TICK_MAX)]
    few = [f"F{number}/USDT" for number in range(5)]
    rig = Rig(("okx",), [*many, *few, SYMBOL])
    for owner, symbols in (("many", many), ("few", few)):
        for symbol in symbols:
            rig.streams.open(StreamKey(symbol, ("okx",)), owner)
    for owner in ("many", "other"):  # a view of several keys has turns of its own
        rig.streams.open(StreamKey(SYMBOL, ("okx",)), owner)
    for symbol in (*many, *few, SYMBOL):
        rig.snapshot("okx", [("100", "1")], [], symbol)
    rig.streams.tick(rig.time.now_s)
    first = [stream.key.symbol for _, stream, *_ in rig.heard.updates]
    assert len(first) == PUBLISHES_PER_TICK_MAX
    assert {*few, SYMBOL} <= set(first[:15])
    assert rig.streams.backlog == len(many) + len(few) + 1 - PUBLISHES_PER_TICK_MAX
    rig.time.run(1)
    assert rig.streams.backlog == 0
    assert len(rig.heard.updates) == len(many) + len(few) + 1


@pytest.mark.parametrize(
    ("every_s", "changes"),
    [(0.3, 20), (0.037, 200)],
    ids=["all are published between two changes", "they never are"],
)
def test_no_view_is_always_served_after_the_others(every_s, changes):
    """The order of a set gave some views twice the updates of others, and a constant delay."""
    rig, count, publish_s = Rig(("okx",)), 100, 0.0006
    options = [ViewOptions(depth=1 + number, interval_ms=10) for number in range(count)]
    streams = [
        rig.streams.open(StreamKey(SYMBOL, ("okx",), each), f"key {number}")
        for number, each in enumerate(options)
    ]
    late_s = {stream: [] for stream in streams}
    changed_at = rig.time.now_s

    def publish(stream, payload, full):
        rig.time.now_s += publish_s
        late_s[stream].append(rig.time.now_s - changed_at)

    rig.heard.publish = publish
    rig.snapshot("okx", [("100", "1")], [("101", "1")])
    rig.time.run(1)
    for each in late_s.values():
        each.clear()
    for number in range(changes):
        changed_at = rig.time.now_s
        rig.delta("okx", [("100", f"{2 + number % 7}")], [])
        rig.time.run(every_s)
    updates = [len(each) for each in late_s.values()]
    assert max(updates) - min(updates) <= 1
    means_s = [mean(each) for each in late_s.values()]
    assert max(means_s) - min(means_s) <= 0.1 * count * publish_s
