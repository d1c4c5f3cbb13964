"""The whole gateway over real sockets. Rows of contract section 2 and of the specification."""

import asyncio
import json
import re
from collections import Counter
from contextlib import suppress
from http import HTTPStatus

import pytest
import uvicorn
import uvloop
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from gateway.echo import echoing
from gateway.rig import BOOK, LISTED, PATIENCE_S, SYMBOL, gateway, parse, settled
from onebook.accounts.keys import new_key
from onebook.exchanges import EXCHANGES
from onebook.gateway import frames
from onebook.model import Tier
from onebook.store import Change


async def refused(url, **options):
    """The HTTP answer to an upgrade that is not accepted."""
    with pytest.raises(InvalidStatus) as caught:
        async with connect(url, proxy=None, **options):
            pass
    return caught.value.response


# The conversation of the specification


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


async def test_delta_mode_over_the_wire_and_resync_in_the_middle(node, key):
    async with node.client(key) as client:
        node.snapshot("okx")
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, mode="delta", interval_ms=10)
        assert (await client.next())["type"] == "aggregated_orderbook_update"
        node.delta("okx", [("100", "7")])
        delta = await client.next()
        assert delta["type"] == "aggregated_orderbook_delta"
        assert (delta["previous_update_number"], delta["update_number"]) == (1, 2)
        whole = await client.ask(type="resync", symbol=SYMBOL, id="again")
        assert whole["type"] == "aggregated_orderbook_update"
        assert (whole["id"], whole["update_number"]) == ("again", 2)
        assert whole["data"]["bids"][0]["amount"] == 7
        node.delta("okx", [("100", "8")])
        assert (await client.next())["previous_update_number"] == 2


async def test_resync_before_the_first_book_is_answered_with_what_is_known(node, key):
    async with node.client(key) as client:
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, exchanges=["okx"])
        await client.say(type="resync", symbol=SYMBOL, id=1)
        first, second = await client.next(), await client.next()
        assert first["update_number"] == second["update_number"] == 1
        assert second["id"] == 1
        assert second["data"]["stale_exchanges"] == ["okx"]


async def test_the_same_view_is_one_stream_and_a_newcomer_gets_its_newest_book(node, key):
    async with node.client(key) as first, node.client(key) as second:
        node.snapshot("okx")
        one = await first.ask(type="subscribe_aggregated", symbol=SYMBOL)
        await first.next()
        node.delta("okx", [("100", "5")])
        await first.next()
        other = await second.ask(type="subscribe_aggregated", symbol=SYMBOL)
        assert one["subscription_id"] == other["subscription_id"]
        newest = await second.next()
        assert newest["update_number"] == 2
        assert newest["data"]["bids"][0]["amount"] == 5
        assert len(node.streams) == 1


async def test_newcomers_to_a_view_get_one_and_the_same_frame(node, key):
    async with node.client(key) as one, node.client(key) as two, node.client(key) as three:
        node.snapshot("okx")
        texts = []
        for client in (one, two, three):
            await client.ask(type="subscribe_aggregated", symbol=SYMBOL)
            texts.append(await client.socket.recv())
        assert texts[0] == texts[1] == texts[2]


async def test_plain_and_compressed_clients_of_a_view_get_the_same_text(node, key):
    async with node.client(key) as plain, node.client(key, compression="deflate") as packed:
        node.snapshot("okx")
        for client in (plain, packed):
            await client.ask(type="subscribe_aggregated", symbol=SYMBOL)
            await client.next()
        node.delta("okx", [("100", "5")])
        assert await plain.socket.recv() == await packed.socket.recv()


async def test_unsubscribe_ends_the_updates_and_the_last_one_ends_the_stream(node, key):
    async with node.client(key) as first, node.client(key) as second:
        for client in (first, second):
            node.snapshot("okx")
            await client.ask(type="subscribe_aggregated", symbol=SYMBOL)
            await client.until("aggregated_orderbook_update")
        assert (await first.ask(type="unsubscribe_aggregated", symbol=SYMBOL))["success"]
        node.delta("okx", [("100", "5")])
        await second.until("aggregated_orderbook_update")
        assert (await first.ask(type="ping"))["type"] == "pong"
        await second.ask(type="unsubscribe_aggregated", symbol=SYMBOL)
        assert len(node.streams) == 0
        assert set(node.market.wanted.values()) == {0}


async def test_subscribing_again_replaces_and_to_the_same_view_sends_the_book_again(node, key):
    async with node.client(key) as client:
        node.snapshot("okx")
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL)
        await client.next()
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL)
        assert (await client.next())["update_number"] == 1
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, depth=1)
        assert len((await client.next())["data"]["bids"]) == 1
        assert len(node.streams) == 1
        node.delta("okx", [("100", "5")])
        assert len((await client.next())["data"]["bids"]) == 1


