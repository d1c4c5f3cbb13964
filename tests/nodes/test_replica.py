"""One book on a gateway against an oracle: a live book is right, whatever the network does.

Two feeds nodes publish the book of one exchange, each by itself; messages are lost, repeated and
late, answers too; nodes die, drain and close the book. Whenever the gateway's book is live its
levels are exactly those that the node had at the number that the replica follows, and once the
network is well again the book is live and equal to that of the best node.
"""

from random import Random

import pytest

from onebook.books import LIVE, Books
from onebook.core.types import LEVELS_MAX
from onebook.exchanges.kit import Delta, Snapshot
from onebook.model import Health, Instrument, Reason
from onebook.nodes import wire
from onebook.nodes.publisher import PublishedBooks
from onebook.nodes.replica import Replica, apply
from onebook.nodes.subjects import BookKey

BTC = Instrument("okx", "BTC/USDT", "BTC-USDT")
KEY = BookKey("okx", "BTC/USDT")
HELD_MAX = 3
RETRY_S = 1.0


def text(rows):
    return b"[%b]" % b",".join(b'["%d","%d"]' % row for row in rows)


class Node:
    """A feeds node: real books, and their state after each number."""

    def __init__(self, number, network):
        self.number = number
        self.network = network
        self.truth = {}
        self.books = PublishedBooks(number, publish=self._sent, subject_of=lambda key: key.text)
        self.open()

    def open(self):
        self.books.open(BTC)

    def _sent(self, subject, payload):
        frame = wire.frame_of(payload)
        if frame.kind is not wire.Kind.MARK:
            book = self.books.get(BTC)
            shown = book.core.top(LEVELS_MAX) if book.health is LIVE else None
            self.truth[frame.epoch, frame.seq] = shown
        self.network.append((self.number, payload))

    @property
    def live(self):
        book = self.books.get(BTC)
        return book is not None and book.health is LIVE

    def snapshot(self, offset):
        if self.books.get(BTC) is not None:
            self.books.set_health(BTC, Health.SYNCING, Reason.SUBSCRIBING, 0.0)
            bids, asks = [(100 - offset, 1), (90, 2)], [(101 + offset, 1), (120, 3)]
            self.books.fill(Snapshot(BTC, text(bids), text(asks)), 0.0)

    def change(self, price, amount):
        side = ((price, amount),)
        self.books.change(
            Delta(BTC, text(side if price <= 95 else ()), text(side if price > 105 else ())), 0.0
        )


class World:
    """A gateway, two nodes and the network between them."""

    def __init__(self):
        self.network = []
        self.answers = []
        self.nodes = {1: Node(1, self.network), 2: Node(2, self.network)}
        self.alive = [1, 2]
        self.books = Books()
        self.books.open(BTC)
        self.replica = Replica(BTC, held_max=HELD_MAX)
        self.now = 0.0
        self.place()

    def place(self):
        self.act(self.replica.served_by(list(self.alive)))

    def act(self, effects):
        if not apply(effects, self.books, BTC, self.now):
            self.replica.refused()
        self.check()

    def check(self):
        book = self.books.get(BTC)
        assert (book.health is LIVE) == self.replica.live
        if book.health is LIVE:
            source = self.replica._shown
            truth = self.nodes[source.node].truth[source.epoch, source.seq]
            assert book.core.top(LEVELS_MAX) == truth
            assert source.node in self.alive

    def ask(self):
        node = self.replica.ask(self.now, RETRY_S)
        if node is not None:
            self.answers.append((node, self.nodes[node].books.snapshot(KEY, 0.0)))

    def deliver(self):
        if self.network:
            _, payload = self.network.pop(0)
            self.act(self.replica.received(wire.frame_of(payload)))
            self.ask()

    def answer(self, lost):
        if self.answers:
            node, payload = self.answers.pop(0)
            frame = wire.frame_of(payload) if payload and not lost else None
            self.act(self.replica.answered(node, frame))

    def settle(self):
        """A working network: messages arrive, marks are sent, requests are answered."""
        for _ in range(20):
            self.now += RETRY_S
            for node in self.nodes.values():
                node.books.mark()
            while self.network:
                self.deliver()
            self.ask()
            while self.answers:
                self.answer(False)


SEEDS = 400
STEPS = 250
MEMBERS = ([1, 2], [2, 1], [1], [2], [])


