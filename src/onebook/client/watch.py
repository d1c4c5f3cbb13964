"""Stream of merged books: reconnects by the close code, yields the newest view."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Self

from websockets.exceptions import ConnectionClosed, WebSocketException

from onebook.client.addresses import websocket_of
from onebook.client.failures import (
    NEXT_ATTEMPT,
    NO_CLOSE_FRAME,
    Refused,
    Unavailable,
    ViewProblem,
    closed,
    connect_failed,
    pause_s,
    shown,
)
from onebook.client.loops import OneLoop
from onebook.client.session import (
    SILENCE_MAX_S,
    ViewSession,
    WatchedView,
    opening,
    watched,
)
from onebook.client.view import BookView

STABLE_S = 10.0  # a connection that was live for so long ends a series of failures

Symbols = Sequence[str] | str | Mapping[str, Mapping[str, Any]]

log = logging.getLogger("onebook.client")


def watch(
    url: str,
    api_key: str,
    symbols: Symbols,
    *,
    exchanges: Sequence[str] | str = "all",
    attempts_max: int | None = None,
    silence_max_s: float = SILENCE_MAX_S,
    ssl_context: ssl.SSLContext | None = None,
    **options: Any,
) -> "ViewUpdates":
    """Iterate over a symbol's views after each change, across reconnects; never ends by itself.

    A caller that is slower than the service gets the newest view of each symbol, never a queue of
    old ones; what was yielded does not change afterwards. A view is also yielded when it stops
    being live and on each failed attempt to connect: then `view.live` is False and `view.problem`
    says why, with a code, and when the next attempt is. The first failure of a series is logged as
    a warning of `onebook.client`.

    Args:
        url: The service's address, such as https://books.example or 127.0.0.1:8000, or that of its
            WebSocket.
        api_key: The key; it is sent in a message, never in the address.
        symbols: Pairs such as BTC/USDT, or one; or pairs with options of their own, which go before
            those of all: {"BTC/USDT": {"depth": 5}, "ETH/USDT": {}}.
        exchanges: Names, or "all".
        attempts_max: Failures in a row after which `Unavailable` is raised; None for no end.
        silence_max_s: Seconds after which a connection that answers no ping is given up.
        ssl_context: Trusted authorities for wss://; the system's by default.
        options: Subscribe options: depth, interval_ms, mode, levels, split, group, ages,
            coverage, fill.

    Raises:
        Refused: A retry would fail in the same way: a wrong address or path, an untrusted
            certificate, a key, symbol or option that is not accepted, a used-up allowance.
        Unavailable: `attempts_max` attempts failed.
        TypeError: The options of a symbol are not a mapping.
    """
    link = _Link(
        _watched(symbols, {"exchanges": exchanges, **options}),
        url=websocket_of(url),
        api_key=api_key,
        attempts_max=attempts_max,
        silence_max_s=silence_max_s,
        ssl_context=ssl_context,
    )
    return ViewUpdates(link)


def _watched(symbols: Symbols, common: dict[str, Any]) -> list[WatchedView]:
    """What to subscribe to; options of a symbol replace those of all."""
    if isinstance(symbols, str):
        symbols = [symbols]
    named = symbols if isinstance(symbols, Mapping) else {each: {} for each in symbols}
    if not named or not all(named):
        raise Refused("invalid_parameters", "symbols: give at least one, such as BTC/USDT.")
    for symbol, own in named.items():
        if not isinstance(own, Mapping):
            raise TypeError(f'Options of {symbol} must be a mapping, such as {{"depth": 5}}.')
    return [watched(symbol, {**common, **own}) for symbol, own in named.items()]


class ViewUpdates(AsyncIterator[BookView]):
    """The views of `watch`: connects at the first wait, and holds the connection until `aclose`.

    One that nothing refers to any more, as after an `async for`, closes itself. A wait may be
    cancelled, as by `asyncio.wait_for(anext(views), 1)`: the next one goes on. An exception of
    `watch` ends the connection, and is raised again by every further wait.
    """

    def __init__(self, link: "_Link") -> None:
        self._link = link
        self._running: asyncio.Task[None] | None = None
        self._closed = False
        self._loop = OneLoop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BookView:
        self._loop.require()
        newest = self._link.newest
        while not self._closed:
            if newest.views:
                return newest.take()
            if self._running is None:
                self._running = asyncio.create_task(self._link.run(), name="onebook.client")
                self._running.add_done_callback(self._link.ended)
            elif self._running.done():
                self._running.result()
            newest.changed.clear()
            await newest.changed.wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Close the connection and end the iteration."""
        self._closed = True
        if self._running is not None:
            self._loop.require()
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def __del__(self) -> None:
        """Close the connection where a loop was left: the collector may run in another thread."""
        running = self._running
        if running is not None and not running.done() and not running.get_loop().is_closed():
            running.get_loop().call_soon_threadsafe(running.cancel)


