"""The client's connection: the conversation, and what each close code and failure makes it do."""

import asyncio
import json
import re
import socket
import ssl
from contextlib import aclosing, asynccontextmanager
from datetime import date
from http import HTTPStatus

import pytest
from websockets.asyncio.server import serve
from websockets.utils import accept_key

from e2e.test_tls import Authority
from onebook.client import Refused, Unavailable, session, watch
from onebook.client.failures import BACKOFF_MAX_S, NO_CLOSE_FRAME, pause_s
from onebook.client.shapes import fault_of, shapes_of
from onebook.fees import PublishedFee
from steady import PATIENCE_S

HOST = "127.0.0.1"
NO_STATS = {
    "best_bid": None,
    "best_ask": None,
    "spread": None,
    "spread_percent": None,
    "mid_price": None,
    "total_bid_volume": None,
    "total_ask_volume": None,
    "participating_exchanges": 0,
    "crossed": False,
}


def update(number, price):
    return {
        "type": "aggregated_orderbook_update",
        "symbol": "BTC/USDT",
        "timestamp": "2026-11-20T10:00:00.000000Z",
        "update_number": number,
        "data": {"bids": [[price, 1]], "asks": [], "market_stats": NO_STATS, "stale_exchanges": []},
    }


GAP = {
    **update(3, 11),
    "type": "aggregated_orderbook_delta",
    "previous_update_number": 2,
    "checksum": 0,
}


class Scripted:
    """A server that holds one scripted conversation after the other.

    "seen" waits until the caller has taken one more view: a caller that is late gets the newest.
    """

    def __init__(self, *conversations):
        self.conversations = list(conversations)
        self.heard = []
        self.seen = asyncio.Semaphore(0)
        self.close_code = None

    async def __call__(self, ws):
        for step in self.conversations.pop(0):
            match step:
                case "hear":
                    self.heard.append(json.loads(await ws.recv()))
                case int():
                    return await ws.close(step, "because")
                case "seen":
                    await self.seen.acquire()
                case "stay":
                    await ws.wait_closed()
                    self.close_code = ws.close_code
                case _:
                    await ws.send(json.dumps(step))


async def seen(script, count=100, **options):
    """The views that a client sees, as (live, best bid)."""
    async with serve(script, "127.0.0.1", 0) as server, asyncio.timeout(PATIENCE_S):
        port = server.sockets[0].getsockname()[1]
        views = watch(f"ws://127.0.0.1:{port}/", "the key", ["BTC/USDT"], **options)
        found = []
        async with aclosing(views):
            async for view in views:
                found.append((view.live, view.bids[0].price if view.bids else None))
                script.seen.release()
                if len(found) == count:
                    break
        return found


async def test_it_authenticates_subscribes_and_yields_views():
    script = Scripted(
        ["hear", "hear", {"type": "welcome"}, update(1, 10), "seen", update(2, 11), 1000]
    )
    assert await seen(script, 2, depth=5) == [(True, 10), (True, 11)]
    assert script.heard == [
        {"type": "authenticate", "api_key": "the key"},
        {
            "type": "subscribe_aggregated", "symbol": "BTC/USDT", "id": "BTC/USDT",
            "encoding": "protobuf", "exchanges": "all", "depth": 5,
        },
    ]  # fmt: skip


async def test_a_lost_connection_empties_the_view_until_it_is_back():
    script = Scripted(
        ["hear", "hear", update(1, 10), "seen", 1011], ["hear", "hear", update(7, 12), 1000]
    )
    assert await seen(script, 3) == [(True, 10), (False, None), (True, 12)]


async def test_a_hole_in_the_deltas_is_answered_by_resync():
    script = Scripted(
        ["hear", "hear", update(1, 10), "seen", GAP, "seen", "hear", update(4, 12), 1000]
    )
    assert await seen(script, 3) == [(True, 10), (False, None), (True, 12)]
    assert script.heard[-1] == {"type": "resync", "symbol": "BTC/USDT", "id": "BTC/USDT"}


