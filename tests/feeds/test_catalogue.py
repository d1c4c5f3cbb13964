"""The catalogue: listed instruments, changes, and suggestions for unknown symbols."""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import date

import httpx
import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from clocks import sleeping
from feeds.toy import TOY, parse_instruments
from onebook.clock import ManualClock
from onebook.config import ExchangeSettings, FeedSettings
from onebook.exchanges.kit import ROWS_MAX, Instruments, instrument_of
from onebook.feeds import catalogue as catalogue_module
from onebook.feeds.catalogue import Catalogue, normalised
from onebook.feeds.limits import FeedLimits
from onebook.model import Instrument, InstrumentStatus, Reason
from onebook.rest import Rest

OTHER = replace(TOY, name="other", rest_url="http://other.example")
EXCHANGES = {"toy": TOY, "other": OTHER}
HALT = InstrumentStatus.HALTED


def rest(answer: Callable[[httpx.Request], httpx.Response]) -> Rest:
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    return Rest(httpx.AsyncClient(transport=httpx.MockTransport(answer)), clock=sleeping(sleep))


def empty(**options) -> Catalogue:
    client = rest(lambda request: httpx.Response(404))
    return Catalogue(EXCHANGES, rest=client, settings=FeedSettings(), **options)


def listed(name: str, *symbols: str, status=InstrumentStatus.TRADING) -> list[Instrument]:
    return [Instrument(name, each, each.replace("/", ""), status=status) for each in symbols]


DAY_US = 86_400_000_000


