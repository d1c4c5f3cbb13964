"""The catalogue: what is listed, what changed, what may have been meant."""

import asyncio
from collections.abc import Callable

import httpx
import pytest
from msgspec.structs import replace

from feeds.toy import TOY
from onebook.config import FeedSettings
from onebook.feeds import catalogue as catalogue_module
from onebook.feeds.catalogue import DELISTED, HALTED, Catalogue, normalised
from onebook.model import Instrument, InstrumentStatus
from onebook.rest import Rest

OTHER = replace(TOY, name="other", rest_url="http://other.example")
EXCHANGES = {"toy": TOY, "other": OTHER}
HALT = InstrumentStatus.HALTED


def rest(answer: Callable[[httpx.Request], httpx.Response]) -> Rest:
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    return Rest(httpx.AsyncClient(transport=httpx.MockTransport(answer)), sleep=sleep)


def empty(**options) -> Catalogue:
    client = rest(lambda request: httpx.Response(404))
    return Catalogue(EXCHANGES, rest=client, settings=FeedSettings(), **options)


def listed(name: str, *symbols: str, status=InstrumentStatus.TRADING) -> list[Instrument]:
    return [Instrument(name, each, each.replace("/", ""), status=status) for each in symbols]


class News:
    def __init__(self, catalogue: Catalogue) -> None:
        self.heard: list[tuple[str, ...]] = []
        catalogue.on_gone = lambda each, reason: self.heard.append((each.symbol, reason))
        catalogue.on_back = lambda each: self.heard.append((each.symbol, "back"))

    def read(self) -> list[tuple[str, ...]]:
        heard, self.heard = sorted(self.heard), []
        return heard


def test_what_is_listed_can_be_asked_for_by_symbol_and_by_exchange():
    catalogue = empty()
    assert not catalogue.loaded("toy")
    catalogue.take("toy", listed("toy", "ETH/USD", "BTC/USD"))
    catalogue.take("other", listed("other", "BTC/USD") + listed("other", "XRP/USD", status=HALT))
    assert catalogue.loaded("toy")
    assert catalogue.exchanges("BTC/USD") == ["toy", "other"]
    assert catalogue.exchanges("XRP/USD") == []
    assert catalogue.pairs("toy") == ["BTC/USD", "ETH/USD"]
    assert catalogue.pairs("other") == ["BTC/USD"]
    assert catalogue.pairs("nobody") == []
    assert catalogue.symbols() == ["BTC/USD", "ETH/USD"]
    instrument = catalogue.instrument("other", "XRP/USD")
    assert instrument is not None
    assert instrument.status is HALT
    assert catalogue.instrument("other", "ETH/USD") is None
    assert catalogue.instrument("nobody", "ETH/USD") is None


def test_an_instrument_stays_the_same_object_while_its_facts_follow_the_list():
    catalogue = empty()
    catalogue.take("toy", listed("toy", "BTC/USD"))
    before = catalogue.instrument("toy", "BTC/USD")
    catalogue.take("toy", [Instrument("toy", "BTC/USD", "BTCUSD", tick="0.1", lot="0.001")])
    after = catalogue.instrument("toy", "BTC/USD")
    assert after is before
    assert after is not None
    assert (after.tick, after.lot) == ("0.1", "0.001")


def test_who_vanishes_halts_and_returns_is_told():
    catalogue = empty()
    news = News(catalogue)
    catalogue.take("toy", listed("toy", "BTC/USD", "ETH/USD"))
    assert news.read() == [("BTC/USD", "back"), ("ETH/USD", "back")]
    first = catalogue.instrument("toy", "BTC/USD")
    catalogue.take("toy", listed("toy", "ETH/USD", status=HALT))
    assert news.read() == [("BTC/USD", DELISTED), ("ETH/USD", HALTED)]
    catalogue.take("toy", listed("toy", "ETH/USD", status=HALT))
    assert news.read() == []
    catalogue.take("toy", listed("toy", "BTC/USD", "ETH/USD"))
    assert news.read() == [("BTC/USD", "back"), ("ETH/USD", "back")]
    assert catalogue.instrument("toy", "BTC/USD") is first


def test_of_two_natives_with_one_symbol_the_traded_one_counts_else_the_first():
    catalogue = empty()
    first = Instrument("toy", "BTC/USD", "one", status=HALT)
    second = Instrument("toy", "BTC/USD", "two")
    third = Instrument("toy", "BTC/USD", "three")
    catalogue.take("toy", [first, second, third])
    assert catalogue.instrument("toy", "BTC/USD") is second
    catalogue.take("toy", [third, second])
    assert catalogue.instrument("toy", "BTC/USD") is third


@pytest.mark.parametrize(
    ("text", "symbol"),
    [
        (" btc-usdt ", "BTC/USDT"),
        ("ETH_USD", "ETH/USD"),
        ("ethusdt", "ETH/USDT"),
        ("BTC:EUR", "BTC/EUR"),
        ("USDT", "USDT"),
        ("NONSENSE", "NONSENSE"),
    ],
)
def test_symbols_are_understood_as_people_write_them(text, symbol):
    assert normalised(text) == symbol


