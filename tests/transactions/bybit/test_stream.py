"""Bybit's private stream: the meaning of messages, and pybit on the simulated one."""

import asyncio
import threading
import time

import pytest
from msgspec import json
from pybit import unified_trading
from websockets.asyncio.client import connect

from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit, SimulatedKey
from onebook.simulator.accounts.serving import serving
from onebook.transactions.bybit.stream import opening, read
from onebook.transactions.credentials import Credentials
from onebook.transactions.private import StreamAccepted, StreamHint, StreamRefused
from steady import PATIENCE_S

KEY = SimulatedKey("stream0000000000", "secret0000000000000000000000000000")
MEANINGS = [
    ('{"success":true,"ret_msg":"","op":"auth","conn_id":"c-p"}', StreamAccepted()),
    (
        '{"success":false,"ret_msg":"API key is invalid.","op":"auth","conn_id":"c"}',
        StreamRefused(),
    ),
    ('{"success":true,"ret_msg":"","conn_id":"c","req_id":"","op":"subscribe"}', StreamAccepted()),
    ('{"req_id":"","op":"pong","args":["1675418560633"],"conn_id":"c"}', None),
    (
        '{"id":"1","topic":"execution","creationTime":1,"data":[{"category":"linear"}]}',
        StreamHint(frozenset({"futures_linear", "ledger"})),
    ),
    (
        '{"topic":"order","data":[{"category":"spot"},{"category":"inverse"}]}',
        StreamHint(frozenset({"spot_orders", "futures_inverse", "ledger"})),
    ),
    ('{"topic":"execution","data":[{"category":"option"}]}', StreamHint()),
    ('{"topic":"wallet","data":[{"accountType":"UNIFIED","coin":[]}]}', StreamHint()),
    ('{"topic":"greeks","data":[{"baseCoin":"ETH"}]}', None),
    ("<html>", None),
    ("[]", None),
    ('{"topic":"execution","data":"?"}', None),
]


@pytest.mark.parametrize(("frame", "meaning"), MEANINGS)
def test_what_a_message_means(frame, meaning):
    assert read(frame) == meaning


def test_the_first_messages_are_signed_as_the_page_says():
    # The page's own recipe: HMAC-SHA256 of GET/realtime and the expiry.
    auth, subscribe = opening(Credentials("key", "secret"), 1_662_350_390_000, "")
    assert json.decode(auth) == {
        "op": "auth",
        "args": [
            "key",
            1_662_350_400_000,
            "d7ca36fea9ef1287007fd4b15af961e91d419a3d3f3ccbdf23585170ac116cd4",
        ],
    }
    assert json.decode(subscribe) == {"op": "subscribe", "args": ["execution", "order", "wallet"]}


async def test_pybit_follows_the_simulated_stream(monkeypatch):
    now_ms = time.time_ns() // 1_000_000
    bybit = SimulatedBybit(Account(History(now_ms - DAY_MS, now_ms, executions=20)), [KEY])
    received, found = [], threading.Event()

    def take(message):
        received.append(message)
        if {each["topic"] for each in received} == {"execution", "order", "wallet"}:
            found.set()

    async with serving(bybit) as url, asyncio.timeout(PATIENCE_S):
        address = url.replace("http", "ws") + "/v5/private"
        monkeypatch.setattr(unified_trading, "PRIVATE_WSS", address)

        def subscribed():
            client = unified_trading.WebSocket(
                testnet=False,
                channel_type="private",
                api_key=KEY.api_key,
                api_secret=KEY.secret,
                private_auth_expire=round(PATIENCE_S),  # 1 s by default; then it waits forever
            )
            client.execution_stream(take)
            client.order_stream(take)
            client.wallet_stream(take)
            return client

        client = await asyncio.to_thread(subscribed)
        while not any(len(each.topics) == 3 for each in bybit.streams.connections):
            await asyncio.sleep(0.01)
        while not found.is_set():
            bybit.act("spot")
            await asyncio.sleep(0.05)
        await asyncio.to_thread(client.exit)
    fill = next(each for each in received if each["topic"] == "execution")["data"][0]
    listed = {entry.facts.execution_id for entry in bybit.account.executions["spot"].entries}
    assert fill["category"] == "spot"
    assert fill["execId"] in listed


async def test_a_wrong_signature_is_refused():
    now_ms = time.time_ns() // 1_000_000
    bybit = SimulatedBybit(Account(History(now_ms - DAY_MS, now_ms, executions=20)), [KEY])
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(bybit) as url,
        connect(url.replace("http", "ws") + "/v5/private") as socket,
    ):
        for secret, meaning in (("wrong", StreamRefused()), (KEY.secret, StreamAccepted())):
            await socket.send(opening(Credentials(KEY.api_key, secret), now_ms, "")[0])
            assert read(await socket.recv()) == meaning
        await socket.send('{"op":"subscribe","args":["orders"]}')
        assert read(await socket.recv()) == StreamRefused()