async def test_a_look_is_answered_without_a_subscription(node, key):
    async with node.client(key) as client:
        node.snapshot("okx")
        answer = await client.ask(type="get_aggregated_orderbook", symbol=SYMBOL, id=1)
        assert (answer["type"], answer["id"]) == ("aggregated_orderbook_data", 1)
        assert answer["data"]["stale_exchanges"] == ["binance", "kraken"]
        await client.say(type="get_aggregated_orderbook", symbol="DOGE/USDT", id=2)
        assert (await client.ask(type="ping"))["type"] == "pong"
        node.snapshot("binance", symbol="DOGE/USDT")
        assert (await client.next())["id"] == 2
        assert set(node.market.wanted.values()) == {0}


async def test_who_leaves_while_waiting_for_a_book_is_forgotten(node, key):
    async with node.client(key) as client:
        await client.say(type="get_aggregated_orderbook", symbol=SYMBOL)
        await client.ask(type="ping")
    await settled(lambda: not node.gateway.connections)
    assert set(node.market.wanted.values()) == {0}


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


async def test_several_streams_of_one_tick_are_one_write(node, key):
    async with node.client(key) as client:
        for symbol in (SYMBOL, "ETH/USDT"):
            node.snapshot("okx", symbol=symbol)
            await client.ask(type="subscribe_aggregated", symbol=symbol, exchanges=["okx"])
            await client.next()
        (connection,) = node.gateway.connections
        writes = []
        node.clock.put_forward(1)
        connection.transport = Watched(connection.transport, writes.append)
        connection.direct_fd = -1  # so that the transport sees it
        node.delta("okx", [("100", "5")])
        node.delta("okx", [("100", "5")], symbol="ETH/USDT")
        symbols = {(await client.next())["symbol"] for _ in range(2)}
        assert symbols == {SYMBOL, "ETH/USDT"}
        assert len(writes) == 1


class Watched:
    """A transport that tells what is written."""

    def __init__(self, transport, tell):
        self._transport = transport
        self._tell = tell

    def write(self, data):
        self._tell(data)
        self._transport.write(data)

    def __getattr__(self, name):
        return getattr(self._transport, name)


async def test_a_tick_with_much_for_one_client_is_written_in_bounded_pieces(tmp_path):
    symbols = [f"C{number}/USDT" for number in range(128)]
    bids = [(str(1_000_000 - n), "1.23456789") for n in range(40)]
    async with gateway(tmp_path, listed={"okx": symbols}) as node:
        key = await node.key()
        async with node.client(key) as client:
            for symbol in symbols:
                node.snapshot("okx", bids, [], symbol)
                response = await client.ask(
                    type="subscribe_aggregated", symbol=symbol, interval_ms=10
                )
                assert response["success"]
                await client.next()
            refusal = await client.ask(type="subscribe_aggregated", symbol="C0/USDT", depth=1)
            assert refusal["success"]
            await client.next()
            for symbol in symbols:
                node.delta("okx", [("1000001", "7")], symbol=symbol)
            got = {(await client.next())["symbol"] for _ in symbols}
            assert got == set(symbols)


# Authentication


@pytest.mark.parametrize("text", ["nonsense", "", "ob_live_" + "x" * 49])
async def test_an_invalid_key_gets_authentication_error_then_close_4002(node, text):
    async with node.client() as client:
        await client.next()
        refusal = await client.ask(type="authenticate", api_key=text, id=1)
        assert (refusal["type"], refusal["error"]) == ("authentication_error", "invalid_api_key")
        assert (refusal["code"], refusal["id"]) == (4001, 1)
        assert await client.closed() == 4002


async def test_a_suspended_key_gets_api_key_disabled(node, key):
    await node.admin.move_key(key, "suspend", node.change())
    async with node.client() as client:
        await client.next()
        refusal = await client.ask(type="authenticate", api_key=key)
        assert refusal["error"] == "api_key_disabled"
        assert await client.closed() == 4002


async def test_a_key_in_the_address_counts_as_if_the_message_had_been_sent(node, key):
    async with node.client(query=f"?api_key={key}") as client:
        assert "available_commands" in await client.next()
        assert (await client.next())["session_id"]


async def test_a_later_message_wins_over_the_key_in_the_address(node, key):
    other = await node.key(Tier.PREMIUM)
    async with node.client(query=f"?api_key={key}") as client:
        await client.next()
        first = await client.next()
        second = await client.ask(type="authenticate", api_key=other)
        assert (first["user_tier"], second["user_tier"]) == ("basic", "premium")
        assert len(node.gateway.connections.by_key) == 1


