"""One feed with real sockets on loopback; waits end by events, never by time."""

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from msgspec.structs import replace
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from clocks import sleeping
from feeds.toy import BEATING, TOY, A, B, C, ToyConnector, delta, limited, snap
from onebook.books import Books
from onebook.clock import Clock, ManualClock
from onebook.config import FeedSettings
from onebook.core.types import LEVELS_MAX
from onebook.exchanges.coinbase_advanced import ADVANCED
from onebook.exchanges.kit import (
    Address,
    Connect,
    Exchange,
    FrameForm,
    Heartbeat,
    Limit,
    ProtocolError,
    Quotas,
    Scope,
)
from onebook.feeds import Catalogue, Supervisor
from onebook.feeds import connection as connection_module
from onebook.feeds import feed as feed_module
from onebook.feeds.feed import Feed
from onebook.feeds.limits import LIMITS, FeedLimits
from onebook.feeds.stats import ACTIVE, MAINTENANCE, OFFLINE, ExchangeStats
from onebook.model import Health, Instrument, Reason
from onebook.rest import Rest

WAIT_S = 30.0
HOST = "127.0.0.1"


class Server:
    """A toy exchange on loopback: queues received frames, sends what the test sets."""

    def __init__(self) -> None:
        self.url = ""
        self.connections: asyncio.Queue[ServerConnection] = asyncio.Queue()
        self.heard: asyncio.Queue[str | bytes] = asyncio.Queue()
        self.closes: asyncio.Queue[int | None] = asyncio.Queue()
        self.refusals: list[tuple[int, dict[str, str]]] = []
        self.bodies: dict[str, tuple[int, bytes]] = {}  # what a GET of a path is answered
        self.headers: list[Headers] = []  # of each handshake
        self.during_handshake: Callable[[], None] = lambda: None

    async def serve(self, connection: ServerConnection) -> None:
        self.connections.put_nowait(connection)
        try:
            async for frame in connection:
                self.heard.put_nowait(frame)
        except ConnectionClosed:
            pass
        self.closes.put_nowait(connection.close_code)

    def request(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path in self.bodies:
            status, body = self.bodies[request.path]
            return connection.respond(status, body.decode())
        self.headers.append(request.headers)
        self.during_handshake()
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
    """A feed and its surroundings; changes of health are queued."""

    def __init__(
        self,
        url: str,
        *instruments: Instrument,
        exchange: Exchange = TOY,
        limits: FeedLimits = LIMITS,
        bodies: Callable[[httpx.Request], httpx.Response] | None = None,
        client: httpx.AsyncClient | None = None,
        recorder=None,
        quotas: Quotas | None = None,
        api_key: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.moves: asyncio.Queue[tuple[str, Health, Reason | None]] = asyncio.Queue()
        self.books = Books()
        self.books.subscribe(
            on_health=lambda book, previous: self.moves.put_nowait(
                (book.instrument.native, book.health, book.reason)
            )
        )
        for instrument in (A, B, C):
            self.books.open(instrument)
        self.stats = ExchangeStats("toy")
        self.slept: list[float] = []
        self.state_in_sleep: dict[float, str] = {}
        self.rest = Rest(
            client
            or httpx.AsyncClient(transport=httpx.MockTransport(bodies or (lambda request: None))),
            clock=sleeping(self.sleep),
        )
        self.feed = Feed(
            replace(exchange, ws_url=url),
            instruments,
            books=self.books,
            rest=self.rest,
            limits=limits,
            stats=self.stats,
            quotas=quotas or Quotas(exchange.limits),
            api_key=api_key,
            recorder=recorder,
            clock=sleeping(self.sleep, clock),
            jitter=lambda: 0.5,
        )

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.state_in_sleep[seconds] = self.stats.state
        await asyncio.sleep(0.001)

    async def moved(self, native: str, health: Health, reason: Reason | None = None) -> None:
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
    await rig.moved("A", Health.STALE, Reason.DISCONNECTED)
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
        since = rig.stats.received_at
        await seen(lambda: rig.stats.received_at > since + 2 * exchange.silence_max_s)
        assert rig.moves.empty()


async def test_b2_fault_silent_socket_is_given_up_even_if_it_takes_no_goodbye(
    server, monkeypatch, caplog
):
    monkeypatch.setattr(connection_module, "CLOSE_S", 0.1)
    exchange = replace(TOY, silence_max_s=0.4)
    async with running(Rig(server.url, A, exchange=exchange)) as rig:
        connection = await rig.live(server, "A")
        connection.transport.pause_reading()
        for _ in range(4):
            await connection.send(b"send " + b"x" * 3_000_000)  # our side cannot get rid of it
        await rig.moved("A", Health.STALE, Reason.SILENT)
        await server.connection()
        connection.transport.resume_reading()
    assert "A connection to toy ended: silent (no frame, not even a pong)." in caplog.messages


async def test_fault_reconnect_old_levels_are_never_shown_and_the_wait_has_full_jitter(
    server, caplog
):
    caplog.set_level(logging.INFO, "onebook.feeds")
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        await connection.close(1001)
        await rig.moved("A", Health.STALE, Reason.DISCONNECTED)
        assert best(rig) == (None, None)
        await rig.moved("A", Health.SYNCING, Reason.SUBSCRIBING)
        await rig.live(server, "A")
        assert 0.5 in rig.slept
        assert rig.stats.reconnects == 1
    assert caplog.messages == [
        "A connection to toy ended: disconnected (closed by the exchange).",
        "Reconnected to toy.",
    ]


@pytest.mark.parametrize(
    ("code", "words", "detail"),
    [
        (1008, "too many messages", " (1008: too many messages)"),
        (4001, "", " (4001: no words)"),
        (1000, "", ""),
    ],
)
async def test_the_log_has_the_code_and_the_words_of_a_close_frame(
    server, caplog, code, words, detail
):
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        await connection.close(code, words)
        await rig.moved("A", Health.STALE, Reason.DISCONNECTED)
        assert rig.books.get(A).detail == f"closed by the exchange{detail}"


FLOODS = {  # what comes first, and what follows it without end
    "pongs": (b"", b"\x8a\x00"),
    "pings": (b"", b"\x89\x00"),
    "empty parts": (b"\x01\x00", b"\x00\x00"),
    "unknown events": (b"", b"\x81\x07unknown"),
    "garbage": (b"", b"\x81\x07garbage"),
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_fault_a_flood_without_data_ends_its_connection_and_no_other(server, kind):
    limits = FeedLimits(noise_per_s=10.0, noise_burst=200)
    reason = Reason.PROTOCOL_ERROR if kind == "garbage" else Reason.FLOOD
    async with running(Rig(server.url, A, limits=limits)) as rig:
        connection = await rig.live(server, "A")
        other = Rig(server.url, B)
        async with running(other):
            await other.live(server, "B")
            first, then = FLOODS[kind]
            connection.transport.write(first + then * (1_000_000 // len(then)))
            await rig.moved("A", Health.STALE, reason)
            await seen(lambda: rig.stats.reconnects == 1)
            assert other.moves.empty()
            book = other.books.get(B)
            assert book is not None
            assert book.health is Health.LIVE


async def test_fault_a_flood_of_data_is_read_in_portions(server):
    limits = FeedLimits(frames_per_tick_max=100)
    async with running(Rig(server.url, A, limits=limits)) as rig:
        connection = await rig.live(server, "A")
        frame = b"\x81" + bytes([len(delta("A"))]) + delta("A")
        connection.transport.write(frame * 10_000)
        await seen(lambda: rig.stats.frames == 10_001)
        assert rig.stats.pauses >= 3, "64 KiB are read at a time"
        assert rig.moves.empty()


async def test_b2_a_socket_that_answers_pings_and_brings_no_data_is_given_up(server):
    limits = FeedLimits(
        silent_min_s=0.6, cadence_evidence_s=0.4, cadence_gaps_min=2, cadence_factor=1.5
    )
    exchange = replace(TOY, silence_max_s=0.4)
    rig = Rig(server.url, A, exchange=exchange, limits=limits)
    async with running(rig):
        connection = await rig.live(server, "A")
        for _ in range(30):
            await connection.send(delta("A").decode())
            await asyncio.sleep(0.05)
        assert rig.moves.empty()
        await rig.moved("A", Health.STALE, Reason.SILENT)
        assert rig.stats.invalidations == {Reason.SILENT: 1}


async def test_a_stable_connection_starts_the_waits_again(server):
    server.refusals = [(404, {})] * 3
    async with running(Rig(server.url, A, limits=FeedLimits(stable_s=0.0))) as rig:
        await rig.moved("A", Health.OFFLINE, Reason.UNREACHABLE)
        await rig.moved("A", Health.SYNCING, Reason.SUBSCRIBING)
        connection = await rig.live(server, "A")
        await connection.close()
        await server.connection()
        assert [each for each in rig.slept if each > 0.1] == [0.5, 1.0, 2.0, 0.5]


async def test_a_connection_that_vanishes_is_noticed(server):
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        connection.transport.abort()
        await rig.moved("A", Health.STALE, Reason.DISCONNECTED)
        await rig.moved("A", Health.SYNCING, Reason.SUBSCRIBING)


async def test_a_lost_connection_is_offline_until_the_next_is_open(server):
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        assert rig.stats.state == ACTIVE
        connection.transport.abort()
        await rig.moved("A", Health.STALE, Reason.DISCONNECTED)
        await rig.moved("A", Health.SYNCING, Reason.SUBSCRIBING)
        assert rig.state_in_sleep[0.5] == OFFLINE  # the wait before it connects again
        await rig.live(server, "A")
        assert rig.stats.state == ACTIVE


async def test_fault_closing_notice_reconnects_without_a_wait_if_the_connection_was_stable(server):
    async with running(Rig(server.url, A, limits=FeedLimits(stable_s=0.0))) as rig:
        connection = await rig.live(server, "A")
        await connection.send("closing maintenance")
        await rig.moved("A", Health.STALE, Reason.CLOSING)
        await rig.moved("A", Health.SYNCING, Reason.SUBSCRIBING)
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
        assert reason is Reason.PROTOCOL_ERROR or (reason is Reason.DISCONNECTED and not split)
        await rig.moved("A", Health.SYNCING, Reason.SUBSCRIBING)


async def test_fault_a_message_over_the_limit_that_is_delivered_all_the_same_is_refused(server):
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        assert rig.feed._connection is not None
        rig.feed._connection.bytes_max = 5
        await connection.send("send x")
        await rig.moved("A", Health.STALE, Reason.PROTOCOL_ERROR)
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
        await rig.moved("A", Health.STALE, Reason.PROTOCOL_ERROR)
        assert await server.closed() == 1002


async def test_a_new_message_inside_a_split_one_ends_the_connection(server):
    async with running(Rig(server.url, A)) as rig:
        connection = await rig.live(server, "A")
        connection.transport.write(b"\x01\x04send" + b"\x81\x04send")
        await rig.moved("A", Health.STALE, Reason.PROTOCOL_ERROR)


async def test_fault_maintenance_a_503_at_the_handshake_is_obeyed_by_every_feed(server, caplog):
    server.refusals = [(503, {"Retry-After": "77"})]
    async with running(Rig(server.url, A)) as rig:
        await rig.moved("A", Health.OFFLINE, Reason.MAINTENANCE)
        assert rig.stats.state == MAINTENANCE
        await rig.moved("A", Health.SYNCING, Reason.SUBSCRIBING)
        await rig.live(server, "A")
        assert rig.stats.state == ACTIVE
        assert 77.0 in rig.slept
        assert any(70.0 < each <= 77.0 for each in rig.slept if each != 77.0)  # the others' pace
    assert caplog.messages[0] == "toy rejects the handshake (HTTP 503)."


async def test_a_status_by_which_the_exchange_shuts_us_out_holds_all_its_connections(server):
    server.refusals = [(403, {})]
    shut = replace(TOY, holds={403: 500.0})
    async with running(Rig(server.url, A, exchange=shut)) as rig:
        await rig.moved("A", Health.OFFLINE, Reason.RATE_LIMITED)
        await rig.moved("A", Health.SYNCING, Reason.SUBSCRIBING)
        assert 750.0 in rig.slept, "its time and half of it again: the jitter of the rig"


async def test_fault_maintenance_429_without_retry_after_is_no_loop_faster_than_once_in_30_s(
    server,
):
    server.refusals = [(429, {})] * 20
    async with running(Rig(server.url, A)) as rig:
        await rig.moved("A", Health.OFFLINE, Reason.RATE_LIMITED)
        await rig.moved("A", Health.SYNCING, Reason.SUBSCRIBING)
        waits = [each for each in rig.slept if each >= 30.0]
        assert len(waits) >= 20


KEYED = replace(TOY, key_header="X-TOY-KEY", instead=TOY)


async def test_the_key_of_a_channel_is_sent_in_its_handshake_and_nowhere_else(server, caplog):
    async with running(Rig(server.url, A, exchange=KEYED, api_key="the key")) as rig:
        await rig.live(server, "A")
        assert [each.get("X-TOY-KEY") for each in server.headers] == ["the key"]
    async with running(Rig(server.url, A, api_key="the key")) as rig:
        await rig.live(server, "A")
        assert server.headers[-1].get("X-TOY-KEY") is None
    assert "the key" not in caplog.text


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_where_the_key_is_refused_the_default_channel_is_used(server, caplog, status):
    server.refusals = [(status, {})]
    keyed = replace(KEYED, instead=replace(TOY, ws_url=server.url))
    async with running(Rig(server.url, A, exchange=keyed, api_key="the key")) as rig:
        await rig.moved("A", Health.OFFLINE, Reason.UNREACHABLE)
        await rig.moved("A", Health.SYNCING, Reason.SUBSCRIBING)
        await rig.live(server, "A")
        assert server.headers[-1].get("X-TOY-KEY") is None
    assert caplog.messages[0] == (
        f"toy refuses the API key (HTTP {status}); the default channel is used instead."
    )
    assert "the key" not in caplog.text


async def test_a_channel_whose_frames_cannot_be_read_is_left_for_the_default_one(server, caplog):
    keyed = replace(KEYED, instead=replace(TOY, ws_url=server.url))
    async with running(
        Rig(server.url, A, exchange=keyed, api_key="k", limits=FeedLimits(faults_max=3))
    ):
        connection = await server.connection()
        await server.hears("subscribe A")
        for _ in range(5):
            with suppress(ConnectionClosed):
                await connection.send(b"garbage")
        await server.connection()  # the next one
        assert [each.get("X-TOY-KEY") for each in server.headers] == ["k", None]
    assert "toy sends frames that cannot be read" in caplog.text


async def test_another_refusal_is_reported_once_and_tried_again_with_backoff(server, caplog):
    server.refusals = [(404, {})] * 3
    async with running(Rig(server.url, A)) as rig:
        await rig.moved("A", Health.OFFLINE, Reason.UNREACHABLE)
        await rig.moved("A", Health.SYNCING, Reason.SUBSCRIBING)
        assert [each for each in rig.slept if each > 0.1] == [0.5, 1.0, 2.0]
    assert caplog.messages == ["toy rejects the handshake (HTTP 404)."]


async def test_an_exchange_that_is_not_there_is_offline(server, caplog):
    async with running(Rig("ws://127.0.0.1:1/ws", A)) as rig:
        await rig.moved("A", Health.OFFLINE, Reason.UNREACHABLE)
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
        limits = FeedLimits(connect_timeout_s=0.2)
        async with running(Rig(f"ws://{HOST}:{port}/", A, limits=limits)) as rig:
            await rig.moved("A", Health.OFFLINE, Reason.UNREACHABLE)
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_connection_that_comes_after_its_waiters_left_is_closed(server):
    rig = Rig(server.url, A)
    session = feed_module.FeedSession(TOY, [A], books=rig.books, stats=rig.stats)
    connection = rig.feed._link(session, server.url)
    connection.abandoned = True
    with pytest.raises(ConnectionResetError):
        await connection.open()
    async with asyncio.timeout(WAIT_S):
        await connection.gone.wait()
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
        await rig.moved("A", Health.STALE, Reason.SNAPSHOT_FAILED)


@pytest.mark.parametrize("status", [404, 500])
async def test_fault_a_snapshot_that_always_fails_takes_its_one_book(server, status):
    limits = FeedLimits(resync_base_s=0.01, retry_offline_s=1.0)
    toy = replace(TOY, rest_url=server.url.replace("ws://", "http://").removesuffix("/ws"))
    rig = Rig(server.url, A, B, exchange=toy, limits=limits, client=httpx.AsyncClient())
    server.bodies["/book/A"] = (status, b"no such market")
    async with running(rig):
        connection = await rig.live(server, "A", "B")
        await connection.send("gap A")
        for _ in range(2 * limits.resync_tries_max):
            await server.hears("again A")
            await connection.send("fetch A")
        await rig.moved("A", Health.STALE, Reason.GAP)
        await rig.moved("A", Health.STALE, Reason.SNAPSHOT_FAILED)
        book = rig.books.get(A)
        assert book is not None
        assert f"answered {status}" in book.detail
        assert best(rig, B) == ("100", "101")
        await server.hears("again A")
        server.bodies["/book/A"] = (200, snap("A"))
        await connection.send("fetch A")
        await rig.moved("A", Health.LIVE)
        assert rig.stats.reconnects == 0


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

    def change() -> None:
        rig.feed.add([C])
        rig.feed.remove([A])

    server.during_handshake = change
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
    async with running(Rig(server.url, A, limits=FeedLimits(resync_tries_max=0))) as rig:
        connection = await rig.live(server, "A")
        await connection.send("gap A lost")
        await rig.moved("A", Health.STALE, Reason.GAP)
        assert await server.closed() == 1000
        await rig.moved("A", Health.STALE, Reason.NO_SNAPSHOT)
        await rig.moved("A", Health.SYNCING, Reason.SUBSCRIBING)
        assert Reason.NO_SNAPSHOT not in rig.stats.invalidations


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
        connection.received(delta("A"), connection.monotonic())
        assert rig.stats.frames == 2
        assert best(rig) == ("100", "101")


# Frames that the exchange compresses itself


COMPRESSED = replace(TOY, frames=FrameForm.COMPRESSED)


async def test_compressed_frames_are_inflated_and_ours_are_plain(server):
    async with running(Rig(server.url, A, exchange=COMPRESSED)) as rig:
        connection = await server.connection()
        await server.hears("subscribe A")
        await connection.send(gzip.compress(snap()))
        await rig.moved("A", Health.LIVE)
        await connection.send(gzip.compress(b'delta A [["100","0"],["98","1"]] []'))
        await seen(lambda: best(rig) == ("98", "101"))


async def test_a_frame_that_cannot_be_inflated_may_have_been_of_any_book(server):
    async with running(Rig(server.url, A, exchange=COMPRESSED)) as rig:
        connection = await server.connection()
        await server.hears("subscribe A")
        await connection.send(gzip.compress(snap()))
        await rig.moved("A", Health.LIVE)
        await connection.send(gzip.compress(snap())[:-4])
        await rig.moved("A", Health.STALE, Reason.PROTOCOL_ERROR)
        await server.hears("again A")
        await connection.send(gzip.compress(snap()))
        await rig.moved("A", Health.LIVE)


async def test_a_small_frame_that_inflates_beyond_the_bound_ends_the_connection(server):
    limits = FeedLimits(frame_bytes_max=100_000)
    async with running(Rig(server.url, A, exchange=COMPRESSED, limits=limits)) as rig:
        connection = await server.connection()
        await server.hears("subscribe A")
        await connection.send(gzip.compress(snap()))
        await rig.moved("A", Health.LIVE)
        await connection.send(gzip.compress(bytes(50_000_000)))
        assert await server.closed() == 1009
        await rig.moved("A", Health.STALE, Reason.PROTOCOL_ERROR)


# The longest messages


BTC_USD = Instrument("coinbase", "BTC/USD", "BTC-USD")
ADVANCED_ASKS, ADVANCED_BYTES = 27_017, 5_080_000  # of BTC-USD's snapshot in 2026


def advanced_snapshot(size: int, asks: int = ADVANCED_ASKS) -> str:
    """A snapshot as long as the exchange's: the same number of asks, the rest bids."""

    def level(side: str, cents: int) -> str:
        return (
            f'{{"side":"{side}","event_time":"1970-01-01T00:00:00Z",'
            f'"price_level":"{cents // 100}.{cents % 100:02}","new_quantity":"0.00012345"}}'
        )

    levels = [level("offer", 6_000_100 + 25 * rank) for rank in range(asks)]
    bids = (size - len(",".join(levels))) // (len(level("bid", 6_000_000)) + 1) - 2
    levels += [level("bid", 6_000_000 - 25 * rank) for rank in range(bids)]
    text = (
        '{"channel":"l2_data","timestamp":"2026-02-09T20:32:50.714964855Z","sequence_num":0,'
        f'"events":[{{"type":"snapshot","product_id":"BTC-USD","updates":[{",".join(levels)}]}}]}}'
    )
    return text[:-1].ljust(size - 1) + "}"


async def test_the_longest_snapshot_of_coinbase_is_a_live_book_by_default(server):
    rig = Rig(server.url, BTC_USD, exchange=ADVANCED)
    rig.books.open(BTC_USD)
    frame = advanced_snapshot(ADVANCED_BYTES)
    assert len(frame) == ADVANCED_BYTES > LIMITS.frame_bytes_max
    async with running(rig):
        connection = await server.connection()
        await connection.send(frame)
        await rig.moved("BTC-USD", Health.LIVE)
        book = rig.books.get(BTC_USD)
        assert book is not None
        bids, asks = book.core.top(LEVELS_MAX)
        assert (bids[0][0], asks[0][0]) == ("60000", "60001")
        assert len(asks) == ADVANCED_ASKS
        assert len(bids) + len(asks) == frame.count('"side"')
        assert book.horizon() == (None, None), "nothing was cut"


async def test_a_message_longer_than_coinbase_sends_ends_the_connection(server):
    rig = Rig(server.url, BTC_USD, exchange=ADVANCED)
    rig.books.open(BTC_USD)
    async with running(rig):
        connection = await server.connection()
        with suppress(ConnectionClosed):
            await connection.send(advanced_snapshot(ADVANCED.frame_bytes + 1))
        assert await server.closed() == 1009
        book = rig.books.get(BTC_USD)
        assert book is not None
        assert book.health is not Health.LIVE


# An address that is asked for before each connection


class Desk:
    """Returns an address for each connection, or the scripted answer."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.asked: list[tuple[str, str]] = []
        self.answers: list[httpx.Response] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.method, request.url.path))
        if self.answers:
            return self.answers.pop(0)
        return httpx.Response(200, text=f"{self.server.url}?token={len(self.asked)}")


def address(body: bytes, instruments: Sequence[Instrument]) -> Address:
    if not body.startswith(b"ws"):
        raise ProtocolError("no address")
    return Address(body.decode(), Heartbeat(b"ping of " + instruments[0].native.encode(), 0.2))


ADDRESSED = replace(TOY, connect=Connect("POST", "/bullet", address))


async def test_each_connection_asks_for_its_own_address_and_heartbeat(server):
    desk = Desk(server)
    async with running(Rig("ws://127.0.0.1:1/", A, exchange=ADDRESSED, bodies=desk)) as rig:
        first = await rig.live(server, "A")
        await server.hears("ping of A")
        await first.close()
        second = await server.connection()
        paths = [each.request.path for each in (first, second) if each.request is not None]
        assert paths == ["/ws?token=1", "/ws?token=2"]
    assert desk.asked[:2] == [("POST", "/bullet")] * 2


async def test_an_address_costs_its_weight_of_the_request_budget(server):
    desk, host = Desk(server), "http://127.0.0.1:1/"
    addressed = replace(TOY, connect=Connect("POST", "/bullet", address, weight=100))
    rig = Rig("ws://127.0.0.1:1/", A, exchange=addressed, bodies=desk)
    rig.rest.budget(host, (Limit(4_000, 86_400.0),))  # 2,000 at once, half of it for others
    async with running(rig):
        assert rig.rest.spares(host, 1_000)
        await rig.live(server, "A")
        assert not rig.rest.spares(host, 920)
        assert rig.rest.spares(host, 880)


@pytest.mark.parametrize("answer", [httpx.Response(401), httpx.Response(200, text="sorry")])
async def test_without_an_address_the_exchange_is_offline_and_asked_again(server, caplog, answer):
    desk = Desk(server)
    desk.answers = [answer]
    async with running(Rig("ws://127.0.0.1:1/", A, exchange=ADDRESSED, bodies=desk)) as rig:
        await rig.moved("A", Health.OFFLINE, Reason.UNREACHABLE)
        await server.connection()
        await server.hears("subscribe A")
    assert caplog.messages[0].startswith("toy returns no connection address (")


async def test_an_address_without_tls_is_not_used_where_ours_has_it(server, caplog):
    desk = Desk(server)
    async with running(Rig("wss://127.0.0.1:1/", A, exchange=ADDRESSED, bodies=desk)) as rig:
        await rig.moved("A", Health.OFFLINE, Reason.UNREACHABLE)
    assert server.connections.empty()
    assert caplog.messages[0] == "toy returns no connection address (an address without TLS)."


async def test_a_server_that_ends_the_tls_handshake_is_reported_by_the_feed_alone(caplog, capsys):
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(close, HOST, 0) as plain:
        port = plain.sockets[0].getsockname()[1]
        async with running(Rig(f"wss://{HOST}:{port}/", A)) as rig:
            await rig.moved("A", Health.OFFLINE, Reason.UNREACHABLE)
    assert [each.name for each in caplog.records] == ["onebook.feeds"]
    assert "Traceback" not in capsys.readouterr().err


async def test_a_limit_of_the_address_is_shared_by_two_feeds_of_one_exchange(server):
    """Time stands still, so only the initial burst may be sent, over both sockets together."""
    exchange = limited(TOY, messages=(Limit(30, 1.0, Scope.ADDRESS),))  # a burst of six
    quotas = Quotas(exchange.limits)
    first, second = (
        Rig(server.url, each, exchange=exchange, quotas=quotas, clock=ManualClock(1_000.0))
        for each in (A, B)
    )
    async with running(first):
        await server.connection()
        await server.hears("subscribe A")
        async with running(second):
            other = await server.connection()
            await server.hears("subscribe B")
            await other.send("\n".join(["send x"] * 10))
            await server.hears(*"xxxx")
            await other.send("urgent all")
            await server.hears("all")
            assert server.heard.empty()


async def test_an_exchange_of_one_market_per_socket_has_a_socket_for_each_book(server):
    """A closed connection affects no other book, and is reopened with its own market."""

    async def short(seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.001))

    async def heard(count: int) -> set[str | bytes]:
        async with asyncio.timeout(WAIT_S):
            return {await server.heard.get() for _ in range(count)}

    single = replace(limited(TOY, topics=1), name="single", ws_url=server.url)
    exchanges = {"single": single}
    wanted = [Instrument("single", f"{native}/USD", native) for native in "ABC"]
    settings = FeedSettings()
    moves: asyncio.Queue[tuple[Instrument, Health]] = asyncio.Queue()
    books = Books()
    books.subscribe(
        on_health=lambda book, previous: moves.put_nowait((book.instrument, book.health))
    )
    rest = Rest(httpx.AsyncClient(transport=httpx.MockTransport(lambda request: None)))
    supervisor = Supervisor(
        exchanges,
        books=books,
        rest=rest,
        catalogue=Catalogue(exchanges, rest=rest, settings=settings),
        settings=settings,
        clock=sleeping(short),
    )

    async def moved(instrument: Instrument, health: Health) -> None:
        async with asyncio.timeout(WAIT_S):
            while await moves.get() != (instrument, health):
                pass

    async with rest, supervisor:
        for each in wanted:
            supervisor.acquire(each)
        assert await heard(3) == {"subscribe A", "subscribe B", "subscribe C"}
        sockets = [await server.connection() for _ in range(3)]
        assert [len(feed.instruments) for feed in supervisor.feeds("single")] == [1, 1, 1]
        for socket in sockets:
            # Each socket carries one market: the frames of the others are of no book of it.
            await socket.send("\n".join(snap(each.native).decode() for each in wanted))
        for each in wanted:
            book = books.get(each)
            async with asyncio.timeout(WAIT_S):
                while book.health is not Health.LIVE:
                    await asyncio.sleep(0.001)
        gone = supervisor.feeds("single")[0].instruments[0]
        for socket in sockets:
            await socket.send(f"gap {gone.native}")
        await moved(gone, Health.STALE)
        assert await heard(1) == {f"again {gone.native}"}
        others = [each for each in wanted if each is not gone]
        assert [books.get(each).health for each in others] == [Health.LIVE] * 2
        for socket in sockets:
            await socket.send(snap(gone.native).decode())
        await moved(gone, Health.LIVE)
        await sockets[0].close()
        await server.connection()
        (again,) = await heard(1) - {f"again {gone.native}"} or await heard(1)
        assert again in {"subscribe A", "subscribe B", "subscribe C"}
