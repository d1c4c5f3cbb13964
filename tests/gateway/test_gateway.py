"""The whole gateway over real sockets. Rows of contract section 2 and of the specification."""

import asyncio
import re

import pytest
import uvloop
from websockets.frames import Frame, Opcode

from gateway.helpers import raw
from gateway.rig import BOOK, LISTED, PATIENCE_S, SYMBOL, gateway, settled
from onebook.exchanges import EXCHANGES


@pytest.mark.parametrize("compression", [None, "deflate"])
async def test_connect_authenticate_subscribe_receive(node, key, compression):
    async with node.client(compression=compression) as client:
        assert (await client.next())["type"] == "welcome"
        welcome = await client.ask(type="authenticate", api_key=key, id=1)
        assert (welcome["type"], welcome["user_tier"], welcome["id"]) == ("welcome", "basic", 1)
        assert welcome["authentication"] == {"api_key": key[:12] + "...", "status": "authenticated"}
        assert re.fullmatch(r"[0-9a-f-]{36}", welcome["session_id"])
        node.snapshot("okx")
        response = await client.ask(type="subscribe_aggregated", symbol=SYMBOL, exchanges=["okx"])
        update = await client.next()
        assert update["subscription_id"] == response["subscription_id"]
        assert update["update_number"] == 1
        assert [level["price"] for level in update["data"]["bids"]] == [100, 99]
        node.delta("okx", [("100", "0")])
        update = await client.next()
        assert update["update_number"] == 2
        assert [level["price"] for level in update["data"]["bids"]] == [99]


async def test_numbers_arrive_as_the_exchange_sent_them(node, key):
    async with node.client(key) as client:
        node.snapshot("okx", [("0.000000012345", "123456789012.5")], [("64000.10", "0.100")])
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, levels="array")
        text = await client.socket.recv()
        assert '"bids":[[0.000000012345,123456789012.5]]' in text
        assert '"asks":[[64000.1,0.1]]' in text


async def test_exchange_status_and_a_book_without_the_exchange_within_100_ms(node, key):
    async with node.client(key) as client:
        node.snapshot("okx")
        node.snapshot("kraken")
        await client.ask(
            type="subscribe_aggregated",
            symbol=SYMBOL,
            exchanges=["okx", "kraken"],
            interval_ms=60_000,
        )
        await client.next()
        lost_at = asyncio.get_running_loop().time()
        node.lose("okx", "checksum")
        status, update = await client.next(), await client.next()
        assert asyncio.get_running_loop().time() - lost_at < 0.1
        assert (status["exchange"], status["state"], status["reason"]) == (
            "okx",
            "stale",
            "checksum",
        )
        assert update["data"]["stale_exchanges"] == ["okx"]


KEY_LIKE = b"ob_live_" + b"a" * 49


async def test_the_gateway_beats_while_it_is_entered_and_leaves_nothing(tmp_path):
    async with gateway(tmp_path) as node:
        ticks, tick = asyncio.Semaphore(0), node.gateway.scheduler.tick

        def counted():
            ticks.release()
            tick()
            raise RuntimeError("one failed tick does not end the scheduler")

        async def sleep(seconds):
            assert seconds == 1.0
            await asyncio.sleep(0)

        node.gateway.scheduler.tick = counted
        node.gateway.drainer._clock.sleep = sleep
        async with node.client() as client, node.gateway:
            await client.next()
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(3):
                    await ticks.acquire()
        await settled(lambda: not node.gateway.connections)


def test_the_same_conversation_on_uvloop(tmp_path):
    async def talk():
        async with gateway(tmp_path) as node:
            key = await node.key()
            async with node.client(key, compression="deflate") as client:
                node.snapshot("okx", *BOOK)
                await client.ask(type="subscribe_aggregated", symbol=SYMBOL, interval_ms=10)
                assert (await client.next())["update_number"] == 1
                node.delta("okx", [("100", "9")])
                assert (await client.next())["data"]["bids"][0]["amount"] == 9
                latency_ms = 0
                while not latency_ms:  # our pong to the first ping may still be on its way
                    await client.say(type="ping")
                    latency_ms = (await client.until("pong"))["latency_ms"]
                await raw(client, Frame(Opcode.CONT, b"{}").serialize(mask=True))
                assert await client.closed() == 1002

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())


def test_the_exchanges_of_the_rig_are_known():
    assert set(LISTED) <= set(EXCHANGES)
