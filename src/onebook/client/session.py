"""One WebSocket connection of the client: authenticate, subscribe, apply updates, resync."""

import asyncio
import json
import logging
import ssl
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from onebook.client.failures import (
    OPEN_TIMEOUT_S,
    RETRY_AFTER_MAX_S,
    Refused,
    Unavailable,
)
from onebook.client.options import named_exchanges
from onebook.client.packed import PackedBook, decode
from onebook.client.shapes import exact, require, shapes_of
from onebook.client.view import SHORT_UPDATES, BookView, stated_fee
from onebook.orderbook import BookProblem

FRAME_BYTES_MAX = 16 << 20
ANSWER_TIMEOUT_S = 10.0
CLOSE_WAIT_S = 5.0  # for the close that follows a connection error
CLOSE_TIMEOUT_S = 1.0
RESYNC_PAUSE_S = 1.0  # between two requests for the full book of one symbol
SILENCE_MAX_S = 10.0

# At level DEBUG websockets logs messages, and the first one contains the key.
_library_log = logging.getLogger("onebook.client.websockets")
_library_log.setLevel(logging.WARNING)

# Messages that require an earlier update of the view.
_CHANGES = frozenset(("aggregated_orderbook_delta", *SHORT_UPDATES))
_UPDATES = _CHANGES | {"aggregated_orderbook_update", "exchange_status"}
_SHAPES = shapes_of({})
_UNASKED = {"symbol": str}
_LEAVING = "-"  # before the key in the `id` of an unsubscription
UNKNOWN = "unknown_exchange"
PROTOBUF = "protobuf"
ERRORS = frozenset(("error", "authentication_error", "subscription_error", "data_limit_exceeded"))


@asynccontextmanager
async def opening(
    url: str, context: ssl.SSLContext | None, silence_max_s: float
) -> AsyncIterator[ClientConnection]:
    """Open a connection; it is closed if a ping is not answered for `silence_max_s`.

    It is always closed with code 1000: websockets would send 1011 (internal error) if the block
    ends by exception or cancellation, as loops over views do.
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


def key_of(symbol: str, view: str = "") -> str:
    """The name of a subscription on its connection, used as `id` of messages about it."""
    return f"{symbol} {view}" if view else symbol


class HeldView:
    """A view that a client holds: its options, and the answers of the service.

    Args:
        symbol: The pair.
        fields: Exchanges and options, as fields of the message.
        view: The client's name of a second view of the symbol.
    """

    def __init__(self, symbol: str, fields: Mapping[str, Any], view: str = "") -> None:
        self.key = key_of(symbol, view)
        self.named = {"symbol": symbol} | ({"view": view} if view else {})
        self.fields = fields
        self.view = BookView(
            symbol, view=view, members=named_exchanges(fields.get("exchanges", ""))
        )
        self.shapes = shapes_of(fields)
        self.sent: deque[Mapping[str, Any]] = deque()  # unanswered fields
        self.book = PackedBook()
        self.in_json = False  # the service does not know binary updates
        self.accepted = False
        self.refused = False
        self.played_until = ""  # the time of the last update of the past
        self._answers: list[asyncio.Future[None]] = []

    @property
    def shown(self) -> bool:
        """Whether the view has levels."""
        return bool(self.view.bids or self.view.asks)

    def asked(self) -> asyncio.Future[None]:
        """Return a future for the next answer of the service."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        return answer

    @property
    def awaited(self) -> bool:
        """Whether a caller waits for the service's answer."""
        return any(not each.done() for each in self._answers)

    def answered(self) -> None:
        """Handle the service's reply: updates have the options of that request from now on."""
        if self.sent:
            fields = self.sent.popleft()
            self.shapes, self.view.past = shapes_of(fields), "start" in fields
            self.played_until = ""
        self.accepted, self.refused = True, False
        for answer in self._waiting():
            answer.set_result(None)

    def resume(self) -> None:
        """Continue the past where the last connection ended."""
        if self.view.past and self.played_until:
            self.fields = {**self.fields, "start": self.played_until}

    def reached_present(self) -> None:
        """Subscribe to the live book from now on."""
        self.view.past, self.played_until = False, ""
        self.fields = {
            name: value for name, value in self.fields.items() if name not in ("start", "speed")
        }

    def failed(self, error: BaseException) -> bool:
        """Raise an error in the task that awaits the answer; return whether there is one."""
        waiting = self._waiting()
        for answer in waiting:
            answer.set_exception(error)
        return bool(waiting)

    def _waiting(self) -> list[asyncio.Future[None]]:
        waiting, self._answers = [each for each in self._answers if not each.done()], []
        return waiting


