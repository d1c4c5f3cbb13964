"""A node in its own process that reports what blocked its event loop.

Run as a program: the folder and the addresses of simulators are its argument (JSON). It prints its
address and two keys, and at the end of its input the CPU seconds of the longest step of each kind.
CPU seconds, not wall: what other programs take of the machine is not the node's.
"""

import asyncio
import gc
import json
import sys
import time
from asyncio.base_events import BaseEventLoop
from asyncio.events import Handle
from pathlib import Path

from e2e.service import key_of, settings_in
from onebook import app, config
from onebook.transactions.credentials import Credentials, Vault, master_keys

longest: dict[str, float] = {}  # by the name of the step
NOTED_S = 0.002
COLLECTOR = "collector"
ITERATION = "iteration"  # of the event loop: all steps that were ready


def probe():
    """Time each step of the event loop, by the coroutine or function that ran."""
    run = Handle._run

    def timed(handle):
        began_s = time.thread_time()
        run(handle)
        spent_s = time.thread_time() - began_s
        if spent_s > NOTED_S:
            note(name_of(handle._callback), spent_s)

    Handle._run = timed
    collecting = [0.0]

    def collected(phase, _):
        if phase == "start":
            collecting[0] = time.thread_time()
        else:
            note(COLLECTOR, time.thread_time() - collecting[0])

    gc.callbacks.append(collected)
    run_once = BaseEventLoop._run_once

    def timed_once(loop):
        began_s = time.thread_time()
        run_once(loop)
        note(ITERATION, time.thread_time() - began_s)

    BaseEventLoop._run_once = timed_once


def note(name, spent_s):
    longest[name] = max(longest.get(name, 0.0), spent_s)


def name_of(callback):
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine = task.get_coro()
        return getattr(coroutine, "__qualname__", str(coroutine))
    return getattr(callback, "__qualname__", str(callback))


async def main():
    given = json.loads(sys.argv[1])
    folder = Path(given["folder"])
    overrides = {
        name: config.ExchangeSettings(ws_url=ws, rest_url=rest)
        for name, (ws, rest) in given["exchanges"].items()
    }
    settings = settings_in(
        folder,
        transactions={
            "overrides": {"bybit": {"mainnet_url": given["bybit"]}},
            "master_key_file": str(folder / "master_key"),
        },
        **given.get("tables", {}),
    )
    async with app.running(settings, overrides=overrides) as node:
        await node.catalogue.first_read()
        vault = Vault(node.store.credentials, master_keys(node.settings.transactions))
        credentials = Credentials(*given["credentials"])
        await vault.put("bybit", "mainnet", credentials, now_ms=time.time_ns() // 1_000_000)
        keys = [await key_of(node, name) for name in ("alice", "bob")]
        print(json.dumps({"url": node.url, "keys": keys}), flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            if line.strip() == "begin":
                longest.clear()
            print(json.dumps(longest), flush=True)


if __name__ == "__main__":
    probe()
    asyncio.run(main())
