"""Quote baskets over a real nats-server: feeds nodes list and serve the conversion books."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from fractions import Fraction

import pytest

from client.place import place
from core.conversions import World, decimals_of, expected
from nodes.processes import cluster
from nodes.test_cluster import world
from onebook.client import AsyncOnebook
from onebook.model import Health, Reason
from steady import PATIENCE_S

EXCHANGES = ("kraken", "okx")
OWN, LATE = "BTC/USDT", "USDC/USDT"
MEMBERS = ("kraken", "kraken:USD", "kraken:USDC", "okx", "okx:USD", "okx:USDC")
USD = {("kraken:USD", "okx:USD"): ("USDT/USD", ("kraken",))}  # okx does not list it
SHARED = {**USD, ("kraken:USDC", "okx:USDC"): (LATE, ("kraken",))}
APART = {**USD, ("kraken:USDC",): (LATE, ("kraken",)), ("okx:USDC",): (LATE, ("okx",))}
# Of a book whose checksum was wrong, and that gets no snapshot afterwards.
REASONS = (Reason.CHECKSUM, Reason.PROTOCOL_ERROR, Reason.NO_SNAPSHOT, Reason.DISCONNECTED)
AMOUNT_DECIMALS = 8  # of the simulated books of BTC
TOP = 10
DEPTH = 50


def pooled(simulated, steps):
    """The expected best levels of the view, from the published books."""
    sides = []
    for side in (0, 1):
        total = Counter()
        for name in EXCHANGES:
            for price, amount in simulated[name].book(OWN)[side].items():
                total[Fraction(price)] += Fraction(amount)
        for members, (pair, through) in steps.items():
            served = [each.split(":") for each in members]
            world_ = World(
                [simulated[name].book(f"BTC/{quote}") for name, quote in served],
                ["0"] * len(served),
                [simulated[each].book(pair) for each in through],
                ["0"] * len(through),
                pair.startswith("USDT/"),
                [AMOUNT_DECIMALS] * len(served),
            )
            for levels in expected(world_, side, decimals_of(world_)):
                for price, amount in levels:
                    total[price] += amount
        sides.append(sorted(total.items(), reverse=side == 0)[:TOP])
    return sides


def is_published(simulated, steps):
    """Whether the depth of each book has followed its best prices."""
    books = [(name, f"BTC/{quote}") for name in EXCHANGES for quote in ("USDT", "USDC", "USD")]
    books += [(name, pair) for pair, through in steps.values() for name in through]
    return all(
        simulated[name].newest(pair, DEPTH) == simulated[name].book(pair, DEPTH)
        for name, pair in books
    )


def shown(view):
    return [
        [(Fraction(each.price), Fraction(each.amount)) for each in side[:TOP]]
        for side in (view.bids, view.asks)
    ]


def conversions(view):
    return {each.members: (each.symbol, each.exchanges) for each in view.conversions}


class Viewer:
    """One client's view, built from its updates."""

    def __init__(self, client):
        options = {"quotes": ["USDC", "USD"], "exchanges": EXCHANGES, "interval_ms": 20}
        self.views = client.watch(OWN, depth=DEPTH, split=True, **options)
        self.last = None

    async def until(self, condition):
        async with asyncio.timeout(PATIENCE_S):
            while self.last is None or not condition(self.last):
                self.last = await anext(self.views)
        return self.last

    async def matches(self, simulated, steps):
        """Wait until the view equals the last published books."""
        for each in EXCHANGES:
            simulated[each].freeze()
        while not is_published(simulated, steps):
            await asyncio.sleep(0.01)
        whole = pooled(simulated, steps)
        view = await self.until(lambda view: not view.stale_exchanges and shown(view) == whole)
        assert view.members == MEMBERS
        assert conversions(view) == steps
        for each in EXCHANGES:
            simulated[each].unfreeze()