async def test_deltas_after_a_hole_are_left_out_until_the_full_book():
    script = Scripted(
        ["hear", "hear", update(1, 10), "seen", GAP, GAP, "seen", "hear", update(4, 12), "stay"]
    )
    assert await seen(script, 3) == [(True, 10), (False, None), (True, 12)]
    assert [message["type"] for message in script.heard].count("resync") == 1


async def test_4200_comes_back_at_the_time_the_service_named():
    bye = {"type": "server_shutdown", "reconnect_in_ms": 1}
    script = Scripted(
        ["hear", "hear", update(1, 10), "seen", bye, 4200], ["hear", "hear", update(1, 12), 1000]
    )
    assert await seen(script, 3) == [(True, 10), (False, None), (True, 12)]


async def test_the_time_of_a_return_counts_from_the_notice_not_from_the_close():
    bye = {"type": "server_shutdown", "reconnect_in_ms": 60_000}
    script = Scripted(["hear", "hear", bye, update(1, 10), "seen", 4200])
    async with serve(script, HOST, 0) as server, asyncio.timeout(PATIENCE_S):
        port = server.sockets[0].getsockname()[1]
        async with aclosing(watch(f"ws://{HOST}:{port}/", "the key", ["BTC/USDT"])) as views:
            async for view in views:
                script.seen.release()
                if not view.live:
                    break
    assert view.problem.code == "server_shutdown"
    assert 0 < view.problem.retry_in_s < 60.0


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


async def failure(url):
    """The problem of the first view that is yielded, or the refusal."""
    async with asyncio.timeout(PATIENCE_S), aclosing(watch(url, "key", ["BTC/USDT"])) as views:
        async for view in views:
            assert not view.live
            return view.problem


@asynccontextmanager
async def answering(answer):
    """A port that answers whatever is sent with these bytes and closes."""

    async def accepted(reader, writer):
        await reader.read(65_536)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(accepted, HOST, 0) as server:
        yield server.sockets[0].getsockname()[1]


def http(status, *headers):
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Content-Length: 0", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def test_a_dead_port_is_said_at_once_and_tried_again():
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        port = unused.getsockname()[1]
        problem = await failure(f"ws://{HOST}:{port}/")
    assert (problem.code, problem.message) == (
        "unreachable",
        f"Connection refused by {HOST}:{port}.",
    )


async def test_an_unknown_host_is_said_and_tried_again():
    problem = await failure("ws://onebook.invalid/")
    assert problem.code == "unknown_host"
    assert "onebook.invalid" in problem.message


@pytest.mark.parametrize("status", [200, 301, 400, 401, 403, 404, 405, 426])
async def test_a_wrong_path_is_final(status):
    async with answering(http(status)) as port:
        with pytest.raises(Refused, match=f"HTTP {status}.*check the path") as refused:
            await failure(f"ws://{HOST}:{port}/api")
    assert refused.value.code == f"http_{status}"


async def test_a_full_node_is_tried_again_when_it_says():
    async with answering(http(503, "Retry-After: 7")) as port:
        problem = await failure(f"ws://{HOST}:{port}/")
    assert problem.code == "http_503"
    assert problem.retry_in_s >= 7


async def test_a_peer_that_is_no_http_server_is_said_and_tried_again():
    async with answering(b"") as port:
        problem = await failure(f"ws://{HOST}:{port}/")
    assert problem.code == "no_handshake"


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:1/", "127.0.0.1:0", "ws://", "ws://a:port/"])
async def test_a_wrong_address_is_refused_before_any_attempt(url):
    with pytest.raises(Refused, match="wss:// or ws://") as refused:
        await failure(url)
    assert refused.value.code == "invalid_url"


