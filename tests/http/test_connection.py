"""One HTTP connection: input in turns, and refusals before a request."""

import asyncio
import gc
import io
import logging
from contextlib import AsyncExitStack

import pytest

from onebook import logs
from onebook.http.connection import HttpConnection
from steady import PATIENCE_S

from .rig import BIG, QUICK, peer_of, problem, served

UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


async def test_many_requests_at_once_are_spread_over_turns():
    async with served(turn_s=1e-9) as port, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(peer_of(port)) for _ in range(20)]
        for _ in range(3):
            for peer in peers:
                peer.writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")
            for peer in peers:
                async with asyncio.timeout(PATIENCE_S):
                    await peer.reader.readuntil(b"\r\n\r\n2")


async def test_a_refusal_is_a_whole_answer_that_nothing_may_store():
    full = served(addresses_max=1, timeouts=QUICK._replace(header_s=30.0))
    async with full as port, peer_of(port), peer_of(port) as second:
        answer = await second.rest()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"\r\nConnection: close\r\n" in head + b"\r\n"
    assert b"\r\nCache-Control: no-store\r\n" in head
    assert b"\r\nContent-Length: %d" % len(body) in head


async def test_two_requests_that_come_together_are_answered_in_order():
    async with served() as port, peer_of(port) as peer:
        one = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
        await peer.send(one % (2, b"ab") + one % (3, b"abc"))
        async with asyncio.timeout(PATIENCE_S):
            await peer.reader.readuntil(b"\r\n\r\n2")
            await peer.reader.readuntil(b"\r\n\r\n3")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n",  # a TLS greeting
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"GET / HTTP/1.1\r\n\r\n",  # no Host
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZ\r\n",
    ],
    ids=["no HTTP", "two lengths", "no host", "a bad chunk"],
)
async def test_what_is_no_request_gets_the_error_body_of_the_service(request_bytes):
    async with served() as port, peer_of(port) as peer:
        await peer.send(request_bytes)
        answer = await peer.rest()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\nConnection: close\r\n" in answer
    assert problem(answer)["error"] == "invalid_request"


async def test_a_body_that_breaks_while_its_answer_is_sent_ends_the_connection(caplog):
    async with served(timeouts=QUICK._replace(write_s=30.0)) as port, peer_of(port) as peer:
        begin = b"POST /big HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
        await peer.send(begin)
        async with asyncio.timeout(PATIENCE_S):
            await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"Z\r\n")
        assert len(await peer.rest()) < len(BIG)
    assert [record for record in caplog.records if record.exc_info] == []


async def test_frames_that_come_with_an_upgrade_reach_the_websocket_protocol():
    head = b"GET / HTTP/1.1\r\nHost: x\r\n" + UPGRADE
    async with served() as port, peer_of(port) as peer:
        await peer.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + head + b"early frames")
        async with asyncio.timeout(PATIENCE_S):
            await peer.reader.readuntil(b"small")
            echo = await peer.reader.readuntil(b"early frames")
    assert echo.startswith(b"GET / HTTP/1.1\r\n")


async def test_a_connection_leaves_nothing_to_the_garbage_collector_closed_or_upgraded():
    """It would never be freed, because the objects of many connections are frozen."""
    request = b"GET / HTTP/1.1\r\nHost: x\r\n"
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        async with served() as port:
            async with peer_of(port) as peer:
                await peer.send(request + b"Connection: close\r\n\r\n")
                assert (await peer.rest()).endswith(b"small")
            async with peer_of(port) as peer:
                await peer.send(request + UPGRADE + b"early frames")
                async with asyncio.timeout(PATIENCE_S):
                    await peer.reader.readuntil(b"early frames")
            gc.collect()
            assert not [each for each in gc.garbage if isinstance(each, HttpConnection)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.fixture
def uvicorn_log():
    """uvicorn's log lines under the given settings; loggers are restored afterwards."""
    names = (None, logs.LOGGER, "uvicorn")
    loggers = [logging.getLogger(name) for name in names]
    before = [(each.handlers, each.level, each.propagate) for each in loggers]
    yield io.StringIO()
    for each, (handlers, level, propagates) in zip(loggers, before, strict=True):
        each.handlers, each.propagate = handlers, propagates
        each.setLevel(level)


@pytest.mark.parametrize(("level", "lines"), [("info", 0), ("debug", 2)])
async def test_a_client_cannot_fill_the_log_with_what_is_no_request(level, lines, uvicorn_log):
    logs.configure(level, "text", uvicorn_log)
    upgrade = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    async with served() as port:
        for request in (b"\x16\x03\x01\r\n\r\n", upgrade):
            async with peer_of(port) as peer:
                await peer.send(request)
                await peer.rest()
    assert uvicorn_log.getvalue().count(" uvicorn.error: ") == lines
