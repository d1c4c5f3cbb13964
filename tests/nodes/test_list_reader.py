"""A gateway reads instrument lists over a real nats-server; responses are late or lost."""

import asyncio
from contextlib import asynccontextmanager
from datetime import date
from decimal import Decimal

import pytest
from msgspec import msgpack

from nodes.servers import nats_server
from onebook.books import Books
from onebook.clock import SYSTEM_CLOCK
from onebook.config import FeedSettings, NatsSettings, NodeSettings
from onebook.model import Instrument
from onebook.nodes import lists, wire
from onebook.nodes.gateway_node import RemoteCatalogue, RemoteSupervisor
from onebook.nodes.membership import NodeHeartbeat, NodeRole, encode_heartbeat
from onebook.nodes.nats import NatsBus
from onebook.nodes.subjects import LIST, Subjects
from onebook.rest import Rest
from onebook.transfers import CoinTransfer, NetworkTransfer
from steady import PATIENCE_S

FEEDS = 2
NAMES = ("okx", "kraken", "binance")
PAGES = 4
NEVER_S = 60.0
LATE_S = 0.1  # so long the gateway waits for an answer that is lost


def listed(name, count=PAGES * lists.PAGE_ROWS):
    rows = [Instrument(name, f"C{at}/USDT", f"C{at}USDT") for at in range(count)]
    return lists.PublishedList(rows, depth=0, levels_max=1_000)


class FeedsNode:
    """A feeds node that sends heartbeats and answers list requests as the test decides."""

    def __init__(self, bus, answer):
        self.lists = {name: listed(name) for name in NAMES}
        self.asked = []
        self._bus = bus
        self._answer = answer
        self._subjects = Subjects(NodeSettings().cluster)

    def page(self, request):
        return self.lists[request.exchange].page(request.page)

    async def run(self):
        self._bus.subscribe(self._subjects.request(FEEDS, LIST), self._received)
        while True:
            beat = NodeHeartbeat(
                node=FEEDS,
                name="f",
                role=NodeRole.FEEDS,
                wire=wire.VERSION,
                lists={name: each.digest for name, each in self.lists.items()},
                states=dict.fromkeys(self.lists, "active"),
            )
            self._bus.publish(self._subjects.heartbeats, encode_heartbeat(beat))
            await asyncio.sleep(0.02)

    def _received(self, payload, reply):
        request = lists.request_of(payload)
        self.asked.append((request.exchange, request.page))
        self._answer(self, request, lambda page: self._bus.publish(reply, page))


@asynccontextmanager
async def gateway(answer, timeout_s):
    """A gateway's catalogue, and the feeds node whose lists it reads."""
    with nats_server() as port:
        settings = NatsSettings(servers=(f"nats://127.0.0.1:{port}",))
        node = NodeSettings(heartbeat_timeout_s=NEVER_S, isolated_s=NEVER_S)
        async with (
            NatsBus(settings, name="feeds") as there,
            NatsBus(settings, name="gateway") as bus,
            Rest() as rest,
        ):
            catalogue = RemoteCatalogue(rest=rest, settings=FeedSettings(exchanges=NAMES))
            supervisor = RemoteSupervisor(
                1,
                bus=bus,
                books=Books(),
                catalogue=catalogue,
                settings=node,
                request_timeout_s=timeout_s,
            )
            feeds = FeedsNode(there, answer)
            async with supervisor:
                running = asyncio.create_task(feeds.run())
                try:
                    yield catalogue, feeds
                finally:
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)


async def test_pages_that_came_are_kept_when_an_answer_is_lost():
    """Every third response is lost: a list of four pages, restarted each time, never arrived."""

    def answer(feeds, request, reply):
        if len(feeds.asked) % 3:
            reply(feeds.page(request))

    async with gateway(answer, LATE_S) as (catalogue, _):
        assert await catalogue.first_read(PATIENCE_S)
        for name in NAMES:
            assert len(catalogue.listed(name)) == PAGES * lists.PAGE_ROWS