async def test_an_operator_can_switch_the_key_in_the_address_off(tmp_path):
    async with gateway(tmp_path, query_key_allowed=False) as node:
        key = await node.key()
        async with node.client(query=f"?api_key={key}") as client:
            await client.next()
            refusal = await client.ask(type="get_exchanges")
            assert refusal["error"] == "authentication_required"


async def test_messages_sent_before_the_key_was_verified_wait_for_it(node, key):
    async with node.client() as client:
        await client.next()
        await client.say(type="authenticate", api_key=key)
        await client.say(type="get_exchanges")
        assert (await client.next())["session_id"]
        assert (await client.next())["type"] == "exchanges_data"


async def test_not_authenticated_in_10_s_is_closed_4001(node):
    async with node.client() as client:
        await client.next()
        node.later(9.9)
        assert (await client.ask(type="ping"))["type"] == "pong"
        node.later(0.2)
        refusal = await client.next()
        assert (refusal["error"], refusal["code"]) == ("authentication_required", 4001)
        assert await client.closed() == 4001


async def test_an_authenticated_connection_is_not_timed_out(node, key):
    async with node.client(key) as client:
        node.later(11)
        assert (await client.ask(type="ping"))["type"] == "pong"


@pytest.mark.parametrize(("tier", "most"), [(Tier.BASIC, 5), (Tier.DEVELOPER, 15)])
async def test_over_the_tiers_connections_is_closed_4004(node, tier, most):
    key = await node.key(tier)
    async with asyncio.TaskGroup() as group:
        leave, ready = asyncio.Event(), []
        for _ in range(most):
            group.create_task(_stay(node, key, ready, leave))
        await settled(lambda: len(ready) == most)
        async with node.client() as client:
            await client.next()
            refusal = await client.ask(type="authenticate", api_key=key)
            assert refusal["error"] == "connection_limit_exceeded"
            assert await client.closed() == 4004
        leave.set()
    await settled(lambda: not node.gateway.connections)
    async with node.client(key):
        pass


async def _stay(node, key, ready, leave):
    async with node.client(key):
        ready.append(key)
        await leave.wait()


async def test_a_store_that_fails_sends_the_client_away_with_4129(node, key, caplog):
    async def fail(*_, **__):
        raise OSError("the disk is gone")

    node.accounts.verify_key = fail
    async with node.client() as client:
        await client.next()
        refusal = await client.ask(type="authenticate", api_key=key)
        assert refusal["error"] == "service_unavailable"
        assert await client.closed() == 4129
    assert key not in caplog.text


async def test_an_address_with_too_many_wrong_keys_is_sent_away(node, key):
    for _ in range(10):
        async with node.client(query="?api_key=wrong") as client:
            assert await client.closed() == 4002
    async with node.client(query=f"?api_key={key}") as client:
        await client.next()
        assert (await client.next())["error"] == "rate_limit_exceeded"
        assert await client.closed() == 4113


async def test_who_leaves_while_a_key_is_verified_is_forgotten(node, key):
    asked, answer = asyncio.Event(), asyncio.Event()
    verify = node.accounts.verify_key

    async def slow(*arguments, **options):
        asked.set()
        await answer.wait()
        return await verify(*arguments, **options)

    node.accounts.verify_key = slow
    async with node.client() as client:
        await client.say(type="authenticate", api_key=key)
        await asked.wait()
        client.socket.transport.abort()
        await settled(lambda: client.socket.close_code is not None)
    (connection,) = node.gateway.connections or [None]
    if connection is not None:
        connection.transport.abort()
    await settled(lambda: not node.gateway.connections)
    answer.set()
    await settled(lambda: not node.gateway.authenticator.tasks)
    assert node.gateway.connections.by_key == {}


@pytest.mark.parametrize("whose", ["key", "account"])
async def test_a_key_suspended_and_resumed_between_two_polls_closes_its_sockets(node, key, whose):
    [row] = await node.store.keys()
    move = node.admin.move_key if whose == "key" else node.admin.move_account
    name = row.key_id if whose == "key" else row.username
    async with node.client(key) as client:
        await node.accounts.poll(node.clock.wall_ms())
        await move(name, "suspend", node.change())
        await move(name, "resume", node.change())
        await node.accounts.poll(node.clock.wall_ms())
        assert (await client.next())["error"] == "api_key_disabled"
        assert await client.closed() == 4002
    async with node.client(key) as again:
        await node.admin.rotate_key(row.key_id, node.change(), overlap_ms=60_000)
        await node.accounts.poll(node.clock.wall_ms())
        assert (await again.ask(type="ping"))["type"] == "pong"


