"""The socket of one exchange connection: feeds frames and time to its session, executes effects.

picows does the framing but leaves parts of RFC 6455 to its user: this module joins fragments,
answers control frames and rejects reserved bits. `session.py` decides what a message means; nothing
is awaited between a frame and the books.
"""

import asyncio
import logging
import socket
import ssl
from typing import Final, Protocol

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect
from python_socks import ProxyError

from onebook.clock import Clock, next_tick
from onebook.errors import ExchangeFailed
from onebook.exchanges.kit.codec import short
from onebook.exchanges.kit.contract import Exchange, Fetch, FrameForm
from onebook.feeds.limits import LIMITS, FeedLimits
from onebook.feeds.outbox import End, Request, SendPing, Transmit
from onebook.feeds.reseeding import RESEED_TOTAL_S
from onebook.feeds.session import FeedSession
from onebook.feeds.stats import OFFLINE, ExchangeStats
from onebook.inflate import (
    PERMESSAGE_DEFLATE,
    MessageInflater,
    NotNegotiated,
    TooLong,
    Uninflatable,
    inflated,
    negotiated,
)
from onebook.model import Reason
from onebook.proxies import ENVIRONMENT, Proxies
from onebook.rest import Rest

log = logging.getLogger("onebook.feeds")
# picows logs every step of every socket; this module logs the relevant ones once.
socket_log = logging.getLogger("onebook.feeds.socket")
socket_log.setLevel(logging.CRITICAL)

DATA: Final = (WSMsgType.TEXT, WSMsgType.BINARY)
TICK_S: Final = 0.1  # interval between ticks of a session; queued frames are sent on ticks
FETCHES_MAX: Final = 4  # concurrent snapshot requests of one connection
RECEIVE_BYTES_MAX: Final = 256 << 10  # kernel buffer: the most data read and processed at once
CLOSE_S: Final = 2.0  # time limit of the close handshake
READ_BUFFER_BYTES: Final = 64 << 10
DEFLATE: Final = (("Sec-WebSocket-Extensions", PERMESSAGE_DEFLATE),)
BAD_FRAME: Final = "a frame that RFC 6455 does not allow"
TOO_LONG: Final = "a message over the size limit"
FETCH_DEFECT: Final = "the request failed because of a defect in Onebook"
BEHIND_PROXY: Final = "cannot be reached through the proxy"
CLOSED_BY_EXCHANGE: Final = "closed by the exchange"
ORDINARY: Final = (0, 1000, 1001)  # uninformative codes; 0: a close frame without a code


def _formattable(record: logging.LogRecord) -> bool:
    """Return whether a log record's `exc_info` is an exception, not an exception class.

    aiofastnet 1.2 calls the event loop's exception handler with the class ConnectionResetError if
    the peer ends a TLS handshake. `logging` cannot format a class and would print its own
    traceback; the feed logs the failure anyway.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], type))


logging.getLogger("asyncio").addFilter(_formattable)


class FrameRecorder(Protocol):
    """Records the traffic of connections, like `feeds.recording`; `t` is in monotonic seconds."""

    def opened(self, url: str, t: float) -> None:
        """Record that a connection was opened."""

    def frame_in(self, url: str, t: float, frame: bytes) -> None:
        """Record a message that arrived."""

    def frame_out(self, url: str, t: float, frame: bytes) -> None:
        """Record a text frame that was sent."""

    def http(self, url: str, t: float, body: bytes) -> None:
        """Record a REST body that arrived."""


class Link(Protocol):
    """A connection of a feed: `ExchangeConnection`, or a ccxt client."""

    session: FeedSession

    async def open(self) -> None:
        """Connect.

        Raises:
            NotReached: The exchange is unreachable.
            OSError, picows.WSError: The exchange is unreachable.
        """

    def execute(self, now: float) -> None:
        """Execute the session's effects."""

    async def run(self) -> None:
        """Tick the session until the connection is closed."""

    async def release(self) -> None:
        """Close the connection and end its tasks."""


class NotReached(Exception):
    """An exchange is unreachable; holds the new state of `stats`, and the problem as text."""

    def __init__(self, trouble: str, problem: str) -> None:
        super().__init__(problem)
        self.trouble = trouble
        self.problem = problem