def steps(random):
    """A sequence of steps: mostly changes of a book over a network that mostly works."""
    kinds = {
        "change": 40,
        "deliver": 60,
        "snapshot": 4,
        "doubt": 2,
        "reopen": 1,
        "lose": 6,
        "repeat": 4,
        "swap": 3,
        "answer": 12,
        "ask": 12,
        "mark": 6,
        "members": 2,
        "drop": 1,
    }
    for kind in random.choices([*kinds], [*kinds.values()], k=STEPS):
        node = random.choice([1, 2])
        match kind:
            case "change":
                price = random.choice([random.randrange(80, 96), random.randrange(106, 120)])
                yield kind, node, price, random.randrange(6)
            case "snapshot":
                yield kind, node, random.randrange(4)
            case "doubt" | "reopen":
                yield kind, node
            case "answer":
                yield kind, random.random() < 0.2
            case "members":
                yield kind, random.choice(MEMBERS)
            case _:
                yield (kind,)


def act(world, step):
    kind, *details = step
    node = world.nodes.get(details[0]) if details and kind != "members" else None
    match kind:
        case "snapshot":
            node.snapshot(details[1])
        case "change":
            node.change(*details[1:])
        case "doubt":
            node.books.set_health(BTC, Health.STALE, Reason.GAP, 0.0)
        case "reopen":
            node.books.close(BTC)
            node.open()
        case "deliver":
            world.deliver()
        case "lose":
            del world.network[:1]
        case "repeat":
            world.network[:1] *= 2
        case "swap":
            world.network[:2] = world.network[1::-1]
        case "answer":
            world.answer(details[0])
        case "ask":
            world.now += RETRY_S
            world.ask()
        case "mark":
            for each in world.nodes.values():
                each.books.mark()
        case "members":
            world.alive = details[0]
            world.place()
        case "drop":
            world.act(world.replica.lost())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_network_makes_a_wrong_level_live_and_a_good_one_brings_the_book_back(seed):
    world = World()
    world.nodes[1].snapshot(0)
    world.nodes[2].snapshot(1)
    for step in steps(Random(seed)):
        act(world, step)
    world.alive = [2, 1]
    world.place()
    world.nodes[2].snapshot(1)
    world.nodes[2].change(93, 4)
    world.settle()
    assert world.replica.live
    assert world.replica.shown == 2
    shown, truth = (each.get(BTC).core for each in (world.books, world.nodes[2].books))
    assert shown.top(LEVELS_MAX) == truth.top(LEVELS_MAX)


def fresh(*alive):
    world = World()
    world.alive = list(alive)
    world.place()
    return world


def test_a_book_that_moves_is_never_stale():
    """The next node's snapshot replaces the levels while the last one's are live."""
    world = fresh(1)
    moves = []
    world.nodes[1].snapshot(0)
    world.settle()
    world.books.subscribe(on_health=lambda book, previous: moves.append(book.health))
    world.alive = [2, 1]
    world.place()
    world.settle()
    assert world.replica.shown == 1  # the other has no snapshot yet
    world.nodes[2].snapshot(1)
    world.deliver()
    assert world.replica.shown == 2
    world.nodes[1].books.close(BTC)
    world.settle()
    world.alive = [2]
    world.place()
    world.settle()
    assert world.replica.live
    assert moves == []


def test_a_dead_node_makes_its_book_stale_at_once():
    world = fresh(1)
    world.nodes[1].snapshot(0)
    world.settle()
    assert world.replica.live
    world.alive = []
    world.place()
    book = world.books.get(BTC)
    assert (book.health, book.reason) == (Health.STALE, Reason.DISCONNECTED)


def test_the_loss_of_the_last_message_is_seen_by_its_mark():
    world = fresh(1)
    world.nodes[1].snapshot(0)
    world.settle()
    world.nodes[1].change(93, 4)
    world.network.clear()
    for _ in range(2):
        world.nodes[1].books.mark()
    (mark,) = world.network
    world.act(world.replica.received(wire.frame_of(mark[1])))
    assert world.books.get(BTC).health is Health.STALE
    world.network.clear()
    world.settle()
    assert world.replica.live


def test_an_offline_book_and_its_reason_are_told_and_it_comes_back():
    world = fresh(1)
    world.nodes[1].books.set_health(BTC, Health.OFFLINE, Reason.HALTED, 0.0, detail="why")
    world.settle()
    book = world.books.get(BTC)
    assert (book.health, book.reason, book.detail) == (Health.OFFLINE, Reason.HALTED, "why")
    world.nodes[1].snapshot(0)
    world.settle()
    assert world.books.get(BTC).health is LIVE