async def test_a_key_suspended_meanwhile_closes_its_sockets_4002(node, key):
    other = await node.key()
    async with node.client(key) as client, node.client(other) as bystander:
        await node.admin.move_key(key, "suspend", Change(node.clock.wall_ms(), "operator", "test"))
        await node.accounts.poll(node.clock.wall_ms())
        refusal = await client.next()
        assert (refusal["type"], refusal["error"]) == ("authentication_error", "api_key_disabled")
        assert await client.closed() == 4002
        assert (await bystander.ask(type="ping"))["type"] == "pong"


async def test_an_immediate_rotation_closes_what_the_old_text_opened_and_nothing_else(node, key):
    async with node.client(key) as old:
        made = await node.admin.rotate_key(key, node.change(), overlap_ms=0)
        async with node.client(made.text) as new:
            await node.accounts.poll(node.clock.wall_ms())
            refusal = await old.next()
            assert (refusal["type"], refusal["error"]) == (
                "authentication_error",
                "invalid_api_key",
            )
            assert await old.closed() == 4002
            assert (await new.ask(type="ping"))["type"] == "pong"


async def test_a_rotation_with_an_overlap_closes_nothing(node, key):
    async with node.client(key) as old:
        await node.admin.rotate_key(key, node.change(), overlap_ms=60_000)
        await node.accounts.poll(node.clock.wall_ms())
        assert (await old.ask(type="ping"))["type"] == "pong"


# Limits


async def unread(client, message):
    """Send what the server will not read to its end."""
    with suppress(ConnectionClosed):
        await client.socket.send(message)


async def test_a_message_over_64_kib_is_closed_1009(node, key):
    async with node.client(key) as client:
        await client.socket.send(json.dumps({"type": "ping", "client_time": "x" * 65_400}))
        assert (await client.next())["type"] == "pong"
        await unread(client, "x" * 65_537)
        assert await client.closed() == 1009


async def test_a_small_frame_that_inflates_to_much_is_closed_1009(node, key):
    async with node.client(key, compression="deflate") as client:
        await unread(client, " " * 10_000_000)
        assert await client.closed() == 1009


async def test_fragments_over_64_kib_together_are_closed_1009(node, key):
    async with node.client(key) as client:

        async def pieces():
            for _ in range(10):
                yield "x" * 10_000

        await unread(client, pieces())
        assert await client.closed() == 1009


async def test_a_message_in_fragments_is_one_message(node, key):
    async with node.client(key) as client:

        async def pieces():
            for piece in ('{"type":', '"pi', 'ng"}'):
                yield piece

        await client.socket.send(pieces())
        assert (await client.next())["type"] == "pong"


async def test_a_binary_message_is_closed_1003(node, key):
    async with node.client(key) as client:
        await client.socket.send(b"{}")
        assert await client.closed() == 1003


async def raw(client, data):
    """Bytes to the server, past the client library."""
    client.socket.transport.write(data)


async def test_text_that_is_not_utf8_is_closed_1007(node, key):
    async with node.client(key) as client:
        await raw(client, Frame(Opcode.TEXT, b"\xff\xfe").serialize(mask=True))
        assert await client.closed() == 1007


@pytest.mark.parametrize(
    "data",
    [
        Frame(Opcode.TEXT, b"{}").serialize(mask=False),
        b"\xa1\x80\x00\x00\x00\x00",
        Frame(Opcode.CONT, b"{}").serialize(mask=True),
        b"\x83\x80\x00\x00\x00\x00",
    ],
    ids=["no mask", "a reserved bit", "nothing to continue", "a reserved opcode"],
)
async def test_bytes_that_are_not_rfc_6455_are_closed_1002(node, key, data):
    async with node.client(key) as client:
        await raw(client, data)
        assert await client.closed() == 1002


async def test_frames_may_come_in_any_pieces(node, key):
    async with node.client(key) as client:
        two = Frame(Opcode.TEXT, b'{"type":"ping","id":1}').serialize(mask=True)
        two += Frame(Opcode.TEXT, b'{"type":"ping","id":2}').serialize(mask=True)
        received = node.gateway.totals.messages
        for at in range(len(two)):
            await raw(client, two[at : at + 1])
            await asyncio.sleep(0)
        assert [(await client.next())["id"] for _ in range(2)] == [1, 2]
        assert node.gateway.totals.messages == received + 2