class ExchangeConnection(WSListener):
    """One socket and its session, from the handshake to the end.

    Unfragmented messages without reserved bits take the fast path of `on_ws_frame`; all other
    frames go to `unusual`. After a budget of frames, reading is paused until the next tick, because
    all feeds share one event loop.

    Args:
        exchange: The exchange's facts.
        session: The state machine of the connection.
        url: `exchange.ws_url`, or the address issued for one connection.
        tls: For wss addresses.
        rest: Fetches snapshots over REST.
        proxies: Selects the proxy for the address.
        api_key: Sent in the handshake if the exchange's channel needs one.
        limits: Limits and timeouts.
        stats: Counters of the exchange.
        recorder: Records the traffic.
        clock: Returns the time of frames.
    """

    def __init__(
        self,
        exchange: Exchange,
        session: FeedSession,
        *,
        url: str,
        tls: ssl.SSLContext | None,
        rest: Rest,
        proxies: Proxies = ENVIRONMENT,
        api_key: str = "",
        limits: FeedLimits = LIMITS,
        stats: ExchangeStats,
        recorder: FrameRecorder | None,
        clock: Clock,
    ) -> None:
        super().__init__()
        self.session = session
        self.monotonic = clock.monotonic
        self._process = session.received if recorder is None else self._recorded
        compressed = exchange.frames is FrameForm.COMPRESSED
        self.received = self._inflated if compressed else self._process
        self.joining = False
        self.bytes_max = max(limits.frame_bytes_max, exchange.frame_bytes)
        self.budget = self._frames_max = limits.frames_per_tick_max
        self.gone = asyncio.Event()
        self.abandoned = False
        self._exchange = exchange
        self._address = url
        self._tls = tls
        self._rest = rest
        self._proxies = proxies
        self._api_key = api_key
        self._limits = limits
        self._stats = stats
        self._recorder = recorder
        self._url = exchange.ws_url  # for recordings; `url` may contain a token
        self._parts = bytearray()
        self._deflated = False  # whether the message being joined is compressed (RFC 7692)
        self._inflater: MessageInflater | None = None
        self._transport: WSTransport | None = None
        self._timer: asyncio.TimerHandle
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(FETCHES_MAX)

    async def open(self) -> None:
        """Connect and complete the handshake.

        Raises:
            OSError, picows.WSError: The exchange is unreachable or rejects the handshake.
            NotReached: The proxy is unreachable, or refuses.
        """
        proxy = self._proxies.of(self._address)
        try:
            await self._open(proxy)
        except ProxyError as error:
            raise NotReached(OFFLINE, f"{BEHIND_PROXY} ({error})") from None
        except OSError as error:
            if proxy is None:
                raise
            raise NotReached(OFFLINE, f"{BEHIND_PROXY} ({type(error).__name__})") from None
        if self._transport is None:
            raise ConnectionResetError("closed during the handshake")

    async def _open(self, proxy: str | None) -> None:
        timeout_s = self._limits.connect_timeout_s
        headers = [*DEFLATE] if self._exchange.frames is FrameForm.DEFLATED else []
        if self._exchange.key_header:
            headers.append((self._exchange.key_header, self._api_key))
        # Cancellation does not close a socket during the upgrade, but picows' own timeout does, so
        # picows gets the shorter timeout.
        async with asyncio.timeout(timeout_s):
            await ws_connect(
                lambda: self,
                self._address,
                ssl_context=self._tls,
                websocket_handshake_timeout=timeout_s / 2,
                logger_name=socket_log,
                enable_auto_pong=False,
                max_frame_size=self.bytes_max,
                max_redirects=0,
                read_buffer_init_size=READ_BUFFER_BYTES,
                extra_headers=headers or None,
                proxy=proxy,
            )

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Subscribe, or close if there is no instrument left."""
        if self.abandoned:
            transport.disconnect(graceful=False)
            return
        self._transport = transport
        connection: socket.socket = transport.underlying_transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES_MAX)
        now = self.monotonic()
        if self._exchange.frames is FrameForm.DEFLATED:
            try:
                self._inflater = negotiated(
                    transport.response.headers.get("Sec-WebSocket-Extensions")
                )
            except NotNegotiated as error:
                self._refuse(WSCloseCode.MANDATORY_EXTENSION, str(error))
                return
        if self._recorder is not None:
            self._recorder.opened(self._url, now)
        self.session.opened(now)
        self.execute(now)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Pass a message to the session, any other frame to `unusual` (the hot path)."""
        self.budget -= 1
        if self.budget == 0:
            self.pause(transport)
        if (
            frame.msg_type in DATA
            and frame.fin
            and not self.joining
            and not (frame.rsv1 or frame.rsv2 or frame.rsv3)
        ):
            # The length of a bytes object is cheaper to read than a field of the frame.
            message = frame.get_payload_as_bytes()
            if len(message) <= self.bytes_max:
                now = self.monotonic()
                self.received(message, now)
                if self.session.pending:
                    self.execute(now)
                return
        self.unusual(transport, frame)

    def unusual(self, transport: WSTransport, frame: WSFrame) -> None:
        """Join a fragment, answer a control frame, or reject an invalid frame."""
        if self.session.ended is not None:
            return  # read before the socket was closed
        kind = frame.msg_type
        if frame.rsv2 or frame.rsv3 or (frame.rsv1 and not self._may_be_deflated(kind)):
            self._refuse(WSCloseCode.PROTOCOL_ERROR, BAD_FRAME)
        elif frame.payload_size > self.bytes_max:
            # picows closes such a connection only later and may deliver the frame first.
            self._refuse(WSCloseCode.MESSAGE_TOO_BIG, TOO_LONG)
        elif kind in DATA or kind == WSMsgType.CONTINUATION:
            self._part(frame)
        elif kind == WSMsgType.CLOSE:
            transport.send_close(WSCloseCode.OK)
            self._leave(Reason.DISCONNECTED, close_words(frame.get_payload_as_bytes()))
        else:
            if kind == WSMsgType.PING:
                transport.send_pong(frame.get_payload_as_bytes())
                self.session.ponged(self.monotonic())
            self._count_noise()

    def _may_be_deflated(self, kind: WSMsgType) -> bool:
        """Return whether a first frame marks a compressed message by rsv1 (RFC 7692 section 6)."""
        return self._inflater is not None and kind in DATA

    def pause(self, transport: WSTransport) -> None:
        """Pause reading until the next tick, so that other feeds are read."""
        self._stats.pauses += 1
        transport.underlying_transport.pause_reading()

    def _resume(self) -> None:
        paused, self.budget = self.budget <= 0, self._frames_max
        if paused and self._transport is not None and not self.gone.is_set():
            self._transport.underlying_transport.resume_reading()

    def _count_noise(self) -> None:
        """Count a frame without data; too many of them end the connection."""
        now = self.monotonic()
        self.session.received_control(now)
        if self.session.ended is not None:
            self.execute(now)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """Mark the books as stale, because the socket is closed."""
        handshake = transport.close_handshake
        sent = None if handshake is None else handshake.sent
        if sent is not None and sent.code == WSCloseCode.MESSAGE_TOO_BIG:  # picows refused it
            self.session.closed(self.monotonic(), Reason.PROTOCOL_ERROR, TOO_LONG)
        else:
            self.session.closed(self.monotonic())
        self.gone.set()
        self._finish()

    def tick(self) -> None:
        """Tick the session."""
        now = self.monotonic()
        self.session.tick(now)
        self.execute(now)

    def execute(self, now: float) -> None:
        """Execute the session's effects."""
        transport = self._transport
        assert transport is not None
        for effect in self.session.drain(now):
            match effect:
                case Transmit(frame):
                    if self._recorder is not None:
                        self._recorder.frame_out(self._url, now, frame)
                    transport.send(WSMsgType.TEXT, frame)
                case Request(fetch) if fetch.spare and not self._spares(fetch):
                    self.session.deferred(fetch.instrument, now)
                case Request(fetch):
                    task = asyncio.create_task(self._get(fetch))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                case SendPing():
                    transport.send_ping()
                case End(abrupt=True):
                    transport.disconnect(graceful=False)
                case End():
                    transport.send_close(WSCloseCode.OK)
                    transport.disconnect()

    async def run(self) -> None:
        """Tick until the socket is closed."""
        self._tick_later()
        try:
            await self._over
        finally:
            self._timer.cancel()
        if not self.gone.is_set():
            await self._await_close()

    # A callback instead of a sleeping task, because many idle feeds tick hundreds of times a
    # second. Ticks fall on whole tenths of a second, so that they wake the loop together.
    def _tick_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(next_tick(loop.time(), TICK_S), self._tick)

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
        """Close the socket and end all tasks."""
        self.abandoned = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._transport is not None:
            self._transport.send_close(WSCloseCode.OK)
            self._transport.disconnect()
            await self._await_close()
            try:
                await self._transport.wait_disconnected()
            except Exception as error:
                log.debug("A connection to %s ended with %r.", self._url, error)

    async def _await_close(self) -> None:
        """Wait for the close handshake; at most `CLOSE_S`, because a dead peer does not answer."""
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
            self._process(frame, now)

    def _recorded(self, message: bytes, now: float) -> None:
        assert self._recorder is not None
        self._recorder.frame_in(self._url, now, message)
        self.session.received(message, now)

    def _part(self, frame: WSFrame) -> None:
        """Join the fragments of one message (RFC 6455 section 5.4)."""
        if (frame.msg_type == WSMsgType.CONTINUATION) != self.joining:
            self._refuse(WSCloseCode.PROTOCOL_ERROR, BAD_FRAME)
            return
        if not self.joining:
            self._deflated = frame.rsv1
        self._parts += frame.get_payload_as_memoryview()
        if len(self._parts) > self.bytes_max:
            self._refuse(WSCloseCode.MESSAGE_TOO_BIG, TOO_LONG)
            return
        self.joining = not frame.fin
        if not frame.fin:
            self._count_noise()
        else:
            message, self._parts = bytes(self._parts), bytearray()
            if self._deflated:
                self._take_deflated(message)
            else:
                self._take_joined(message)

    def _take_joined(self, message: bytes) -> None:
        now = self.monotonic()
        self.received(message, now)
        self.execute(now)

    def _take_deflated(self, message: bytes) -> None:
        """Inflate a message (RFC 7692); a damaged one ends the connection and its window."""
        assert self._inflater is not None
        try:
            plain = self._inflater.inflated(message, self.bytes_max)
        except TooLong:
            self._refuse(WSCloseCode.MESSAGE_TOO_BIG, TOO_LONG)
        except Uninflatable as error:
            self._refuse(WSCloseCode.INVALID_TEXT, str(error))
        else:
            self._take_joined(plain)

    def _refuse(self, code: WSCloseCode, reason: str) -> None:
        assert self._transport is not None
        self._transport.send_close(code)
        self._leave(Reason.PROTOCOL_ERROR, reason)

    def _leave(self, reason: Reason, detail: str) -> None:
        assert self._transport is not None
        self.session.closed(self.monotonic(), reason, detail)
        self._transport.disconnect()

    def _spares(self, fetch: Fetch) -> bool:
        """Return whether a deferrable request would delay no other request."""
        if len(self._tasks) >= FETCHES_MAX:
            return False
        return self._rest.spares(self._exchange.rest_url + fetch.path, fetch.weight)

    async def _get(self, fetch: Fetch) -> None:
        total_s = RESEED_TOTAL_S if fetch.spare else self._limits.fetch_total_s
        url = self._exchange.rest_url + fetch.path
        async with self._places:
            try:
                body = await self._rest.get(url, weight=fetch.weight, total_s=total_s)
            except ExchangeFailed as error:
                log.info("Cannot fetch a snapshot of %s: %s", self._exchange.name, error.message)
                self.session.fetch_failed(fetch.instrument, error.message, self.monotonic())
            except Exception:
                log.exception("Fetching a snapshot of %s failed.", self._exchange.name)
                self.session.fetch_failed(fetch.instrument, FETCH_DEFECT, self.monotonic())
            else:
                now = self.monotonic()
                if self._recorder is not None:
                    self._recorder.http(url, now, body)
                self.session.fetched(fetch.instrument, body, now)
        self.execute(self.monotonic())


def close_words(payload: bytes) -> str:
    """Describe a close frame by its code, unless it is ordinary, and its reason."""
    code, words = int.from_bytes(payload[:2]), payload[2:].decode(errors="replace")
    if not words and code in ORDINARY:
        return CLOSED_BY_EXCHANGE
    return f"{CLOSED_BY_EXCHANGE} ({code}: {short(words) or 'no words'})"