@pytest.mark.parametrize("address", ["http://127.0.0.1:{}", "127.0.0.1:{}", "ws://127.0.0.1:{}"])
async def test_the_address_of_the_service_is_enough(address):
    script = Scripted(["hear", "hear", {"type": "welcome"}, update(1, 10), "seen", 1000])
    async with serve(script, "127.0.0.1", 0) as server, asyncio.timeout(PATIENCE_S):
        url = address.format(server.sockets[0].getsockname()[1])
        async with aclosing(watch(url, "the key", "BTC/USDT")) as views:
            assert (await anext(views)).live
            (connection,) = server.connections
            assert connection.request.path == "/api/v1/ws"
            script.seen.release()


async def test_no_symbol_is_refused_before_any_attempt():
    """It waited for a view for ever."""
    for none in ([], ""):
        with pytest.raises(ValueError, match="give at least one"):
            watch("ws://127.0.0.1:1/", "the key", none)


async def test_one_symbol_may_be_text():
    script = Scripted(["hear", "hear", {"type": "welcome"}, update(1, 10), "seen", 1000])
    async with serve(script, "127.0.0.1", 0) as server, asyncio.timeout(PATIENCE_S):
        port = server.sockets[0].getsockname()[1]
        async with aclosing(watch(f"ws://127.0.0.1:{port}/", "the key", "BTC/USDT")) as views:
            assert (await anext(views)).live
            script.seen.release()
    assert [each["symbol"] for each in script.heard[1:]] == ["BTC/USDT"]


async def test_a_symbol_has_options_of_its_own_on_every_connection():
    """Levels come in the form that each asked for; a symbol keeps its options under a new name."""
    accepted = {"type": "aggregated_subscription_response", "id": "btc/usdt", "symbol": "BTC/USDT"}
    split = update(1, 10)
    split["data"]["bids"] = [[10, 1, [["okx", 1]]]]
    both = [accepted, split, {**update(1, 20), "symbol": "ETH/USDT"}]
    script = Scripted(
        ["hear"] * 3 + both + ["seen"] * 2 + [1012], ["hear"] * 3 + both[1:] + ["stay"]
    )
    symbols = {"btc/usdt": {"split": True, "depth": 5, "exchanges": ["okx"]}, "ETH/USDT": {}}
    async with serve(script, HOST, 0) as server, asyncio.timeout(PATIENCE_S):
        port = server.sockets[0].getsockname()[1]
        async with aclosing(watch(f"ws://{HOST}:{port}/", "key", symbols, depth=10)) as views:
            lived = 0
            async for view in views:
                script.seen.release()
                lived += view.live
                if view.live and view.symbol == "BTC/USDT":
                    assert view.bids[0].amounts == (1,)
                if lived == 4:
                    break
    subscribed = [each for each in script.heard if each["type"] == "subscribe_aggregated"]
    assert [(each["symbol"].upper(), each["depth"], each["exchanges"], each.get("split"))
            for each in subscribed] == [
        ("BTC/USDT", 5, ["okx"], True), ("ETH/USDT", 10, "all", None),
    ] * 2  # fmt: skip


@pytest.mark.parametrize("own", [5, ["depth"], None, "depth=5"])
def test_options_of_a_symbol_that_are_no_mapping_are_refused(own):
    with pytest.raises(TypeError, match="Options of BTC/USDT must be a mapping"):
        watch("ws://127.0.0.1:1/", "the key", {"BTC/USDT": own})


async def test_an_untrusted_certificate_is_final(tmp_path):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*Authority(tmp_path, "stranger").vouch())
    async with serve(Scripted(["stay"]), HOST, 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Refused, match=r"is not trusted.*SSL_CERT_FILE") as refused:
            await failure(f"wss://{HOST}:{port}/")
    assert refused.value.code == "untrusted_certificate"


async def test_tls_to_a_port_without_tls_is_final():
    async with answering(http(400)) as port:
        with pytest.raises(Refused, match="does not speak TLS"):
            await failure(f"wss://{HOST}:{port}/")


async def test_another_protocol_is_final():
    with pytest.raises(Refused, match="Onebook's protocol"):
        await seen(Scripted([["no", "object"], "stay"]))


