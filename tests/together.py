"""Work that tests do in several processes at once.

In a module of its own, which a new process can import whatever folder the tests were started in.
"""

import asyncio
from collections.abc import Awaitable, Callable
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from multiprocessing.queues import Queue
from pathlib import Path

from onebook.accounts.usage import apply_files
from onebook.model import DAY_MS
from onebook.store import Store
from steady import PATIENCE_S


def forking() -> ForkServerContext:
    """Starts processes in milliseconds: they are forked from one that has imported the package.

    There is one in each process, for all tests, and what it imports first it has for all.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(["onebook.app"])
    return context


def in_processes(count: int, work: Callable[..., Awaitable[object]], *arguments: object) -> list:
    """The results of N processes that do the same; an exception as its text."""
    context = forking()
    results = context.Queue()
    processes = [
        context.Process(target=_run, args=(results, work, *arguments)) for _ in range(count)
    ]
    for each in processes:
        each.start()
    found = [results.get(timeout=PATIENCE_S) for _ in processes]
    for each in processes:
        each.join()
    results.close()
    results.join_thread()
    return found


async def upgraded(url: str) -> str:
    """Bring a database to this release."""
    async with Store(url) as store:
        await store.database.upgrade()
    return "upgraded"


async def spent(url: str, units: int, tries: int, now_ms: int) -> int:
    """The units of a daily budget that this process gets."""
    async with Store(url) as store:
        found = [
            await store.exports.spend("okx", units=units, period_ms=DAY_MS, now_ms=now_ms)
            for _ in range(tries)
        ]
    return found.count(None)


async def taken_in(folder: Path, name: str, url: str, now_ms: int) -> int:
    """Read usage files into the database."""
    async with Store(url) as store:
        return await apply_files(folder, name, store, now_ms)


def _run(
    results: "Queue[object]", work: Callable[..., Awaitable[object]], *arguments: object
) -> None:
    async def main() -> object:
        return await work(*arguments)

    try:
        results.put(asyncio.run(main()))
    except Exception as error:
        results.put(repr(error))
