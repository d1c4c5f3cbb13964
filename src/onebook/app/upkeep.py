"""What an operator must not forget, as metrics: the certificate, the backup, room on the disk."""

import asyncio
import math
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from onebook.accounts.periodic import every
from onebook.accounts.usage import usage_place
from onebook.config import Settings
from onebook.errors import DatabaseUnavailable
from onebook.metrics import CERTIFICATE_ENDS, DISK_FREE, LAST_BACKUP
from onebook.model import SECOND_MS
from onebook.ops import preflight
from onebook.store import Store
from onebook.store.database import BACKED_UP_AT

INTERVAL_S: Final = 60.0


@asynccontextmanager
async def upkeep(settings: Settings, store: Store) -> AsyncIterator[None]:
    """Measure now and every minute."""

    async def measure() -> None:
        await asyncio.to_thread(_measure_files, settings, store)
        at_ms = await store.facts.get(BACKED_UP_AT)
        LAST_BACKUP.set(math.nan if at_ms is None else int(at_ms) / SECOND_MS)

    with suppress(DatabaseUnavailable):  # the store logs it
        await measure()
    task = asyncio.create_task(every(INTERVAL_S, measure, what="Measuring the upkeep"))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _measure_files(settings: Settings, store: Store) -> None:
    ends = preflight.tls_ends(settings.server)
    CERTIFICATE_ENDS.set(math.nan if ends is None else ends.timestamp())
    beside = settings.store.pepper_file if store.database.path is None else store.database.path
    folders = {"data": beside.parent, "usage": usage_place(settings.store, store)[0]}
    for files, folder in folders.items():
        with suppress(OSError):
            DISK_FREE.labels(files).set(shutil.disk_usage(folder).free)
