"""Live transactions of OKX: its two streams, as ccxt and we read them, and records of a fetch."""

import asyncio
from contextlib import asynccontextmanager

import ccxt.pro
import pytest
from msgspec import json
from websockets.asyncio.client import connect

from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkx
from onebook.simulator.accounts.okx.keys import okx_signature
from onebook.simulator.accounts.serving import serving
from onebook.transactions.adapter import Environment
from onebook.transactions.credentials import Credentials
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.okx import OKX
from onebook.transactions.okx.stream import FUNDING_STREAM, TRADING_STREAM, read
from onebook.transactions.private import StreamAccepted, StreamHint, StreamRefused
from steady import PATIENCE_S
from transactions.following import Following, now_ms, waited
from transactions.okx_support import KEY

FIELDS = {"api_key": KEY.api_key, "secret": KEY.secret, "passphrase": KEY.passphrase}
ANY = StreamHint()
FUTURES = StreamHint(frozenset({"futures", "ledger"}))


def balances(event):
    return (
        '{"arg":{"channel":"balance_and_position","uid":"77982378738415879"},"data":[{"pTime":'
        f'"1597026383085","eventType":"{event}","balData":[{{"ccy":"BTC","cashBal":"1","uTime":'
        '"1597026383085"}],"posData":[],"trades":[]}]}'
    )


def order(kind, trade):
    return (
        '{"arg":{"channel":"orders","instType":"ANY","uid":"77982378738415879"},"data":[{'
        f'"instType":"{kind}","ordId":"312269865356374016","tradeId":"{trade}"}}]}}'
    )


MEANINGS = [
    ('{"event":"login","code":"0","msg":"","connId":"a4d3ae55"}', StreamAccepted()),
    ('{"event":"error","code":"60009","msg":"Login failed.","connId":"a4d3ae55"}', StreamRefused()),
    (
        '{"id":"1512","event":"subscribe","arg":{"channel":"deposit-info"},"connId":"a4d3ae55"}',
        StreamAccepted(),
    ),
    ('{"event":"channel-conn-count","channel":"orders","connCount":"2","connId":"abcd1234"}', None),
    (
        '{"event":"channel-conn-count-error","channel":"orders","connCount":"20","connId":"a4d3a"}',
        StreamRefused(),
    ),
    (
        '{"event":"notice","code":"64008","msg":"The connection will soon be closed for a service '
        'upgrade. Please reconnect.","connId":"a4d3ae55"}',
        None,
    ),
    ("pong", None),
    (order("SPOT", "242720720"), StreamHint(frozenset({"trades", "ledger"}))),
    (order("MARGIN", "242720720"), StreamHint(frozenset({"trades", "ledger"}))),
    (order("SWAP", "242720720"), FUTURES),
    (order("SPOT", ""), None),  # an order that was placed
    (balances("snapshot"), None),
    (balances("set_leverage"), None),
    (balances("filled"), StreamHint(frozenset({"trades", "futures", "ledger"}))),
    (balances("funding_fee"), FUTURES),
    (balances("transferred"), StreamHint(frozenset({"transfers", "ledger"}))),
    (balances("a new word"), ANY),
    ('{"arg":{"channel":"balance_and_position"},"data":"?"}', ANY),
    ('{"arg":{"channel":"account"},"eventType":"snapshot","data":[{}]}', None),
    (
        '{"arg":{"channel":"deposit-info","uid":"289320****60975104"},"data":[{"amt":"1","ccy":'
        '"USDT","chain":"USDT-TRC20","depId":"88165462","state":"0"}]}',
        StreamHint(frozenset({"deposits", "ledger"})),
    ),
    (
        '{"arg":{"channel":"withdrawal-info","uid":"2"},"data":[{"wdId":"63754560"}]}',
        StreamHint(frozenset({"withdrawals", "ledger"})),
    ),
    ("[1]", None),
]


@pytest.mark.parametrize(("frame", "meaning"), MEANINGS)
def test_what_a_message_means(frame, meaning):
    assert read(frame) == meaning


def test_a_change_of_the_account_announces_nothing_that_other_channels_announce():
    hint = read('{"arg":{"channel":"account"},"eventType":"event_update","data":[{}]}')
    announced = TRADING_STREAM.types | FUNDING_STREAM.types
    assert isinstance(hint, StreamHint)
    assert not hint.types & announced
    assert {"conversions", "earn", "loans", "transfers", "ledger"} <= hint.types


def test_the_first_message_logs_in():
    messages = TRADING_STREAM.opening(Credentials(**FIELDS), 1_538_054_050_999, "")
    login, *others = map(json.decode, messages)
    (asked,) = login["args"]
    assert (login["op"], asked["timestamp"]) == ("login", "1538054050")
    # The simulated exchange signs by itself.
    expected = okx_signature(KEY.secret, "1538054050", "GET", "/users/self/verify")
    assert asked["sign"] == expected
    channels = [arg["channel"] for each in others for arg in each["args"]]
    assert channels == ["orders", "balance_and_position", "account"]


