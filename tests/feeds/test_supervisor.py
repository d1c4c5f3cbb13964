"""The supervisor: subscriptions become feeds, grouped, kept for a while, then closed."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from msgspec.structs import force_setattr, replace
from prometheus_client import REGISTRY

from clocks import sleeping
from feeds.toy import TOY, limited
from onebook.books import Books
from onebook.clock import ManualClock
from onebook.config import ExchangeSettings, FeedSettings
from onebook.errors import ConfigError
from onebook.feeds import Catalogue, Supervisor
from onebook.feeds import supervisor as supervisor_module
from onebook.feeds.stats import ACTIVE, MAINTENANCE, OFFLINE
from onebook.feeds.supervisor import enabled
from onebook.model import Health, Instrument, InstrumentStatus, Reason
from onebook.rest import Rest

CUT = replace(TOY, name="cut", depth=25, truncate=True)
FEW = limited(replace(TOY, name="few"), topics=1, connections=2)
EXCHANGES = {"toy": TOY, "cut": CUT, "few": FEW}
SETTINGS = FeedSettings()


def instruments(name: str, count: int) -> list[Instrument]:
    return [Instrument(name, f"{n}/USD", str(n)) for n in range(count)]


async def for_ever(seconds: float) -> None:
    """Sleep until cancelled, as a feed without any effect."""
    await asyncio.Event().wait()


class Rig:
    def __init__(self, sleep=for_ever) -> None:
        self.clock = sleeping(sleep, ManualClock(1_000.0, epoch_us=1_699_999_000_000_000))
        self.books = Books()
        self.rest = Rest(httpx.AsyncClient(transport=httpx.MockTransport(lambda request: None)))
        self.catalogue = Catalogue(EXCHANGES, rest=self.rest, settings=SETTINGS)
        self.supervisor = Supervisor(
            EXCHANGES,
            books=self.books,
            rest=self.rest,
            catalogue=self.catalogue,
            settings=SETTINGS,
            clock=self.clock,
        )

    def packed(self, name: str = "toy") -> list[list[str]]:
        return [[each.native for each in feed.instruments] for feed in self.supervisor.feeds(name)]

    def health(self, instrument: Instrument) -> tuple[Health, str] | None:
        book = self.books.get(instrument)
        return None if book is None else (book.health, book.reason)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    async with rig.rest, rig.supervisor:
        yield rig
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_no_more_connections_are_open_than_an_exchange_takes_from_one_address(rig):
    first, second, third, fourth = instruments("few", 4)
    for each in (first, second, third, fourth):
        rig.supervisor.acquire(each)
    await settled()
    assert rig.packed("few") == [["0"], ["1"]]
    assert rig.health(third) == rig.health(fourth) == (Health.OFFLINE, Reason.RATE_LIMITED)
    for each in (first, third):
        rig.supervisor.release(each)
    rig.clock.now_s += SETTINGS.linger_s
    rig.supervisor.sweep(rig.clock.now_s)
    await settled()
    assert rig.packed("few") == [["1"], ["3"]]


async def test_what_is_wanted_together_is_packed_together(rig):
    for each in instruments("toy", 7):
        rig.supervisor.acquire(each)
        assert rig.health(each) == (Health.SYNCING, Reason.SUBSCRIBING)
    await settled()
    assert rig.packed() == [["0", "1", "2"], ["3", "4", "5"], ["6"]]
    more = Instrument("toy", "more/USD", "more")
    rig.supervisor.acquire(more)
    rig.supervisor.acquire(instruments("cut", 1)[0])
    await settled()
    assert rig.packed() == [["0", "1", "2"], ["3", "4", "5"], ["6", "more"]]
    assert rig.packed("cut") == [["0"]]
    assert rig.packed("nobody") == []


async def test_a_book_is_cut_to_the_depth_of_the_channel_only_where_the_exchange_does(rig):
    for name, levels in (("cut", 25), ("toy", 40)):
        [each] = instruments(name, 1)
        rig.supervisor.acquire(each)
        book = rig.books.get(each)
        assert book is not None
        text = b"[" + b",".join(b'["%d","1"]' % price for price in range(1, 41)) + b"]"
        book.core.replace(text, b"[]")
        assert book.core.bid_count == levels


async def test_wants_are_counted_and_the_last_book_lingers(rig):
    one, two = instruments("toy", 2)
    for each in (one, two, one):
        rig.supervisor.acquire(each)
    await settled()
    rig.supervisor.release(one)
    rig.supervisor.sweep(rig.clock.now_s + 1_000)
    assert rig.packed() == [["0", "1"]]
    rig.supervisor.release(one)
    rig.clock.now_s += SETTINGS.linger_s - 1
    rig.supervisor.sweep(rig.clock.now_s)
    assert rig.packed() == [["0", "1"]]
    rig.supervisor.acquire(one)
    rig.supervisor.release(one)
    rig.clock.now_s += SETTINGS.linger_s
    gone: list[str] = []
    rig.books.subscribe(on_health=lambda book, previous: gone.append(book.reason))
    rig.supervisor.sweep(rig.clock.now_s)
    assert rig.packed() == [["1"]]
    assert rig.health(one) is None
    assert gone == [Reason.NOT_WANTED]


async def test_the_last_instrument_takes_its_feed_along(rig):
    [one] = instruments("toy", 1)
    rig.supervisor.acquire(one)
    await settled()
    [running] = rig.supervisor._running["toy"]
    rig.supervisor.release(one)
    rig.supervisor.sweep(rig.clock.now_s + SETTINGS.linger_s)
    assert rig.packed() == []
    await asyncio.gather(running.task, return_exceptions=True)
    await settled()
    assert running.task.cancelled()
    assert rig.supervisor._stopping == set()


async def test_an_exchange_without_a_wanted_book_is_in_no_trouble(rig):
    rig.catalogue.update("toy", instruments("toy", 4))
    *others, last = instruments("toy", 4)
    for each in (*others, last):
        rig.supervisor.acquire(each)
    await settled()
    assert rig.packed() == [["0", "1", "2"], ["3"]]
    rig.supervisor.stats["toy"].trouble = MAINTENANCE
    rig.supervisor.release(last)
    rig.supervisor.sweep(rig.clock.now_s + SETTINGS.linger_s)
    assert rig.supervisor.state("toy") == MAINTENANCE  # the other connection still tries
    for each in others:
        rig.supervisor.release(each)
    rig.supervisor.sweep(rig.clock.now_s + SETTINGS.linger_s)
    assert rig.packed() == []
    assert rig.supervisor.state("toy") == ACTIVE


async def test_what_was_dropped_before_it_was_placed_gets_no_feed(rig):
    [one] = instruments("toy", 1)
    rig.supervisor.acquire(one)
    rig.supervisor.release(one)
    rig.supervisor.sweep(rig.clock.now_s + SETTINGS.linger_s)
    await settled()
    assert rig.packed() == []


async def test_a_halted_instrument_is_offline_without_a_feed_until_it_is_back(rig):
    [one] = instruments("toy", 1)
    force_setattr(one, "status", InstrumentStatus.HALTED)
    rig.supervisor.acquire(one)
    await settled()
    assert (rig.health(one), rig.packed()) == ((Health.OFFLINE, Reason.HALTED), [])
    force_setattr(one, "status", InstrumentStatus.TRADING)
    rig.catalogue.on_back(one)
    rig.catalogue.on_back(one)
    await settled()
    assert (rig.health(one), rig.packed()) == ((Health.SYNCING, Reason.SUBSCRIBING), [["0"]])
    rig.catalogue.on_back(one)
    rig.catalogue.on_gone(one, Reason.NOT_LISTED)
    await settled()
    assert (rig.health(one), rig.packed()) == ((Health.OFFLINE, Reason.NOT_LISTED), [])
    rig.catalogue.on_gone(instruments("toy", 1)[0], Reason.NOT_LISTED)  # not subscribed


async def test_the_state_of_an_exchange_is_reported_as_clients_read_it(rig):
    supervisor, stats = rig.supervisor, rig.supervisor.stats["toy"]
    assert supervisor.state("nobody") == OFFLINE
    assert supervisor.state("toy") == OFFLINE
    assert supervisor.active_exchanges() == 0
    rig.catalogue.update("toy", instruments("toy", 1))
    assert supervisor.state("toy") == ACTIVE
    stats.trouble = MAINTENANCE
    assert supervisor.state("toy") == MAINTENANCE
    stats.connected = 1
    assert supervisor.state("toy") == ACTIVE
    assert supervisor.active_exchanges() == 1


async def test_counters_are_published_while_sweeping(caplog):
    swept = asyncio.Event()
    turns = iter([None, None])

    async def sleep(seconds: float) -> None:
        if next(turns, swept) is swept:
            swept.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    rig = Rig(sleep=sleep)
    rig.supervisor.stats["toy"].frames = 5
    broken = rig.supervisor.stats["cut"] = None  # type: ignore[assignment]
    async with rig.rest, rig.supervisor:
        async with asyncio.timeout(30):
            await swept.wait()
    assert REGISTRY.get_sample_value("onebook_exchange_frames_total", {"exchange": "toy"}) == 5
    assert broken is None
    assert caplog.messages == ["A tick of the feed supervisor failed."] * 2


async def test_a_want_just_before_the_stop_starts_nothing():
    rig = Rig()
    async with rig.rest:
        async with rig.supervisor:
            rig.supervisor.acquire(instruments("toy", 1)[0])
        await settled()
    assert rig.packed() == []


async def test_certificates_are_read_once_and_only_for_tls(monkeypatch):
    made: list[object] = []
    monkeypatch.setattr(
        supervisor_module.ssl, "create_default_context", lambda: made.append(1) or None
    )
    supervisor = Rig().supervisor
    assert supervisor._tls_for("ws://x") is None
    assert made == []
    supervisor._tls_for("wss://x")
    assert made == [1]
    monkeypatch.undo()
    first = supervisor._tls_for("wss://x")
    assert first is not None
    assert supervisor._tls_for("wss://y") is first


def test_an_operator_chooses_exchanges_and_addresses():
    assert enabled(EXCHANGES, FeedSettings()) == EXCHANGES
    settings = FeedSettings(
        exchanges=("toy",), overrides={"toy": ExchangeSettings(ws_url="ws://elsewhere")}
    )
    chosen = enabled(EXCHANGES, settings)
    assert list(chosen) == ["toy"]
    assert (chosen["toy"].ws_url, chosen["toy"].rest_url) == ("ws://elsewhere", TOY.rest_url)
    elsewhere = FeedSettings(overrides={"cut": ExchangeSettings(rest_url="http://elsewhere")})
    assert enabled(EXCHANGES, elsewhere)["cut"].rest_url == "http://elsewhere"


def test_an_operator_chooses_a_channel_of_an_exchange():
    slower = replace(TOY, ws_url="ws://slower", depth=5)
    exchanges = {"toy": replace(TOY, channels={"slower": slower})}
    assert enabled(exchanges, FeedSettings())["toy"].depth == TOY.depth
    override = ExchangeSettings(channel="slower", rest_url="http://elsewhere")
    chosen = enabled(exchanges, FeedSettings(overrides={"toy": override}))["toy"]
    assert chosen == replace(slower, rest_url="http://elsewhere")
    wrong = FeedSettings(overrides={"toy": ExchangeSettings(channel="faster")})
    with pytest.raises(ConfigError, match="unknown channel 'faster'; available: slower"):
        enabled(exchanges, wrong)


@pytest.mark.parametrize(
    "settings",
    [FeedSettings(exchanges=("mtgox",)), FeedSettings(overrides={"mtgox": ExchangeSettings()})],
)
def test_an_unknown_exchange_refuses_to_start(settings):
    with pytest.raises(ConfigError, match="Unknown exchange 'mtgox'; known: toy, cut"):
        enabled(EXCHANGES, settings)
