"""Frames to messages over real sockets: fragments, limits and what RFC 6455 forbids."""

import asyncio
import json

import pytest
from websockets.frames import Frame, Opcode

from gateway.attack import frame
from gateway.helpers import raw, unread
from onebook.gateway.inbound import Inbound, Incoming, is_close


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


async def test_a_close_in_the_middle_of_a_message_is_answered(node, key):
    async with node.client(key) as client:
        await raw(client, Frame(Opcode.TEXT, b'{"ty', fin=False).serialize(mask=True))
        await client.socket.close(1000)
        assert client.socket.close_code == 1000


# The parser alone


def test_frames_become_what_they_bring():
    inbound = Inbound(packed=False, message_bytes_max=100)
    sent = [
        (frame(0x81, b"text"), [(Incoming.TEXT, b"text")]),
        (frame(0x82, b"\0"), [(Incoming.BINARY, b"\0")]),
        (frame(0x8A, b"pong"), [(Incoming.PONG, b"pong")]),
        (frame(0x89, b"ping"), [(Incoming.PING, b"")]),
        (frame(0x01, b"a"), [(Incoming.FRAGMENT, b"")]),
        (frame(0x00, b"b"), [(Incoming.FRAGMENT, b"")]),
        (frame(0x80, b"c"), [(Incoming.FRAGMENT, b""), (Incoming.TEXT, b"abc")]),
    ]
    for data, brought in sent:
        assert list(inbound.received(data)) == brought
        assert inbound.begun == (brought == [(Incoming.FRAGMENT, b"")])
    assert inbound.to_send() == [b"\x8a\x04ping"]
    assert inbound.close_code is None


def test_a_close_is_answered_with_its_code_and_an_error_with_ours():
    closed = Inbound(packed=False, message_bytes_max=100)
    assert list(closed.received(frame(0x88, (4321).to_bytes(2, "big")))) == []
    assert (closed.close_code, closed.to_send()[0][:2]) == (4321, b"\x88\x02")
    long = Inbound(packed=False, message_bytes_max=100)
    assert list(long.received(frame(0x81, b"x" * 101))) == []
    assert long.close_code == 1009
    assert is_close(frame(0x88))
    assert not is_close(frame(0x81))