class ViewSession:
    """The subscriptions of one connection.

    Every message has the key of its subscription as `id`, so that errors identify their view. An
    error without `id` concerns the connection and becomes the `cause` of the close that follows.

    Args:
        ws: The connection.
        held: The subscriptions by key; `subscribe` and `unsubscribe` may change them.
    """

    def __init__(self, ws: ClientConnection, held: Mapping[str, HeldView]) -> None:
        self.ws = ws
        self.held = held
        self._spelled: dict[str, str] = {}  # keys by the service's spelling of their symbol
        self._numbered: dict[int, HeldView] = {}  # by the number of their binary updates
        self._left: Counter[str] = Counter()  # unsubscribed keys without an answer yet
        self._reconnect_at: float | None = None  # loop time
        self.cause: BookProblem | None = None
        self._subscribe_at: dict[str, float] = {}  # loop time, by key
        self._resync_at: dict[str, float] = {}
        self._resynced_at: dict[str, float] = {}
        self._answer_by: dict[str, float] = {}
        self._closed_by_s: float | None = None
        self._now_s = asyncio.get_running_loop().time
        self._receiving: asyncio.Timeout | None = None

    @property
    def reconnect_s(self) -> float | None:
        """Seconds after which the service wants this client to reconnect; None if unspecified."""
        # Relative to the message: a draining service closes at the time that it stated.
        return None if self._reconnect_at is None else max(0.0, self._reconnect_at - self._now_s())

    def _reconnect_in(self, wait_s: float) -> None:
        self._reconnect_at = self._now_s() + wait_s

    async def start(self, api_key: str) -> None:
        """Authenticate and subscribe, without waiting for an answer in between."""
        await self._send(type="authenticate", api_key=api_key)
        for held in list(self.held.values()):
            held.sent.clear()
            held.resume()
            await self._subscribe(held)

    async def subscribe(self, held: HeldView) -> None:
        """Subscribe, or change the options of a subscription, while views are received."""
        with suppress(ConnectionClosed):  # the next connection subscribes
            await self._subscribe(held)
        self._look_again()

    async def unsubscribe(self, held: HeldView) -> None:
        """End a subscription that is no longer held, while views are received."""
        for waits in (self._subscribe_at, self._resync_at, self._answer_by):
            waits.pop(held.key, None)
        self._forget_number(held)
        self._left[held.key] += 1
        with suppress(ConnectionClosed):
            await self._send(type="unsubscribe_aggregated", id=_LEAVING + held.key, **held.named)

    def _look_again(self) -> None:
        """Wait for messages, at most until the earliest deadline."""
        if self._receiving is not None and not self._receiving.expired():
            self._receiving.reschedule(self._due_s())

    async def views(self) -> AsyncGenerator[BookView, None]:
        """Yield each view changed by a message.

        Raises:
            Refused: The service refused a request of this client.
            Unavailable: The service did not answer in time, or sent an invalid message.
            ConnectionClosed: The connection ended.
        """
        while True:
            try:
                async with asyncio.timeout_at(self._due_s()) as self._receiving:
                    frame = await self.ws.recv()
            except TimeoutError:
                await self._act_on_time()
                continue
            finally:
                self._receiving = None
            if isinstance(frame, bytes):
                if (view := await self._updated_packed(frame)) is not None:
                    yield view
                continue
            message = decoded(frame)
            held = self._held(message)
            require(message["type"], message, _shape_of(message["type"], held))
            match message["type"]:
                case kind if kind in _UPDATES:
                    if held is not None and await self._updated(held, message):
                        yield held.view
                case kind if kind in ERRORS:
                    for view in await self._failed(kind, message):
                        yield view
                case "aggregated_subscription_response":
                    self._accepted(message)
                case "history_end" if held is not None:
                    held.reached_present()
                case "unsubscribe_response":
                    self._left[str(message.get("id")).removeprefix(_LEAVING)] -= 1
                case "server_shutdown":
                    self._reconnect_in(seconds(message["reconnect_in_ms"], 1_000))
                    self.cause = BookProblem("server_shutdown", "The service is restarting.")

    def _held(self, message: dict[str, Any]) -> HeldView | None:
        """Find the subscription of a message by its symbol and view."""
        key = key_of(str(message.get("symbol")), str(message.get("view") or ""))
        if self._left[key] > 0:  # it is about the subscription that is ending
            return None
        return self.held.get(self._spelled.get(key, key))

    async def _updated_packed(self, frame: bytes) -> BookView | None:
        """Apply a binary update; return its view if it changed.

        Raises:
            Unavailable: The update is invalid.
        """
        update = decode(frame)
        held = self._numbered.get(update.subscription)
        if held is None:  # its subscription is ending
            return None
        if update.json:
            message = decoded(update.json)
            message["skipped"] = update.skipped
            require(message["type"], message, _shape_of(message["type"], held))
            return held.view if await self._updated(held, message) else None
        if update.HasField("elapsed_us") and not held.view.live:
            return None  # a full update was already requested
        self._answer_by.pop(held.key, None)
        valid = held.view.apply_packed(update, held.book)
        return await self._valid(held, valid=valid)

    def _forget_number(self, held: HeldView) -> None:
        self._numbered = {at: each for at, each in self._numbered.items() if each is not held}

    async def _updated(self, held: HeldView, message: dict[str, Any]) -> bool:
        """Apply an update, or request a full one after a gap; returns whether the view changed."""
        view = held.view
        if message["type"] in _CHANGES and not view.live:
            return False  # a full update was already requested
        if message["type"] != "exchange_status":
            self._answer_by.pop(held.key, None)
        return await self._valid(held, valid=view.apply(message)) is not None

    async def _valid(self, held: HeldView, *, valid: bool) -> BookView | None:
        """Return a view that changed; request its full book if it is not valid any more."""
        view = held.view
        if valid:
            if view.past and view.live and view.timestamp:
                held.played_until = view.timestamp
            return view if view.live else None
        view.lose(BookProblem("gap", "An update is missing or damaged; a full book was requested."))
        due_s = self._resynced_at.get(held.key, -RESYNC_PAUSE_S) + RESYNC_PAUSE_S
        if self._now_s() >= due_s:
            await self._resync(held)
        else:
            self._resync_at[held.key] = due_s
        return view

    async def _failed(self, kind: str, message: dict[str, Any]) -> list[BookView]:
        """Handle an error message; returns the views it invalidates."""
        key = str(message.get("id", ""))
        if key.startswith(_LEAVING):
            self._left[key.removeprefix(_LEAVING)] -= 1
            return []
        retry_s = seconds(message.get("retry_after", 0))
        problem = BookProblem(message.get("error", kind), message["message"], retry_s)
        held = self.held.get(key) if key else self._held(message)
        if held is not None and _refuses_encoding(message) and "encoding" not in held.fields:
            held.in_json = True  # a service of an earlier version
            if held.sent:
                held.sent.popleft()
            await self._subscribe(held)
            return []
        if held is not None and retry_s:
            self._answer_by.pop(held.key, None)
            if held.sent:
                held.sent.popleft()
            self._subscribe_at[held.key] = self._now_s() + retry_s
            held.view.lose(problem)
            return [held.view]
        if held is not None:
            return self._refused(held, problem, details_of(message))
        if kind != "error":
            raise Refused(problem.code, problem.message, details=details_of(message))
        self.cause = problem
        if retry_s:
            self._reconnect_in(retry_s)
            await self.ws.close()
        else:
            self._closed_by_s = self._now_s() + CLOSE_WAIT_S
        return []

    def _refused(
        self, held: HeldView, problem: BookProblem, details: dict[str, Any]
    ) -> list[BookView]:
        """Handle the final refusal of one subscription; returns the views it invalidates.

        Raises:
            Refused: No caller waits for the answer, and it is not one unknown symbol of several.
        """
        error = Refused(problem.code, problem.message, details=details)
        self._answer_by.pop(held.key, None)
        if held.sent:
            held.sent.popleft()
        if held.failed(error):
            return []
        others = any(not each.refused for each in self.held.values() if each is not held)
        if problem.code != "invalid_symbol" or not others:
            raise error
        held.refused = True
        held.view.lose(problem)
        return [held.view]

    def _accepted(self, message: dict[str, Any]) -> None:
        """Record the service's spelling of the symbol, and the exchanges that it rejects.

        Raises:
            Refused: An exchange is unknown to the service, in the first answer.
        """
        held = self.held.get(str(message.get("id")))
        if held is None:
            return
        view = held.view
        view.symbol = message["symbol"]
        rejected = message.get("rejected", ())
        view.rejected = {each["exchange"]: each["reason"] for each in rejected}
        view.published_fees = tuple(map(stated_fee, message.get("published_fees", ())))
        view.members = tuple(message.get("exchanges", view.members))
        fees = message.get("options", {}).get("fees")
        view._fees = fees if isinstance(fees, dict) else None
        self._forget_number(held)
        if "number" in message:
            self._numbered[message["number"]] = held
            held.book = PackedBook(message["exchanges"])
        self._spelled[key_of(view.symbol, view.view)] = held.key
        if held.key in self._answer_by:  # its book arrives within seconds
            self._answer_by[held.key] = self._now_s() + ANSWER_TIMEOUT_S
        unknown = [each for each in rejected if each["reason"] == UNKNOWN]
        if unknown and (held.awaited or not held.accepted):
            name = unknown[0]["exchange"]
            sentence = str(unknown[0].get("detail") or f"Unknown exchange {name!r}.")
            error = Refused("invalid_exchange", sentence, details={"exchange": name})
            if not held.failed(error):
                raise error
        held.answered()

    def _due_s(self) -> float | None:
        waits = (self._subscribe_at, self._resync_at, self._answer_by)
        due = [at_s for wait in waits for at_s in wait.values()]
        return min([*due, *filter(None, [self._closed_by_s])], default=None)

    async def _act_on_time(self) -> None:
        """Repeat subscriptions postponed by the service; fail overdue ones."""
        now_s = self._now_s()
        if self.cause and self._closed_by_s is not None and self._closed_by_s <= now_s:
            raise Refused(self.cause.code, self.cause.message)
        if any(at_s <= now_s for at_s in self._answer_by.values()):
            raise unanswered()
        for waits, send in (
            (self._subscribe_at, self._subscribe),
            (self._resync_at, self._resync),
        ):
            for key in [key for key, at_s in waits.items() if at_s <= now_s]:
                del waits[key]
                if (held := self.held.get(key)) is not None:
                    await send(held)

    async def _subscribe(self, held: HeldView) -> None:
        self._answer_by[held.key] = self._now_s() + ANSWER_TIMEOUT_S
        held.sent.append(held.fields)
        fields = held.fields if held.in_json else {"encoding": PROTOBUF, **held.fields}
        await self._send(type="subscribe_aggregated", **held.named, id=held.key, **fields)

    async def _resync(self, held: HeldView) -> None:
        self._resynced_at[held.key] = self._now_s()
        self._answer_by[held.key] = self._now_s() + ANSWER_TIMEOUT_S
        await self._send(type="resync", **held.named, id=held.key)

    async def _send(self, **message: Any) -> None:
        await self.ws.send(json.dumps(message))


