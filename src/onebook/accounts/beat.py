"""Doing one thing again and again: logged once when it breaks and once when it is back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from onebook.errors import OnebookError

log = logging.getLogger("onebook.accounts")


async def every(interval_s: float, action: Callable[[], Awaitable[None]], *, what: str) -> None:
    """Do `action` with a pause between two of them until cancelled."""
    broken = False
    while True:
        await asyncio.sleep(interval_s)
        try:
            await action()
        except OnebookError as error:
            if not broken:
                log.warning("%s: %s", what, error.message)
            broken = True
        except Exception:
            # A defect in one round must not end the rounds: suspensions and bills hang on them.
            if not broken:
                log.exception("%s failed", what)
            broken = True
        else:
            if broken:
                log.info("%s works again", what)
            broken = False
