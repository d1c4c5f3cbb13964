"""Successive connections to a service, with the subscriptions that they carry over.

Reconnects as the close code demands, and passes the newest view of each subscription to every
iterator. Subscriptions may be added, changed and removed while it runs.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Self
from weakref import WeakSet

from websockets.exceptions import ConnectionClosed, WebSocketException

from onebook.client.ask import ask
from onebook.client.failures import (
    NEXT_ATTEMPT,
    NO_CLOSE_FRAME,
    InvalidStreak,
    Refused,
    ServiceError,
    Unavailable,
    closed,
    connect_failed,
    pause_s,
    shown,
)
from onebook.client.loops import OneLoop
from onebook.client.options import ViewRequest
from onebook.client.session import SILENCE_MAX_S, HeldView, ViewSession, key_of, opening
from onebook.client.view import BookView
from onebook.orderbook import BookProblem, near_exchanges

TAKEN_CHECK_S = 1.0  # an iterator may be dropped without notice
STABLE_S = 10.0  # a connection that was live for this long resets the backoff

log = logging.getLogger("onebook.client")


class ServiceLink:
    """Maintains the connection to a service, and its subscriptions.

    Args:
        url: The URL of the WebSocket.
        api_key: The key.
        attempts_max: Consecutive failures before `Unavailable` is raised; None: unlimited.
        silence_max_s: Seconds without an answer to a ping before the connection is closed.
        ssl_context: Trusted authorities for wss://; the system's by default.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        attempts_max: int | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.held: dict[str, HeldView] = {}
        self.loop = OneLoop()
        self.closed = False
        self._url = url
        self._api_key = api_key
        self._attempts_max = attempts_max
        self._silence_max_s = silence_max_s
        self._ssl_context = ssl_context
        self._failures = 0
        self._invalid = InvalidStreak()
        self._logged = ""  # the code of the last failure that was logged
        self._live_since_s: float | None = None
        self._session: ViewSession | None = None
        self._running: asyncio.Task[None] | None = None
        self._readers: WeakSet[ViewUpdates] = WeakSet()
        self._changed = asyncio.Event()  # for `settled`
        self.yielded = asyncio.Event()  # by an iterator, or a caller waits for an answer

    # Subscriptions

    def hold(self, subscriptions: Iterable[ViewRequest]) -> None:
        """Set subscriptions before the first connection."""
        for symbol, view, fields in subscriptions:
            held = HeldView(symbol, fields, view)
            self.held[held.key] = held

    async def ask(self, message: dict[str, Any], reply: str) -> dict[str, Any]:
        """Return the reply to one message, over its own connection.

        Raises:
            Refused, Unavailable: There is no reply.
        """
        url, context = self._url, self._ssl_context
        return await ask(url, self._api_key, message, reply, ssl_context=context)

    async def subscribe(self, symbol: str, view: str, fields: Mapping[str, Any]) -> BookView:
        """Add or change a subscription, and wait until the service has accepted it.

        Raises:
            Refused: The service refuses it; the previous subscription remains.
            Unavailable: The connection ended permanently.
        """
        self.start()
        self.require_running()
        key = key_of(symbol, view)
        held = self.held.get(key)
        before = None if held is None else held.fields
        if held is None:
            held = self.held[key] = HeldView(symbol, fields, view)
        held.fields = fields
        answer = held.asked()
        self.yielded.set()
        await self._send(held)
        try:
            await answer
        except Refused as error:
            if self._running is None or self._running.done():
                raise
            if before is None:
                await self.unsubscribe(symbol, view)
            else:
                held.fields = before
                await self._send(held)
            raise await self._suggesting(error) from None
        return held.view

    async def _send(self, held: HeldView) -> None:
        if self._session is not None:
            await self._session.subscribe(held)

    async def unsubscribe(self, symbol: str, view: str) -> None:
        """End a subscription.

        Raises:
            KeyError: The view does not exist.
        """
        held = self.held.pop(key_of(symbol, view))
        for reader in self._readers:
            reader.forget(held.view)
        if self._session is not None:
            await self._session.unsubscribe(held)

    # Readers

    def updates(self, *, owner: bool = False) -> "ViewUpdates":
        """Return an iterator over views, starting with the current ones."""
        reader = ViewUpdates(self, owner=owner)
        for held in self.held.values():
            if held.view.live or held.view.problem is not None:
                reader.put(held.view)
        self._readers.add(reader)
        return reader

    async def settled(self, timeout_s: float) -> None:
        """Wait until each view that can have levels has some, at most `timeout_s`.

        Raises:
            Refused, Unavailable: The connection ended permanently, or no view has levels in time.
        """
        self.start()
        try:
            async with asyncio.timeout(timeout_s):
                while not all(each.refused or each.shown for each in self.held.values()):
                    self.require_running()
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            if not any(each.shown for each in self.held.values()):
                raise Unavailable("no_live_book", self._why(timeout_s)) from None

    def _why(self, timeout_s: float) -> str:
        reasons = [
            f"{each.view.symbol}: {each.view.problem or ', '.join(each.view.stale) + ' not live.'}"
            for each in self.held.values()
        ]
        return f"No book was live within {timeout_s:g} s. {' '.join(reasons)}"

    # The connection

    def start(self) -> None:
        """Connect, unless already connected.

        Raises:
            RuntimeError: It was closed, or belongs to another event loop.
        """
        self.loop.require()
        if self.closed:
            raise RuntimeError("This connection is closed.")
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="onebook.client")
            self._running.add_done_callback(self._ended)

    def require_running(self) -> None:
        """Raise the error that permanently ended the connection, if any."""
        if self._running is not None and self._running.done():
            self._running.result()

    async def close(self) -> None:
        """Close the connection and end every iteration."""
        self.closed = True
        if self._running is not None:
            self.loop.require()
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        self._wake()

    def drop(self) -> None:
        """Close the connection from any thread, because a garbage collector may call this."""
        running = self._running
        if running is not None and not running.done() and not running.get_loop().is_closed():
            running.get_loop().call_soon_threadsafe(running.cancel)

    async def _run(self) -> None:
        """Connect repeatedly.

        Raises:
            Refused: Connecting again would fail in the same way.
            Unavailable: `attempts_max` attempts failed.
        """
        while True:
            code, sentence, number, given_s = await self._connected()
            since_s, self._live_since_s = self._live_since_s, None
            if since_s is not None and _now_s() - since_s >= STABLE_S:
                self._failures = 0
                self._invalid.reset()
            self._invalid.ended(code, sentence)
            wait_s = pause_s(number, self._failures, given_s)
            self._failures += 1
            if self._attempts_max is not None and self._failures >= self._attempts_max:
                raise Unavailable(code, sentence, retry_after_s=wait_s)
            problem = BookProblem(code, sentence, wait_s)
            self._log(problem)
            for each in self.held.values():
                each.view.lose(problem)
                self._show(each.view)
            await asyncio.sleep(wait_s)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Wake the callers when `_run` has ended; its exception may remain unretrieved."""
        error = None if task.cancelled() else task.exception()
        for each in self.held.values():
            each.failed(error or asyncio.CancelledError())
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        for reader in self._readers:
            reader.changed.set()

    async def _connected(self) -> tuple[str, str, int, float | None]:
        """Run one connection until it ends: code, message, close code, seconds to wait."""
        session: ViewSession | None = None
        try:
            async with opening(self._url, self._ssl_context, self._silence_max_s) as ws:
                self._session = session = ViewSession(ws, self.held)
                await session.start(self._api_key)
                async with aclosing(session.views()) as views:
                    async for view in views:
                        self._received(view)
                        if view.past:
                            await self._taken(view)
        except ConnectionClosed as error:
            code, sentence, number = closed(error, session.cause if session else None)
            return code, sentence, number, session.reconnect_s if session else None
        except Unavailable as error:
            return error.code, error.message, NO_CLOSE_FRAME, error.retry_after_s
        except Refused as error:
            raise await self._suggesting(error) from None
        except (OSError, TimeoutError, WebSocketException) as error:
            code, sentence, given_s = connect_failed(self._url, error)
            return code, sentence, NO_CLOSE_FRAME, given_s
        finally:
            self._session = None
        raise AssertionError("a session always ends with an exception")

    async def _taken(self, view: BookView) -> None:
        """Wait until every iterator has yielded a view of the past, so that none is skipped."""
        key = key_of(view.symbol, view.view)
        while any(key in each.views for each in self._readers):
            if any(each.awaited for each in self.held.values()):
                return  # the caller of an iterator waits for the service
            self.yielded.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(TAKEN_CHECK_S):
                    await self.yielded.wait()

    async def _suggesting(self, error: Refused) -> Refused:
        """Add similar names to the error of a misspelt exchange, because the service does not."""
        asked = error.details.get("exchange")
        if error.code not in ("exchange_unavailable", "invalid_exchange") or asked is None:
            return error
        known = error.details.get("supported_exchanges")
        if known is None:
            message = {"type": "get_exchanges"}
            try:
                listed = await self.ask(message, "exchanges_data")
            except ServiceError:
                return error
            known = listed["data"].get("supported_exchanges", [])
        return unknown_exchange(error, asked, known)

    def _received(self, view: BookView) -> None:
        if view.live and self._live_since_s is None:
            self._live_since_s = _now_s()
            if self._logged:
                log.info("Reconnected to %s.", shown(self._url))
            self._logged = ""
        self._show(view)

    def _show(self, view: BookView) -> None:
        self._changed.set()
        for reader in self._readers:
            reader.put(view)

    def _log(self, problem: BookProblem) -> None:
        level = logging.DEBUG if problem.code == self._logged else logging.WARNING
        log.log(level, NEXT_ATTEMPT, problem.message, problem.retry_in_s)
        self._logged = problem.code


def unknown_exchange(error: Refused, asked: str, known: Iterable[str]) -> Refused:
    """The error of a misspelt exchange, with similar names."""
    near = near_exchanges(asked, known)
    hint = f" Did you mean {', '.join(near)}?" if near and near[0] not in error.message else ""
    return Refused(
        "invalid_exchange",
        f"{error.message}{hint}",
        details={**error.details, "near": near, "supported_exchanges": [*known]},
    )


class ViewUpdates(AsyncIterator[BookView]):
    """Iterator over changed views: the newest of each, whatever the pace of the caller.

    Of a view of the past (`start`), every update is yielded, and the service waits for the caller.

    The iterator of `watch` connects at the first iteration and stays connected until `aclose`. It
    closes itself when the last reference is dropped, as after an `async for`. An iteration may be
    cancelled, as by `asyncio.wait_for(anext(views), 1)`; the next one continues. An exception
    closes the connection and is raised again by every further iteration.
    """

    def __init__(self, link: ServiceLink, *, owner: bool) -> None:
        self.views: dict[str, BookView] = {}  # the newest views not yielded yet
        self.changed = asyncio.Event()
        self._link = link
        self._owner = owner
        self._closed = False

    def put(self, view: BookView) -> None:
        """Yield this view next, instead of an older one."""
        self.views[key_of(view.symbol, view.view)] = view
        self.changed.set()

    def forget(self, view: BookView) -> None:
        """Stop yielding this view."""
        self.views.pop(key_of(view.symbol, view.view), None)
        self._link.yielded.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BookView:
        link = self._link
        link.loop.require()
        while not (self._closed or link.closed):
            if self.views:
                # A copy, because updates continue while the caller uses it.
                view = self.views.pop(next(iter(self.views))).copy()
                link.yielded.set()
                return view
            link.start()
            link.require_running()
            self.changed.clear()
            await self.changed.wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the iteration, and the connection if it is that of `watch`."""
        self._closed = True
        self.views.clear()
        self.changed.set()
        self._link.yielded.set()
        if self._owner:
            await self._link.close()

    def __del__(self) -> None:
        """Close the connection after a loop was left; the garbage collector may run in any
        thread."""
        if self._owner:
            self._link.drop()


def _now_s() -> float:
    return asyncio.get_running_loop().time()