async def test_rate_limit_exceeded_and_the_connection_stays(node, key):
    async with node.client(key) as client:
        kinds = []
        while "error" not in kinds:  # some come back while we talk: 10 a second
            assert len(kinds) < 2_000
            message = await client.ask(type="ping")
            kinds.append(message["type"])
            if message["type"] == "rate_limit_warning":
                await client.next()
        assert kinds.count("pong") >= 599
        assert kinds.count("rate_limit_warning") == 1
        assert (message["error"], message["window"]) == ("rate_limit_exceeded", "per_minute")
        node.clock.put_forward(float(message["retry_after"]))
        assert (await client.ask(type="ping"))["type"] == "pong"


async def test_a_flood_of_control_frames_is_closed_4113(node, key):
    async with node.client(key) as client:
        await raw(client, Frame(Opcode.PING, b"").serialize(mask=True) * 45)
        assert await client.closed() == 4113


# Before the upgrade


async def test_any_other_path_is_404(node):
    response = await refused(f"ws://127.0.0.1:{node.port}/api/v1/wss")
    assert response.status_code == HTTPStatus.NOT_FOUND
    assert parse(response.body)["error"] == "not_found"


async def test_a_full_node_answers_503_with_retry_after(tmp_path):
    async with gateway(tmp_path, connections_max=1) as node, node.client():
        response = await refused(node.url)
        assert response.status_code == HTTPStatus.SERVICE_UNAVAILABLE
        assert 1 <= int(response.headers["Retry-After"]) <= 10
        assert parse(response.body)["error"] == "service_unavailable"


async def test_more_than_60_attempts_a_minute_from_one_address_are_429(tmp_path):
    async with gateway(tmp_path, connects_per_minute=2) as node:
        for _ in range(2):
            async with node.client():
                pass
        response = await refused(node.url)
        assert response.status_code == HTTPStatus.TOO_MANY_REQUESTS
        assert int(response.headers["Retry-After"]) >= 1
        assert response.headers["RateLimit-Policy"] == '"connects";q=2;w=60'
        assert re.search(r"\.\d{3}Z$", parse(response.body)["timestamp"])
        async with node.client(additional_headers={"X-Forwarded-For": "198.51.100.7"}):
            pass


async def test_only_listed_origins_may_come_from_a_browser(tmp_path):
    async with gateway(tmp_path, origins=("https://books.example",)) as node:
        response = await refused(node.url, origin="https://evil.example")
        assert response.status_code == HTTPStatus.FORBIDDEN
        assert parse(response.body)["error"] == "origin_not_allowed"
        async with node.client(origin="https://books.example"), node.client():
            pass


UPGRADE = (
    b"Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
VERSION_13 = b"Sec-WebSocket-Version: 13\r\n"
KEY_LIKE = b"ob_live_" + b"a" * 49
GET = b"GET /api/v1/ws HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status", "error"),
    [
        (GET + UPGRADE + b"Sec-WebSocket-Version: 8\r\n\r\n", 426, "upgrade_required"),
        (GET + UPGRADE + b"\r\n", 426, "upgrade_required"),
        (GET + UPGRADE.partition(b"Sec-")[0] + VERSION_13 + b"\r\n", 400, "invalid_request"),
        (GET + UPGRADE + VERSION_13 + b"Content-Length: 5\r\n\r\nhello", 400, "invalid_request"),
        (
            GET + UPGRADE + VERSION_13 + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            400,
            "invalid_request",
        ),
        (GET + UPGRADE + VERSION_13 + b"X: a\r\n" * 200 + b"\r\n", 400, "invalid_request"),
        (
            b"GET /api/v1/ws?" + b"a" * 9_000 + b" HTTP/1.1\r\n" + UPGRADE + VERSION_13 + b"\r\n",
            414,
            "request_too_large",
        ),
        (b"POST" + GET[3:] + UPGRADE + VERSION_13 + b"\r\n", 405, "method_not_allowed"),
        (
            b"GET /ob_live_" + b"a" * 49 + GET[14:] + UPGRADE + VERSION_13 + b"\r\n",
            404,
            "not_found",
        ),
    ],
)
async def test_every_refused_upgrade_is_answered_in_json_and_closed(
    node, request_bytes, status, error
):
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(request_bytes)
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert parse(body)["error"] == error
    assert b"aaaaaaaa" not in body
    assert (b"Sec-WebSocket-Version: 13" in head) is (status == 426)


async def test_one_trailing_slash_of_the_path_is_ignored(node):
    async with node.client(query="/") as client:
        assert (await client.next())["type"] == "welcome"


