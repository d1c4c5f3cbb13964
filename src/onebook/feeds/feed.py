"""One live connection to an exchange: the socket around a `Session`, kept up for ever.

Carries bytes and time in and actions out; what they mean is decided in `session.py`. picows does
the framing and leaves some of RFC 6455 to us: fragments are joined here, control frames answered,
reserved bits refused. Nothing is awaited between a frame and the books.
"""

import asyncio
import logging
import random
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace
from picows import (
    WSCloseCode,
    WSError,
    WSFrame,
    WSInvalidStatusError,
    WSMsgType,
    WSTransport,
    WSUpgradeResponse,
    ws_connect,
)

from onebook.books import Books
from onebook.config import FeedSettings
from onebook.errors import ExchangeFailed
from onebook.exchanges.contract import Exchange, Fetch, FrameForm, ProtocolError
from onebook.exchanges.limits import Quotas
from onebook.feeds.actions import End, Ping, Request, Transmit
from onebook.feeds.inflate import TooLong, Uninflatable, inflated
from onebook.feeds.listener import DATA, Listener
from onebook.feeds.liveness import Cadences
from onebook.feeds.pace import Backoff
from onebook.feeds.session import Session
from onebook.feeds.stats import LIMITED, MAINTENANCE, OFFLINE, ExchangeStats
from onebook.model import Health, Instrument, Reason
from onebook.rest import Rest, retry_after_s

log = logging.getLogger("onebook.feeds")
# picows tells every step of every socket; what matters of it is told here, once, in our words.
socket_log = logging.getLogger("onebook.feeds.socket")
socket_log.setLevel(logging.CRITICAL)

TICK_S: Final = 0.1  # how often a session hears of time; its frames leave at this grain
ADDRESS_BYTES_MAX: Final = 65_536  # of the answer that gives a connection its address
CLOSE_S: Final = 2.0  # how long the other side may take to agree that a connection is closed
TROUBLES: Final = {503: MAINTENANCE, 418: LIMITED, 429: LIMITED}
# What clients read of an exchange that refuses or cannot be reached.
REASONS: Final = {
    MAINTENANCE: Reason.MAINTENANCE,
    LIMITED: Reason.RATE_LIMITED,
    OFFLINE: Reason.UNREACHABLE,
}
READ_BUFFER_BYTES: Final = 64 << 10

BAD_FRAME: Final = "a frame that RFC 6455 does not allow"
TOO_LONG: Final = "a message over the size limit"
CLOSED_BY_EXCHANGE: Final = "closed by the exchange"


class Recorder(Protocol):
    """Who wants to keep what passes: see `feeds.recording`. `t` is monotonic seconds."""

    def opened(self, url: str, t: float) -> None:
        """A connection is open."""

    def frame_in(self, url: str, t: float, frame: bytes) -> None:
        """A message came."""

    def frame_out(self, url: str, t: float, frame: bytes) -> None:
        """A text frame was sent."""

    def http(self, url: str, t: float, body: bytes) -> None:
        """A REST body came."""


class NotReached(Exception):
    """An exchange that cannot be reached: a state word of `stats`, and what is wrong in words."""

    def __init__(self, trouble: str, problem: str) -> None:
        super().__init__(problem)
        self.trouble = trouble
        self.problem = problem


class Link(Protocol):
    """What a feed has of its connection: a socket of ours, or a client of ccxt."""

    session: Session

    def carry_out(self, now: float) -> None:
        """Do what the session wants done."""

    async def attend(self) -> None:
        """Let time pass for the session until the connection is gone."""

    async def release(self) -> None:
        """Leave nothing behind."""


