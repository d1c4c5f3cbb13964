"""permessage-deflate of an exchange's messages; the other side is the websockets library."""

import zlib
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from websockets.asyncio.server import serve
from websockets.extensions.permessage_deflate import (
    PerMessageDeflate,
    ServerPerMessageDeflateFactory,
)
from websockets.frames import Frame, Opcode

from feeds.test_feed import HOST, Rig, Server, best, running, seen
from feeds.toy import TOY, A
from onebook.config import FeedSettings
from onebook.exchanges.kit import FrameForm
from onebook.feeds.deflate import MessageInflater, NotAgreed, agreed
from onebook.inflate import TooLong, Uninflatable
from onebook.model import Health, Reason

DEFLATED = replace(TOY, frames=FrameForm.DEFLATED)
TEXT = b'{"topic":"depth_update","data":{"a":[["34000","1.2"]]}}' * 10


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.booleans(), st.integers(9, 15))
def test_messages_come_back_as_they_were(messages, fresh, bits) -> None:
    sender = PerMessageDeflate(False, fresh, 15, bits)
    ours = MessageInflater(fresh=fresh)
    for message in messages:
        packed = sender.encode(Frame(Opcode.BINARY, message))
        assert packed.rsv1
        assert ours.inflated(bytes(packed.data), 300) == message


def test_a_message_is_as_long_as_allowed_and_not_a_byte_longer() -> None:
    packed = bytes(PerMessageDeflate(False, True, 15, 15).encode(Frame(Opcode.TEXT, TEXT)).data)
    inflater = MessageInflater(fresh=True)
    assert inflater.inflated(packed, len(TEXT)) == TEXT
    with pytest.raises(TooLong):
        inflater.inflated(packed, len(TEXT) - 1)


def test_a_bomb_is_refused_without_being_inflated() -> None:
    packer = zlib.compressobj(wbits=-15)
    bomb = packer.compress(bytes(64 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH)
    assert len(bomb) < 100_000
    with pytest.raises(TooLong):
        MessageInflater(fresh=False).inflated(bomb, 1 << 20)


def test_a_last_block_may_end_a_message() -> None:
    packer = zlib.compressobj(wbits=-15)
    ending = packer.compress(TEXT) + packer.flush()
    inflater = MessageInflater(fresh=False)
    for _ in range(2):
        assert inflater.inflated(ending + b"\0", len(TEXT)) == TEXT


@pytest.mark.parametrize("message", [b"\xff" * 20, TEXT])
def test_a_damaged_message_is_the_one_declared_error(message) -> None:
    with pytest.raises(Uninflatable):
        MessageInflater(fresh=False).inflated(message, 1_000)


@pytest.mark.parametrize("answer", [None, ""])
def test_a_server_that_takes_no_offer_sends_plain_messages(answer) -> None:
    assert agreed(answer) is None


@pytest.mark.parametrize(
    "answer",
    [
        "permessage-deflate",
        "permessage-deflate; server_no_context_takeover",
        'permessage-deflate;server_max_window_bits="10" ; client_no_context_takeover',
        "permessage-deflate; server_max_window_bits=15",
    ],
)
def test_what_a_server_may_answer(answer) -> None:
    assert agreed(answer) is not None


@pytest.mark.parametrize(
    "answer",
    [
        "x-webkit-deflate-frame",
        "permessage-deflate, permessage-deflate",
        "permessage-deflate; client_max_window_bits=10",
        "permessage-deflate; server_max_window_bits=7",
        "permessage-deflate; server_max_window_bits",
        "permessage-deflate; server_no_context_takeover=1",
        "permessage-deflate; other",
    ],
)
def test_what_was_not_offered_is_refused(answer) -> None:
    with pytest.raises(NotAgreed):
        agreed(answer)


@asynccontextmanager
async def exchange(**options):
    toy = Server()
    async with serve(
        toy.serve, HOST, 0, process_request=toy.request, ping_interval=None, **options
    ) as listening:
        toy.url = f"ws://{HOST}:{next(iter(listening.sockets)).getsockname()[1]}/ws"
        yield toy


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_feed_reads_compressed_and_plain_messages_and_sends_plain_ones(fresh) -> None:
    granted = ServerPerMessageDeflateFactory(server_no_context_takeover=fresh)
    async with (
        exchange(extensions=[granted]) as server,
        running(Rig(server.url, A, exchange=DEFLATED)) as rig,
    ):
        connection = await rig.live(server, "A")
        assert [each.name for each in connection.protocol.extensions] == ["permessage-deflate"]
        await connection.send('delta A [["100","0"]] []')
        await connection.send(["delta A [[", '"98","1"', "]] []"])  # fragments
        await seen(lambda: best(rig) == ("98", "101"))
        plain = b'delta A [["99","1"]] []'
        connection.transport.write(bytes((0x81, len(plain))) + plain)
        await seen(lambda: best(rig) == ("99", "101"))


async def test_a_feed_reads_plain_messages_where_the_offer_is_not_taken() -> None:
    async with (
        exchange(compression=None) as server,
        running(Rig(server.url, A, exchange=DEFLATED)) as rig,
    ):
        connection = await rig.live(server, "A")
        offered = connection.request.headers["Sec-WebSocket-Extensions"]
        assert offered == "permessage-deflate"
        connection.transport.write(b"\xc1\x05hello")  # rsv1 although nothing was agreed
        await rig.moved("A", Health.STALE, Reason.PROTOCOL_ERROR)
        assert await server.closed() == 1002


async def test_other_feeds_offer_nothing() -> None:
    async with exchange(compression="deflate") as server, running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        assert "Sec-WebSocket-Extensions" not in connection.request.headers


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\xc1\x04\xff\xff\xff\xff", 1007),  # damaged
        (b"\x41\x01\x00\xc0\x01\x00", 1002),  # rsv1 in a continuation
        (b"\xc9\x00", 1002),  # rsv1 in a ping
    ],
    ids=["damaged", "continuation", "ping"],
)
async def test_what_breaks_the_extension_ends_the_connection(frame, code) -> None:
    async with (
        exchange(compression="deflate") as server,
        running(Rig(server.url, A, exchange=DEFLATED)) as rig,
    ):
        connection = await rig.live(server, "A")
        connection.transport.write(frame)
        await rig.moved("A", Health.STALE, Reason.PROTOCOL_ERROR)
        assert await server.closed() == code


async def test_a_small_message_that_inflates_beyond_the_bound_ends_the_connection() -> None:
    settings = FeedSettings(frame_bytes_max=100_000)
    async with (
        exchange(compression="deflate") as server,
        running(Rig(server.url, A, exchange=DEFLATED, settings=settings)) as rig,
    ):
        connection = await rig.live(server, "A")
        await connection.send(bytes(50_000_000))
        assert await server.closed() == 1009
        await rig.moved("A", Health.STALE, Reason.PROTOCOL_ERROR)


async def test_an_extension_that_was_not_offered_ends_the_connection() -> None:
    def impose(connection, request, response) -> None:
        response.headers["Sec-WebSocket-Extensions"] = "permessage-brotli"

    async with (
        exchange(compression=None, process_response=impose) as server,
        running(Rig(server.url, A, exchange=DEFLATED)),
    ):
        await server.connection()
        assert await server.closed() == 1010
