"""Owners take turns in a queue, and publishing is fair between keys when the core is full."""

import pytest

from onebook.streams import StreamKey
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