async def test_compression_is_without_context_takeover_or_off(tmp_path, node):
    async with node.client(compression="deflate") as client:
        answer = client.socket.response.headers["Sec-WebSocket-Extensions"]
        assert "server_no_context_takeover" in answer
        assert "client_no_context_takeover" in answer
    (folder := tmp_path / "other").mkdir()
    async with (
        gateway(folder, compression_allowed=False) as plain,
        plain.client(compression="deflate") as client,
    ):
        assert "Sec-WebSocket-Extensions" not in client.socket.response.headers


# Pings


async def test_latency_is_the_last_round_trip_of_our_ping(node):
    async with node.client() as client:
        await client.next()
        (connection,) = node.gateway.connections
        await settled(lambda: not connection.ping_at)
        assert 0 < (await client.ask(type="ping"))["latency_ms"] < 1_000


async def test_a_ping_every_20_s_and_silence_ends_the_connection(node, key):
    async with node.client(key) as client:
        (connection,) = node.gateway.connections
        await settled(lambda: not connection.ping_at)
        client.socket.transport.pause_reading()
        for _ in range(20):
            node.later(1)
        assert connection.ping_at
        for _ in range(21):
            node.later(1)
        assert connection.ended
        for _ in range(6):
            node.later(1)
        await settled(lambda: not node.gateway.connections)
        assert connection.code == 4108


# Metering


async def test_payload_bytes_are_counted_as_sent_after_compression(node, key):
    async with node.client(key, compression="deflate") as client:
        node.snapshot("okx", [(str(1_000 - n), "1") for n in range(100)], [])
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, depth=500)
        text = await client.socket.recv()
        await node.acknowledged()
        await node.accounts.meter.flush()
        (key_id,) = node.gateway.connections.by_key
        used = node.accounts.meter.used(key_id, node.clock.wall_ms())
        assert 0 < used < len(text) / 2


async def test_every_byte_of_a_plain_client_is_counted_once_also_at_the_end(node, key):
    async with node.client() as client:
        (await client.next())["type"]
        await client.say(type="authenticate", api_key=key)
        node.snapshot("okx")
        texts = [await client.socket.recv()]
        await client.say(type="subscribe_aggregated", symbol=SYMBOL)
        texts += [await client.socket.recv(), await client.socket.recv()]
        (key_id,) = node.gateway.connections.by_key
        (connection,) = node.gateway.connections
    await settled(lambda: connection.lost)
    used = node.accounts.meter.used(key_id, node.clock.wall_ms())
    assert used == sum(len(text.encode()) for text in texts)


async def test_over_the_allowance_all_sockets_get_data_limit_exceeded_and_4003(tmp_path):
    async with gateway(tmp_path, allowance_bytes=2_000) as node:
        key = await node.key()
        async with node.client(key) as first, node.client(key) as second:
            node.snapshot("okx", [(str(1_000 - n), "1") for n in range(50)], [])
            await first.ask(type="subscribe_aggregated", symbol=SYMBOL, depth=50)
            await first.next()
            await node.acknowledged()
            await node.accounts.meter.flush()
            for client in (first, second):
                notice = await client.next()
                assert notice["type"] == "data_limit_exceeded"
                assert notice["data_usage"]["bytes_limit"] == 2_000
                assert notice["reset_date"].endswith("Z")
                assert await client.closed() == 4003
        async with node.client() as again:
            await again.next()
            assert (await again.ask(type="authenticate", api_key=key))["session_id"]
            assert (await again.next())["type"] == "data_limit_exceeded"
            assert await again.closed() == 4003


async def test_data_limit_warning_at_80_percent(tmp_path):
    async with gateway(tmp_path, allowance_bytes=10_000) as node:
        key = await node.key()
        async with node.client(key) as client:
            (key_id,) = node.gateway.connections.by_key
            node.accounts.meter.add(key_id, 8_000)
            await node.accounts.meter.flush()
            warning = await client.next()
            assert warning["type"] == "data_limit_warning"
            assert warning["data_usage"]["usage_percentage"] >= 80
            assert (await client.ask(type="ping"))["type"] == "pong"


async def test_data_limit_warning_at_authentication_above_80_percent(tmp_path):
    async with gateway(tmp_path, allowance_bytes=10_000) as node:
        key = await node.key()
        async with node.client(key) as client:
            (key_id,) = node.gateway.connections.by_key
            node.accounts.meter.add(key_id, 8_000)
            await node.accounts.meter.flush()
            assert (await client.next())["type"] == "data_limit_warning"
        async with node.client(key) as returned:
            warning = await returned.next()
            assert warning["type"] == "data_limit_warning"
            assert warning["reset_date"].endswith("Z")