class _Newest:
    """The newest view of each symbol that the caller has not taken yet."""

    def __init__(self) -> None:
        self.views: dict[str, BookView] = {}
        self.changed = asyncio.Event()

    def put(self, view: BookView) -> None:
        self.views[view.symbol] = view
        self.changed.set()

    def take(self) -> BookView:
        """Returns a copy, because updates continue while the caller uses it."""
        view = self.views.pop(next(iter(self.views)))
        return replace(view, states=dict(view.states))


class _Link:
    """Runs one connection after the other, and puts changed views into `newest`."""

    def __init__(
        self,
        held: Sequence[WatchedView],
        *,
        url: str,
        api_key: str,
        attempts_max: int | None,
        silence_max_s: float,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self.newest = _Newest()
        self.held = held
        self.url = url
        self.api_key = api_key
        self.attempts_max = attempts_max
        self.silence_max_s = silence_max_s
        self.ssl_context = ssl_context
        self._failures = 0
        self._logged = ""  # the code of the last failure that was logged
        self._live_since_s: float | None = None

    async def run(self) -> None:
        """Connect again and again.

        Raises:
            Refused: Connecting again would fail in the same way.
            Unavailable: `attempts_max` attempts failed.
        """
        while True:
            code, sentence, number, given_s = await self._connected()
            since_s, self._live_since_s = self._live_since_s, None
            if since_s is not None and _now_s() - since_s >= STABLE_S:
                self._failures = 0
            wait_s = pause_s(number, self._failures, given_s)
            self._failures += 1
            if self.attempts_max is not None and self._failures >= self.attempts_max:
                raise Unavailable(code, sentence, retry_after_s=wait_s)
            problem = ViewProblem(code, sentence, wait_s)
            self._log(problem)
            for each in self.held:
                each.view.lose(problem)
                self.newest.put(each.view)
            await asyncio.sleep(wait_s)

    def ended(self, task: asyncio.Task[None]) -> None:
        """Wake the caller when `run` has ended; one that has left does not read its exception."""
        if not task.cancelled():
            task.exception()
        self.newest.changed.set()

    async def _connected(self) -> tuple[str, str, int, float | None]:
        """Hold one connection until it ends: code, sentence, close code, seconds to wait."""
        session: ViewSession | None = None
        try:
            async with opening(self.url, self.ssl_context, self.silence_max_s) as ws:
                session = ViewSession(ws, self.held)
                await session.start(self.api_key)
                async with aclosing(session.views()) as views:
                    async for view in views:
                        self._show(view)
        except ConnectionClosed as error:
            code, sentence, number = closed(error, session.cause if session else None)
            return code, sentence, number, session.reconnect_s if session else None
        except Unavailable as error:
            return error.code, error.message, NO_CLOSE_FRAME, error.retry_after_s
        except (OSError, TimeoutError, WebSocketException) as error:
            code, sentence, given_s = connect_failed(self.url, error)
            return code, sentence, NO_CLOSE_FRAME, given_s
        raise AssertionError("a session ends with an exception")

    def _show(self, view: BookView) -> None:
        if view.live and self._live_since_s is None:
            self._live_since_s = _now_s()
            if self._logged:
                log.info("Connected to %s again.", shown(self.url))
            self._logged = ""
        self.newest.put(view)

    def _log(self, problem: ViewProblem) -> None:
        level = logging.DEBUG if problem.code == self._logged else logging.WARNING
        log.log(level, NEXT_ATTEMPT, problem.message, problem.retry_in_s)
        self._logged = problem.code


def _now_s() -> float:
    return asyncio.get_running_loop().time()