def error(code, **more):
    return {"type": "error", "error": code, "message": f"The service says {code}.", **more}


async def test_an_error_about_a_symbol_is_raised_with_its_code():
    limit = error("subscription_limit_exceeded", id="BTC/USDT")
    with pytest.raises(Refused, match="subscription_limit") as refused:
        await seen(Scripted(["hear", "hear", limit, "stay"]))
    assert refused.value.code == "subscription_limit_exceeded"


async def test_an_error_before_a_final_close_is_its_reason():
    script = Scripted(["hear", "hear", error("connection_limit_exceeded"), 4004])
    with pytest.raises(Refused) as refused:
        await seen(script)
    assert refused.value.code == "connection_limit_exceeded"


async def test_an_error_that_no_close_follows_is_raised(monkeypatch):
    monkeypatch.setattr(session, "CLOSE_WAIT_S", 0.01)
    with pytest.raises(Refused, match="invalid_message"):
        await seen(Scripted(["hear", "hear", error("invalid_message"), "stay"]))


async def test_a_refusal_with_retry_after_is_subscribed_again_then():
    later = error("exchange_unavailable", id="BTC/USDT", retry_after=0.01)
    later["type"] = "subscription_error"
    script = Scripted(["hear", "hear", later, "hear", update(1, 10), "stay"])
    assert await seen(script, 2) == [(False, None), (True, 10)]
    assert script.heard[2] == script.heard[1]


async def test_a_rate_limit_on_the_connection_comes_back_after_it():
    slow = error("rate_limit_exceeded", retry_after=0.01)
    script = Scripted(["hear", "hear", slow, "stay"], ["hear", "hear", update(1, 10), "stay"])
    assert await seen(script, 2) == [(False, None), (True, 10)]


async def test_the_symbol_as_the_service_writes_it_is_taken_over():
    accepted = {
        "type": "aggregated_subscription_response", "id": "BTC/USDT", "symbol": "XBT/USDT",
    }  # fmt: skip
    script = Scripted(["hear", "hear", accepted, {**update(1, 10), "symbol": "XBT/USDT"}, "stay"])
    assert await seen(script, 1) == [(True, 10)]


def accepted(*rejected):
    return {
        "type": "aggregated_subscription_response", "id": "BTC/USDT", "symbol": "BTC/USDT",
        "rejected": [*rejected],
    }  # fmt: skip


async def test_the_exchanges_that_do_not_list_the_symbol_are_named():
    rejected = {"exchange": "kraken", "reason": "symbol_not_traded"}
    script = Scripted(["hear", "hear", accepted(rejected), update(1, 10), "stay"])
    async with serve(script, HOST, 0) as server, asyncio.timeout(PATIENCE_S):
        port = server.sockets[0].getsockname()[1]
        async with aclosing(watch(f"ws://{HOST}:{port}/", "key", ["BTC/USDT"])) as views:
            view = await anext(views)
    assert view.rejected == {"kraken": "symbol_not_traded"}


async def test_published_fees_are_part_of_a_view():
    fee = {
        "exchange": "kucoin", "symbol": "BTC/USDT", "percent": "0.1", "source": "page",
        "date": "2026-03-26", "page": "https://x.example", "old": True, "later": 1,
    }  # fmt: skip
    script = Scripted(
        ["hear", "hear", accepted() | {"published_fees": [fee]}, update(1, 10), "stay"]
    )
    async with serve(script, HOST, 0) as server, asyncio.timeout(PATIENCE_S):
        port = server.sockets[0].getsockname()[1]
        chosen = {"fees": "published"}
        async with aclosing(watch(f"ws://{HOST}:{port}/", "key", ["BTC/USDT"], **chosen)) as views:
            (found,) = (await anext(views)).published_fees
    page = "https://x.example"
    of = date(2026, 3, 26)
    assert found == PublishedFee("kucoin", "BTC/USDT", "0.1", "page", of, page, old=True)


