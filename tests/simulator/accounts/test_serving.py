"""The simulated wire: latency, requests in flight, and breaks as read errors."""

import httpx
import pytest

from onebook.simulator.accounts.serving import SimulatedTransport


async def answering(scope, receive, send):
    if scope["path"] == "/broken":
        raise ConnectionResetError("reset")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


async def test_the_way_there_and_back_takes_the_latency_and_is_in_flight_meanwhile():
    waits, in_flight = [], []

    async def sleep(seconds):
        waits.append(seconds)
        in_flight.append(transport.in_flight)

    transport = SimulatedTransport(answering, latency_s=0.5, sleep=sleep)
    async with httpx.AsyncClient(transport=transport, base_url="http://exchange") as client:
        assert (await client.get("/orders")).text == "/orders"
    assert waits == [0.25, 0.25]
    assert in_flight == [1, 1]
    assert (transport.requests, transport.in_flight) == (1, 0)


async def test_a_connection_that_breaks_is_a_read_error_and_no_longer_in_flight():
    transport = SimulatedTransport(answering)
    async with httpx.AsyncClient(transport=transport, base_url="http://exchange") as client:
        with pytest.raises(httpx.ReadError, match="reset"):
            await client.get("/broken")
    assert (transport.requests, transport.in_flight) == (1, 0)