def _shape_of(kind: str, held: HeldView | None) -> Any:
    """The shape of a message; of an update without subscription, only the symbol is read."""
    if held is None and kind in _UPDATES:
        return _UNASKED
    return (_SHAPES if held is None else held.shapes).get(kind, {})


def _refuses_encoding(message: Mapping[str, Any]) -> bool:
    """Whether a service without binary updates refuses the option `encoding`."""
    return message.get("error") == "invalid_parameters" and "encoding" in message["message"]


def unanswered() -> Unavailable:
    """The error of a request without a reply."""
    return Unavailable(
        "no_answer", f"The service did not answer a request within {ANSWER_TIMEOUT_S:g} s."
    )


def seconds(number: int | Decimal, per_second: int = 1) -> float:
    """A time given by the service, bounded to what a client waits for."""
    return float(min(RETRY_AFTER_MAX_S * per_second, max(0, number))) / per_second


def details_of(message: dict[str, Any]) -> dict[str, Any]:
    """The fields of an error message other than code and message."""
    shown = ("type", "error", "message", "timestamp", "id")
    return {name: value for name, value in message.items() if name not in shown}


def decoded(frame: str | bytes) -> dict[str, Any]:
    """Parse a message without binary floats.

    Raises:
        Refused: It is not a message of this service.
    """
    try:
        message = exact(frame)
    except ValueError:
        message = None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise Refused("not_onebook", "The server does not speak Onebook's protocol: check the URL.")
    return message