async def test_one_page_is_asked_for_at_a_time():
    """On a slow link, responses to simultaneous requests queue up, and all are late."""
    waiting = []
    most = 0

    def answer(feeds, request, reply):
        nonlocal most
        waiting.append(request)
        most = max(most, len(waiting))

        def send():
            waiting.remove(request)
            reply(feeds.page(request))

        asyncio.get_running_loop().call_soon(send)

    async with gateway(answer, NEVER_S) as (catalogue, feeds):
        assert await catalogue.first_read(PATIENCE_S)
    assert most == 1
    assert sorted(feeds.asked) == sorted((name, page) for name in NAMES for page in range(PAGES))


@pytest.mark.parametrize("changed_at", [1, PAGES - 1])
async def test_a_list_that_changes_between_two_pages_is_read_from_its_beginning(changed_at):
    def answer(feeds, request, reply):
        if (request.exchange, request.page) == ("okx", changed_at) and len(feeds.asked) <= PAGES:
            feeds.lists["okx"] = listed("okx", changed_at * lists.PAGE_ROWS + 1)
        reply(feeds.page(request))

    async with gateway(answer, NEVER_S) as (catalogue, _):
        assert await catalogue.first_read(PATIENCE_S)
        assert len(catalogue.listed("okx")) == changed_at * lists.PAGE_ROWS + 1


def test_the_day_of_reading_and_the_fees_are_part_of_a_list():
    rows = [Instrument("kraken", "BTC/USD", "BTC/USD", taker_fee="0.4")]
    read = [
        lists.PublishedList(rows, depth=0, levels_max=9, read_on=date(2026, 11, day))
        for day in (26, 27)
    ]
    assert read[0].digest != read[1].digest  # so that gateways read it again
    page = lists.page_of(read[1].page(0))
    catalogue = RemoteCatalogue(rest=None, settings=FeedSettings(exchanges=["kraken"]))
    catalogue.received("kraken", page, page.rows)
    fee = catalogue.published_fee("kraken", "BTC/USD")
    assert (fee.percent, fee.date) == ("0.4", date(2026, 11, 27))


def test_gateways_get_the_transfers_of_coins_with_the_list():
    now_ms = SYSTEM_CLOCK.wall_ms()
    network = NetworkTransfer("TRC20", True, False, Decimal("1.5"))
    coins = {
        "BTC": CoinTransfer("ccxt", now_ms, True, None, (network,)),
        "ETH": CoinTransfer("ccxt", now_ms - 4 * 3_600_000, True, True),
        "XRP": CoinTransfer("ccxt", now_ms),  # not listed
    }
    rows = [Instrument("kraken", f"{coin}/USD", f"{coin}/USD") for coin in ("BTC", "ETH")]
    plain = lists.PublishedList(rows, depth=0, levels_max=9)
    sent = lists.PublishedList(rows, depth=0, levels_max=9, transfers=coins)
    assert sent.digest != plain.digest
    page = lists.page_of(sent.page(0))
    assert {*page.transfers} == {"BTC", "ETH"}
    catalogue = RemoteCatalogue(rest=None, settings=FeedSettings(exchanges=["kraken"]))
    catalogue.received("kraken", page, page.rows, page.transfers)
    assert catalogue.transfer("kraken", "BTC") == coins["BTC"]
    assert catalogue.transfer("kraken", "ETH") is None  # the feeds node has not read it lately
    assert catalogue.transfer("okx", "BTC") is None


@pytest.mark.parametrize("text", ["", "NaN", "-1", "1e9", "Infinity", "9" * 19])
def test_a_fee_between_nodes_that_is_no_amount_is_unknown(text):
    row = lists.TransferRow("ccxt", 4, True, None, [lists.NetworkRow("n", True, False, text)])
    (network,) = lists.transfers_of({"BTC": row})["BTC"].networks
    assert network.withdraw_fee is None


def test_a_list_of_an_earlier_version_has_neither_day_nor_fees():
    row = ("BTC/USD", "BTC/USD", "0.1", "0.1", "trading", "BTC/USD", "", (0, 0), "", "")
    page = {"digest": "d", "rows": [row], "pages": 1, "depth": 0, "levels_max": 9}
    found = lists.page_of(msgpack.encode(page))
    assert found.read_on is None
    assert lists.instruments_of("kraken", found.rows)[0].taker_fee == ""
