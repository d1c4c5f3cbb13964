"""Bybit behind the adapter protocol."""

from onebook.transactions.adapter import Environment
from onebook.transactions.bybit.adapter import BybitAdapter
from onebook.transactions.bybit.endpoints import ENTRY, SOURCES
from transactions.bybit_support import World, run, simulated


async def test_it_shows_its_facts_and_asks_nothing_by_itself() -> None:
    adapter = BybitAdapter()
    assert (adapter.entry, adapter.sources) == (ENTRY, SOURCES)
    assert adapter.waiting_s == 0
    assert [adapter.verdict(environment) for environment in Environment] == [None, None]
    await adapter.close()


def test_environments_have_verdicts_of_their_own() -> None:
    async def story() -> list[bool]:
        async with World(simulated()) as world:
            await world.fetch("deposits")
            return [world.adapter.verdict(each) is None for each in Environment]

    assert run(story()) == [False, True]
