"""The client's connection: the conversation, and what each close code makes it do."""

import json
from contextlib import aclosing

import pytest
from websockets.asyncio.server import serve

from onebook.client import Refused, watch


def update(number, price):
    return {
        "type": "aggregated_orderbook_update",
        "symbol": "BTC/USDT",
        "timestamp": "2026-11-20T10:00:00.000000Z",
        "update_number": number,
        "data": {"bids": [[price, 1]], "asks": [], "market_stats": {}, "stale_exchanges": []},
    }


class Scripted:
    """A server that holds one scripted conversation after the other."""

    def __init__(self, *conversations):
        self.conversations = list(conversations)
        self.heard = []

    async def __call__(self, ws):
        for step in self.conversations.pop(0):
            match step:
                case "hear":
                    self.heard.append(json.loads(await ws.recv()))
                case int():
                    return await ws.close(step, "because")
                case _:
                    await ws.send(json.dumps(step))


async def seen(script, count=100, **options):
    """The views that a client sees, as (live, best bid)."""
    async with serve(script, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        views = watch(f"ws://127.0.0.1:{port}/", "the key", ["BTC/USDT"], **options)
        found = []
        async with aclosing(views):
            async for view in views:
                found.append((view.live, view.bids[0].price if view.bids else None))
                if len(found) == count:
                    break
        return found


async def test_it_authenticates_subscribes_and_yields_views():
    script = Scripted(["hear", "hear", {"type": "welcome"}, update(1, 10), update(2, 11), 1000])
    assert await seen(script, 2, depth=5) == [(True, 10), (True, 11)]
    assert script.heard == [
        {"type": "authenticate", "api_key": "the key"},
        {"type": "subscribe_aggregated", "symbol": "BTC/USDT", "exchanges": "all", "depth": 5},
    ]


async def test_a_lost_connection_empties_the_view_until_it_is_back():
    script = Scripted(["hear", "hear", update(1, 10), 1011], ["hear", "hear", update(7, 12), 1000])
    assert await seen(script, 3) == [(True, 10), (False, None), (True, 12)]


async def test_a_hole_in_the_deltas_is_answered_by_resync():
    hole = {**update(3, 11), "type": "aggregated_orderbook_delta", "previous_update_number": 2}
    script = Scripted(["hear", "hear", update(1, 10), hole, "hear", update(4, 12), 1000])
    assert await seen(script, 2) == [(True, 10), (True, 12)]
    assert script.heard[-1] == {"type": "resync", "symbol": "BTC/USDT"}


async def test_4200_comes_back_at_the_time_the_service_named():
    bye = {"type": "server_shutdown", "reconnect_in_ms": 1}
    script = Scripted(
        ["hear", "hear", update(1, 10), bye, 4200], ["hear", "hear", update(1, 12), 1000]
    )
    assert await seen(script, 3) == [(True, 10), (False, None), (True, 12)]


@pytest.mark.parametrize("code", [4001, 4002, 4003, 4004])
async def test_40xx_is_final(code):
    with pytest.raises(Refused, match="because") as refused:
        await seen(Scripted(["hear", "hear", code]))
    assert refused.value.code == str(code)


@pytest.mark.parametrize("kind", ["authentication_error", "subscription_error"])
async def test_a_refusal_is_raised_with_its_sentence(kind):
    answer = {"type": kind, "error": "invalid_symbol", "message": "No exchange has it."}
    with pytest.raises(Refused, match="No exchange has it") as refused:
        await seen(Scripted(["hear", "hear", answer]))
    assert refused.value.code == "invalid_symbol"
