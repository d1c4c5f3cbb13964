"""Live transactions of Kraken: its stream, as ccxt and we read it, and records equal to a fetch."""

import asyncio
from contextlib import asynccontextmanager

import ccxt.pro
import pytest
from msgspec import json
from msgspec.structs import replace

from onebook.model import DAY_MS
from onebook.simulator.accounts.kraken import (
    KrakenAccount,
    KrakenHistory,
    SimulatedKraken,
    SimulatedKrakenKey,
)
from onebook.simulator.accounts.serving import serving
from onebook.transactions.kraken import KRAKEN
from onebook.transactions.kraken.stream import opening, read
from onebook.transactions.private import StreamAccepted, StreamHint, StreamRefused
from steady import PATIENCE_S
from transactions.following import Following, now_ms, waited

SECRET = "a3Jha2VuLXNlY3JldC1vZi10aGUtdGVzdHM="
KEY = SimulatedKrakenKey("krakenkey0000000000", SECRET)
FIELDS = {"api_key": KEY.api_key, "secret": SECRET}
ACTS = ("order", "coin deposit", "conversion", "coin withdrawal", "order", "margin position")
# Limits have tests of their own; here they would only take time.
QUICK = replace(
    KRAKEN,
    api=replace(
        KRAKEN.api,
        limits={name: replace(each, units=1e6) for name, each in KRAKEN.api.limits.items()},
    ),
    poll_factor=1.0,
)
MEANINGS = [
    (
        '{"method":"subscribe","result":{"channel":"balances","snapshot":true},"success":true,'
        '"time_in":"2023-10-16T13:29:13.111530Z","time_out":"2023-10-16T13:29:13.111775Z"}',
        StreamAccepted(),
    ),
    (
        '{"error":"EGeneral:Permission denied","method":"subscribe","success":false}',
        StreamRefused(),
    ),
    ('{"channel":"status","type":"update","data":[{"system":"online"}]}', None),
    ('{"channel":"heartbeat"}', None),
    ('{"method":"pong","time_in":"x","time_out":"y"}', None),
    ('{"channel":"balances","type":"snapshot","data":[{"asset":"BTC"}],"sequence":1}', None),
    (
        '{"channel":"balances","type":"update","data":[{"ledger_id":"ADKKFF-WEA5A-CNUBHG",'
        '"type":"deposit","asset":"BTC","amount":0.01}],"sequence":2}',
        StreamHint(frozenset({"deposits", "ledger"})),
    ),
    ('{"channel":"balances","type":"update","data":[{"type":"staking"}]}', StreamHint()),
    ('{"channel":"balances","type":"update","data":"?"}', StreamHint()),
    ("[1]", None),
]


@pytest.mark.parametrize(("frame", "meaning"), MEANINGS)
def test_what_a_message_means(frame, meaning):
    assert read(frame) == meaning


def test_the_first_message_has_the_token():
    (message,) = opening(None, 0, "abc")
    params = {"channel": "balances", "snapshot": False, "token": "abc"}
    assert json.decode(message) == {"method": "subscribe", "params": params}


@asynccontextmanager
async def served(key=KEY, **options):
    now = now_ms()
    account = KrakenAccount(KrakenHistory(now - 30 * DAY_MS, now, rows=200))
    kraken = SimulatedKraken(account, [key], **{"limited": False} | options)
    async with serving(kraken) as url:
        yield kraken, url


async def test_what_happens_is_pushed_as_a_fetch_has_it():
    async with served() as (kraken, url), Following(QUICK, {"mainnet_url": url}, FIELDS) as node:
        follower = await node.follow(start_time=now_ms() - 20 * DAY_MS)
        await waited(lambda: follower.streamed)
        assert follower.streamed == {"deposits", "withdrawals", "trades", "margin", "earn"}
        for kind in ACTS:
            kraken.act(kind)
            await asyncio.sleep(0.03)
        await follower.until_equal(3)
        kraken.streams.drop()
        kraken.act("order")
        kraken.streams.losing = True
        kraken.act("order")
        await follower.until_equal(4)


async def test_a_key_without_websockets_is_polled():
    key = SimulatedKrakenKey(KEY.api_key, SECRET, websockets=False)
    async with served(key) as (kraken, url), Following(QUICK, {"mainnet_url": url}, FIELDS) as node:
        follower = await node.follow(start_time=now_ms() - DAY_MS)
        kraken.act("order")
        await follower.until_equal(1)
        assert not follower.streamed
        assert follower.statuses[-1].state == "live"
        assert follower.statuses[-1].reason
        assert not kraken.streams.opened


async def test_ccxt_follows_the_simulated_stream():
    async with served() as (kraken, url), asyncio.timeout(PATIENCE_S):
        client = ccxt.pro.kraken({"apiKey": KEY.api_key, "secret": SECRET})
        api = client.urls["api"]
        for name in ("public", "private"):
            api[name] = api[name].replace("https://api.kraken.com", url)
        api["ws"]["privateV2"] = url.replace("http", "ws") + "/v2"
        try:
            balance = await client.watch_balance()
            held = kraken.account.balances()
            assert balance["EUR"]["total"] == pytest.approx(held["spot", "ZEUR"] / 10**12)
            watching = asyncio.create_task(client.watch_my_trades())
            while not watching.done():
                kraken.act("order")
                await asyncio.sleep(0.05)
            (fill, *_) = watching.result()
        finally:
            await client.close()
        listed = kraken.account.select("trades", limit=1_000).rows
        prices = {float(each.price / 10**12) for each in listed}
        assert fill["price"] in prices
        assert fill["amount"] in {each.volume / 10**12 for each in listed}
