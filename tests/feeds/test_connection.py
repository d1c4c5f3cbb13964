"""The socket of a feed: how frames are sorted, and permessage-deflate with a real server."""

from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from picows import WSMsgType
from picows.picows import _make_test_ws_frame as frame_of
from websockets.asyncio.server import serve
from websockets.extensions.permessage_deflate import (
    ServerPerMessageDeflateFactory,
)

from feeds.test_feed import HOST, Rig, Server, best, running, seen
from feeds.toy import TOY, A
from onebook.exchanges.kit.contract import FrameForm
from onebook.feeds.connection import ExchangeConnection
from onebook.feeds.limits import FeedLimits
from onebook.model import Health, Reason

BYTES_MAX = 5
NOW = 12.5
DEFLATED = replace(TOY, frames=FrameForm.DEFLATED)


class Asking:
    """A session with an action due, or none."""

    def __init__(self, pending):
        self.pending = pending


def sorted_by(frame, *, joining=False, pending=False, budget=100):
    """The calls that a listener makes for one frame, in order."""
    calls = []

    class Writing(ExchangeConnection):
        def __init__(self):
            """A listener without a socket."""

        def unusual(self, transport, frame):
            calls.append(("unusual", frame.get_payload_as_bytes()))

        def pause(self, transport):
            calls.append("pause")

        def execute(self, now):
            calls.append(("execute", now))

    writing = Writing()
    writing.session = Asking(pending)
    writing.monotonic = lambda: NOW
    writing.received = lambda message, now: calls.append((message, now))
    writing.joining = joining
    writing.bytes_max = BYTES_MAX
    writing.budget = budget
    writing.on_ws_frame(None, frame)
    return calls


@pytest.mark.parametrize("kind", [WSMsgType.TEXT, WSMsgType.BINARY])
@pytest.mark.parametrize("message", [b"", b"a", b"12345"])
def test_a_whole_message_is_received_with_its_time(kind, message):
    assert sorted_by(frame_of(kind, message, True, False)) == [(message, NOW)]


def test_the_session_s_actions_are_executed_after_its_message():
    calls = sorted_by(frame_of(WSMsgType.TEXT, b"a", True, False), pending=True)
    assert calls == [(b"a", NOW), ("execute", NOW)]


@pytest.mark.parametrize(
    "frame",
    [frame_of(WSMsgType.TEXT, b"a", True, False), frame_of(WSMsgType.PONG, b"", True, False)],
)
def test_reading_pauses_with_the_last_frame_of_the_budget(frame):
    assert sorted_by(frame, budget=2)[0] != "pause"
    assert sorted_by(frame, budget=1)[0] == "pause"
    assert sorted_by(frame, budget=0)[0] != "pause", "once is enough"


@pytest.mark.parametrize(
    ("kind", "message", "fin", "rsv1", "joining"),
    [
        (WSMsgType.TEXT, b"123456", True, False, False),
        (WSMsgType.TEXT, b"a", False, False, False),
        (WSMsgType.TEXT, b"a", True, True, False),
        (WSMsgType.TEXT, b"a", True, False, True),
        (WSMsgType.CONTINUATION, b"a", True, False, False),
        (WSMsgType.CONTINUATION, b"a", True, False, True),
        (WSMsgType.PING, b"a", True, False, False),
        (WSMsgType.PONG, b"a", True, False, False),
        (WSMsgType.CLOSE, b"\x03\xe8", True, False, False),
    ],
    ids=[
        "too long", "a part", "a reserved bit", "a message among parts", "continuation",
        "the last part", "ping", "pong", "close",
    ],
)  # fmt: skip
def test_everything_else_is_unusual(kind, message, fin, rsv1, joining):
    frame = frame_of(kind, message, fin, rsv1)
    assert sorted_by(frame, joining=joining, pending=True) == [("unusual", message)]


def test_an_error_of_the_reader_is_not_swallowed():
    class Failing(ExchangeConnection):
        def __init__(self):
            """A listener without a socket."""

    failing = Failing()
    failing.session, failing.monotonic, failing.joining = Asking(False), lambda: NOW, False
    failing.bytes_max = BYTES_MAX
    failing.budget = 1_000
    failing.received = lambda message, now: 1 / 0
    with pytest.raises(ZeroDivisionError):
        failing.on_ws_frame(None, frame_of(WSMsgType.TEXT, b"a", True, False))


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
        connection.transport.write(b"\xc1\x05hello")  # rsv1 although nothing was negotiated
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
    limits = FeedLimits(frame_bytes_max=100_000)
    async with (
        exchange(compression="deflate") as server,
        running(Rig(server.url, A, exchange=DEFLATED, limits=limits)) as rig,
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
