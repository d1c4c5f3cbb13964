"""One WebSocket connection of the client: authenticate, subscribe, apply updates, resync."""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any, NamedTuple

from websockets.asyncio.client import ClientConnection, connect

from onebook.client.failures import (
    OPEN_TIMEOUT_S,
    RETRY_AFTER_MAX_S,
    Refused,
    Unavailable,
    ViewProblem,
)
from onebook.client.shapes import exact, require, shapes_of
from onebook.client.view import BookView

FRAME_BYTES_MAX = 16 << 20
ANSWER_TIMEOUT_S = 10.0
CLOSE_WAIT_S = 5.0  # for the close that follows an error about the connection
CLOSE_TIMEOUT_S = 1.0
RESYNC_PAUSE_S = 1.0  # between two requests for the full book of one symbol
SILENCE_MAX_S = 10.0

# At level DEBUG the library logs messages, and the first one holds the key.
_library_log = logging.getLogger("onebook.client.websockets")
_library_log.setLevel(logging.WARNING)

_UPDATES = frozenset(
    ("aggregated_orderbook_update", "aggregated_orderbook_delta", "exchange_status")
)
_SHAPES = shapes_of({})
_UNASKED = {"symbol": str}
ERRORS = frozenset(("error", "authentication_error", "subscription_error", "data_limit_exceeded"))


@asynccontextmanager
async def opening(
    url: str, context: ssl.SSLContext | None, silence_max_s: float
) -> AsyncIterator[ClientConnection]:
    """Open a connection; one that answers no ping for `silence_max_s` is closed.

    It is closed with 1000 however the block ends: websockets sends 1011, an internal error, when an
    exception or a cancellation ends it, which is how a loop over views ends.
    """
    connecting = connect(
        url,
        ssl=(context or True) if url.startswith("wss:") else None,
        max_size=FRAME_BYTES_MAX,
        open_timeout=OPEN_TIMEOUT_S,
        close_timeout=CLOSE_TIMEOUT_S,
        ping_interval=silence_max_s / 2,
        ping_timeout=silence_max_s / 2,
        logger=_library_log,
    )
    async with connecting as ws:
        try:
            yield ws
        finally:
            await ws.close()


class WatchedView(NamedTuple):
    """A view, the options of its subscription, and the shapes of the messages that these bring."""

    view: BookView
    options: Mapping[str, Any]
    shapes: Mapping[str, Any]


def watched(symbol: str, options: Mapping[str, Any]) -> WatchedView:
    """A subscription without a book."""
    return WatchedView(BookView(symbol), options, shapes_of(options))


