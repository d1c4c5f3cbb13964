"""A rolling upgrade with processes of two builds under load, and an oracle per gateway.

The other build is this one, started by a launcher that sets its release and the version of its wire
before anything else reads them: the same constants that an edit of the source would change.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from nodes.oracle import Published, Subscriber
from nodes.processes import all_fresh, cluster, states_of
from onebook.nodes import wire
from steady import PATIENCE_S

EXCHANGES = ("okx", "kraken")
SYMBOLS = ("BTC/USDT", "ETH/USDT")
LAUNCHER = """
import onebook
from onebook.nodes import wire

onebook.__version__ = "9.9.9"
wire.VERSION = {wire}

from onebook.cli.main import main

main()
"""
# A busy machine must not look like a dead node.
VARIABLES = {"ONEBOOK_NODE__HEARTBEAT_TIMEOUT_S": "60", "ONEBOOK_NODE__ISOLATED_S": "60"}


def build(folder, version):
    """The Python program that starts the next release with a wire version."""
    file = folder / f"wire_{version}.py"
    file.write_text(LAUNCHER.format(wire=version))
    return (str(file),)


class Upgrade:
    """A cluster and the subscribers of its gateways."""

    def __init__(self, nodes, simulated, key):
        self.nodes = nodes
        self.simulated = simulated
        self.published = Published(simulated, SYMBOLS)
        self.tasks = []
        self._key = key

    async def start(self, name, role, program=("-m", "onebook")):
        await self.nodes.start(name, role, program=program, **VARIABLES)

    def subscriber(self, gateway):
        """A subscriber of every book of a gateway."""
        made = Subscriber(self.published)
        running = made.run(self.nodes.urls[gateway], self._key)
        self.tasks.append(asyncio.create_task(running))
        return made

    async def fresh(self, *subscribers):
        await all_fresh(subscribers, [each for each in self.tasks if not each.done()])

    async def followed(self, times):
        """Wait until each book is followed by this many connections."""
        async with asyncio.timeout(PATIENCE_S):
            while any(
                self.simulated[exchange].followers(symbol) != times
                for exchange in EXCHANGES
                for symbol in SYMBOLS
            ):
                await asyncio.sleep(0.02)

    def refusals(self, name):
        """A node's log lines about nodes of another version."""
        return [line for line in self.nodes.logs[name] if "of the node protocol" in line]


@asynccontextmanager
async def upgrade(folder):
    async with cluster(folder, exchanges=EXCHANGES, drain_s=10) as (nodes, simulated, key):
        service = Upgrade(nodes, simulated, key)
        try:
            yield service
        finally:
            for task in service.tasks:
                task.cancel()
            await asyncio.gather(*service.tasks, return_exceptions=True)
            for name, lines in nodes.logs.items():
                print(name, "".join(lines))


async def test_a_release_of_the_same_wire_version_takes_over_and_no_book_is_stale(tmp_path):
    new = build(tmp_path, wire.VERSION)
    async with upgrade(tmp_path) as service:
        nodes = service.nodes
        await asyncio.gather(service.start("f1", "feeds"), service.start("g1", "gateway"))
        first = service.subscriber("g1")
        await service.fresh(first)
        await service.start("f2", "feeds", new)
        before = len(first.statuses)
        assert await nodes.stop("f1") == 0
        await service.followed(1)
        await service.fresh(first)
        await service.start("g2", "gateway", new)
        second = service.subscriber("g2")
        await service.fresh(first, second)
        assert states_of(first, before) == {}
        assert await nodes.stop("g1") == 0
        await service.fresh(second)
        assert [first.wrong, second.wrong] == [[], []]
        assert all(service.refusals(name) == [] for name in nodes.logs)
        assert "Onebook 9.9.9 listens" in "".join(nodes.logs["f2"])


@pytest.mark.soak
async def test_an_upgrade_to_another_wire_version_runs_two_groups_side_by_side(tmp_path):
    new = build(tmp_path, wire.VERSION + 1)
    async with upgrade(tmp_path) as service:
        nodes = service.nodes
        await asyncio.gather(service.start("f1", "feeds"), service.start("g1", "gateway"))
        first = service.subscriber("g1")
        await service.fresh(first)
        await service.start("f2", "feeds", new)
        await service.start("g2", "gateway", new)
        second = service.subscriber("g2")
        await service.followed(2)  # each group has connections of its own
        await service.fresh(first, second)
        for name, others in {"g1": ("f2", "g2"), "g2": ("f1", "g1")}.items():
            assert len(service.refusals(name)) == len(others)
            assert all(f"Node {other} " in "".join(service.refusals(name)) for other in others)
        before = len(second.statuses)
        assert await nodes.stop("g1") == 0
        assert await nodes.stop("f1") == 0
        await service.followed(1)
        await service.fresh(second)
        assert states_of(second, before) == {}
        assert [first.wrong, second.wrong] == [[], []]
