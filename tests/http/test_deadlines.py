"""Incomplete requests and unread responses: each wait ends at its deadline."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import uvloop

from onebook.http.connection import DEADLINES, Wait
from steady import PATIENCE_S, own_s

from .rig import BIG, QUICK, measured, peer_of, problem, served

SMALL = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
# The end of an idle connection is no fault, and not counted.
LABELS = {wait.name.lower() for wait in Wait if wait is not Wait.NEXT}
HALVES = {
    "no byte": (b"", "headers", b""),
    "half a request line": (b"GET /sma", "headers", b""),
    "half of the headers": (b"GET / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n", "headers", b""),
    "headers without the body": (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
        "body",
        b"",
    ),
    "a slow body": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n", "body", b"x"),
    "slow headers": (b"GET / HTTP/1.1\r\nHost: x\r\n", "headers", b"X-A: b\r\n"),
}


CHUNKED = b"POST /early HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
# How a client brings a connection into each state and leaves it there: what it sends, what it
# waits for, and what it sends then.
STATES = {
    "connected": (Wait.HEADERS, b"", b"", b""),
    "headers": (Wait.HEADERS, b"GET / HTTP/1.1\r\nHost", b"", b""),
    "headers of a second request": (Wait.HEADERS, SMALL, b"small", b"GET / HTTP/1.1\r\n"),
    "body": (Wait.BODY, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\na", b"", b""),
    "body after an early answer": (Wait.BODY, CHUNKED, b"early", b"1\r\nb\r\n"),
    "answer": (Wait.ANSWER, b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n", b"", b""),
    "answer to a second request": (
        Wait.ANSWER,
        SMALL + b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n",
        b"small",
        b"",
    ),
    "unread answer": (Wait.WRITE, b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n", None, b""),
    "next request": (Wait.NEXT, SMALL, b"small", b""),
    "next request after the rest of a body": (Wait.NEXT, CHUNKED, b"early", b"0\r\n\r\n"),
    "closing": (Wait.CLOSING, b"GET /left HTTP/1.1\r\nHost: x\r\n\r\n", None, b""),
}


@asynccontextmanager
async def unread_answer(path, wait):
    """A peer that has sent a request and does not read; and the earlier count of timeouts."""
    async with served() as port, peer_of(port, limit=1_024) as peer:
        before = measured("onebook_http_expired_total", wait=wait)
        peer.writer.transport.pause_reading()
        await peer.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        yield peer, before


async def drip(peer, piece):
    while piece:
        await peer.send(piece)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_half_a_request_is_answered_408_and_closed_in_time(run, kind):
    begin, wait, piece = HALVES[kind]

    async def talk():
        async with served() as port, peer_of(port) as peer:
            before = measured("onebook_http_expired_total", wait=wait)
            await peer.send(begin)
            dripping = asyncio.create_task(drip(peer, piece))
            answer = await peer.rest()
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)
            # A body that still comes may reset the connection before its answer was read.
            assert answer.startswith(b"HTTP/1.1 408 ") or (piece and not answer)
            assert not answer or problem(answer)["error"] == "request_timeout"
            assert measured("onebook_http_expired_total", wait=wait) == before + 1

    run(talk())


def test_every_state_has_a_deadline_and_a_client_that_brings_a_socket_there():
    assert set(DEADLINES) == set(Wait)
    assert {wait for wait, *_ in STATES.values()} == set(Wait)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_socket_that_stays_in_a_state_is_closed(run, state):
    wait, first, answer, then = STATES[state]

    async def talk():
        async with served(answer_timeout_s=2.5) as port, peer_of(port, limit=1_024) as peer:
            before = {each: measured("onebook_http_expired_total", wait=each) for each in LABELS}
            if answer is None:
                peer.writer.transport.pause_reading()
            await peer.send(first)
            async with asyncio.timeout(PATIENCE_S):
                if answer:
                    await peer.reader.readuntil(answer)
                await peer.send(then)
                while not measured("onebook_sockets"):
                    await asyncio.sleep(0.01)
                began_s = own_s()
                while measured("onebook_sockets"):
                    await asyncio.sleep(0.02)
            assert own_s() - began_s < 4
            expired = {each: measured("onebook_http_expired_total", wait=each) for each in LABELS}
            grown = {each for each in LABELS if expired[each] > before[each]}
            assert grown == {wait.name.lower()} & LABELS

    run(talk())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_an_answer_that_is_never_read_is_cut_off(run):
    async def talk():
        async with unread_answer("/big", "write") as (peer, before):
            async with asyncio.timeout(PATIENCE_S):
                while measured("onebook_http_expired_total", wait="write") == before:
                    await asyncio.sleep(0.05)
            peer.writer.transport.resume_reading()
            assert len(await peer.rest()) < len(BIG)

    run(talk())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_an_answer_that_the_application_gave_up_is_cut_off_though_nothing_reads_it(run):
    """uvicorn closes such a connection and waits for its buffer: the deadline aborts it."""

    async def talk():
        async with unread_answer("/left", "closing") as (_, before):
            async with asyncio.timeout(PATIENCE_S):
                while not measured("onebook_sockets"):
                    await asyncio.sleep(0.01)
            began_s = own_s()
            async with asyncio.timeout(PATIENCE_S):
                while measured("onebook_sockets"):
                    await asyncio.sleep(0.05)
            assert own_s() - began_s < 3
            assert measured("onebook_http_expired_total", wait="closing") == before + 1

    run(talk())


async def test_an_answer_that_is_read_for_ever_ends_at_the_deadline_of_its_request():
    async with (
        served(answer_timeout_s=2.0) as port,
        peer_of(port, limit=65_536) as peer,
    ):
        before = measured("onebook_http_expired_total", wait="answer")
        await peer.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            while measured("onebook_http_expired_total", wait="answer") == before:
                assert await peer.reader.read(50_000)
                await asyncio.sleep(0.1)


async def test_an_answer_that_is_read_slowly_is_not_cut_off():
    timeouts = QUICK._replace(write_s=1.0)
    async with served(timeouts=timeouts) as port, peer_of(port, limit=65_536) as peer:
        await peer.send(b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        size = 0
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(30):  # for longer than the deadline, with steps shorter than it
                size += len(await peer.reader.read(50_000))
                await asyncio.sleep(0.1)
            while data := await peer.reader.read(1_000_000):
                size += len(data)
    assert size > len(BIG)


async def test_requests_one_after_the_other_have_their_own_deadlines():
    async with (
        served(timeouts=QUICK._replace(header_s=2.0, idle_s=2.0)) as port,
        peer_of(port) as peer,
    ):
        for _ in range(4):
            await asyncio.sleep(0.6)
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")
            async with asyncio.timeout(PATIENCE_S):
                assert (await peer.reader.readuntil(b"\r\n\r\n2")).startswith(b"HTTP/1.1 200")
        assert await peer.rest() == b""  # no request follows: keep-alive
