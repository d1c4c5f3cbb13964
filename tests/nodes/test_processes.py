"""Two feeds nodes and two gateways as processes, simulated exchanges, an oracle on each gateway.

Nodes are killed, join and are drained while books move; whatever happens, no gateway shows a level
as live that the exchange did not publish, or an older book after a newer one.
"""

import asyncio
import time
from contextlib import suppress

import pytest

from nodes.oracle import Published, Subscriber
from nodes.processes import SYMBOLS, all_fresh, cluster, followed_once, states_of

BACK_S = 2.0  # a killed node's books are live and new again after so long


@pytest.mark.soak
async def test_nodes_die_join_and_leave_under_load(tmp_path):
    async with cluster(tmp_path) as (nodes, simulated, key):
        published = Published(simulated, SYMBOLS)
        await asyncio.gather(*(nodes.start(f"f{n}", "feeds") for n in (1, 2)))
        await asyncio.gather(*(nodes.start(f"g{n}", "gateway") for n in (1, 2)))
        subscribers = [Subscriber(published), Subscriber(published)]
        tasks = [
            asyncio.create_task(each.run(nodes.urls[f"g{n}"], key))
            for n, each in enumerate(subscribers, 1)
        ]
        try:
            await all_fresh(subscribers, tasks)
            await followed_once(simulated)

            # The feeds node that serves most is killed: its books are stale, then the other node's,
            # on every gateway.
            victim, lost = await nodes.busiest(("f1", "f2"), len(published.books))
            survivor = "f2" if victim == "f1" else "f1"
            counts = [len(each.statuses) for each in subscribers]
            began = time.monotonic()
            await nodes.kill(victim)
            waits = nodes.waits_s()
            await followed_once(simulated)
            await all_fresh(subscribers, tasks)
            took_s = time.monotonic() - began
            assert took_s < BACK_S + nodes.starved_s(waits)
            for subscriber, count in zip(subscribers, counts, strict=True):
                told = states_of(subscriber, count)
                assert len(told) >= lost
                assert all(each[-1] == "live" and "stale" in each for each in told.values())
            await followed_once(simulated)

            # Another joins and takes its share, and the one that was there leaves.
            await nodes.start("f3", "feeds")
            assert await nodes.stop(survivor) == 0
            await all_fresh(subscribers, tasks)
            await followed_once(simulated)

            # A gateway is killed: its clients are served by the other one.
            await nodes.kill("g1")
            await tasks[0]
            again = Subscriber(published)
            tasks[0] = asyncio.create_task(again.run(nodes.urls["g2"], key))
            await all_fresh([again, subscribers[1]], tasks)
            await followed_once(simulated)
            for each in (*subscribers, again):
                assert each.wrong == []
                assert each.updates >= len(published.books)
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)
            for name, lines in nodes.logs.items():
                print(name, "".join(lines))
        assert await nodes.stop("g2") == 0
        assert await nodes.stop("f3") == 0