async def test_60_wrong_keys_at_one_moment_get_10_verdicts(node):
    async def attempt(leave):
        async with node.client() as client:
            await client.next()
            await barrier.wait()
            refusal = await client.ask(type="authenticate", api_key=new_key())
            await leave.wait()
            return refusal["error"], await client.closed()

    barrier, leave = asyncio.Barrier(60), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attempt(leave)) for _ in range(60)]
        leave.set()
    assert Counter(task.result() for task in tasks) == {
        ("invalid_api_key", 4002): 10,
        ("rate_limit_exceeded", 4113): 50,
    }


# The end of a connection


async def test_what_a_client_says_after_our_close_is_not_heard(node, key):
    async with node.client(key) as client:
        (connection,) = node.gateway.connections
        heard = node.gateway.totals.messages
        connection.end(4200, "test")
        connection.end(4108, "once is enough")
        connection.say(b"{}")
        await raw(client, Frame(Opcode.TEXT, b'{"type":"ping"}').serialize(mask=True))
        assert await client.closed() == 4200
        await settled(lambda: connection.lost)
        assert node.gateway.totals.messages == heard


async def test_what_a_tick_brought_is_not_charged_when_the_connection_ends_within_it(node, key):
    async with node.client(key) as client:
        (connection,) = node.gateway.connections
        before = connection.sent + connection.total
        first, second = (frames.text_frame(each) for each in (b"x" * 500, b"y" * 70_000))
        connection.sent += 500 + 70_000
        connection.out = (first, second)
        connection.end(4200, "test")
        assert connection.sent + connection.total == before
        assert await client.closed() == 4200


async def test_two_messages_at_once_and_the_first_ends_the_connection(node, key):
    async with node.client(key) as client:
        heard = node.gateway.totals.messages
        await raw(
            client,
            Frame(Opcode.BINARY, b"x").serialize(mask=True)
            + Frame(Opcode.TEXT, b'{"type":"ping"}').serialize(mask=True),
        )
        assert await client.closed() == 1003
        assert node.gateway.totals.messages == heard


async def test_a_client_that_just_vanishes_is_counted_as_1006(node, key):
    async with node.client(key) as client:
        (connection,) = node.gateway.connections
        client.socket.transport.abort()
        await settled(lambda: connection.lost)
    assert connection.code == 1006


async def test_a_close_in_the_middle_of_a_message_is_answered(node, key):
    async with node.client(key) as client:
        await raw(client, Frame(Opcode.TEXT, b'{"ty', fin=False).serialize(mask=True))
        await client.socket.close(1000)
        assert client.socket.close_code == 1000


async def test_over_tls_the_close_frame_is_followed_by_the_end(node, key):
    async with node.client(key) as client:
        (connection,) = node.gateway.connections

        class NoHalves(Watched):
            def can_write_eof(self):
                return False

        connection.transport = NoHalves(connection.transport, lambda data: None)
        await raw(client, Frame(Opcode.CONT, b"").serialize(mask=True))
        assert await client.closed() == 1002


