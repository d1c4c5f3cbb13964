"""Forged messages over a real nats-server: refused, logged once, counted, without effect.

The sender has the login of NATS and may claim to be any node; what it sends is out of range.
"""

import asyncio
import re
import zlib
from collections import Counter
from contextlib import asynccontextmanager
from math import inf, nan

from msgspec import msgpack
from prometheus_client import REGISTRY

from nodes.test_cluster import SYMBOLS, eventually, world
from nodes.test_payloads import SAMPLES, damaged
from onebook.clock import SYSTEM_CLOCK
from onebook.config import NatsSettings, TierSettings
from onebook.model import Tier
from onebook.nodes import key_sharing, lists, wire
from onebook.nodes.interest import Interest, encode_interest
from onebook.nodes.membership import NodeHeartbeat, NodeRole, encode_heartbeat
from onebook.nodes.nats import NatsBus
from onebook.nodes.payloads import RefusalCause
from onebook.nodes.refusals import KINDS_MAX
from onebook.nodes.subjects import LIST, LIVE, BookKey, Subjects
from steady import PATIENCE_S

LIMIT = TierSettings().basic.requests_per_minute
FORGED = 77  # a node without a process
SUBJECTS = Subjects("onebook")
KEYS = f"{SUBJECTS.interest}.keys"
BOOK = BookKey("okx", SYMBOLS[0])


def sample(type_):
    (found,) = (each for each in SAMPLES if type(each) is type_)
    return found


def counts():
    """The number of refused messages, by message and cause."""
    return {
        (each.labels["message"], each.labels["cause"]): round(each.value)
        for metric in REGISTRY.collect()
        for each in metric.samples
        if each.name == "onebook_nats_refused_total"
    }


def since(before):
    return {kind: count - before[kind] for kind, count in counts().items() if count > before[kind]}


def lines(caplog, text):
    return [each.getMessage() for each in caplog.records if text in each.getMessage()]


@asynccontextmanager
async def attacked(folder):
    """A feeds node and a gateway with a subscriber, and a connection of their NATS."""
    async with world(folder) as here, here.feeds():
        node, subscriber = await here.gateway()
        await here.fresh(subscriber)
        settings = NatsSettings(servers=(f"nats://127.0.0.1:{here.port}",))
        async with NatsBus(settings, name="forger") as bus:
            await eventually(lambda: len(alive(node, NodeRole.FEEDS)) == 1)
            yield here, node, subscriber, bus


def alive(node, role):
    return node.supervisor.presence.members.alive(role)


async def send(bus, subject, payloads):
    """Publish in portions that fit into the buffer."""
    for payload in payloads:
        bus.publish(subject, payload)
        await asyncio.sleep(0)


def of_book(node, kind, body, seq=2**60):
    return wire.HEAD.pack(wire.VERSION, kind, node, 1, seq) + body


