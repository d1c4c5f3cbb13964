"""Live transactions across reconnects; a record is repeated only if it changes."""

import asyncio
import json
import ssl
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Self

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from onebook.client.failures import (
    NO_CLOSE_FRAME,
    InvalidStreak,
    Refused,
    Unavailable,
    closed,
    connect_failed,
    pause_s,
)
from onebook.client.session import ERRORS, decoded, details_of, opening, seconds
from onebook.client.shapes import require, shapes_of
from onebook.orderbook import BookProblem

LIMIT = 1_000  # maximum records of one answer over the WebSocket
MARGIN_MS = 60_000  # before now, where a subscription without a start begins
RESUMED_MS = 7 * 86_400_000  # reread after a lost connection
IDS_MAX = 100_000
STABLE_S = 10.0  # a connection that was live for this long resets the backoff
UNTIMED = "timestamp"  # in `incomplete`: the time is that of the read


@dataclass(frozen=True, slots=True)
class LiveTransaction:
    """A record received by a subscription, or a state of the subscription.

    `change` is `history` (the record is from before the subscription), `new`, `updated` (a record
    that was received before has changed) or `status`; then `record` is None and `status` is the
    service's message, whose `state` is `live`, `interrupted` or, before `Refused` is raised,
    `ended`.
    """

    change: str
    account: str
    record: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class TransactionEvents(AsyncIterator[LiveTransaction]):
    """Iterates over the records of accounts as they happen, indefinitely; must be closed.

    Args:
        request: Fields of the subscription.
        start_ms: Oldest time of the history; None: no history.
        attempts_max: Consecutive failures before `Unavailable` is raised; None: unlimited.

    Raises, when it is iterated: Refused: The service refuses the subscription, or has ended it,
        because its credentials now belong to another account (`account_changed`). Unavailable:
        `attempts_max` attempts failed.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        request: Mapping[str, Any],
        *,
        start_ms: int | None,
        attempts_max: int | None,
        silence_max_s: float,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self._url = url
        self._api_key = api_key
        self._request = dict(request)
        self._start_ms = start_ms
        self._attempts_max = attempts_max
        self._silence_max_s = silence_max_s
        self._ssl_context = ssl_context
        self._seen: OrderedDict[str, int] = OrderedDict()
        self._shapes = shapes_of({})
        self._begun = False
        self._first_ms = 0
        self._asked_ms = 0
        self._events = self._run()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LiveTransaction:
        return await anext(self._events)

    async def aclose(self) -> None:
        """Close the connection and end the iteration."""
        await self._events.aclose()

    async def _run(self) -> AsyncGenerator[LiveTransaction]:
        failures = 0
        invalid = InvalidStreak()
        while True:
            came_s = time.monotonic()
            try:
                async with (
                    opening(self._url, self._ssl_context, self._silence_max_s) as ws,
                    aclosing(self._connected(ws)) as events,
                ):
                    async for event in events:
                        yield event
            except ConnectionClosed as error:
                problem = closed(error, None)
            except Unavailable as error:
                problem = error.code, error.message, NO_CLOSE_FRAME
            except (OSError, TimeoutError, WebSocketException) as error:
                code, sentence, _ = connect_failed(self._url, error)
                problem = code, sentence, NO_CLOSE_FRAME
            if time.monotonic() - came_s >= STABLE_S:
                failures = 0
                invalid.reset()
            code, sentence, number = problem
            invalid.ended(code, sentence)
            wait_s = pause_s(number, failures)
            failures += 1
            if self._attempts_max is not None and failures >= self._attempts_max:
                raise Unavailable(code, sentence, retry_after_s=wait_s)
            await asyncio.sleep(wait_s)

    async def _connected(self, ws: ClientConnection) -> AsyncGenerator[LiveTransaction]:
        """Yield everything from one connection."""
        await ws.send(json.dumps({"type": "authenticate", "api_key": self._api_key}))
        await self._subscribe(ws, start_time=self._from_ms())
        resumed, self._begun = self._begun, True
        while True:
            message = decoded(await ws.recv())
            kind = message["type"]
            if kind in ERRORS:
                self._raise(message)
            elif kind == "transaction_response":
                for record in reversed(message["transactions"]):
                    change = self._change(record)
                    if change == "new" and not resumed:
                        change = "history" if self._start_ms is not None else ""
                    if change:
                        yield LiveTransaction(change, _account(record), record)
            elif kind == "transaction_complete" and message["next_cursor"] is not None:
                more = {"cursor": message["next_cursor"], "live": False}
                await self._subscribe(ws, start_time=self._asked_ms, **more)
            elif kind == "transaction":
                record = message["transaction"]
                if change := self._change(record):
                    yield LiveTransaction(change, message["exchange"], record)
            elif kind == "transaction_status":
                yield LiveTransaction("status", message["exchange"], status=message)
                if message["state"] == "ended":  # a reconnect would mix two accounts
                    raise Refused("account_changed", message["reason"])

    async def _subscribe(self, ws: ClientConnection, **fields: Any) -> None:
        message = {"action": "subscribe_transactions", "limit": LIMIT, **self._request, **fields}
        await ws.send(json.dumps(message | {"id": "1"}))

    def _from_ms(self) -> int:
        now_ms = time.time_ns() // 1_000_000
        if not self._begun:
            self._asked_ms = now_ms - MARGIN_MS if self._start_ms is None else self._start_ms
            self._first_ms = self._asked_ms
        else:
            self._asked_ms = max(self._first_ms, now_ms - RESUMED_MS)
        return self._asked_ms

    def _change(self, record: dict[str, Any]) -> str:
        """Whether a record is new or changed; "" if it was already received unchanged."""
        name = record["transactionId"]
        stated = {key: value for key, value in record.items() if key != "raw"}
        if UNTIMED in record["incomplete"]:
            stated |= {"timestamp": 0, "datetime": ""}
        content = hash(json.dumps(stated, default=str, sort_keys=True))
        before = self._seen.pop(name, None)
        self._seen[name] = content
        while len(self._seen) > IDS_MAX:
            self._seen.popitem(last=False)
        if before is None:
            return "new"
        return "" if before == content else "updated"

    def _raise(self, message: dict[str, Any]) -> None:
        """Raise the service's error.

        Raises:
            Refused, Unavailable: Depending on the service's error.
        """
        require(message["type"], message, self._shapes[message["type"]])
        problem = BookProblem(message.get("error", message["type"]), message["message"])
        wait_s = message.get("retry_after")
        if wait_s is None:
            raise Refused(problem.code, problem.message, details=details_of(message))
        raise Unavailable(problem.code, problem.message, retry_after_s=seconds(wait_s))


def _account(record: dict[str, Any]) -> str:
    holder = record.get("account") or {}
    return str(holder.get("name") or record["exchange"])
