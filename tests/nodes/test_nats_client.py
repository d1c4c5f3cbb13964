"""Messages are delivered while they are parsed, in their order, on a real nats-server."""

import asyncio

from nodes.servers import nats_server
from onebook.config import NatsSettings
from onebook.nodes.bus import NatsBus
from steady import PATIENCE_S

MESSAGES = 2_000


async def test_messages_of_many_subjects_come_in_order_in_the_task_that_reads():
    """nats-py has a task for each subscription, and the order of two subjects is lost there."""
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