async def scenario(url, key, simulated, read_again):
    """Follow a basket while a pair is listed, and while a conversion book is lost and returns."""
    async with AsyncOnebook(url, key) as client:
        viewer = Viewer(client)
        await viewer.matches(simulated, SHARED)

        simulated["okx"].list_again(LATE)
        await read_again()
        await viewer.until(lambda view: conversions(view) == APART)
        await viewer.matches(simulated, APART)

        kraken = simulated["kraken"]
        kraken.ack_without_snapshot("USDT/USD")
        kraken.corrupt_next("USDT/USD", "checksum")
        lost = await viewer.until(lambda view: view.stale_exchanges)
        assert set(lost.stale_exchanges) == {"kraken:USD", "okx:USD"}
        names = {name for level in (*lost.bids, *lost.asks) for name in level.exchanges}
        assert not names & {"kraken:USD", "okx:USD"}
        reasons = {each.symbol: each.reason for each in lost.conversions}
        assert reasons[LATE] is None
        assert reasons["USDT/USD"] in REASONS
        kraken.heal()
        await viewer.matches(simulated, APART)


async def test_a_view_uses_a_conversion_that_a_feeds_node_lists_later(tmp_path):
    async with world(tmp_path) as here, AsyncExitStack() as first, AsyncExitStack() as second:
        here.simulated["okx"].delist(LATE)
        one = await first.enter_async_context(here.feeds())
        node, _ = await here.gateway()

        async def read_again():
            await second.enter_async_context(here.feeds())
            await one.drain()
            await first.aclose()

        await scenario(node.url, here.key, here.simulated, read_again)


async def joining(url, key, simulated, lists):
    """Follow a view whose books in USDC nothing converts until okx lists a pair."""
    async with AsyncOnebook(url, key) as client:
        viewer, later = Viewer(client), Viewer(client)
        unconverted = {"kraken:USDC", "okx:USDC"}
        for each in (viewer, later):
            view = await each.until(lambda view: set(view.stale_exchanges) == unconverted)
            assert (view.members, view.rejected) == (MEMBERS, {})
            assert {view.reports[name][:2] for name in unconverted} == {
                (Health.OFFLINE, Reason.NO_CONVERSION)
            }
            assert conversions(view) == USD
        simulated["okx"].list_again(LATE)
        assert await lists.load(simulated.exchanges()["okx"])
        lists.on_read("okx")
        await viewer.until(lambda view: not view.stale_exchanges)
        await viewer.matches(simulated, {**USD, ("kraken:USDC", "okx:USDC"): (LATE, ("okx",))})


async def test_books_that_nothing_converted_join_on_one_node(tmp_path):
    async with place(tmp_path) as rig:
        lists = rig.node.catalogue
        for name in EXCHANGES:
            rig.simulated[name].admit_all()
            rig.simulated[name].delist(LATE)
            lists.update(name, [each for each in lists.listed(name) if each.symbol != LATE])
        await joining(rig.url, rig.key, rig.simulated, lists)


async def test_books_that_nothing_converted_join_behind_several_nodes(tmp_path):
    async with world(tmp_path) as here:
        for each in EXCHANGES:
            here.simulated[each].delist(LATE)
        async with here.feeds() as feeds:
            node, _ = await here.gateway()
            await joining(node.url, here.key, here.simulated, feeds.catalogue)


@pytest.mark.soak
async def test_a_basket_over_processes_of_nodes(tmp_path):
    async with cluster(tmp_path, exchanges=EXCHANGES) as (nodes, simulated, key):
        simulated["okx"].delist(LATE)
        await nodes.start("f1", "feeds")
        await nodes.start("g1", "gateway")

        async def read_again():
            await nodes.start("f2", "feeds")
            assert await nodes.stop("f1") == 0

        try:
            await scenario(f"http://{nodes.places['g1']}", key, simulated, read_again)
        finally:
            for name, lines in nodes.logs.items():
                print(name, "".join(lines))