class Connection(Listener):
    """One socket and its session, from the handshake to the end."""

    def __init__(self, feed: "Feed", session: Session) -> None:
        super().__init__()
        self.session = session
        self.clock = feed.clock
        self._take = session.received if feed.recorder is None else self._recorded
        plain = feed.exchange.frames is FrameForm.PLAIN
        self.received = self._take if plain else self._inflated
        self.joining = False
        self.bytes_max = feed.settings.frame_bytes_max
        self.budget = self._frames_max = feed.settings.frames_per_tick_max
        self.gone = asyncio.Event()
        self.abandoned = False
        self._feed = feed
        self._recorder = feed.recorder
        self._url = feed.exchange.ws_url
        self._parts = bytearray()
        self._transport: WSTransport | None = None
        self._timer: asyncio.TimerHandle
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(feed.settings.fetches_max)

    @property
    def connected(self) -> bool:
        """Return whether the handshake came to its end, whatever happened since."""
        return self._transport is not None

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Subscribe, or close where no instrument is wanted any more."""
        if self.abandoned:
            transport.disconnect(graceful=False)
            return
        self._transport = transport
        connection: socket.socket = transport.underlying_transport.get_extra_info("socket")
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, self._feed.settings.receive_bytes_max
        )
        now = self.clock()
        if self._recorder is not None:
            self._recorder.opened(self._url, now)
        self.session.opened(now)
        self.carry_out(now)

    def unusual(self, transport: WSTransport, frame: WSFrame) -> None:
        """Join a part, answer a control frame, or refuse what RFC 6455 or we do not allow."""
        if self.session.ended is not None:
            return  # what was read before the socket closes
        kind = frame.msg_type
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            self._refuse(WSCloseCode.PROTOCOL_ERROR, BAD_FRAME)
        elif frame.payload_size > self.bytes_max:
            # picows ends such a connection only after a while, and delivers the frame if that is
            # sooner.
            self._refuse(WSCloseCode.MESSAGE_TOO_BIG, TOO_LONG)
        elif kind in DATA or kind == WSMsgType.CONTINUATION:
            self._part(frame)
        elif kind == WSMsgType.CLOSE:
            transport.send_close(WSCloseCode.OK)
            self._leave(Reason.DISCONNECTED, CLOSED_BY_EXCHANGE)
        else:
            if kind == WSMsgType.PING:
                transport.send_pong(frame.get_payload_as_bytes())
                self.session.ponged(self.clock())
            self._heard()

    def pause(self, transport: WSTransport) -> None:
        """Read no more until the next tick, so that the other feeds are heard."""
        self._feed.stats.pauses += 1
        transport.underlying_transport.pause_reading()

    def _resume(self) -> None:
        paused, self.budget = self.budget <= 0, self._frames_max
        if paused and self._transport is not None and not self.gone.is_set():
            self._transport.underlying_transport.resume_reading()

    def _heard(self) -> None:
        """Count a frame that carries nothing; too many of them end the connection."""
        now = self.clock()
        self.session.heard(now)
        if self.session.ended is not None:
            self.carry_out(now)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """The socket is gone: its books are stale from here."""
        self.session.closed(self.clock())
        self.gone.set()
        self._finish()

    def tick(self) -> None:
        """Let time pass."""
        now = self.clock()
        self.session.tick(now)
        self.carry_out(now)

    def carry_out(self, now: float) -> None:
        """Do what the session wants done."""
        transport = self._transport
        assert transport is not None
        for action in self.session.take(now):
            match action:
                case Transmit(frame):
                    if self._recorder is not None:
                        self._recorder.frame_out(self._url, now, frame)
                    transport.send(TEXT, frame)
                case Request(fetch) if fetch.spare and not self._spares(fetch):
                    self.session.put_off(fetch.instrument, now)
                case Request(fetch):
                    task = asyncio.create_task(self._get(fetch))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                case Ping():
                    transport.send_ping()
                case End(abrupt=True):
                    transport.disconnect(graceful=False)
                case End():
                    transport.send_close(WSCloseCode.OK)
                    transport.disconnect()

    async def attend(self) -> None:
        """Tick until the socket is gone."""
        self._tick_later()
        try:
            await self._over
        finally:
            self._timer.cancel()
        if not self.gone.is_set():
            await self._part_ways()

    # A callback and not a task that wakes: many quiet feeds tick some hundred times a second.
    # On the whole tenths of a second, so that all of them wake the loop together.
    def _tick_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at((round(loop.time() / TICK_S) + 1) * TICK_S, self._tick)

    def _tick(self) -> None:
        try:
            self._resume()
            self.tick()
        except Exception as error:
            if not self._over.done():
                self._over.set_exception(error)
            return
        if self.session.ended is None:
            self._tick_later()
        else:
            self._finish()

    def _finish(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    async def release(self) -> None:
        """Leave nothing behind: no socket, no task."""
        self.abandoned = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._transport is not None:
            self._transport.send_close(WSCloseCode.OK)
            self._transport.disconnect()
            await self._part_ways()
            try:
                await self._transport.wait_disconnected()
            except Exception as error:
                log.debug("A connection to %s ended with %r.", self._url, error)

    async def _part_ways(self) -> None:
        """Wait for the goodbye, but not for ever: a dead peer says none."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.gone.wait()
        except TimeoutError:
            assert self._transport is not None
            self._transport.disconnect(graceful=False)
            await self.gone.wait()

    def _inflated(self, message: bytes, now: float) -> None:
        try:
            frame = inflated(message, self.bytes_max)
        except TooLong:
            self._refuse(WSCloseCode.MESSAGE_TOO_BIG, TOO_LONG)
        except Uninflatable as error:
            self.session.damaged(str(error), now)
        else:
            self._take(frame, now)

    def _recorded(self, message: bytes, now: float) -> None:
        assert self._recorder is not None
        self._recorder.frame_in(self._url, now, message)
        self.session.received(message, now)

    def _part(self, frame: WSFrame) -> None:
        """Join the fragments of one message (RFC 6455 section 5.4)."""
        if (frame.msg_type == WSMsgType.CONTINUATION) != self.joining:
            self._refuse(WSCloseCode.PROTOCOL_ERROR, BAD_FRAME)
            return
        self._parts += frame.get_payload_as_memoryview()
        if len(self._parts) > self.bytes_max:
            self._refuse(WSCloseCode.MESSAGE_TOO_BIG, TOO_LONG)
            return
        self.joining = not frame.fin
        if not frame.fin:
            self._heard()
        else:
            message, self._parts = bytes(self._parts), bytearray()
            now = self.clock()
            self.received(message, now)
            self.carry_out(now)

    def _refuse(self, code: WSCloseCode, reason: str) -> None:
        assert self._transport is not None
        self._transport.send_close(code)
        self._leave(Reason.PROTOCOL_ERROR, reason)

    def _leave(self, reason: Reason, detail: str) -> None:
        assert self._transport is not None
        self.session.closed(self.clock(), reason, detail)
        self._transport.disconnect()

    def _spares(self, fetch: Fetch) -> bool:
        """Whether a request that can be put off takes nothing from one that cannot."""
        feed = self._feed
        if len(self._tasks) >= feed.settings.fetches_max:
            return False
        return feed.rest.spares(feed.exchange.rest_url + fetch.path, fetch.weight)

    async def _get(self, fetch: Fetch) -> None:
        feed = self._feed
        settings = feed.settings
        total_s = settings.reseed_total_s if fetch.spare else settings.fetch_total_s
        url = feed.exchange.rest_url + fetch.path
        async with self._places:
            try:
                body = await feed.rest.get(url, weight=fetch.weight, total_s=total_s)
            except ExchangeFailed as error:
                log.info("%s gave no snapshot: %s", feed.exchange.name, error.message)
                self.session.fetch_failed(fetch.instrument, self.clock())
            except Exception:
                log.exception("Fetching a snapshot of %s failed.", feed.exchange.name)
                self.session.fetch_failed(fetch.instrument, self.clock())
            else:
                now = self.clock()
                if self._recorder is not None:
                    self._recorder.http(url, now, body)
                self.session.fetched(fetch.instrument, body, now)
        self.carry_out(self.clock())


