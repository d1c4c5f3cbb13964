"""A failing periodic task is logged once when it fails and once when it recovers."""

import asyncio
import logging

import pytest

from onebook.accounts.periodic import every
from onebook.errors import ServiceUnavailable
from steady import PATIENCE_S


async def test_a_break_is_logged_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    away = ServiceUnavailable("The database does not answer.")
    results = iter([None, away, away, None, RuntimeError("a defect"), RuntimeError(), None])
    done = asyncio.Event()

    async def action() -> None:
        try:
            result = next(results)
        except StopIteration:
            done.set()
            return
        if result is not None:
            raise result

    with caplog.at_level(logging.INFO, logger="onebook.accounts"):
        task = asyncio.create_task(every(0, action, what="Watching"))
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert caplog.messages == [
        "Watching: The database does not answer.",
        "Watching works again",
        "Watching failed",
        "Watching works again",
    ]