@pytest.mark.parametrize(
    ("meant", "suggested"),
    [
        ("btc-usdt", "BTC/USDT"),
        ("USDT/BTC", "BTC/USDT"),
        ("BTC/GBP", "BTC/USDT"),
        ("BTCC/USDT", "BTC/USDT"),
        ("SOLL/USD", "SOL/USD"),
    ],
)
def test_suggestions_begin_with_what_was_probably_meant(meant, suggested):
    catalogue = empty()
    catalogue.take("toy", listed("toy", "BTC/USD", "BTC/USDT", "SOL/USD", "SHIB/USD", "BAT/USD"))
    catalogue.take("other", listed("other", "BTC/USDT"))
    assert catalogue.suggest(meant)[0] == suggested
    assert len(catalogue.suggest(meant, 2)) <= 2


def test_a_suggestion_is_made_from_a_bounded_choice():
    catalogue = empty()
    assert catalogue.suggest("") == []
    many = [f"A{chr(65 + n // 26)}{chr(65 + n % 26)}/USD" for n in range(600)]
    catalogue.take("toy", listed("toy", *many))
    assert len(catalogue._similar("AAZ")) <= catalogue_module.CANDIDATES_MAX
    assert catalogue.suggest("AAZ/USD")[0] == "AAZ/USD"
    assert catalogue.suggest("QQQ/EUR") == []
    assert len(normalised("A" * 100_000)) == 40


class Clock:
    """Sleeping that ends when the test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._go: asyncio.Queue[None] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self._go.get()

    async def next(self) -> None:
        before = len(self.asked)
        self._go.put_nowait(None)
        async with asyncio.timeout(30):
            while len(self.asked) == before:
                await asyncio.sleep(0.001)


class Lists:
    """What each host answers, and in which order."""

    def __init__(self, **answers: list[httpx.Response]) -> None:
        self.answers = answers

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/instruments"
        return self.answers["other" if request.url.host.startswith("other") else "toy"].pop(0)


def text(body: bytes) -> httpx.Response:
    return httpx.Response(200, content=body)


async def test_one_exchange_that_fails_stops_no_other_and_is_tried_again(caplog):
    caplog.set_level("INFO", "onebook.feeds")
    clock = Clock()
    lists = Lists(
        toy=[text(b"BTC ETH")],
        other=[text(b"nonsense"), httpx.Response(404), text(b""), text(b"SOL")],
    )
    async with rest(lists) as client:
        catalogue = Catalogue(
            EXCHANGES,
            rest=client,
            settings=FeedSettings(reload_retry_s=60.0),
            sleep=clock.sleep,
            jitter=lambda: 0.5,
        )
        async with catalogue:
            assert catalogue.pairs("toy") == ["BTC/USD", "ETH/USD"]
            assert not catalogue.loaded("other")
            assert sorted(clock.asked) == [30.0, 3_780.0]
            only = catalogue._tasks[1]
            assert not only.done()
    assert caplog.messages == [
        "The instruments of other are not known: other lists nonsense: not a list."
    ]


async def test_lists_are_read_again_and_an_empty_one_changes_nothing(caplog):
    caplog.set_level("INFO", "onebook.feeds")
    clock = Clock()
    lists = Lists(toy=[text(b"BTC"), text(b""), httpx.Response(404), text(b"BTC ETH")])
    async with rest(lists) as client:
        catalogue = Catalogue({"toy": TOY}, rest=client, settings=FeedSettings(), sleep=clock.sleep)
        async with catalogue:
            await clock.next()
            assert catalogue.pairs("toy") == ["BTC/USD"]
            await clock.next()
            await clock.next()
            assert catalogue.pairs("toy") == ["BTC/USD", "ETH/USD"]
    assert caplog.messages == [
        "The instruments of toy are not known: toy lists nonsense: the list is empty.",
        "toy lists its instruments again.",
    ]


async def test_a_mistake_of_ours_in_reading_a_list_is_logged_and_the_start_goes_on(caplog):
    def broken(body: bytes) -> list[Instrument]:
        raise ZeroDivisionError

    async with rest(Lists(toy=[text(b"BTC")])) as client:
        exchange = replace(TOY, parse_instruments=broken)
        async with Catalogue(
            {"toy": exchange}, rest=client, settings=FeedSettings(), sleep=Clock().sleep
        ) as catalogue:
            assert not catalogue.loaded("toy")
    assert caplog.messages == ["Reading the instruments of toy failed."]


async def test_the_start_does_not_wait_for_a_slow_list(monkeypatch, caplog):
    monkeypatch.setattr(catalogue_module, "START_S", 0.01)

    async def never(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with (
        rest(never) as client,
        Catalogue({"toy": TOY}, rest=client, settings=FeedSettings()) as catalogue,
    ):
        assert catalogue.symbols() == []
    assert "going on without" in caplog.messages[0]


def test_without_listeners_news_is_nobodys():
    catalogue = empty()
    catalogue.take("toy", listed("toy", "BTC/USD"))
    catalogue.take("toy", [])
    assert catalogue.symbols() == []
