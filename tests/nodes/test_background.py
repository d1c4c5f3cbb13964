"""Background tasks of a node: an error is logged once, the end cancels all."""

import asyncio
import logging

from onebook.nodes.background import BackgroundTasks


async def test_an_error_is_logged_with_the_name_of_its_task_and_ends_no_other(caplog):
    tasks, going = BackgroundTasks(), asyncio.Event()

    async def fail():
        raise ZeroDivisionError("a defect")

    async def wait():
        await going.wait()

    tasks.begin(wait(), "a list")
    tasks.begin(fail(), "a snapshot")
    while len(tasks) > 1:
        await asyncio.sleep(0)
    (record,) = (each for each in caplog.records if each.levelno == logging.ERROR)
    assert record.getMessage() == "Failed: a snapshot."
    assert "a defect" in caplog.text
    going.set()
    while tasks:
        await asyncio.sleep(0)
    assert len(caplog.records) == 1


async def test_the_end_cancels_what_runs_and_logs_nothing(caplog):
    tasks, ended = BackgroundTasks(), []

    async def wait():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    tasks.begin(wait(), "a list")
    await asyncio.sleep(0)
    await tasks.cancel()
    assert (len(tasks), ended, caplog.records) == (0, [True], [])