@pytest.mark.parametrize("wrong", [{"date": "26 March"}, {"date": 7}, {"percent": 0.1}])
async def test_a_published_fee_that_is_none_is_a_fault_of_the_service(wrong):
    fee = {"exchange": "a", "symbol": "A/B", "percent": "1", "source": "page", "date": "2026-03-26"}
    shape = shapes_of({})["aggregated_subscription_response"]
    assert fault_of({"symbol": "A/B", "published_fees": [fee]}, shape) is None
    assert fault_of({"symbol": "A/B", "published_fees": [fee | wrong]}, shape)


async def test_a_misspelt_exchange_is_an_error_that_suggests_a_name():
    rejected = {"exchange": "krakne", "reason": "unknown_exchange", "detail": "Unknown exchange."}
    listed = {"type": "exchanges_data", "id": "1", "data": {"supported_exchanges": ["kraken"]}}
    script = Scripted(
        ["hear", "hear", accepted(rejected), "stay"], ["hear", "hear", listed, "stay"]
    )
    async with serve(script, HOST, 0) as server, asyncio.timeout(PATIENCE_S):
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Refused, match="Did you mean kraken") as refused:
            await anext(watch(f"ws://{HOST}:{port}/", "key", ["BTC/USDT"], exchanges="krakne"))
    assert refused.value.code == "invalid_exchange"
    assert refused.value.details["near"] == ["kraken"]
    assert script.heard[1]["exchanges"] == ["krakne"]


async def test_an_exchange_that_the_service_serves_no_longer_ends_nothing():
    rejected = {"exchange": "okx", "reason": "unknown_exchange"}
    script = Scripted(
        ["hear", "hear", accepted(), update(1, 10), "seen", 1011],
        ["hear", "hear", accepted(rejected), update(1, 11), "stay"],
    )
    assert await seen(script, 3) == [(True, 10), (False, None), (True, 11)]


async def test_a_slow_caller_gets_the_newest_view_and_what_it_has_does_not_change():
    updates = [update(number, 10 + number) for number in range(1, 200)]
    script = Scripted(["hear", "hear", update(0, 10), "seen", *updates, "stay"])
    async with serve(script, HOST, 0) as server, asyncio.timeout(PATIENCE_S):
        port = server.sockets[0].getsockname()[1]
        async with aclosing(watch(f"ws://{HOST}:{port}/", "key", ["BTC/USDT"])) as views:
            first = await anext(views)
            script.seen.release()
            numbers = [0]
            while numbers[-1] < 199:
                await asyncio.sleep(0.01)  # the slow caller
                numbers.append((await anext(views)).update_number)
    assert first.bids[0].price == 10
    assert len(numbers) < 100
    assert numbers == sorted(numbers)


async def test_attempts_end_where_the_caller_says():
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        url = f"ws://{HOST}:{unused.getsockname()[1]}/"
        async with (
            asyncio.timeout(PATIENCE_S),
            aclosing(watch(url, "key", ["BTC/USDT"], attempts_max=2)) as views,
        ):
            assert (await anext(views)).problem.code == "unreachable"
            with pytest.raises(Unavailable, match="Connection refused") as failed:
                await anext(views)
    assert failed.value.code == "unreachable"


def without(name):
    """An update that lacks a member."""
    message = update(1, 10)
    del message["data"][name]
    return message


async def test_a_service_that_keeps_sending_invalid_messages_is_given_up():
    script = Scripted(*[["hear", "hear", without("bids"), "stay"]] * 3)
    with pytest.raises(Refused, match=r"data\.bids is missing\. The versions of") as refused:
        await seen(script)
    assert refused.value.code == "protocol_error"
    assert len(script.heard) == 6


async def test_other_failures_between_invalid_messages_are_retried():
    invalid = ["hear", "hear", without("bids"), "stay"]
    works = ["hear", "hear", update(1, 10), "stay"]
    script = Scripted(invalid, invalid, ["hear", "hear", 4100], invalid, works)
    assert await seen(script, 5) == [*[(False, None)] * 4, (True, 10)]


