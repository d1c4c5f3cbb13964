"""All feed code on the simulated exchanges: books recover after each fault."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from feeds.toy import paced
from onebook.books import Books, LiveBook
from onebook.config import FeedSettings
from onebook.core import LEVELS_MAX
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import LossDetection
from onebook.feeds import Catalogue, Supervisor
from onebook.model import Health
from onebook.rest import Rest
from onebook.simulator import DIALECTS, SimulatedExchanges
from simulator.pure import main_pair

PATIENCE_S = 30.0
STEP_S = 0.05
UNSEEN = ("gap", "wrong_symbol")  # where nothing shows a lost frame
VISIBLE = {
    name: tuple(
        fault
        for fault in ("gap", "garbage", "wrong_symbol", "nan")
        if fault not in UNSEEN
        or EXCHANGES[name].guard not in (LossDetection.ORDER, LossDetection.WHOLE)
    )
    for name in DIALECTS
}


class Rig:
    """Simulated exchanges, feeds and books; every wait is for an event of the books."""

    def __init__(self, sim: SimulatedExchanges, name: str) -> None:
        self.sim = sim
        # Where books are whole in every frame, the first may come with the next change only.
        self._patience_s = STEP_S if EXCHANGES[name].guard is LossDetection.WHOLE else None
        self.books = Books()
        self.healths: list[tuple[str, Health]] = []
        self._stirred = asyncio.Event()
        self.books.subscribe(on_changed=self._changed)
        self.books.subscribe(on_health=self._moved)

    def _changed(self, book: LiveBook) -> None:
        self._stirred.set()

    def _moved(self, book: LiveBook, previous: Health) -> None:
        self.healths.append((book.instrument.exchange, book.health))
        self._stirred.set()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                try:
                    await asyncio.wait_for(self._stirred.wait(), self._patience_s)
                except TimeoutError:
                    self.sim.step()
                self._stirred.clear()

    def true(self, name: str) -> bool:
        """Whether the book is live and equals the exchange's last published one."""
        for book in self.books.live():
            if book.instrument.exchange == name:
                bids, asks = book.core.top(LEVELS_MAX)
                return (dict(bids), dict(asks)) == tuple(self.sim[name].book(main_pair(name)))
        return False

    async def stepped(self, name: str) -> None:
        """Publish once more, and wait until the book equals the published one."""
        self.sim.step()
        await self.until(lambda: self.true(name))


@pytest.fixture(params=DIALECTS)
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Rig, str]]:
    name = str(request.param)
    settings = FeedSettings()
    async with SimulatedExchanges([name], seed=21, rate_hz=0) as sim:
        sim[name].admit_all()
        rig = Rig(sim, name)
        exchanges = {name: paced(sim.exchanges()[name])}
        async with (
            Rest() as rest,
            Catalogue(exchanges, rest=rest, settings=settings) as catalogue,
            Supervisor(
                exchanges,
                books=rig.books,
                rest=rest,
                catalogue=catalogue,
                settings=settings,
                jitter=lambda: 0.0,
            ) as supervisor,
        ):
            assert await catalogue.first_read()
            instrument = catalogue.instrument(name, main_pair(name))
            assert instrument is not None
            supervisor.acquire(instrument)
            await rig.until(lambda: rig.true(name))
            yield rig, name


@pytest.mark.over_sockets
async def test_after_every_fault_the_book_is_doubted_and_then_true_again(
    rig: tuple[Rig, str],
) -> None:
    home, name = rig
    for fault in VISIBLE[name]:
        await home.stepped(name)
        home.healths.clear()
        home.sim[name].corrupt_next(main_pair(name), fault)
        home.sim.step()
        home.sim.step()
        await home.until(lambda: (name, Health.STALE) in home.healths)
        await home.until(lambda: home.true(name))


@pytest.mark.over_sockets
async def test_a_killed_exchange_takes_its_book_along_and_brings_it_back(
    rig: tuple[Rig, str],
) -> None:
    home, name = rig
    await home.sim[name].stop()
    await home.until(lambda: not home.true(name))
    assert (name, Health.STALE) in home.healths
    await home.sim[name].start()
    await home.until(lambda: home.true(name))
    await home.stepped(name)