class Feed:
    """The instruments of one connection, and that connection for as long as `run` runs.

    Args:
        exchange: Its facts, with the operator's addresses.
        instruments: What to begin with; their books are open.
        books: Where frames go.
        rest: For snapshots by REST.
        settings: Limits and waits.
        stats: Counters of the exchange.
        quotas: The exchange's limits, shared by its feeds.
        recorder: Who keeps what passes.
        tls: Shared, because making one reads every certificate of the machine.
        clock: Monotonic seconds.
        wall: Unix seconds.
        sleep: Waits.
        jitter: A number in [0, 1) for each wait.
    """

    def __init__(
        self,
        exchange: Exchange,
        instruments: Sequence[Instrument],
        *,
        books: Books,
        rest: Rest,
        settings: FeedSettings,
        stats: ExchangeStats,
        quotas: Quotas,
        recorder: Recorder | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.exchange = exchange
        self.books = books
        self.rest = rest
        self.settings = settings
        self.recorder = recorder
        self.clock = clock
        self._instruments = dict.fromkeys(instruments)
        self.stats = stats
        self._quotas = quotas
        self._tls = tls
        self._wall = wall
        self._sleep = sleep
        self._jitter = jitter
        self._cadences = Cadences(settings)
        self._backoff = Backoff(settings.reconnect_base_s, settings.reconnect_max_s, jitter)
        self._connection: Link | None = None  # while it is open
        self._broken = False

    @property
    def room(self) -> int:
        """Return how many more instruments fit on this connection."""
        return self.exchange.limits.topics - len(self._instruments)

    @property
    def instruments(self) -> list[Instrument]:
        """Return what this feed carries."""
        return list(self._instruments)

    def add(self, instruments: Sequence[Instrument]) -> None:
        """Carry more, on the open connection if there is one."""
        self._instruments.update(dict.fromkeys(instruments))
        if self._connection is not None:
            now = self.clock()
            self._connection.session.add(instruments, now)
            self._connection.carry_out(now)

    def remove(self, instruments: Sequence[Instrument]) -> None:
        """Carry these no longer."""
        for instrument in instruments:
            self._instruments.pop(instrument, None)
        if self._connection is not None:
            now = self.clock()
            self._connection.session.remove(instruments, now)
            self._connection.carry_out(now)

    async def run(self) -> None:
        """Keep the connection up until cancelled."""
        while True:
            await self._sleep(self._quotas.connects.take(1, self.clock()))
            try:
                wait_s = await self._connect()
            except Exception:
                log.exception("A feed of %s failed.", self.exchange.name)
                wait_s = self._backoff.next_s()
            await self._sleep(wait_s)

    async def _connect(self) -> float:
        """Live one connection and return how long to wait before the next."""
        try:
            exchange = await self._addressed()
        except ExchangeFailed as error:
            return self._unreachable(OFFLINE, f"gives no address ({error.message})")
        except ProtocolError as error:
            return self._unreachable(OFFLINE, f"gives no address ({error.reason})")
        session = Session(
            exchange,
            self.instruments,
            books=self.books,
            settings=self.settings,
            stats=self.stats,
            jitter=self._jitter,
            cadences=self._cadences,
            quotas=self._quotas,
            wall=self._wall,
        )
        connection = self._link(session)
        try:
            try:
                await self._handshake(connection, exchange.ws_url)
            except NotReached as error:
                return self._unreachable(error.trouble, error.problem)
            except WSInvalidStatusError as error:
                return self._put_off(error.response)
            except (OSError, WSError) as error:
                return self._unreachable(OFFLINE, f"cannot be reached ({type(error).__name__})")
            opened_at = self._up(connection)
            await connection.attend()
            return self._down(session, self.clock() - opened_at)
        finally:
            if self._connection is not None:
                self._connection = None
                self.stats.connected -= 1
            session.closed(self.clock())
            await connection.release()

    async def _addressed(self) -> Exchange:
        """Return the exchange's facts for one connection, with the address it gives for it.

        Raises:
            ExchangeFailed: It does not answer.
            ProtocolError: Its answer is no address that may be used.
        """
        exchange = self.exchange
        if exchange.connect is None:
            return exchange
        answer = await self.rest.send(
            exchange.connect.method,
            exchange.rest_url + exchange.connect.path,
            weight=exchange.connect.weight,
            total_s=self.settings.connect_timeout_s,
            bytes_max=ADDRESS_BYTES_MAX,
        )
        if answer.status != 200:
            raise ProtocolError(f"status {answer.status}")
        address = exchange.connect.address(answer.body, self.instruments)
        if exchange.ws_url.startswith("wss:") and not address.url.startswith("wss://"):
            raise ProtocolError("an address without TLS")
        heartbeat = address.heartbeat or exchange.heartbeat
        return replace(exchange, ws_url=address.url, heartbeat=heartbeat)

    def _link(self, session: Session) -> Link:
        return Connection(self, session)

    async def _handshake(self, connection: Link, url: str) -> None:
        assert isinstance(connection, Connection)
        settings = self.settings
        # Cancelling does not close a socket in the middle of the upgrade; picows' own timeout
        # does, so it is the shorter one.
        async with asyncio.timeout(settings.connect_timeout_s):
            await ws_connect(
                lambda: connection,
                url,
                ssl_context=self._tls,
                websocket_handshake_timeout=settings.connect_timeout_s / 2,
                logger_name=socket_log,
                enable_auto_pong=False,
                max_frame_size=settings.frame_bytes_max,
                max_redirects=0,
                read_buffer_init_size=READ_BUFFER_BYTES,
            )
        if not connection.connected:
            raise ConnectionResetError("closed during the handshake")

    def _up(self, connection: Link) -> float:
        known = connection.session.instruments
        self._connection = connection
        self.stats.connected += 1
        self.stats.trouble = ""
        self._catch_up(connection, known)
        if self._broken:
            self._broken = False
            log.info("%s is connected again.", self.exchange.name)
        return self.clock()

    def _catch_up(self, connection: Link, known: Sequence[Instrument]) -> None:
        """Carry what was added or removed while the handshake was under way."""
        now = self.clock()
        added = [each for each in self._instruments if each not in known]
        removed = [each for each in known if each not in self._instruments]
        if added:
            connection.session.add(added, now)
        if removed:
            connection.session.remove(removed, now)
        connection.carry_out(now)

    def _down(self, session: Session, lived_s: float) -> float:
        self.stats.reconnects += 1
        end = session.ended
        assert end is not None
        self._broken = True
        level = logging.INFO if end.at_once else logging.WARNING
        why = f"{end.reason} ({end.detail})" if end.detail else end.reason
        log.log(level, "A connection to %s ended: %s.", self.exchange.name, why)
        if lived_s >= self.settings.stable_s:
            self._backoff.reset()
            if end.at_once:
                return 0.0
        return self._backoff.next_s()

    def _put_off(self, response: WSUpgradeResponse | None) -> float:
        """Obey an exchange that answers the handshake by asking for patience."""
        assert response is not None
        status = int(response.status)
        holds = self.exchange.holds
        trouble = LIMITED if status in holds else TROUBLES.get(status, OFFLINE)
        wait_s = self._unreachable(trouble, f"answers {status}")
        if trouble is OFFLINE:
            return wait_s
        asked_s = retry_after_s(response.headers.get("Retry-After"), self._wall())
        if asked_s is None:
            asked_s = holds.get(status, self.settings.maintenance_s) * (1.0 + self._jitter())
        # All feeds of the exchange wait, and come back one after the other.
        self._quotas.connects.hold(self.clock() + asked_s)
        return max(wait_s, asked_s)

    def _unreachable(self, trouble: str, problem: str) -> float:
        self.stats.trouble = trouble
        now = self.clock()
        for instrument in self._instruments:
            self.books.set_health(instrument, Health.OFFLINE, REASONS[trouble], now, detail=problem)
        if not self._broken:
            self._broken = True
            log.warning("%s %s.", self.exchange.name, problem)
        return self._backoff.next_s()


TEXT: Final = WSMsgType.TEXT
