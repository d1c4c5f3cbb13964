"""Slots that API keys share."""

import asyncio

from onebook.transactions.fairness import Slots
from transactions.bybit_support import run


def test_a_key_holds_its_share_of_slots_and_leaves_one_free() -> None:
    async def story() -> list[int]:
        slots, found = Slots(20), []
        held: dict[str, int] = {}
        leave = asyncio.Event()

        async def hold(key: str) -> None:
            async with slots.slot(key):
                held[key] = held.get(key, 0) + 1
                await leave.wait()

        async with asyncio.TaskGroup() as tasks:
            for key in ("first", "second", "third"):
                for _ in range(30):
                    tasks.create_task(hold(key))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                found.append(held[key])
            leave.set()
        assert slots.held == 0
        return [*found, *held.values()]

    assert run(story()) == [10, 6, 4, 30, 30, 30]


def test_a_slot_given_to_a_caller_that_left_goes_to_the_next() -> None:
    async def story() -> tuple[int, int]:
        slots = Slots(1, spare=False)
        served = 0

        async def hold() -> None:
            nonlocal served
            async with slots.slot("key"):
                served += 1
                await asyncio.sleep(0)

        for turns in range(30):
            tasks = [asyncio.create_task(hold()) for _ in range(6)]
            for _ in range(turns % 10):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        return slots.held, served

    held, served = run(story())
    assert held == 0
    assert served >= 90