async def test_messages_out_of_range_are_refused_and_change_nothing(tmp_path, caplog):
    async with attacked(tmp_path) as (here, node, subscriber, bus):
        (feeds,) = alive(node, NodeRole.FEEDS)
        before, statuses = counts(), len(subscriber.statuses)
        heartbeats = [*damaged(sample(NodeHeartbeat))]
        interests = [*damaged(sample(Interest))]
        tallies = [*damaged(sample(key_sharing.KeyTally))]
        bomb = zlib.compress(bytes(wire.FRAME_BYTES_MAX + 1))
        shape = b"\x81\xa4asks" * 9_000 + b"\xc0"
        books = [
            of_book(feeds, wire.Kind.SNAPSHOT | wire.DEFLATED, bomb, seq=1),
            of_book(feeds, wire.Kind.MARK, b"", seq=2**64 - 1),
            of_book(2**63, wire.Kind.MARK, b""),
            of_book(feeds, wire.Kind.DELTA | wire.DEFLATED, b"", seq=1),
            of_book(
                feeds, wire.Kind.DELTA, wire.DELTA_HEAD.pack(0, 0, 54_001, 0) + shape, seq=2**50
            ),
            of_book(
                feeds, wire.Kind.SNAPSHOT, wire.SNAPSHOT_HEAD.pack(0, 2**32 - 1, 0, 0, 0, 0), seq=1
            ),
            of_book(feeds, wire.Kind.HEALTH, msgpack.encode([1, 2, 3]), seq=2**50),
            b"",
            b"noise",
        ]
        await send(bus, SUBJECTS.heartbeats, heartbeats)
        await send(bus, SUBJECTS.interest, interests)
        await send(bus, KEYS, tallies)
        await send(bus, SUBJECTS.book(BOOK), books)
        expected = {
            ("heartbeat", RefusalCause.INVALID): 2
            * len(heartbeats),  # the gateway and the feeds node
            ("interest", RefusalCause.INVALID): len(interests),
            ("keys", RefusalCause.INVALID): len(tallies),
        }
        async with asyncio.timeout(PATIENCE_S):
            while any(since(before).get(kind, 0) < count for kind, count in expected.items()):
                await asyncio.sleep(0.01)
            while sum(n for (what, _), n in since(before).items() if what == "book") < len(books):
                await asyncio.sleep(0.01)
        found = since(before)
        assert {kind: found[kind] for kind in expected} == expected
        assert alive(node, NodeRole.FEEDS).keys() == {feeds}
        await here.fresh(subscriber)
        assert subscriber.statuses[statuses:] == []
        assert subscriber.wrong == []
        refused = lines(caplog, "Rejected a message")
        heard = Counter(
            re.match(r"Rejected a message \((.+?)\) from (.+?):", each)[0] for each in refused
        )
        twice = {each for each in heard if "(heartbeat)" in each}  # here and in the feeds node
        causes = Counter(dict.fromkeys(heard, 1)) + Counter(twice)
        causes[f"Rejected a message (book) from node {feeds:x}:"] = 3  # each cause
        causes["Rejected a message (book) from an unnamed node:"] = 2
        assert heard == causes
        assert lines(caplog, "Processing a message") == []


async def test_requests_out_of_range_are_refused_and_answered(tmp_path):
    async with attacked(tmp_path) as (_, node, _, bus):
        (feeds,) = alive(node, NodeRole.FEEDS)
        before = counts()
        requests = [(LIST, each) for each in damaged(sample(lists.ListRequest))]
        requests += [(LIST, bytes(lists.REQUEST_BYTES_MAX + 1)), (LIVE, b"noise"), (LIVE, b"")]
        for what, payload in requests:
            assert await bus.request(SUBJECTS.request(feeds, what), payload, PATIENCE_S) == b""
        assert sum(since(before).values()) == len(requests)


async def test_a_tally_that_is_no_number_does_not_lift_a_limit(tmp_path):
    """The limit was 600 requests a minute, but 1,500 were accepted."""
    async with attacked(tmp_path) as (_, node, _, bus):
        me = NodeHeartbeat(node=FORGED, name="g", role=NodeRole.GATEWAY, wire=wire.VERSION)
        bus.publish(SUBJECTS.heartbeats, encode_heartbeat(me))
        await eventually(lambda: FORGED in alive(node, NodeRole.GATEWAY))
        limiter, allowed = node.accounts.limits, 0
        before = counts()["keys", RefusalCause.INVALID]
        for number in range(15):
            for bad in (nan, inf, -inf, -60.0, 1e308):
                bus.publish(KEYS, msgpack.encode({"gateway": FORGED, "taken": {"k": bad}}))
            expected = before + 5 * (number + 1)
            await eventually(lambda n=expected: counts()["keys", RefusalCause.INVALID] == n)
            allowed += sum(limiter.take("k", Tier.BASIC, 1_000.0).allowed for _ in range(100))
        assert 0 < allowed <= LIMIT


async def test_a_tally_of_a_node_without_heartbeats_counts_for_nothing(tmp_path, caplog):
    async with attacked(tmp_path) as (_, node, _, bus):
        before = counts()
        tally = key_sharing.KeyTally(gateway=FORGED, taken={"k": 60.0}, connections={"k": 5})
        change = Interest(gateway=FORGED, seq=1, added=["okx SOL/USDT"])
        bus.publish(KEYS, msgpack.encode(tally))
        bus.publish(SUBJECTS.interest, encode_interest(change))
        kinds = {("keys", RefusalCause.UNKNOWN_NODE): 1, ("interest", RefusalCause.UNKNOWN_NODE): 1}
        await eventually(lambda: since(before) == kinds)
        assert node.gateway.authenticator.peers.elsewhere("k") == 0
        assert node.accounts.limits.take("k", Tier.BASIC, 1_000.0).remaining == LIMIT - 1
        assert lines(caplog, "Refused") == []