class ViewSession:
    """The subscriptions of one connection.

    Every message names its symbol as `id`, so that an error names its view. An error
    about none is about the connection: it is the `cause` of the close that follows.
    """

    def __init__(self, ws: ClientConnection, held: Sequence[WatchedView]) -> None:
        self.ws = ws
        self.held = {each.view.symbol: each for each in held}
        self._reconnect_at: float | None = None  # loop time
        self.cause: ViewProblem | None = None
        self._subscribe_at: dict[str, float] = {}  # all in loop time, by symbol
        self._resync_at: dict[str, float] = {}
        self._resynced_at: dict[str, float] = {}
        self._answer_by: dict[str, float] = {}
        self._closed_by_s: float | None = None
        self._now_s = asyncio.get_running_loop().time

    @property
    def reconnect_s(self) -> float | None:
        """In how many seconds the service wants this client back; None if it named no time."""
        # From the message on: a service that drains closes at the time that it named.
        return None if self._reconnect_at is None else max(0.0, self._reconnect_at - self._now_s())

    def _reconnect_in(self, wait_s: float) -> None:
        self._reconnect_at = self._now_s() + wait_s

    async def start(self, api_key: str) -> None:
        """Authenticate and subscribe, without waiting for an answer in between."""
        await self._send(type="authenticate", api_key=api_key)
        for symbol in self.held:
            await self._subscribe(symbol)

    async def views(self) -> AsyncGenerator[BookView, None]:
        """Yield each view that a message changed.

        Raises:
            Refused: The service refused what this client asked for.
            Unavailable: The service did not answer in time, or sent an invalid message.
            ConnectionClosed: The connection ended.
        """
        while True:
            try:
                async with asyncio.timeout_at(self._due_s()):
                    message = decoded(await self.ws.recv())
            except TimeoutError:
                await self._act_on_time()
                continue
            held = self.held.get(str(message.get("symbol")))
            require(message["type"], message, _shape_of(message["type"], held))
            match message["type"]:
                case kind if kind in _UPDATES:
                    if held is not None and await self._updated(held.view, message):
                        yield held.view
                case kind if kind in ERRORS:
                    for view in await self._failed(kind, message):
                        yield view
                case "aggregated_subscription_response":
                    self._accepted(message)
                case "server_shutdown":
                    self._reconnect_in(seconds(message["reconnect_in_ms"], 1_000))
                    self.cause = ViewProblem("server_shutdown", "The service is restarting.")

    async def _updated(self, view: BookView, message: dict[str, Any]) -> bool:
        """Apply an update; after a gap, ask for a full one. Returns whether the view changed."""
        if message["type"] == "aggregated_orderbook_delta" and not view.live:
            return False  # a full update is under way
        if message["type"] != "exchange_status":
            self._answer_by.pop(view.symbol, None)
        if view.apply(message):
            return view.live
        view.lose(ViewProblem("gap", "An update is missing or damaged; a full book was requested."))
        due_s = self._resynced_at.get(view.symbol, -RESYNC_PAUSE_S) + RESYNC_PAUSE_S
        if self._now_s() >= due_s:
            await self._resync(view.symbol)
        else:
            self._resync_at[view.symbol] = due_s
        return True

    async def _failed(self, kind: str, message: dict[str, Any]) -> list[BookView]:
        """Handle an error message; returns the views that are not live because of it."""
        retry_s = seconds(message.get("retry_after", 0))
        problem = ViewProblem(message.get("error", kind), message["message"], retry_s)
        held = self.held.get(str(message.get("id", message.get("symbol"))))
        view = None if held is None else held.view
        if view is not None and retry_s:
            self._answer_by.pop(view.symbol, None)
            self._subscribe_at[view.symbol] = self._now_s() + retry_s
            view.lose(problem)
            return [view]
        if view is not None or kind != "error":
            raise Refused(problem.code, problem.message, details=details_of(message))
        self.cause = problem
        if retry_s:
            self._reconnect_in(retry_s)
            await self.ws.close()
        else:
            self._closed_by_s = self._now_s() + CLOSE_WAIT_S
        return []

    def _accepted(self, message: dict[str, Any]) -> None:
        """The service may write the symbol in another way, such as in capitals."""
        symbol = str(message.get("id"))
        held = self.held.get(symbol)
        if held is not None:
            view = held.view
            view.symbol = message["symbol"]
            rejected = message.get("rejected", ())
            view.rejected = {each["exchange"]: each["reason"] for each in rejected}
            self.held[view.symbol] = held
            if self._answer_by.pop(symbol, None) is not None:  # its book comes within seconds
                self._answer_by[view.symbol] = self._now_s() + ANSWER_TIMEOUT_S

    def _due_s(self) -> float | None:
        waits = (self._subscribe_at, self._resync_at, self._answer_by)
        due = [at_s for wait in waits for at_s in wait.values()]
        return min([*due, *filter(None, [self._closed_by_s])], default=None)

    async def _act_on_time(self) -> None:
        """Repeat subscriptions that were put off by the service; fail overdue ones."""
        now_s = self._now_s()
        if self.cause and self._closed_by_s is not None and self._closed_by_s <= now_s:
            raise Refused(self.cause.code, self.cause.message)
        if any(at_s <= now_s for at_s in self._answer_by.values()):
            raise unanswered()
        for symbol in _due(self._subscribe_at, now_s):
            await self._subscribe(symbol)
        for symbol in _due(self._resync_at, now_s):
            await self._resync(symbol)

    async def _subscribe(self, symbol: str) -> None:
        self._answer_by[symbol] = self._now_s() + ANSWER_TIMEOUT_S
        options = self.held[symbol].options
        await self._send(type="subscribe_aggregated", symbol=symbol, id=symbol, **options)

    async def _resync(self, symbol: str) -> None:
        self._resynced_at[symbol] = self._now_s()
        self._answer_by[symbol] = self._now_s() + ANSWER_TIMEOUT_S
        await self._send(type="resync", symbol=symbol, id=symbol)

    async def _send(self, **message: Any) -> None:
        await self.ws.send(json.dumps(message))


def _shape_of(kind: str, held: WatchedView | None) -> Any:
    """The shape of a message; of an update that no subscription is for, only its symbol is read."""
    if held is None and kind in _UPDATES:
        return _UNASKED
    return (_SHAPES if held is None else held.shapes).get(kind, {})


def _due(waits: dict[str, float], now_s: float) -> list[str]:
    """Remove and return the due entries of a table of times."""
    due = [symbol for symbol, at_s in waits.items() if at_s <= now_s]
    for symbol in due:
        del waits[symbol]
    return due


def unanswered() -> Unavailable:
    """The error of a request without a reply."""
    return Unavailable(
        "no_answer", f"The service did not answer a request within {ANSWER_TIMEOUT_S:g} s."
    )


def seconds(number: int | Decimal, per_second: int = 1) -> float:
    """A time that the service names, within the bounds of what a client waits for."""
    return float(min(RETRY_AFTER_MAX_S * per_second, max(0, number))) / per_second


def details_of(message: dict[str, Any]) -> dict[str, Any]:
    """The fields of an error message beside its code and its sentence."""
    shown = ("type", "error", "message", "timestamp", "id")
    return {name: value for name, value in message.items() if name not in shown}


def decoded(frame: str | bytes) -> dict[str, Any]:
    """Parse a message without binary floats.

    Raises:
        Refused: It is no message of this service.
    """
    try:
        message = exact(frame)
    except ValueError:
        message = None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise Refused("not_onebook", "The server does not speak Onebook's protocol: check the URL.")
    return message
