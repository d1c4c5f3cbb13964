"""A feed connection through ccxt, with the same sessions, books and backoff as native ones.

Passes frames and commands of the `FeedSession` between the node's event loop and the worker's
thread. A newer frame of a book replaces an unprocessed one.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from onebook.clock import Clock
from onebook.exchanges.kit.through_ccxt import SNAPSHOT_S
from onebook.feeds.ccxt.client import STOP_S
from onebook.feeds.ccxt.library import Library
from onebook.feeds.connection import TICK_S, NotReached
from onebook.feeds.outbox import End, Request, SendPing, Transmit
from onebook.feeds.session import FeedSession
from onebook.feeds.stats import LIMITED, MAINTENANCE, OFFLINE
from onebook.model import Reason

TROUBLES: Final = {Reason.RATE_LIMITED: LIMITED, Reason.MAINTENANCE: MAINTENANCE}
FAILED: Final = "the thread of ccxt failed"


class Mailbox:
    """Thread-safe mailbox with the newest frame of each book, from the worker's thread to one loop.

    Its size is bounded: at most one frame per book and one callback for all.

    Args:
        loop: The loop in which `drain` is called.
        deliver: Called with the frames, ordered by the first frame of each book.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, deliver: Callable[[list[bytes]], None]
    ) -> None:
        self._loop = loop
        self._deliver = deliver
        self._lock = threading.Lock()
        self._frames: dict[str, bytes] = {}

    def put(self, native: str, frame: bytes) -> None:
        """Add a frame; may be called from any thread."""
        with self._lock:
            first = not self._frames
            self._frames[native] = frame
        if first:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        with self._lock:
            frames, self._frames = self._frames, {}
        self._deliver([*frames.values()])


class CcxtConnection:
    """One ccxt client and its session, from the first message to the end.

    Args:
        name: The exchange.
        session: Its state machine.
        library: ccxt.
        clock: Returns the time of messages.
    """

    def __init__(self, name: str, session: FeedSession, library: Library, *, clock: Clock) -> None:
        self.session = session
        self._library = library
        self._monotonic = clock.monotonic
        self._loop = asyncio.get_running_loop()
        mailbox = Mailbox(self._loop, self._received)
        self._client = self._library.client(name, mailbox.put, self._end_soon)
        self._running: asyncio.Future[None] | None = None
        self._first_frame = asyncio.Event()  # set by the first frame, or the end

    async def open(self) -> None:
        """Subscribe to the books, and wait for the first message of the exchange.

        Raises:
            NotReached: No message arrived in time, or ccxt raised an error.
        """
        self._running = asyncio.ensure_future(self._library.run(self._client))
        self._running.add_done_callback(self._closed)
        now = self._monotonic()
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
        """Execute the session's effects; ccxt sends its own pings."""
        for effect in self.session.drain(now):
            match effect:
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
            now = self._monotonic()
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
        now = self._monotonic()
        for frame in frames:
            self.session.received(frame, now)
        self.execute(now)

    def _end_soon(self, end: End) -> None:
        """Invalidate the books before the client is closed; called in the worker's thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end, end)

    def _end(self, end: End) -> None:
        """End the session once, because its books may later belong to another session."""
        if self.session.ended is None:
            self.session.closed(self._monotonic(), end.reason, end.detail)
        self._first_frame.set()

    def _closed(self, running: "asyncio.Future[None]") -> None:
        failed = not running.cancelled() and running.exception() is not None
        self._end(End(Reason.INTERNAL_ERROR, FAILED) if failed else End(Reason.DISCONNECTED))
