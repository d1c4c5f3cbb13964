"""A feed whose connection is a ccxt client, with the same sessions, books and backoff as others.

Passes frames and commands of the `FeedSession` between the node's loop and the worker's thread. An
unprocessed frame of a book is replaced by a newer one.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from onebook.exchanges.through_ccxt import SNAPSHOT_S
from onebook.feeds.ccxt.client import STOP_S
from onebook.feeds.ccxt.library import Library
from onebook.feeds.connection import TICK_S, Link, NotReached
from onebook.feeds.feed import MAINTENANCE_S, Feed
from onebook.feeds.outbox import End, Request, SendPing, Transmit
from onebook.feeds.session import FeedSession
from onebook.feeds.stats import LIMITED, MAINTENANCE, OFFLINE
from onebook.model import Reason

TROUBLES: Final = {Reason.RATE_LIMITED: LIMITED, Reason.MAINTENANCE: MAINTENANCE}
FAILED: Final = "the thread of ccxt failed"


class Mailbox:
    """Thread-safe mailbox with the newest frame of each book, from the worker's thread to one loop.

    Bounded by the number of books: at most one frame of each, and one callback for all.

    Args:
        loop: Where `take` is called.
        take: Called with the frames, in the order in which their books first had one.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, take: Callable[[list[bytes]], None]
    ) -> None:
        self._loop = loop
        self._take = take
        self._lock = threading.Lock()
        self._frames: dict[str, bytes] = {}

    def put(self, native: str, frame: bytes) -> None:
        """Leave a frame; called in any thread."""
        with self._lock:
            first = not self._frames
            self._frames[native] = frame
        if first:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        with self._lock:
            frames, self._frames = self._frames, {}
        self._take([*frames.values()])


class CcxtConnection:
    """One ccxt client and its session, from the first message to the end."""

    def __init__(self, feed: "CcxtFeed", session: FeedSession) -> None:
        self.session = session
        self._feed = feed
        self._library = feed.library
        self._loop = asyncio.get_running_loop()
        mailbox = Mailbox(self._loop, self._received)
        self._client = self._library.client(feed.exchange.name, mailbox.put, self._end_soon)
        self._running: asyncio.Future[None] | None = None
        self._first_frame = asyncio.Event()  # a first frame came, or the end

    async def open(self) -> None:
        """Subscribe to the books, and wait for the first message of the exchange.

        Raises:
            NotReached: None came in time, or ccxt raised an error.
        """
        self._running = asyncio.ensure_future(self._library.run(self._client))
        self._running.add_done_callback(self._closed)
        now = self._feed.clock()
        self.session.opened(now)
        self.execute(now)
        try:
            async with asyncio.timeout(SNAPSHOT_S):
                await self._first_frame.wait()
        except TimeoutError:
            raise NotReached(OFFLINE, "sends no message") from None
        end = self.session.ended
        if end is not None:
            raise NotReached(TROUBLES.get(end.reason, OFFLINE), f"cannot be reached ({end.detail})")

    def execute(self, now: float) -> None:
        """Execute the session's actions; ccxt pings by itself."""
        for action in self.session.take(now):
            match action:
                case Transmit(frame):
                    self._library.command(self._client, frame)
                case End():
                    self._library.stop(self._client)
                case SendPing() | Request():
                    pass

    async def run(self) -> None:
        """Tick until the client is closed."""
        assert self._running is not None
        while not self._running.done():
            await asyncio.wait({self._running}, timeout=TICK_S)
            now = self._feed.clock()
            self.session.tick(now)
            self.execute(now)
            if self.session.ended is not None:
                return

    async def release(self) -> None:
        """Close the client and wait until it has ended."""
        if self._running is None:
            return
        self._library.stop(self._client)
        if not self._running.done():
            await asyncio.wait({self._running}, timeout=STOP_S)
        self._running.cancel()

    def _received(self, frames: list[bytes]) -> None:
        self._first_frame.set()
        now = self._feed.clock()
        for frame in frames:
            self.session.received(frame, now)
        self.execute(now)

    def _end_soon(self, end: End) -> None:
        """Invalidate the books before the client is closed; called in the worker's thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end, end)

    def _end(self, end: End) -> None:
        """End the session once: its books may belong to another one later."""
        if self.session.ended is None:
            self.session.closed(self._feed.clock(), end.reason, end.detail)
        self._first_frame.set()

    def _closed(self, running: "asyncio.Future[None]") -> None:
        failed = not running.cancelled() and running.exception() is not None
        self._end(End(Reason.INTERNAL_ERROR, FAILED) if failed else End(Reason.DISCONNECTED))


class CcxtFeed(Feed):
    """The instruments of one ccxt client, reconnected like those of a socket.

    Args:
        library: ccxt.
        arguments: Those of `Feed`.
    """

    def __init__(self, library: Library, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.library = library

    def _link(self, session: FeedSession) -> Link:
        return CcxtConnection(self, session)

    async def _handshake(self, connection: Link, url: str) -> None:
        assert isinstance(connection, CcxtConnection)
        await connection.open()

    def _down(self, session: FeedSession, lived_s: float) -> float:
        wait_s = super()._down(session, lived_s)
        end = session.ended
        assert end is not None
        return max(wait_s, self._held(TROUBLES.get(end.reason, OFFLINE)))

    def _unreachable(self, trouble: str, problem: str) -> float:
        return max(super()._unreachable(trouble, problem), self._held(trouble))

    def _held(self, trouble: str) -> float:
        """Pause all clients of the exchange for a while where it asks for a slower pace."""
        if trouble == OFFLINE:
            return 0.0
        wait_s = MAINTENANCE_S * (1.0 + self._jitter())
        self._quotas.connects.hold(self.clock() + wait_s)
        return wait_s
