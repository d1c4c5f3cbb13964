"""How far back an answer reaches."""

import asyncio
from collections import deque

from onebook.transactions.demand import DEMAND_MAX, Demand
from onebook.transactions.ordering import Keyed
from onebook.transactions.record import key_of
from transactions.bybit_support import run
from transactions.test_record import record


class Shelf:
    """A walker with records at hand."""

    def __init__(self, *times: int, begun: bool = True) -> None:
        records = [record(timestamp=at, transactionId=f"0x{at:040x}") for at in times]
        self.ready: deque[Keyed] = deque((key_of(one), one) for one in records)
        self.begun = begun
        self.finished = False


def test_what_is_older_than_enough_records_is_not_wanted() -> None:
    demand = Demand(2)
    demand.update([Shelf(90, 70), Shelf(80)], 2)
    assert demand.needs(80)
    assert not demand.needs(79)


def test_two_sources_of_one_event_count_once() -> None:
    demand = Demand(2)
    demand.update([Shelf(90), Shelf(90)], 2)
    assert demand.needs(1)


def test_a_small_answer_waits_for_every_source_to_begin() -> None:
    demand = Demand(2)
    demand.update([Shelf(90), Shelf(begun=False)], 2)
    assert not demand.needs(100)
    demand.update([Shelf(90), Shelf()], 2)
    assert demand.needs(100)


def test_a_long_answer_wants_everything() -> None:
    for limit in (None, DEMAND_MAX + 1):
        demand = Demand(limit)
        demand.update([Shelf(90)], limit)
        assert demand.needs(-(10**12))


def test_a_waiter_goes_on_when_more_is_wanted() -> None:
    async def story() -> bool:
        demand = Demand(1)
        waiting = asyncio.create_task(demand.wanted(50))
        await asyncio.sleep(0)
        assert not waiting.done()
        demand.update([Shelf()], 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return waiting.done()

    assert run(story())