async def test_a_peer_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(session, "ANSWER_TIMEOUT_S", 0.05)
    script = Scripted(["hear", "hear", "stay"], ["hear", "hear", update(1, 10), "stay"])
    assert await seen(script, 2) == [(False, None), (True, 10)]


async def test_a_connection_that_answers_no_ping_is_given_up():
    frozen = asyncio.Event()

    async def accepted(reader, writer):
        """The handshake, then nothing: a peer that is frozen with its socket open."""
        request = await reader.readuntil(b"\r\n\r\n")
        key = re.search(rb"Sec-WebSocket-Key: (\S+)", request)[1].decode()
        writer.write(
            f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n".encode()
        )
        await frozen.wait()
        writer.close()

    async with await asyncio.start_server(accepted, HOST, 0) as server:
        url = f"ws://{HOST}:{server.sockets[0].getsockname()[1]}/"
        async with asyncio.timeout(PATIENCE_S):
            async with aclosing(watch(url, "key", ["BTC/USDT"], silence_max_s=0.1)) as views:
                problem = (await anext(views)).problem
        frozen.set()
    assert problem.code == "1006"


async def test_a_key_in_the_address_is_in_no_message_and_no_log(caplog):
    async with answering(http(503, "Retry-After: 7")) as port:
        problem = await failure(f"ws://{HOST}:{port}/?api_key=ob_live_secret")
    assert "HTTP 503" in problem.message
    assert "secret" not in problem.message + caplog.text


async def test_the_first_failure_of_a_series_is_logged_with_its_cause(caplog):
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        port = unused.getsockname()[1]
        await failure(f"ws://{HOST}:{port}/")
    (record,) = [each for each in caplog.records if each.name == "onebook.client"]
    assert record.levelname == "WARNING"
    assert record.message.startswith(f"Connection refused by {HOST}:{port}. Next attempt in ")


async def test_leaving_the_loop_and_a_refusal_end_the_connection_with_1000():
    refusal = {"type": "subscription_error", "error": "invalid_symbol", "message": "None has it."}
    left = Scripted(["hear", "hear", update(1, 10), "stay"])
    assert await seen(left, 1) == [(True, 10)]
    refused = Scripted(["hear", "hear", {**refusal, "id": "BTC/USDT"}, "stay"])
    with pytest.raises(Refused, match="None has it"):
        await seen(refused)
    assert (left.close_code, refused.close_code) == (1000, 1000)


async def test_damaged_deltas_ask_for_the_full_book_at_most_once_a_second():
    full = update(1, 10)
    script = Scripted(
        ["hear", "hear", full, "seen", GAP, "seen", "hear", full, "seen", GAP, "stay"]
    )
    assert await seen(script, 4) == [(True, 10), (False, None), (True, 10), (False, None)]
    assert [message["type"] for message in script.heard].count("resync") == 1


def half():
    return 0.5


def test_the_pause_grows_with_each_failure_to_its_limit():
    pauses = [pause_s(NO_CLOSE_FRAME, attempt, draw=half) for attempt in (0, 1, 2, 20)]
    assert pauses == [0.125, 0.25, 0.5, BACKOFF_MAX_S / 2]


def test_41xx_backs_off_by_a_second_at_least_half():
    assert [pause_s(4108, attempt, draw=half) for attempt in (0, 1)] == [0.75, 1.5]
    assert pause_s(4129, 0, draw=lambda: 0.0) == 0.5


def test_42xx_returns_exactly_at_the_time_given():
    assert pause_s(4200, 9, 0.2) == 0.2
    assert pause_s(4200, 0, None, draw=half) == 0.125


def test_retry_after_is_the_least_pause():
    assert pause_s(NO_CLOSE_FRAME, 0, 7.0, draw=half) == 7.0
