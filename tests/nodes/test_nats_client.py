"""Messages are written in order, and delivered while they are parsed, on a real nats-server."""

import asyncio

from prometheus_client import REGISTRY

from nodes.servers import nats_server
from onebook.config import NatsSettings
from onebook.nodes.nats import NatsBus
from steady import PATIENCE_S

MESSAGES = 2_000
PAYLOAD_MAX = 1 << 20  # of nats-server where nothing else is set
OUTBOX_BYTES = 1 << 20


async def test_messages_of_many_subjects_come_in_order_in_the_task_that_reads():
    """nats-py has a task per subscription, which loses the order of two subjects."""
    with nats_server() as port:
        settings = NatsSettings(servers=(f"nats://127.0.0.1:{port}",))
        async with (
            NatsBus(settings, name="sender") as sender,
            NatsBus(settings, name="here") as bus,
        ):
            found, tasks, done = [], set(), asyncio.Event()
            waiting = {"a", "b", "c"}
            for subject in sorted(waiting):

                def received(payload, reply, subject=subject):
                    if payload == b"hello":
                        waiting.discard(subject)
                        return
                    found.append((int(payload), reply))
                    tasks.add(asyncio.current_task())
                    if len(found) == MESSAGES:
                        done.set()

                bus.subscribe(subject, received)
            async with asyncio.timeout(PATIENCE_S):
                while waiting:
                    for subject in waiting:
                        sender.publish(subject, b"hello")
                    await asyncio.sleep(0)
                for number in range(MESSAGES):
                    sender.publish("abc"[number % 3], b"%d" % number)
                await done.wait()
    assert found == [(number, "") for number in range(MESSAGES)]
    assert len(tasks) == 1


async def test_a_callback_that_fails_ends_nothing_and_a_request_is_answered(caplog):
    with nats_server() as port:
        settings = NatsSettings(servers=(f"nats://127.0.0.1:{port}",))
        async with NatsBus(settings, name="test") as bus:

            def answer(payload, reply):
                if payload == b"bad":
                    raise ValueError("a defect")
                bus.publish(reply, b"answer to " + payload)

            bus.subscribe("ask", answer)
            async with asyncio.timeout(PATIENCE_S):
                while await bus.request("ask", b"first", 1.0) is None:
                    pass
                bus.publish("ask", b"bad")
                assert await bus.request("ask", b"next", PATIENCE_S) == b"answer to next"
    assert "Processing a message on ask failed." in caplog.text


async def test_what_is_too_large_or_does_not_fit_is_dropped_and_counted_and_the_rest_comes(caplog):
    with nats_server() as port:
        url = f"nats://127.0.0.1:{port}"
        settings = NatsSettings(servers=(url,))
        async with NatsBus(settings, name="test", outbox_bytes_max=OUTBOX_BYTES) as bus:
            found, ready, last = [], asyncio.Event(), asyncio.Event()

            def received(payload, reply):
                found.append(bytes(payload[:1]))
                (last if payload == b"z" else ready).set()

            bus.subscribe("a", received)
            async with asyncio.timeout(PATIENCE_S):
                while not ready.is_set():
                    bus.publish("a", b"r")
                    await asyncio.sleep(0)
                before, found[:] = dropped(), []
                bus.publish("a", bytes(PAYLOAD_MAX + 1))
                bus.publish("a", bytes(PAYLOAD_MAX + 1))
                for name in (b"1", b"2", b"3"):  # nothing is written before the loop's next turn
                    bus.publish("a", name * (OUTBOX_BYTES // 2 - 1_000))
                bus.publish("a", b"z")
                await last.wait()
    assert [each for each in found if each != b"r"] == [b"1", b"2", b"z"]
    assert {cause: count - before[cause] for cause, count in dropped().items()} == {
        "too_large": 2,
        "full": 1,
    }
    assert caplog.text.count("exceeds the limit of NATS") == 1


def dropped():
    """The number of dropped messages, by cause."""
    name = "onebook_nats_dropped_total"
    return {
        cause: REGISTRY.get_sample_value(name, {"cause": cause}) for cause in ("too_large", "full")
    }