def charged(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    pairs = json.loads(body)
    return Instruments(Instrument("toy", each, each, taker_fee="0.25") for each in pairs)


class News:
    def __init__(self, catalogue: Catalogue) -> None:
        self.heard: list[tuple[str, ...]] = []
        catalogue.on_gone.subscribe(lambda each, reason: self.heard.append((each.symbol, reason)))
        catalogue.on_back.subscribe(lambda each: self.heard.append((each.symbol, "back")))

    def read(self) -> list[tuple[str, ...]]:
        heard, self.heard = sorted(self.heard), []
        return heard


def test_what_is_listed_can_be_asked_for_by_symbol_and_by_exchange():
    catalogue = empty()
    assert not catalogue.loaded("toy")
    catalogue.update("toy", listed("toy", "ETH/USD", "BTC/USD"))
    catalogue.update("other", listed("other", "BTC/USD") + listed("other", "XRP/USD", status=HALT))
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
    catalogue.update("toy", listed("toy", "BTC/USD"))
    before = catalogue.instrument("toy", "BTC/USD")
    new = Instrument(
        "toy", "BTC/USD", "BTCUSD", tick="0.1", lot="0.001", scales=(8, 2), least_amount="0.01",
        least_notional="5", taker_fee="0.25",
    )  # fmt: skip
    catalogue.update("toy", [new])
    after = catalogue.instrument("toy", "BTC/USD")
    assert after is before
    assert after is not None
    assert (after.tick, after.lot, after.scales) == ("0.1", "0.001", (8, 2))
    assert (after.least_amount, after.least_notional, after.taker_fee) == ("0.01", "5", "0.25")


async def test_a_published_fee_has_the_day_on_which_the_list_was_read():
    answers = [httpx.Response(200, json=["BTC/USD"]), httpx.Response(404)]
    clock = ManualClock(epoch_us=DAY_US)
    catalogue = Catalogue(
        {"toy": replace(TOY, parse_instruments=charged)},
        rest=rest(lambda request: answers.pop(0)),
        settings=FeedSettings(),
        clock=clock,
    )
    assert catalogue.published_fee("toy", "BTC/USD") is None
    assert await catalogue.load(catalogue._exchanges["toy"])
    clock.move_to(181 * 86_400)
    assert not await catalogue.load(catalogue._exchanges["toy"])
    fee = catalogue.published_fee("toy", "BTC/USD")
    assert fee is not None
    assert (fee.percent, fee.date, fee.old) == ("0.25", date(1970, 1, 2), True)
    assert catalogue.published_fee("toy", "ETH/USD") is None


def test_who_vanishes_halts_and_returns_is_reported():
    catalogue = empty()
    news = News(catalogue)
    catalogue.update("toy", listed("toy", "BTC/USD", "ETH/USD"))
    assert news.read() == [("BTC/USD", "back"), ("ETH/USD", "back")]
    first = catalogue.instrument("toy", "BTC/USD")
    catalogue.update("toy", listed("toy", "ETH/USD", status=HALT))
    assert news.read() == [("BTC/USD", Reason.NOT_LISTED), ("ETH/USD", Reason.HALTED)]
    catalogue.update("toy", listed("toy", "ETH/USD", status=HALT))
    assert news.read() == []
    catalogue.update("toy", listed("toy", "BTC/USD", "ETH/USD"))
    assert news.read() == [("BTC/USD", "back"), ("ETH/USD", "back")]
    assert catalogue.instrument("toy", "BTC/USD") is first


def test_of_two_natives_with_one_symbol_the_traded_one_counts_else_the_first():
    catalogue = empty()
    first = Instrument("toy", "BTC/USD", "one", status=HALT)
    second = Instrument("toy", "BTC/USD", "two")
    third = Instrument("toy", "BTC/USD", "three")
    assert catalogue.update("toy", [first, second, third]) == [first, third]
    assert catalogue.instrument("toy", "BTC/USD") is second
    assert catalogue.update("toy", [third, second]) == [second]
    assert catalogue.instrument("toy", "BTC/USD") is third
    assert catalogue.update("toy", [third, third]) == []


def parse_codes(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """A list of bases, all against XBT, read as connectors do."""
    bases = body.decode().split()
    rows = [
        instrument_of("kraken", f"{base}XBT", base=base, quote="xbt", trading=True)
        for base in bases
    ]
    return Instruments(each for each in rows if each is not None)


async def test_the_operator_s_currency_codes_come_before_ours_and_one_symbol_is_one_book(caplog):
    own = {"kraken": ExchangeSettings(currencies={"rep": "NEW", "ABC": "def"})}
    kraken = replace(TOY, name="kraken", parse_instruments=parse_codes)
    lists = Lists(toy=[text(b"REP REPV2 ABC DEF"), text(b"REP REPV2 ABC DEF")])
    async with rest(lists) as client:
        settings = FeedSettings(overrides=own)
        catalogue = Catalogue({"kraken": kraken}, rest=client, settings=settings)
        for _ in range(2):
            assert await catalogue.load(kraken)
    assert catalogue.pairs("kraken") == ["DEF/BTC", "NEW/BTC", "REP/BTC"]
    kept = catalogue.instrument("kraken", "DEF/BTC")
    assert kept is not None
    assert kept.native == "ABCXBT"
    refused = REGISTRY.get_sample_value("onebook_list_rows_refused", {"exchange": "kraken"})
    assert refused == 1
    assert caplog.messages == [
        "kraken: 1 instruments skipped because their symbol is already taken: "
        "DEFXBT (DEF/BTC). If they are different coins, map them in "
        "feeds.overrides.kraken.currencies."
    ]


async def test_a_symbol_that_an_override_makes_too_long_costs_its_row():
    own = {"kraken": ExchangeSettings(currencies={"XBT": "B" * 19})}
    kraken = replace(TOY, name="kraken", parse_instruments=parse_codes)
    async with rest(Lists(toy=[text(b"ABC " + b"A" * 30)])) as client:
        settings = FeedSettings(overrides=own)
        catalogue = Catalogue({"kraken": kraken}, rest=client, settings=settings)
        assert await catalogue.load(kraken)
    assert catalogue.pairs("kraken") == ["ABC/" + "B" * 19]


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
    catalogue.update("toy", listed("toy", "BTC/USD", "BTC/USDT", "SOL/USD", "SHIB/USD", "BAT/USD"))
    catalogue.update("other", listed("other", "BTC/USDT"))
    assert catalogue.suggest(meant)[0] == suggested
    assert len(catalogue.suggest(meant, 2)) <= 2


def test_a_suggestion_is_made_from_a_bounded_choice():
    catalogue = empty()
    assert catalogue.suggest("") == []
    many = [f"A{chr(65 + n // 26)}{chr(65 + n % 26)}/USD" for n in range(600)]
    catalogue.update("toy", listed("toy", *many))
    assert len(catalogue._similar("AAZ")) <= catalogue_module.CANDIDATES_MAX
    assert catalogue.suggest("AAZ/USD")[0] == "AAZ/USD"
    assert catalogue.suggest("QQQ/EUR") == []
    assert len(normalised("A" * 100_000)) == 40


class Sleeps:
    """A sleep that the test ends."""

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
    """The responses of each host, in order."""

    def __init__(self, **answers: list[httpx.Response]) -> None:
        self.answers = answers

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/instruments"
        return self.answers["other" if request.url.host.startswith("other") else "toy"].pop(0)


def text(body: bytes) -> httpx.Response:
    return httpx.Response(200, content=body)


async def test_one_exchange_that_fails_stops_no_other_and_is_tried_again(caplog):
    caplog.set_level("INFO", "onebook.feeds")
    sleeps = Sleeps()
    lists = Lists(
        toy=[text(b"BTC ETH")],
        other=[text(b"nonsense"), httpx.Response(404), text(b""), text(b"SOL")],
    )
    async with rest(lists) as client:
        catalogue = Catalogue(
            EXCHANGES,
            rest=client,
            settings=FeedSettings(),
            limits=FeedLimits(reload_retry_s=60.0),
            clock=sleeping(sleeps.sleep),
            jitter=lambda: 0.5,
        )
        async with catalogue:
            assert catalogue.unread() == {"toy", "other"}
            assert not await catalogue.first_read()
            assert catalogue.unread() == {"other"}
            assert catalogue.pairs("toy") == ["BTC/USD", "ETH/USD"]
            assert not catalogue.loaded("other")
            assert sorted(sleeps.asked) == [30.0, 3_780.0]
            only = catalogue._tasks["other"]
            assert not only.done()
    assert caplog.messages == ["Cannot read the instruments of other: invalid list: not a list."]


async def test_lists_are_read_again_and_an_empty_one_changes_nothing(caplog):
    caplog.set_level("INFO", "onebook.feeds")
    sleeps = Sleeps()
    lists = Lists(toy=[text(b"BTC"), text(b""), httpx.Response(404), text(b"BTC ETH")])
    async with rest(lists) as client:
        catalogue = Catalogue(
            {"toy": TOY}, rest=client, settings=FeedSettings(), clock=sleeping(sleeps.sleep)
        )
        async with catalogue:
            assert await catalogue.first_read()
            for _ in ("the empty list", "no list"):
                await sleeps.next()
                assert catalogue.pairs("toy") == ["BTC/USD"]
            await sleeps.next()
            assert catalogue.pairs("toy") == ["BTC/USD", "ETH/USD"]
    assert caplog.messages == [
        "Cannot read the instruments of toy: invalid list: the list is empty.",
        "The instruments of toy can be read again.",
    ]


async def test_a_mistake_of_ours_in_reading_a_list_is_logged_and_the_start_goes_on(caplog):
    def broken(body: bytes) -> list[Instrument]:
        raise ZeroDivisionError

    async with rest(Lists(toy=[text(b"BTC")])) as client:
        exchange = replace(TOY, parse_instruments=broken)
        async with Catalogue(
            {"toy": exchange}, rest=client, settings=FeedSettings(), clock=sleeping(Sleeps().sleep)
        ) as catalogue:
            assert not await catalogue.first_read()
            assert not catalogue.loaded("toy")
    assert caplog.messages == ["Reading the instruments of toy failed."]


async def test_the_start_does_not_wait_for_lists_and_a_wait_for_them_ends():
    async def never(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with (
        rest(never) as client,
        Catalogue({"toy": TOY}, rest=client, settings=FeedSettings()) as catalogue,
    ):
        assert (catalogue.symbols(), catalogue.unread()) == ([], {"toy"})
        assert not await catalogue.first_read(timeout_s=0.01)


def test_without_listeners_news_is_dropped():
    catalogue = empty()
    catalogue.update("toy", listed("toy", "BTC/USD"))
    catalogue.update("toy", [])
    assert catalogue.symbols() == []


def serving(body: bytes, **limits) -> Catalogue:
    client = rest(lambda request: httpx.Response(200, content=body))
    return Catalogue(EXCHANGES, rest=client, settings=FeedSettings(), limits=FeedLimits(**limits))


async def test_rows_with_names_that_are_not_sound_are_left_out_and_logged_once(caplog):
    catalogue = serving(b"BTC ! ETH !")
    for _ in range(3):
        assert await catalogue.load(TOY)
    assert catalogue.symbols() == ["BTC/USD", "ETH/USD"]
    assert caplog.messages == ["toy: 2 instruments skipped because of malformed names."]


@pytest.mark.parametrize("limits", [{"list_rows_max": 100}, {"list_bytes_max": 65_536}])
async def test_a_list_over_its_bounds_is_refused_whole_with_one_line(caplog, limits):
    catalogue = serving(b"BTC " * 20_000, **limits)
    for _ in range(3):
        assert not await catalogue.load(TOY)
    assert not catalogue.loaded("toy")
    [line] = caplog.messages
    assert line.startswith("Cannot read the instruments of toy: ")
    assert "more than" in line


async def test_a_list_that_is_asked_for_by_post_gets_its_body_once():
    asked: list[tuple[str, str, bytes]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.headers["content-type"], request.content))
        return httpx.Response(200 if len(asked) == 1 else 503, content=b"BTC")

    posted = replace(TOY, instruments_body=b"{}")
    catalogue = Catalogue({"toy": posted}, rest=rest(answer), settings=FeedSettings())
    assert await catalogue.load(posted)
    assert not await catalogue.load(posted)
    assert asked == [("POST", "application/json", b"{}")] * 2, "a refusal is not sent again at once"
    assert catalogue.symbols() == ["BTC/USD"]


# Lists of several pages


def next_page(bodies: Sequence[bytes]) -> str | None:
    """A page whose last word is `+` has a next page."""
    return f"/instruments?page={len(bodies) + 1}" if bodies[-1].endswith(b"+") else None


def parse_page(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    return parse_instruments(body.removesuffix(b"+"), rows_max=rows_max)


PAGED = replace(TOY, parse_instruments=parse_page, next_page=next_page)


def paged(*pages: bytes, asked: list[str] | None = None, **limits) -> Catalogue:
    """The last page repeats if more are requested."""

    def answer(request: httpx.Request) -> httpx.Response:
        number = int(request.url.params.get("page", 1))
        if asked is not None:
            asked.append(str(request.url.params))
        return httpx.Response(200, content=pages[min(number, len(pages)) - 1])

    return Catalogue(
        EXCHANGES, rest=rest(answer), settings=FeedSettings(), limits=FeedLimits(**limits)
    )


async def test_every_page_of_a_list_is_read():
    asked: list[str] = []
    catalogue = paged(b"BTC ! +", b"ETH +", b"SOL !", asked=asked)
    assert await catalogue.load(PAGED)
    assert catalogue.symbols() == ["BTC/USD", "ETH/USD", "SOL/USD"]
    assert asked == ["", "page=2", "page=3"]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"list_pages_max": 3}, "the list has more than 3 pages"),
        ({"list_rows_max": 100}, "the list has more than 100 rows"),
        ({"list_bytes_max": 65_536}, "more than"),
    ],
)
async def test_a_list_without_end_is_refused_whole(caplog, limits, words):
    page = b" ".join(b"C%d" % rank for rank in range(90)) + b" " * 30_000 + b"+"
    catalogue = paged(page, **limits)
    assert not await catalogue.load(PAGED)
    assert not catalogue.loaded("toy")
    assert words in caplog.messages[0]


async def test_a_list_whose_second_page_is_nonsense_changes_nothing(caplog):
    assert not await paged(b"BTC +", b"nonsense").load(PAGED)
    assert "invalid list" in caplog.messages[0]
