"""Executes the messages with `action`: transactions over the WebSocket.

Each runs in a task of its own and sends its replies through the connection, so that their bytes are
charged to the key. The credentials are the operator's. A connection has at most `actions_max`
actions under way; they are cancelled when it ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final

from msgspec import Struct, json
from msgspec.structs import asdict

from onebook.accounts import Key
from onebook.clock import Clock
from onebook.core import iso
from onebook.errors import ExchangeFailed, InternalError, OnebookError, RateLimitExceeded
from onebook.gateway.commands import (
    CommandRefused,
    GetExchangesAction,
    Id,
    SubscribeTransactionsAction,
    UnsubscribeTransactionsAction,
    ValidateCredentialsAction,
)
from onebook.gateway.limits import LIMITS, GatewayLimits
from onebook.gateway.messages import encode_action_refusal, encode_masked, with_id
from onebook.gateway.replies import (
    ExchangesResponse,
    TransactionComplete,
    TransactionProgress,
    TransactionUnsubscribeResponse,
    ValidationResponse,
)
from onebook.transactions.joint import JointRun
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.run import Run
from onebook.transactions.service import Transactions

RECORDS_MAX: Final = 1_000  # of one answer: many clients reject messages over 1 MiB

log = logging.getLogger("onebook.gateway")

Send = Callable[[bytes], None]


class _Running(Struct, eq=False):
    """A running action; `exchanges` are those of a transaction subscription."""

    task: asyncio.Task[None]
    exchanges: tuple[str, ...]


class ActionRunner:
    """Executes actions, which belong to their connection. Call `stop` at the end."""

    def __init__(
        self, transactions: Transactions, *, clock: Clock, limits: GatewayLimits = LIMITS
    ) -> None:
        self._transactions = transactions
        self._limits = limits
        self._clock = clock
        self._running: dict[Hashable, set[_Running]] = {}

    def begin(self, owner: Hashable, send: Send, key: Key, body: Any) -> None:
        """Start an action; `send` is called with each reply."""
        handler = _HANDLERS[type(body)]
        if handler is None:
            send(self._unsubscribed(owner, body))
            return
        running = self._running.get(owner, set())
        if len(running) >= self._limits.actions_max:
            message = f"A connection may have {self._limits.actions_max} actions under way."
            refusal = CommandRefused("rate_limit_exceeded", message, retry_after=1)
            self._refuse(send, refusal, body.id)
            return
        work = self._run(handler, send, key, body)
        one = _Running(
            asyncio.get_running_loop().create_task(work, name=f"action {type(body).__name__}"),
            _exchanges_of(body) if isinstance(body, SubscribeTransactionsAction) else (),
        )
        self._running.setdefault(owner, running).add(one)
        one.task.add_done_callback(lambda _: self._ended(owner, one))

    def cancel(self, owner: Hashable) -> None:
        """Cancel the actions of a connection that has ended."""
        for one in self._running.get(owner, ()):
            one.task.cancel()

    async def stop(self) -> None:
        """Cancel all actions and wait for their end."""
        tasks = [one.task for running in self._running.values() for one in running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, owner: Hashable, one: _Running) -> None:
        running = self._running[owner]
        running.discard(one)
        if not running:
            del self._running[owner]

    async def _run(self, handler: "Handler", send: Send, key: Key, body: Any) -> None:
        try:
            await handler(self, send, key, body)
        except OnebookError as error:
            self._refuse(send, _refusal_of(error), body.id)
        except Exception:
            log.exception("An action failed.")
            failure = InternalError("Internal error; it has been logged.")
            self._refuse(send, _refusal_of(failure), body.id)

    # Handlers

    async def _get_exchanges(self, send: Send, _: Key, body: GetExchangesAction) -> None:
        entries = [entry.body() for entry in self._transactions.exchanges]
        send(encode_masked(ExchangesResponse(entries, self._timestamp()), body.id))

    async def _validate(self, send: Send, key: Key, body: ValidateCredentialsAction) -> None:
        found = await self._transactions.validate(
            body.exchange.strip().lower(),
            testnet=bool(body.testnet),
            demo=bool(body.demo),
            key_id=key.key_id,
        )
        reply = ValidationResponse(**found.body(), timestamp=self._timestamp())
        send(encode_masked(reply, body.id))

    async def _subscribe(self, send: Send, key: Key, body: SubscribeTransactionsAction) -> None:
        limit = RECORDS_MAX if body.limit is None else body.limit
        if not 1 <= limit <= RECORDS_MAX:
            message = f"limit: must be from 1 to {RECORDS_MAX:,}."
            self._refuse(send, CommandRefused("invalid_parameters", message), body.id)
            return
        sent = {name: value for name, value in asdict(body).items() if name != "id"}
        request = TransactionsRequest.model_validate(sent | {"limit": limit}, strict=True)
        query = await self._transactions.prepare(request, key_id=key.key_id)
        progress = _Progress(self._clock, self._limits.progress_s, send, body)
        answer = await self._transactions.fetch(query, key_id=key.key_id, on_batch=progress)
        send(with_id(b'{"type":"transaction_response",%b' % answer[1:], body.id))
        found = json.decode(answer, type=_Outcome)
        done = TransactionComplete(
            exchange=query.name,
            success=True,
            total_transactions=found.total_transactions,
            partial=found.partial,
            next_cursor=found.next_cursor,
            timestamp=self._timestamp(),
        )
        send(encode_masked(done, body.id))

    def _unsubscribed(self, owner: Hashable, body: UnsubscribeTransactionsAction) -> bytes:
        wanted = body.exchange and body.exchange.strip().lower()
        stopped = [
            one
            for one in self._running.get(owner, ())
            if one.exchanges and (wanted is None or wanted in one.exchanges)
        ]
        for one in stopped:
            one.task.cancel()
        plural = "" if len(stopped) == 1 else "s"
        reply = TransactionUnsubscribeResponse(
            success=bool(stopped),
            message=f"Stopped {len(stopped)} transaction subscription{plural}.",
            timestamp=self._timestamp(),
        )
        return encode_masked(reply, body.id)

    def _refuse(self, send: Send, refusal: CommandRefused, message_id: Id) -> None:
        send(encode_action_refusal(refusal, message_id, self._clock.wall_us()))

    def _timestamp(self) -> str:
        return iso(self._clock.wall_us() // 1_000)


def _exchanges_of(body: SubscribeTransactionsAction) -> tuple[str, ...]:
    names = [body.exchange] if isinstance(body.exchange, str) else body.exchange
    return tuple(name.strip().lower() for name in names) or ("",)


Handler = Callable[[ActionRunner, Send, Key, Any], Awaitable[None]]

_HANDLERS: Final[dict[type, Handler | None]] = {
    GetExchangesAction: ActionRunner._get_exchanges,
    ValidateCredentialsAction: ActionRunner._validate,
    SubscribeTransactionsAction: ActionRunner._subscribe,
    UnsubscribeTransactionsAction: None,  # answered at once, even at the limit of actions
}


class _Outcome(Struct):
    """Fields of an answer that `transaction_complete` repeats."""

    total_transactions: int
    partial: bool
    next_cursor: str | None


class _Progress:
    """Sends the progress of a transaction subscription, at most once in `interval_s`."""

    def __init__(
        self, clock: Clock, interval_s: float, send: Send, body: SubscribeTransactionsAction
    ) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._send = send
        self._body = body
        self._sent_s = float("-inf")

    def __call__(self, run: Run | JointRun) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._sent_s < self._interval_s:
            return
        self._sent_s = now_s
        query = run.query
        progress = TransactionProgress(
            exchange=query.name,
            total_transactions=run.totals.count,
            came_to=run.reached_ms,
            start_time=query.from_ms,
            end_time=query.to_ms,
            waiting_s=round(run.waiting_s, 3),
            timestamp=iso(self._clock.wall_us() // 1_000),
        )
        self._send(encode_masked(progress, self._body.id))


def _refusal_of(error: OnebookError) -> CommandRefused:
    extra = {name: value for name, value in error.details.items() if name.startswith("supported")}
    if error.retry_after_s is not None:
        extra["retry_after"] = max(1, -int(-error.retry_after_s // 1))
    elif isinstance(error, RateLimitExceeded | ExchangeFailed):
        extra["retry_after"] = 1
    return CommandRefused(error.code, error.message, **extra)
