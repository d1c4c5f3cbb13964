"""Limits of sockets per address and in total, and their counts."""

import asyncio
from contextlib import AsyncExitStack

from steady import PATIENCE_S

from .rig import QUICK, measured, peer_of, problem, served

PATIENT = QUICK._replace(header_s=30.0)


async def test_sockets_of_one_address_are_limited_and_counted_back():
    async with served(addresses_max=2, timeouts=PATIENT) as port:
        async with peer_of(port) as one, peer_of(port):
            async with peer_of(port) as third:
                answer = await third.rest()
                assert answer.startswith(b"HTTP/1.1 429 ")
                assert b"Retry-After: 5\r\n" in answer
                for field in (b"RateLimit: ", b"RateLimit-Policy: ", b"X-RateLimit-Limit: 2\r\n"):
                    assert b"\r\n" + field in answer
                assert problem(answer)["error"] == "rate_limit_exceeded"
            await one.send(
                b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            )
            await asyncio.sleep(0.1)
            async with peer_of(port) as fourth:  # a socket that was upgraded still counts
                assert (await fourth.rest()).startswith(b"HTTP/1.1 429 ")
        async with asyncio.timeout(PATIENCE_S):
            while measured("onebook_sockets"):
                await asyncio.sleep(0.01)
        async with peer_of(port) as again:
            await again.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(PATIENCE_S):
                assert await again.reader.readline() == b"HTTP/1.1 200 OK\r\n"


async def test_a_full_node_still_answers_this_machine(caplog):
    caplog.set_level("INFO")
    full = {"connections_max": 2, "http_connections_max": 1, "timeouts": PATIENT}
    async with served(trusted=True, **full) as port, AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(peer_of(port))
        async with peer_of(port) as probe:
            await probe.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(PATIENCE_S):
                assert await probe.reader.readline() == b"HTTP/1.1 200 OK\r\n"
    async with served(**full) as port:
        async with AsyncExitStack() as stack:
            for _ in range(3):
                await stack.enter_async_context(peer_of(port))
            before = measured("onebook_sockets_refused_total", reason="full")
            for _ in range(2):
                async with peer_of(port) as stranger:
                    answer = await stranger.rest()
                    assert answer.startswith(b"HTTP/1.1 503 ")
                    assert b"\r\nRetry-After: 5\r\n" in answer
                    assert problem(answer)["error"] == "service_unavailable"
            assert measured("onebook_sockets_refused_total", reason="full") == before + 2
        async with asyncio.timeout(PATIENCE_S):
            while "below its socket limit again" not in caplog.text:
                await asyncio.sleep(0.02)
    assert caplog.text.count("The node is full: 3 sockets") == 1
    assert measured("onebook_sockets") == 0