@pytest.mark.parametrize(
    ("environment", "host", "expected"),
    [
        (Environment.MAINNET, "", "wss://ws.okx.com:8443"),
        (Environment.MAINNET, "eea", "wss://wseea.okx.com:8443"),
        (Environment.MAINNET, "us", "wss://wsus.okx.com:8443"),
        (Environment.DEMO, "", "wss://wspap.okx.com:8443"),
        (Environment.DEMO, "eea", "wss://wseeapap.okx.com:8443"),
        (Environment.DEMO, "us", "wss://wsuspap.okx.com:8443"),
    ],
)
async def test_the_region_of_the_key_decides_on_the_host(environment, host, expected):
    adapter = ExchangeAdapter(OKX)
    credentials = Credentials(**FIELDS | ({"host": host} if host else {}))
    for facts in adapter.streams(environment):
        opening = await adapter.opening(
            facts, environment, credentials, account_id="", name=None, key_id=""
        )
        assert opening.url == expected + facts.path
    assert len(adapter.streams(environment)) == (2 if environment is Environment.MAINNET else 1)
    await adapter.close()


@asynccontextmanager
async def served():
    now = now_ms()
    account = OkxAccount(OkxHistory(now - 20 * DAY_MS, now, rows=200))
    okx = SimulatedOkx(account, [KEY], limited=False, refresh_s=0)
    async with serving(okx) as url:
        yield okx, url


async def test_what_happens_is_pushed_as_a_fetch_has_it():
    async with served() as (okx, url), Following(OKX, {"mainnet_url": url}, FIELDS) as node:
        follower = await node.follow(start_time=now_ms() - 2 * DAY_MS)
        await waited(lambda: len(follower.streamed) == 4)
        assert follower.streamed == {"trades", "futures", "deposits", "withdrawals"}
        for kind in ("order", "deposit", "position", "order"):
            okx.act(kind)
        await follower.until_equal(4)
        okx.streams.drop()
        okx.act("order")
        okx.streams.losing = True
        okx.act("order")
        await follower.until_equal(6)


async def test_the_stream_alone_brings_a_fill_and_a_deposit():
    hours = {"poll_s": 3_600, "net_s": 3_600, "unannounced_pace_s": 3_600, "echoes_s": (3_600,)}
    async with (
        served() as (okx, url),
        Following(OKX, {"mainnet_url": url}, FIELDS, **hours) as node,
    ):
        fields = {"transaction_types": ["trades", "deposits"], "start_time": now_ms() - DAY_MS}
        follower = await node.follow(**fields)
        await waited(lambda: len(follower.streamed) == 2)
        await waited(lambda: all(each.topics for each in okx.streams.connections))
        before = len(follower.pushed)
        okx.act("order")
        await waited(lambda: any(each["type"] == "trades" for each in follower.pushed[before:]))
        okx.act("deposit")
        await waited(lambda: any(each["type"] == "deposits" for each in follower.pushed[before:]))


async def test_without_streams_the_lists_are_polled():
    async with served() as (okx, url), Following(OKX, {"mainnet_url": url}, FIELDS) as node:
        okx.streams.refusing = True
        fields = {"transaction_types": ["trades", "deposits"], "start_time": now_ms() - 2 * DAY_MS}
        follower = await node.follow(**fields)
        for kind in ("order", "deposit", "order"):
            okx.act(kind)
        await follower.until_equal(3)
        assert {part.source for part in follower.statuses[-1].types} == {"polling"}
        assert follower.statuses[-1].reason == "The exchange refused the connection."
        assert follower.statuses[-1].state == "live"


async def test_a_wrong_passphrase_or_a_channel_of_another_path_is_refused():
    async with served() as (_, url), connect(f"{url.replace('http', 'ws')}/ws/v5/private") as ws:

        async def ask(op, asked):
            await ws.send(json.encode({"op": op, "args": [asked]}).decode())
            return json.decode(await ws.recv()).get("code")

        stamp = str(now_ms() // 1_000)
        sign = okx_signature(KEY.secret, stamp, "GET", "/users/self/verify")
        login = {"apiKey": KEY.api_key, "passphrase": KEY.passphrase, "timestamp": stamp}
        login["sign"] = sign
        assert await ask("login", login | {"passphrase": "?"}) == "60024"
        assert await ask("login", login | {"sign": "?"}) == "60007"
        assert await ask("login", login | {"apiKey": "another"}) == "60032"
        assert await ask("subscribe", {"channel": "orders"}) == "60011"
        assert await ask("login", login) == "0"
        assert await ask("subscribe", {"channel": "deposit-info"}) == "60008"
        assert await ask("login", login) == "60031"
        await ws.send("ping")
        assert await ws.recv() == "pong"


async def test_ccxt_follows_the_simulated_stream():
    async with served() as (okx, url), asyncio.timeout(PATIENCE_S):
        client = ccxt.pro.okx(
            {"apiKey": KEY.api_key, "secret": KEY.secret, "password": KEY.passphrase}
        )
        client.urls["api"]["rest"] = url
        client.urls["api"]["ws"] = url.replace("http", "ws") + "/ws/v5"
        client.options["fetchMarkets"] = {"types": ["spot"]}
        try:
            balance = await client.watch_balance()
            held = okx.account.balances()
            total = held["trading", "USDT"] + held.get(("isolated", "USDT"), 0)
            assert balance["USDT"]["total"] == pytest.approx(total / 10**16)
            watching = asyncio.create_task(client.watch_my_trades())
            await waited(lambda: any("orders" in each.topics for each in okx.streams.connections))
            while not watching.done():
                okx.act("order")
                await asyncio.sleep(0.05)
            (fill, *_) = watching.result()
        finally:
            await client.close()
        listed = list(okx.account.newest("fills"))
        (found,) = [
            each for each in listed if str(each.trade) == fill["id"] and each.instrument.id
        ][:1]
        assert fill["price"] == found.price / 10**16
        assert fill["amount"] == found.size / 10**16
        assert fill["side"] == found.side