async def test_a_time_that_cannot_be_sent_back_silences_no_node(tmp_path):
    """The feeds node could not write its next heartbeats, and died for every gateway."""
    async with attacked(tmp_path) as (here, node, subscriber, bus):
        statuses = len(subscriber.statuses)
        plain = {"node": FORGED, "name": "g", "role": "gateway", "wire": wire.VERSION}
        before = counts()["heartbeat", RefusalCause.INVALID]
        for sent_us in (2**64 - 1, 2**60):
            bus.publish(SUBJECTS.heartbeats, msgpack.encode({**plain, "sent_us": sent_us}))
        await eventually(lambda: counts()["heartbeat", RefusalCause.INVALID] == before + 4)
        (heartbeat,) = alive(node, NodeRole.FEEDS).values()
        await eventually(
            lambda: alive(node, NodeRole.FEEDS)[heartbeat.node].sent_us > heartbeat.sent_us
        )
        await here.fresh(subscriber)
        assert subscriber.statuses[statuses:] == []


async def test_clocks_told_before_they_were_asked_are_not_measured(tmp_path):
    """Such an answer would have a negative error."""
    async with attacked(tmp_path) as (_, node, _, bus):
        (gateway,) = alive(node, NodeRole.GATEWAY)
        (book, *_) = (each for each in node.books if each.instrument.exchange == "kraken")
        plain = {"name": "f", "role": NodeRole.FEEDS, "wire": wire.VERSION}

        def error_us():
            return book.times(SYSTEM_CLOCK.wall_us(), SYSTEM_CLOCK.monotonic()).error_us

        def tell(after_s, ahead_s=0.0):
            mine_us = round((SYSTEM_CLOCK.monotonic() + after_s) * 1e6)
            told = {"kraken": (SYSTEM_CLOCK.wall_us() + round(ahead_s * 1e6), 1_000)}
            forged = NodeHeartbeat(
                node=FORGED, clocks={gateway: mine_us}, exchange_clocks=told, **plain
            )
            bus.publish(SUBJECTS.heartbeats, encode_heartbeat(forged))

        tell(1.0, ahead_s=5.0)
        later = NodeHeartbeat(node=FORGED + 1, **plain)
        bus.publish(SUBJECTS.heartbeats, encode_heartbeat(later))
        await eventually(lambda: FORGED + 1 in alive(node, NodeRole.FEEDS))
        assert error_us() is None
        tell(-0.001)
        await eventually(lambda: error_us() is not None)
        assert error_us() > 0


async def test_a_forged_late_node_is_one_line_of_the_log(tmp_path, caplog):
    async with attacked(tmp_path) as (_, node, _, bus):
        (gateway,) = alive(node, NodeRole.GATEWAY)
        plain = {"name": "late", "role": NodeRole.FEEDS, "wire": wire.VERSION}
        late = NodeHeartbeat(node=FORGED, clocks={gateway: 0}, **plain)
        in_time = NodeHeartbeat(node=FORGED, **plain)
        for _ in range(50):
            bus.publish(SUBJECTS.heartbeats, encode_heartbeat(late))
            bus.publish(SUBJECTS.heartbeats, encode_heartbeat(in_time))
        last = NodeHeartbeat(node=FORGED + 1, clocks={gateway: 0}, **plain)
        bus.publish(SUBJECTS.heartbeats, encode_heartbeat(last))
        await eventually(lambda: FORGED + 1 in node.supervisor.presence.members.late)
        assert len(lines(caplog, "take longer")) == 2  # one for each of the two nodes
        names = range(1_000, 1_000 + 3 * KINDS_MAX)
        for number in names:
            made_up = NodeHeartbeat(node=number, clocks={gateway: 0}, **plain)
            bus.publish(SUBJECTS.heartbeats, encode_heartbeat(made_up))
        await eventually(lambda: names[-1] in node.supervisor.presence.members.late)
        assert len(lines(caplog, "take longer")) == KINDS_MAX
