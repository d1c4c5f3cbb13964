"""The rim: one feed against real sockets on loopback. Waits are events, never guesses."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from msgspec.structs import replace
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from feeds.toy import BEATING, TOY, A, B, C, ToyConnector, delta, snap
from onebook.books import Books
from onebook.config import FeedSettings
from onebook.exchanges.contract import Exchange
from onebook.feeds import feed as feed_module
from onebook.feeds.feed import TOO_LONG, Feed
from onebook.feeds.pace import Pace
from onebook.feeds.session import BEYOND_REPAIR, DISCONNECTED, SILENT
from onebook.feeds.stats import ACTIVE, LIMITED, MAINTENANCE, OFFLINE, ExchangeStats
from onebook.model import Health, Instrument
from onebook.rest import Rest

WAIT_S = 30.0
HOST = "127.0.0.1"


class Server:
    """A toy exchange on loopback: what it hears is queued, what it says is up to the test."""

    def __init__(self) -> None:
        self.url = ""
        self.connections: asyncio.Queue[ServerConnection] = asyncio.Queue()
        self.heard: asyncio.Queue[str | bytes] = asyncio.Queue()
        self.closes: asyncio.Queue[int | None] = asyncio.Queue()
        self.refusals: list[tuple[int, dict[str, str]]] = []

    async def serve(self, connection: ServerConnection) -> None:
        self.connections.put_nowait(connection)
        try:
            async for frame in connection:
                self.heard.put_nowait(frame)
        except ConnectionClosed:
            pass
        self.closes.put_nowait(connection.close_code)

    def request(self, connection: ServerConnection, request: Request) -> Response | None:
        if not self.refusals:
            return None
        status, headers = self.refusals.pop(0)
        response = connection.respond(status, "not now\n")
        for name, value in headers.items():
            response.headers[name] = value
        return response

    async def connection(self) -> ServerConnection:
        async with asyncio.timeout(WAIT_S):
            return await self.connections.get()

    async def hears(self, *frames: str) -> None:
        for frame in frames:
            async with asyncio.timeout(WAIT_S):
                assert await self.heard.get() == frame

    async def closed(self) -> int | None:
        async with asyncio.timeout(WAIT_S):
            return await self.closes.get()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    toy = Server()
    async with serve(
        toy.serve, HOST, 0, process_request=toy.request, ping_interval=None, compression=None
    ) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        toy.url = f"ws://{HOST}:{port}/ws"
        yield toy


class Rig:
    """A feed and everything around it; the moves of health are queued."""

    def __init__(
        self,
        url: str,
        *instruments: Instrument,
        exchange: Exchange = TOY,
        settings: FeedSettings | None = None,
        bodies: Callable[[httpx.Request], httpx.Response] | None = None,
        recorder=None,
    ) -> None:
        self.moves: asyncio.Queue[tuple[str, Health, str]] = asyncio.Queue()
        self.books = Books()
        self.books.on_health = lambda book, previous: self.moves.put_nowait(
            (book.instrument.native, book.health, book.reason)
        )
        for instrument in (A, B, C):
            self.books.open(instrument)
        self.stats = ExchangeStats("toy")
        self.slept: list[float] = []
        self.rest = Rest(
            httpx.AsyncClient(transport=httpx.MockTransport(bodies or (lambda request: None))),
            sleep=self.sleep,
        )
        self.feed = Feed(
            replace(exchange, ws_url=url),
            instruments,
            books=self.books,
            rest=self.rest,
            settings=settings or FeedSettings(),
            stats=self.stats,
            pace=Pace(exchange.connects_per_minute),
            recorder=recorder,
            sleep=self.sleep,
            jitter=lambda: 0.5,
        )

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0.001)

    async def moved(self, native: str, health: Health, reason: str = "") -> None:
        async with asyncio.timeout(WAIT_S):
            assert await self.moves.get() == (native, health, reason)

    async def live(self, server: Server, *natives: str) -> ServerConnection:
        connection = await server.connection()
        await server.hears("subscribe " + " ".join(natives))
        for native in natives:
            await connection.send(snap(native).decode())
            await self.moved(native, Health.LIVE)
        return connection


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[Rig]:
    task = asyncio.create_task(rig.feed.run())
    try:
        yield rig
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await rig.rest.__aexit__(None, None, None)
        assert rig.feed._connection is None


def best(rig: Rig, instrument: Instrument = A) -> tuple[str | None, str | None]:
    book = rig.books.get(instrument)
    assert book is not None
    return book.core.best()


async def seen(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_feed_subscribes_fills_its_book_and_leaves_nothing_when_stopped(server):
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        assert rig.stats.connected == 1
        await connection.send(b'delta A [["100","0"]] []')  # a binary frame
        await connection.send('delta A [["98","1"]] []')
        await seen(lambda: best(rig) == ("98", "101"))
    assert await server.closed() == 1000
    await rig.moved("A", Health.STALE, DISCONNECTED)
    assert rig.stats.connected == 0
    assert rig.stats.reconnects == 0


async def test_the_exchange_may_split_a_message_and_ping_in_between(server):
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")

        async def parts() -> AsyncIterator[str]:
            yield 'delta A [["98",'
            pong = await connection.ping(b"hello")
            await pong
            yield '"1"],["100","0"]]'
            yield " []"

        await connection.send(parts())
        await seen(lambda: best(rig) == ("98", "101"))


async def test_a_pong_of_the_exchange_keeps_a_quiet_connection(server):
    exchange = replace(TOY, silence_max_s=0.4)
    async with running(Rig(server.url, A, exchange=exchange)) as rig:
        await rig.live(server, "A")
        since = rig.stats.heard_at
        await seen(lambda: rig.stats.heard_at > since + 2 * exchange.silence_max_s)
        assert rig.moves.empty()


async def test_b2_fault_silent_socket_is_given_up_even_if_it_takes_no_goodbye(
    server, monkeypatch, caplog
):
    monkeypatch.setattr(feed_module, "CLOSE_S", 0.1)
    exchange = replace(TOY, silence_max_s=0.4)
    async with running(Rig(server.url, A, exchange=exchange)) as rig:
        connection = await rig.live(server, "A")
        connection.transport.pause_reading()
        for _ in range(4):
            await connection.send(b"send " + b"x" * 3_000_000)  # our side cannot get rid of it
        await rig.moved("A", Health.STALE, SILENT)
        await server.connection()
        connection.transport.resume_reading()
    assert "A connection to toy ended: nothing received." in caplog.messages


async def test_fault_reconnect_old_levels_are_never_shown_and_the_wait_has_full_jitter(
    server, caplog
):
    caplog.set_level(logging.INFO, "onebook.feeds")
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        await connection.close(1001)
        await rig.moved("A", Health.STALE, "closed by the exchange")
        assert best(rig) == (None, None)
        await rig.moved("A", Health.SYNCING)
        await rig.live(server, "A")
        assert 0.5 in rig.slept
        assert rig.stats.reconnects == 1
    assert caplog.messages == [
        "A connection to toy ended: closed by the exchange.",
        "toy is connected again.",
    ]


async def test_a_stable_connection_starts_the_waits_again(server):
    server.refusals = [(404, {})] * 3
    async with running(Rig(server.url, A, settings=FeedSettings(stable_s=0.0))) as rig:
        await rig.moved("A", Health.OFFLINE, OFFLINE)
        await rig.moved("A", Health.SYNCING)
        connection = await rig.live(server, "A")
        await connection.close()
        await server.connection()
        assert [each for each in rig.slept if each > 0.1] == [0.5, 1.0, 2.0, 0.5]


async def test_a_connection_that_vanishes_is_noticed(server):
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        connection.transport.abort()
        await rig.moved("A", Health.STALE, DISCONNECTED)
        await rig.moved("A", Health.SYNCING)


async def test_fault_closing_notice_reconnects_without_a_wait_if_the_connection_was_stable(server):
    async with running(Rig(server.url, A, settings=FeedSettings(stable_s=0.0))) as rig:
        connection = await rig.live(server, "A")
        await connection.send("closing maintenance")
        await rig.moved("A", Health.STALE, "maintenance")
        await rig.moved("A", Health.SYNCING)
        await rig.live(server, "A")
        assert [each for each in rig.slept if each > 0.02] == []


@pytest.mark.parametrize("split", [False, True])
async def test_fault_10_mb_frame_ends_the_connection(server, split):
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        message = "x" * 10_000_000
        parts = [message[start : start + 1_000_000] for start in range(0, len(message), 1_000_000)]
        with suppress(ConnectionClosed):
            await connection.send(parts if split else message)
        async with asyncio.timeout(WAIT_S):
            native, health, reason = await rig.moves.get()
        assert (native, health) == ("A", Health.STALE)
        # An unsplit one may be met by picows, which only hangs up, or by us.
        assert reason == TOO_LONG or (reason == DISCONNECTED and not split)
        await rig.moved("A", Health.SYNCING)


async def test_fault_a_message_over_the_limit_that_is_delivered_all_the_same_is_refused(server):
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        assert rig.feed._connection is not None
        rig.feed._connection.bytes_max = 5
        await connection.send("send x")
        await rig.moved("A", Health.STALE, TOO_LONG)
        assert await server.closed() == 1009


@pytest.mark.parametrize(
    ("first_byte", "payload"),
    [
        (0x81 | 0x40, b"send x"),
        (0x81 | 0x20, b"send x"),
        (0x81 | 0x10, b"send x"),
        (0x80, b"stray"),
        (0x41, b"begin"),
    ],
    ids=["rsv1", "rsv2", "rsv3", "continuation of nothing", "reserved bit in a fragment"],
)
async def test_frames_that_rfc_6455_does_not_allow_end_the_connection(server, first_byte, payload):
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        connection.transport.write(bytes((first_byte, len(payload))) + payload)
        await rig.moved("A", Health.STALE, "a frame that RFC 6455 does not allow")
        assert await server.closed() == 1002


async def test_a_new_message_inside_a_split_one_ends_the_connection(server):
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        connection.transport.write(b"\x01\x04send" + b"\x81\x04send")
        await rig.moved("A", Health.STALE, "a frame that RFC 6455 does not allow")


async def test_fault_maintenance_a_503_at_the_handshake_is_obeyed_by_every_feed(server, caplog):
    server.refusals = [(503, {"Retry-After": "77"})]
    async with running(Rig(server.url, A)) as rig:
        await rig.moved("A", Health.OFFLINE, MAINTENANCE)
        assert rig.stats.state == MAINTENANCE
        await rig.moved("A", Health.SYNCING)
        await rig.live(server, "A")
        assert rig.stats.state == ACTIVE
        assert 77.0 in rig.slept
        assert any(70.0 < each <= 77.0 for each in rig.slept if each != 77.0)  # the others' pace
    assert caplog.messages[0] == "toy answers 503."


async def test_fault_maintenance_429_without_retry_after_is_no_loop_faster_than_once_in_30_s(
    server,
):
    server.refusals = [(429, {})] * 20
    async with running(Rig(server.url, A)) as rig:
        await rig.moved("A", Health.OFFLINE, LIMITED)
        await rig.moved("A", Health.SYNCING)
        waits = [each for each in rig.slept if each >= 30.0]
        assert len(waits) >= 20


async def test_another_refusal_is_told_once_and_tried_again_with_backoff(server, caplog):
    server.refusals = [(404, {})] * 3
    async with running(Rig(server.url, A)) as rig:
        await rig.moved("A", Health.OFFLINE, OFFLINE)
        await rig.moved("A", Health.SYNCING)
        assert [each for each in rig.slept if each > 0.1] == [0.5, 1.0, 2.0]
    assert caplog.messages == ["toy answers 404."]


async def test_an_exchange_that_is_not_there_is_offline(server, caplog):
    async with running(Rig("ws://127.0.0.1:1/ws", A)) as rig:
        await rig.moved("A", Health.OFFLINE, OFFLINE)
        await seen(lambda: len(rig.slept) > 20)
        assert rig.stats.state == OFFLINE
        assert max(rig.slept) == 30.0  # half of reconnect_max_s
    assert caplog.messages == ["toy cannot be reached (ConnectionRefusedError)."]


@pytest.mark.parametrize("polite", [True, False], ids=["hangs up", "says nothing"])
async def test_a_host_that_does_not_finish_the_handshake_is_left(polite):
    tasks = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        if not polite:
            await reader.read()
        writer.close()
        await writer.wait_closed()

    listening = await asyncio.start_server(answer, HOST, 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        settings = FeedSettings(connect_timeout_s=0.2)
        async with running(Rig(f"ws://{HOST}:{port}/", A, settings=settings)) as rig:
            await rig.moved("A", Health.OFFLINE, OFFLINE)
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_connection_that_comes_after_nobody_waits_is_let_go(server):
    rig = Rig(server.url, A)
    session = feed_module.Session(
        TOY, [A], books=rig.books, settings=FeedSettings(), stats=rig.stats
    )
    connection = feed_module.Connection(rig.feed, session)
    connection.abandoned = True
    await feed_module.ws_connect(lambda: connection, server.url)
    async with asyncio.timeout(WAIT_S):
        await connection.gone.wait()
    assert not connection.connected
    await rig.rest.__aexit__(None, None, None)


async def test_a_snapshot_by_rest_is_fetched_and_handed_over(server):
    paths: list[str] = []

    def bodies(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        return httpx.Response(200, content=snap("A"))

    async with running(Rig(server.url, A, bodies=bodies)) as rig:
        connection = await server.connection()
        await connection.send("fetch A")
        await rig.moved("A", Health.LIVE)
        assert paths == ["/book/A"]


async def test_a_snapshot_that_cannot_be_fetched_is_asked_for_again(server):
    async with running(Rig(server.url, A, bodies=lambda request: httpx.Response(404))) as rig:
        connection = await server.connection()
        await connection.send("fetch A")
        await server.hears("subscribe A", "again A")
        await rig.moved("A", Health.STALE, "snapshot request failed")


async def test_a_fetch_under_way_ends_with_its_connection(server):
    asked = asyncio.Event()

    async def never(request: httpx.Request) -> httpx.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with running(Rig(server.url, A, bodies=never)) as rig:
        connection = await server.connection()
        await connection.send("fetch A")
        async with asyncio.timeout(WAIT_S):
            await asked.wait()
        await connection.close()
        assert await server.connection()
        assert rig.stats.reconnects == 1


async def test_a_fetch_that_fails_by_a_mistake_of_ours_is_logged_and_asked_for_again(
    server, caplog
):
    def broken(request: httpx.Request) -> httpx.Response:
        raise ZeroDivisionError

    async with running(Rig(server.url, A, bodies=broken)):
        connection = await server.connection()
        await connection.send("fetch A")
        await server.hears("subscribe A", "again A")
    assert "Fetching a snapshot of toy failed." in caplog.messages


async def test_instruments_come_and_go_on_the_open_connection(server):
    async with running(Rig(server.url, A)) as rig:
        assert rig.feed.room == 2
        connection = await rig.live(server, "A")
        rig.feed.add([B])
        await server.hears("subscribe B")
        await connection.send(snap("B").decode())
        await rig.moved("B", Health.LIVE)
        rig.feed.remove([A])
        await server.hears("unsubscribe A")
        assert (rig.feed.instruments, rig.feed.room) == ([B], 2)


async def test_what_came_and_went_during_the_handshake_is_caught_up(server):
    rig = Rig(server.url, A, B)
    original = rig.feed._handshake

    async def handshake(connection: feed_module.Connection) -> None:
        await original(connection)
        rig.feed.add([C])
        rig.feed.remove([A])

    rig.feed._handshake = handshake  # type: ignore[method-assign]
    async with running(rig):
        await server.hears("subscribe A B", "subscribe C", "unsubscribe A")


async def test_the_heartbeat_of_the_exchange_is_sent(server):
    exchange = replace(BEATING, heartbeat=replace(BEATING.heartbeat, every_s=0.15))
    async with running(Rig(server.url, A, exchange=exchange)):
        await server.hears("subscribe A", "beat", "beat")


async def test_fault_a_crash_of_a_feed_is_logged_and_tried_again(server, caplog):
    class Broken(ToyConnector):
        def __init__(self, instruments: Sequence[Instrument]) -> None:
            raise ZeroDivisionError

    exchange = replace(TOY, connector=Broken)
    async with running(Rig(server.url, A, exchange=exchange)) as rig:
        await seen(lambda: len(rig.slept) > 6)
    assert caplog.messages[0] == "A feed of toy failed."


async def test_a_book_beyond_repair_reconnects(server):
    settings = FeedSettings(resync_tries_max=0)
    async with running(Rig(server.url, A, settings=settings)) as rig:
        connection = await rig.live(server, "A")
        await connection.send("gap A lost")
        await rig.moved("A", Health.STALE, "lost")
        assert await server.closed() == 1000
        await rig.moved("A", Health.SYNCING)
        assert BEYOND_REPAIR not in rig.stats.invalidations


async def test_a_recorder_sees_everything_that_passes(server):
    class Recorder:
        def __init__(self) -> None:
            self.lines: list[tuple[str, str, bytes]] = []

        def opened(self, url: str, t: float) -> None:
            self.lines.append(("opened", url, b""))

        def frame_in(self, url: str, t: float, frame: bytes) -> None:
            self.lines.append(("in", url, frame))

        def frame_out(self, url: str, t: float, frame: bytes) -> None:
            self.lines.append(("out", url, frame))

        def http(self, url: str, t: float, body: bytes) -> None:
            self.lines.append(("http", url, body))

    recorder = Recorder()
    bodies = lambda request: httpx.Response(200, content=snap("A"))  # noqa: E731
    async with running(Rig(server.url, A, bodies=bodies, recorder=recorder)) as rig:
        connection = await server.connection()
        await connection.send("fetch A")
        await rig.moved("A", Health.LIVE)
    assert recorder.lines == [
        ("opened", server.url, b""),
        ("out", server.url, b"subscribe A"),
        ("in", server.url, b"fetch A"),
        ("http", "http://127.0.0.1:1/book/A", snap("A")),
    ]


async def test_a_delta_costs_no_await(server):
    """The books have changed when the frame's callback returns: nothing is scheduled."""
    async with running(Rig(server.url, A)) as rig:
        await rig.live(server, "A")
        connection = rig.feed._connection
        assert connection is not None
        connection.received(delta("A"), connection.clock())
        assert rig.stats.frames == 2
        assert best(rig) == ("100", "101")
