"""Turns of the event loop are shared by the connections that have input."""

from onebook.gateway.turns import Turns


class Loop:
    """An event loop and a clock that move by hand."""

    def __init__(self, turn_s=1.0):
        self.now_s = 0.0
        self.soon = []
        self.log = []
        self.turns = Turns(
            turn_s=turn_s,
            monotonic=lambda: self.now_s,
            call_soon=lambda call: self.soon.append(call),
        )

    def turn(self):
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()
        log, self.log = self.log, []
        return log


class TurnReader:
    def __init__(self, loop, name, frames, cost_s=0.0):
        self.loop, self.name, self.frames, self.cost_s = loop, name, frames, cost_s
        self.queued = False
        self.paced = 0

    def read(self, ends_at):
        self.loop.now_s += self.cost_s
        self.frames -= 1
        self.loop.log.append(self.name)
        return self.frames > 0

    def pace_reading(self):
        self.paced += 1


def test_what_is_done_at_once_is_not_queued():
    loop = Loop()
    one = TurnReader(loop, "one", 1)
    loop.turns.read(one)
    assert loop.turn() == ["one"]
    assert (one.queued, one.paced) == (False, 0)
    assert loop.turn() == []
    assert loop.soon == []


def test_each_connection_has_one_share_of_a_turn_and_reads_again_when_it_is_done():
    loop = Loop()
    one, two = TurnReader(loop, "one", 3), TurnReader(loop, "two", 2)
    for each in (one, two, one, two):
        loop.turns.read(each)
    assert loop.turn() == ["one", "two", "one", "two"]
    assert loop.turn() == ["one"]
    assert len(loop.turns) == 0
    assert (one.queued, one.paced) == (False, 2)


def test_a_turn_ends_with_its_time_and_the_next_begins_with_the_one_that_waited():
    loop = Loop(turn_s=1.0)
    readers = [TurnReader(loop, name, 4, cost_s=0.6) for name in "abc"]
    for each in readers:
        loop.turns.read(each)
    assert loop.log == ["a", "b"]
    loop.log.clear()
    assert [loop.turn() for _ in range(3)] == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_what_costs_a_turn_leaves_the_rest_to_the_next():
    loop = Loop()
    one, two = TurnReader(loop, "one", 1), TurnReader(loop, "two", 1)
    loop.turns.read(one)
    loop.turns.spend()
    loop.turns.read(two)
    assert (loop.log, two.queued) == (["one"], True)
    loop.log.clear()
    assert loop.turn() == ["two"]


def test_one_that_is_gone_has_no_turn():
    loop = Loop()
    one = TurnReader(loop, "one", 5)
    loop.turns.read(one)
    loop.turns.forget(one)
    loop.turns.forget(one)
    assert loop.turn() == ["one"]
    assert loop.turn() == []