@pytest.mark.parametrize("data", [b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01" * 50 + b"\r\n\r\n"])
async def test_bytes_that_are_no_upgrade_end_the_connection(node, data):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: node.gateway.protocol(None, node.server_state, {}), "127.0.0.1", 0
    )
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
        writer.close()
        await writer.wait_closed()
    assert not node.gateway.connections


async def test_uvicorn_may_stop_during_a_handshake(node):
    loop = asyncio.get_running_loop()
    made = []

    def protocol():
        made.append(node.gateway.protocol(None, node.server_state, {}))
        return made[0]

    async with await loop.create_server(protocol, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await settled(lambda: made and made[0] in node.server_state.connections)
        made[0].shutdown()
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_two_forwarded_headers_count_the_last(tmp_path):
    headers = [("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-For", "198.51.100.7")]
    async with gateway(tmp_path) as node, node.client(additional_headers=headers):
        (connection,) = node.gateway.connections
        assert connection.address == "198.51.100.7"


async def test_a_key_that_becomes_verifiable_again_is_logged_once(node, key, caplog):
    caplog.set_level("INFO")
    verify = node.accounts.verify_key

    async def fail(*_, **__):
        raise OSError("the disk is gone")

    node.accounts.verify_key = fail
    for _ in range(2):
        async with node.client(query=f"?api_key={key}") as client:
            assert await client.closed() == 4129
    node.accounts.verify_key = verify
    async with node.client(key):
        assert caplog.text.count("Keys cannot be verified") == 1
        assert caplog.text.count("Keys can be verified again") == 1


async def test_a_connection_that_was_timed_out_while_its_key_was_verified_has_no_key(node, key):
    answer, verify = asyncio.Event(), node.accounts.verify_key

    async def slow(*arguments, **options):
        await answer.wait()
        return await verify(*arguments, **options)

    node.accounts.verify_key = slow
    async with node.client(query=f"?api_key={key}") as client:
        node.later(11)
        answer.set()
        assert await client.closed() == 4001
    assert node.gateway.connections.by_key == {}


async def test_stopping_ends_the_verification_of_keys(node, key):
    asked = asyncio.Event()

    async def never(*_, **__):
        asked.set()
        await asyncio.Event().wait()

    node.accounts.verify_key = never
    async with node.client(query=f"?api_key={key}"):
        await asked.wait()
        await node.gateway.authenticator.stop()
        assert not node.gateway.authenticator.tasks


async def test_the_echo_build_for_conformance_suites_echoes(node):
    async with node.listening(echoing()), connect(node.url, proxy=None) as socket:
        for message in ("text", b"bytes", "x" * 100_000):
            await socket.send(message)
            assert await socket.recv() == message
        socket.transport.write(Frame(Opcode.TEXT, b"\xff").serialize(mask=True))
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1007


# The end of a node


async def test_draining_tells_when_to_return_and_closes_4200_spread_over_the_time(tmp_path):
    async with gateway(tmp_path, drain_s=0.2) as node:
        key = await node.key(Tier.PREMIUM)
        async with node.client(key) as one, node.client(key) as two, node.client() as three:
            await three.next()
            draining = asyncio.create_task(node.gateway.drain())
            times = []
            for client in (one, two, three):
                notice = await client.until("server_shutdown")
                times.append(int(notice["reconnect_in_ms"]))
            assert sorted(times) == [67, 133, 200]
            response = await refused(node.url)
            assert response.status_code == HTTPStatus.SERVICE_UNAVAILABLE
            for client in (one, two, three):
                assert await client.closed() == 4200
            async with asyncio.timeout(PATIENCE_S):
                await draining
        assert not node.gateway.connections


async def test_draining_does_not_wait_for_who_does_not_answer(tmp_path):
    async with gateway(tmp_path, drain_s=0.0, close_timeout_s=0.2) as node, node.client() as client:
        await client.next()
        client.socket.transport.pause_reading()
        async with asyncio.timeout(PATIENCE_S):
            await node.gateway.drain()
        await settled(lambda: not node.gateway.connections)


async def test_a_peer_that_does_not_answer_our_close_is_cut_off(node):
    async with node.client() as client:
        await client.next()
        (connection,) = node.gateway.connections
        client.socket.transport.pause_reading()
        connection.end(4200, "test")
        node.later(5.1)
        await settled(lambda: not node.gateway.connections)


async def test_the_gateway_beats_while_it_is_entered_and_leaves_nothing(tmp_path):
    async with gateway(tmp_path) as node:
        beats, beat = asyncio.Semaphore(0), node.gateway.scheduler.tick

        def counted():
            beats.release()
            beat()
            raise RuntimeError("one bad beat does not end the beats")

        async def sleep(seconds):
            assert seconds == 1.0
            await asyncio.sleep(0)

        node.gateway.scheduler.tick = counted
        node.gateway.drainer._sleep = sleep
        async with node.client() as client, node.gateway:
            await client.next()
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(3):
                    await beats.acquire()
        await settled(lambda: not node.gateway.connections)


async def test_uvicorns_own_shutdown_closes_who_is_left(tmp_path):
    async with gateway(tmp_path) as node:

        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        config = uvicorn.Config(
            app, port=0, ws=node.gateway.protocol, lifespan="off", log_config=None
        )
        server = uvicorn.Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        node.port = server.servers[0].sockets[0].getsockname()[1]
        async with node.client() as client:
            await client.next()
            await server.shutdown()
            assert await client.closed() == 4200
        assert not server.server_state.connections


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


async def test_resync_within_the_interval_is_the_present_and_leaves_no_hole_for_others(node, key):
    """Delta subscribers of one view: what one of them asks for is the next update of both."""
    async with node.client(key) as first, node.client(key) as second:
        node.snapshot("okx")
        for client in (first, second):
            await client.ask(
                type="subscribe_aggregated", symbol=SYMBOL, mode="delta", interval_ms=60_000
            )
            assert (await client.next())["update_number"] == 1
        node.delta("okx", [("100", "7")])
        await first.say(type="resync", symbol=SYMBOL, id=5)
        delta, whole = await first.next(), await first.next()
        assert (delta["previous_update_number"], delta["update_number"]) == (1, 2)
        assert (whole["id"], whole["update_number"]) == (5, 2)
        assert whole["data"]["bids"][0]["amount"] == 7
        other = await second.next()
        assert (other["previous_update_number"], other["update_number"]) == (1, 2)
