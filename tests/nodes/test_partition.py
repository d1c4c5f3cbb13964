"""Nodes in separate network namespaces: a gateway is cut off from NATS, and healed.

The link is down: packets are lost both ways, no socket is closed or refused, and the gateway's
clients stay connected. All that shows it are missing heartbeats.
"""

import asyncio
import sys
from contextlib import ExitStack

from nodes.networks import network
from nodes.oracle import Published, Subscriber
from nodes.processes import SYMBOLS, all_fresh, cluster, followed_once, states_of
from nodes.servers import nats_server
from steady import PATIENCE_S, own_s

# The heartbeat timeout of 1 s, a look (50 ms), and the update on its way.
STALE_S = 1.0 + 0.5


def inside(host):
    """The arguments that run a command on a host."""
    return ("ip", "netns", "exec", host)


async def test_a_gateway_that_is_cut_off_from_nats_is_stale_in_time_and_right_when_healed(tmp_path):
    with ExitStack() as stack:
        hosts = stack.enter_context(network())
        broker, gateway = hosts.host("nats"), hosts.host("gateway")
        to_broker = hosts.link(None, broker)  # of the feeds node, which is on this host
        to_clients = hosts.link(None, gateway)
        between = hosts.link(broker, gateway)
        port = stack.enter_context(nats_server(host="0.0.0.0", before=inside(broker)))
        url = f"nats://{to_broker.second}:{port}"
        async with cluster(tmp_path, nats_url=url) as (nodes, simulated, key):
            published = Published(simulated, SYMBOLS)
            await nodes.start("feeds", "feeds")
            await nodes.start("near", "gateway")
            await nodes.start(
                "far",
                "gateway",
                before=inside(gateway),
                ONEBOOK_SERVER__HOST=to_clients.second,
                ONEBOOK_GATEWAY__DRAIN_S="600",  # its clients are still there when it is healed
                ONEBOOK_NATS__SERVERS=f'["nats://{between.first}:{port}"]',
            )
            near, far = subscribers = [Subscriber(published), Subscriber(published)]
            tasks = [
                asyncio.create_task(each.run(nodes.urls[name], key))
                for name, each in (("near", near), ("far", far))
            ]
            try:
                await all_fresh(subscribers, tasks)
                waits, began = nodes.waits_s(), own_s()
                before = len(far.statuses)
                between.down()
                async with asyncio.timeout(PATIENCE_S):
                    await far.until(lambda: not any(far.live.values()))
                took = own_s() - began
                assert took < STALE_S + nodes.starved_s(waits)
                assert {each[-1] for each in states_of(far, before).values()} == {"stale"}
                await nodes.until_ready("far", 503)
                await all_fresh([near], tasks)
                assert not any(far.live.values())

                between.up()
                await all_fresh(subscribers, tasks)
                await nodes.until_ready("far", 200)
                await followed_once(simulated)
                print(f"stale after {took:.2f} s", file=sys.stderr)
                for each in subscribers:
                    assert each.wrong == []
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for name, lines in nodes.logs.items():
                    print(name, "".join(lines))
            assert await nodes.stop("far") == 0
