"""Keep views alive over one connection: authenticate, subscribe, reconnect by the close code."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from decimal import Decimal
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from onebook.client.failures import (
    NO_CLOSE_FRAME,
    OPEN_TIMEOUT_S,
    Problem,
    Refused,
    check_url,
    closed,
    connect_failed,
    pause_s,
)
from onebook.client.view import View

FRAME_BYTES_MAX = 4 << 20
CLOSE_WAIT_S = 5.0  # for the close that follows an error about the connection
STABLE_S = 10.0  # a connection that was live for so long ends a series of failures

_UPDATES = frozenset(
    ("aggregated_orderbook_update", "aggregated_orderbook_delta", "exchange_status")
)
_ERRORS = frozenset(("error", "authentication_error", "subscription_error", "data_limit_exceeded"))


async def watch(
    url: str,
    api_key: str,
    symbols: Sequence[str],
    *,
    exchanges: Sequence[str] | str = "all",
    **options: Any,
) -> AsyncGenerator[View, None]:
    """Yield a symbol's view each time it changes, for ever, across reconnects.

    A view is also yielded when it stops being live and on each failed attempt to connect: then
    `view.live` is False and `view.problem` says why, with a code, and when the next attempt is.

    Args:
        url: The WebSocket address, such as ws://127.0.0.1:8000/api/v1/ws.
        api_key: The key; it is sent in a message, never in the address.
        symbols: Pairs such as BTC/USDT.
        exchanges: Names, or "all".
        options: Subscribe options: depth, interval_ms, mode, levels, split, group, ages,
            coverage, fill.

    Raises:
        Refused: A retry would fail in the same way: a wrong address or path, an untrusted
            certificate, a key, symbol or option that is not accepted, a used-up allowance.
    """
    check_url(url)
    held = [View(symbol) for symbol in symbols]
    now_s = asyncio.get_running_loop().time
    failures = 0
    while True:
        session: _Session | None = None
        given_s: float | None = None
        number = NO_CLOSE_FRAME
        try:
            async with connect(url, max_size=FRAME_BYTES_MAX, open_timeout=OPEN_TIMEOUT_S) as ws:
                opened_s = now_s()
                session = _Session(ws, held, {"exchanges": exchanges, **options})
                await session.start(api_key)
                async with aclosing(session.views()) as views:
                    async for view in views:
                        yield view
        except ConnectionClosed as error:
            code, sentence, number = closed(error, session.cause if session else None)
            given_s = session.reconnect_s if session else None
        except (OSError, TimeoutError, WebSocketException) as error:
            code, sentence, given_s = connect_failed(url, error)
        if session is not None and now_s() - opened_s >= STABLE_S:
            failures = 0
        wait_s = pause_s(number, failures, given_s)
        failures += 1
        problem = Problem(code, sentence, wait_s)
        for view in held:
            view.lose(problem)
            yield view
        await asyncio.sleep(wait_s)


class _Session:
    """One connection's views.

    Every message names its symbol as `id`, so that an error says which view it is about. An error
    about none is about the connection: it is the `cause` of the close that follows.
    """

    def __init__(self, ws: ClientConnection, held: Sequence[View], options: dict[str, Any]) -> None:
        self.ws = ws
        self.held = {view.symbol: view for view in held}
        self.options = options
        self.reconnect_s: float | None = None
        self.cause: Problem | None = None
        self._retries: dict[str, float] = {}  # when to subscribe a symbol again, loop time
        self._closed_by_s: float | None = None
        self._now_s = asyncio.get_running_loop().time

    async def start(self, api_key: str) -> None:
        await self._send(type="authenticate", api_key=api_key)
        for symbol in self.held:
            await self._subscribe(symbol)

    async def views(self) -> AsyncGenerator[View, None]:
        """Yield each view that a message changed.

        Raises:
            Refused: The service refused what this client asked for.
            ConnectionClosed: The connection ended.
        """
        while True:
            try:
                async with asyncio.timeout_at(self._due_s()):
                    message = _decoded(await self.ws.recv())
            except TimeoutError:
                await self._retry()
                continue
            match message["type"]:
                case kind if kind in _UPDATES:
                    view = self.held.get(message["symbol"])
                    if view is not None and await self._updated(view, message):
                        yield view
                case kind if kind in _ERRORS:
                    for view in await self._failed(kind, message):
                        yield view
                case "aggregated_subscription_response":
                    self._accepted(message)
                case "server_shutdown":
                    self.reconnect_s = float(message["reconnect_in_ms"]) / 1_000
                    self.cause = Problem("server_shutdown", "The service restarts.")

    async def _updated(self, view: View, message: dict[str, Any]) -> bool:
        """Apply an update; after a gap, ask for a full one. Returns whether the view changed."""
        if message["type"] == "aggregated_orderbook_delta" and not view.live:
            return False  # a full update is under way
        if view.apply(message):
            return view.live
        view.lose(Problem("gap", "An update is missing or damaged; the full book is requested."))
        await self._send(type="resync", symbol=view.symbol, id=view.symbol)
        return True

    async def _failed(self, kind: str, message: dict[str, Any]) -> list[View]:
        """Handle an error message; the views that it takes down are returned."""
        retry_s = float(message.get("retry_after", 0))
        problem = Problem(message.get("error", kind), message["message"], retry_s)
        view = self.held.get(str(message.get("id", message.get("symbol"))))
        if view is not None and retry_s:
            self._retries[view.symbol] = self._now_s() + retry_s
            view.lose(problem)
            return [view]
        if view is not None or kind != "error":
            raise Refused(problem.code, problem.message)
        self.cause = problem
        if retry_s:
            self.reconnect_s = retry_s
            await self.ws.close()
        else:
            self._closed_by_s = self._now_s() + CLOSE_WAIT_S
        return []

    def _accepted(self, message: dict[str, Any]) -> None:
        """The service may write the symbol in another way, such as in capitals."""
        view = self.held.get(str(message.get("id")))
        if view is not None:
            view.symbol = message["symbol"]
            self.held[view.symbol] = view

    def _due_s(self) -> float | None:
        due = [*self._retries.values(), *filter(None, [self._closed_by_s])]
        return min(due, default=None)

    async def _retry(self) -> None:
        """Subscribe again what the service asked to try later."""
        now_s = self._now_s()
        if self.cause and self._closed_by_s is not None and self._closed_by_s <= now_s:
            raise Refused(self.cause.code, self.cause.message)
        for symbol in [each for each, at_s in self._retries.items() if at_s <= now_s]:
            del self._retries[symbol]
            await self._subscribe(symbol)

    async def _subscribe(self, symbol: str) -> None:
        await self._send(type="subscribe_aggregated", symbol=symbol, id=symbol, **self.options)

    async def _send(self, **message: Any) -> None:
        await self.ws.send(json.dumps(message))


def _decoded(frame: str | bytes) -> dict[str, Any]:
    """Parse without binary floats."""
    try:
        message = json.loads(frame, parse_float=Decimal)
    except ValueError:
        message = None
    if not isinstance(message, dict) or "type" not in message:
        raise Refused("not_onebook", "The peer does not speak Onebook's protocol: check the URL.")
    return message
