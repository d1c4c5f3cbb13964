"""Periodic work: logged once when it fails and once when it succeeds again."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from onebook.errors import DatabaseUnavailable, OnebookError

log = logging.getLogger("onebook.accounts")


async def every(interval_s: float, action: Callable[[], Awaitable[None]], *, what: str) -> None:
    """Run `action` every `interval_s`, or when the previous run ends, until cancelled."""
    broken = False
    due_s = time.monotonic()
    while True:
        due_s = max(due_s + interval_s, time.monotonic())
        await asyncio.sleep(due_s - time.monotonic())
        try:
            await action()
        except DatabaseUnavailable:
            continue  # the store itself logs the start and end of an outage
        except OnebookError as error:
            if not broken:
                log.warning("%s: %s", what, error.message)
            broken = True
        except Exception:
            # A bug in one round must not stop the rounds: suspensions and billing depend on them.
            if not broken:
                log.exception("%s failed", what)
            broken = True
        else:
            if broken:
                log.info("%s works again", what)
            broken = False
