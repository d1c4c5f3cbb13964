"""Executes `action` messages: transactions over the WebSocket.

Each action runs in its own task and replies through the connection, so that the bytes are charged
to the key. The credentials are the operator's. A connection may run `actions_max` actions at a
time; they are cancelled when it ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, NamedTuple

from msgspec import UNSET, Struct, UnsetType, json, to_builtins
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
from onebook.gateway.fanout import ClientOutput
from onebook.gateway.limits import LIMITS, GatewayLimits
from onebook.gateway.messages import encode_action_refusal, encode_masked, with_id
from onebook.gateway.replies import (
    AwaitedExport,
    ExchangesResponse,
    LiveType,
    TransactionComplete,
    TransactionProgress,
    TransactionStatus,
    TransactionUnsubscribeResponse,
    ValidationResponse,
)
from onebook.transactions.joint import JointRun
from onebook.transactions.live import LivePart, LiveRecord, LiveStatus, LiveSubscription
from onebook.transactions.record import Record
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.run import Run
from onebook.transactions.service import Transactions

RECORDS_MAX: Final = 1_000  # per answer: many clients reject messages over 1 MiB

log = logging.getLogger("onebook.gateway")


class _Client(NamedTuple):
    """The sender of an action."""

    owner: Hashable
    output: ClientOutput
    key: Key


class _Running(Struct, eq=False):
    """A running action, with the `exchanges` of a transaction subscription."""

    task: asyncio.Task[None]
    exchanges: tuple[str, ...]


class ActionRunner:
    """Executes the actions of connections. Call `stop` at the end."""

    def __init__(
        self, transactions: Transactions, *, clock: Clock, limits: GatewayLimits = LIMITS
    ) -> None:
        self._transactions = transactions
        self._limits = limits
        self._clock = clock
        self._running: dict[Hashable, set[_Running]] = {}
        self._live: dict[Hashable, list[_LiveListener]] = {}

    def begin(self, owner: Hashable, output: ClientOutput, key: Key, body: Any) -> None:
        """Start an action; its replies go to `output`."""
        handler = _HANDLERS[type(body)]
        if handler is None:
            output.send_text(self._unsubscribed(owner, body))
            return
        running = self._running.get(owner, set())
        if len(running) >= self._limits.actions_max:
            message = f"A connection may run {self._limits.actions_max} actions at a time."
            refusal = CommandRefused("rate_limit_exceeded", message, retry_after=1)
            self._refuse(output, refusal, body.id)
            return
        work = self._run(handler, _Client(owner, output, key), body)
        one = _Running(
            asyncio.get_running_loop().create_task(work, name=f"action {type(body).__name__}"),
            _accounts_of(body.exchange) if isinstance(body, SubscribeTransactionsAction) else (),
        )
        self._running.setdefault(owner, running).add(one)
        one.task.add_done_callback(lambda _: self._ended(owner, one))

    def cancel(self, owner: Hashable) -> None:
        """Cancel the actions and live subscriptions of a closed connection."""
        for one in self._running.get(owner, ()):
            one.task.cancel()
        for listener in self._live.pop(owner, ()):
            self._leave(listener)

    async def stop(self) -> None:
        """Cancel all actions and wait for their end."""
        tasks = [one.task for running in self._running.values() for one in running]
        for task in tasks:
            task.cancel()
        for owner in list(self._live):
            self.cancel(owner)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _leave(self, listener: "_LiveListener") -> None:
        for subscription in listener.subscriptions:
            self._transactions.live.leave(subscription)

    def _ended(self, owner: Hashable, one: _Running) -> None:
        running = self._running[owner]
        running.discard(one)
        if not running:
            del self._running[owner]

    async def _run(self, handler: "Handler", client: _Client, body: Any) -> None:
        try:
            await handler(self, client, body)
        except CommandRefused as refusal:
            self._refuse(client.output, refusal, body.id)
        except OnebookError as error:
            self._refuse(client.output, _refusal_of(error), body.id)
        except Exception:
            log.exception("An action failed.")
            failure = InternalError("Internal error; it has been logged.")
            self._refuse(client.output, _refusal_of(failure), body.id)

    # Handlers

    async def _get_exchanges(self, client: _Client, body: GetExchangesAction) -> None:
        entries = [entry.body() for entry in self._transactions.exchanges]
        client.output.send_text(
            encode_masked(ExchangesResponse(entries, self._timestamp()), body.id)
        )

    async def _validate(self, client: _Client, body: ValidateCredentialsAction) -> None:
        found = await self._transactions.validate(
            body.exchange.strip().lower(),
            testnet=bool(body.testnet),
            demo=bool(body.demo),
            key_id=client.key.key_id,
        )
        reply = ValidationResponse(**found.body(), timestamp=self._timestamp())
        client.output.send_text(encode_masked(reply, body.id))

    async def _subscribe(self, client: _Client, body: SubscribeTransactionsAction) -> None:
        limit = RECORDS_MAX if body.limit is None else body.limit
        if not 1 <= limit <= RECORDS_MAX:
            message = f"limit: must be from 1 to {RECORDS_MAX:,}."
            raise CommandRefused("invalid_parameters", message)
        live = self._live_wanted(client, body)
        sent = {name: value for name, value in asdict(body).items() if name not in ("id", "live")}
        request = TransactionsRequest.model_validate(sent | {"limit": limit}, strict=True)
        key_id, send = client.key.key_id, client.output.send_text
        query = await self._transactions.prepare(request, key_id=key_id)
        listener = _LiveListener(self._clock, client.output, body)
        if live:
            listener.subscriptions = await self._transactions.subscriptions(query, listener)
        progress = _Progress(self._clock, self._limits.progress_s, send, body)

        def received(run: Run | JointRun, batch: list[Record]) -> None:
            progress(run, ended=not batch)
            listener.note(batch)

        answer = await self._transactions.fetch(query, key_id=key_id, on_batch=received)
        send(with_id(b'{"type":"transaction_response",%b' % answer[1:], body.id))
        found = json.decode(answer, type=_AnswerEnd)
        listener.covered(found.coverage)
        done = TransactionComplete(
            exchange=query.request.exchange,
            success=True,
            total_transactions=found.total_transactions,
            partial=found.partial,
            next_cursor=found.next_cursor,
            live=listener.types(self._transactions.live.parts) if live else None,
            timestamp=self._timestamp(),
        )
        send(encode_masked(done, body.id))
        if live:
            self._live.setdefault(client.owner, []).append(listener)
            for subscription in listener.subscriptions:
                self._transactions.live.follow(subscription)

    def _live_wanted(self, client: _Client, body: SubscribeTransactionsAction) -> bool:
        """Whether new records should follow the history.

        Raises:
            CommandRefused: The request excludes it, or the connection is at its limit.
        """
        closed = "cursor" if body.cursor else "end_time" if body.end_time is not None else ""
        if body.live and closed:
            message = f"live: cannot be combined with {closed}, which selects a part of the past."
            raise CommandRefused("invalid_parameters", message)
        live = not closed if body.live is None else body.live
        if live and len(self._live.get(client.owner, ())) >= self._limits.live_max:
            raise CommandRefused(
                "subscription_limit_exceeded",
                f"A connection may have {self._limits.live_max} live transaction subscriptions; "
                "unsubscribe one, or send live: false for the history alone.",
            )
        return live

    def _unsubscribed(self, owner: Hashable, body: UnsubscribeTransactionsAction) -> bytes:
        wanted = set() if body.exchange is None else set(_accounts_of(body.exchange))
        stopped = [
            one
            for one in self._running.get(owner, ())
            if one.exchanges and (not wanted or wanted & set(one.exchanges))
        ]
        for one in stopped:
            one.task.cancel()
        listeners = self._live.pop(owner, [])
        left = [each for each in listeners if not wanted or wanted & set(each.exchanges)]
        for listener in left:
            self._leave(listener)
        if len(left) < len(listeners):
            self._live[owner] = [each for each in listeners if each not in left]
        count = len(stopped) + len(left)
        plural = "" if count == 1 else "s"
        reply = TransactionUnsubscribeResponse(
            success=bool(count),
            message=f"Stopped {count} transaction subscription{plural}.",
            timestamp=self._timestamp(),
        )
        return encode_masked(reply, body.id)

    def _refuse(self, output: ClientOutput, refusal: CommandRefused, message_id: Id) -> None:
        output.send_text(encode_action_refusal(refusal, message_id, self._clock.wall_us()))

    def _timestamp(self) -> str:
        return iso(self._clock.wall_us() // 1_000)


def _accounts_of(exchange: str | list[str]) -> tuple[str, ...]:
    names = [exchange] if isinstance(exchange, str) else exchange
    return tuple(name.strip().lower() for name in names) or ("",)


Handler = Callable[[ActionRunner, _Client, Any], Awaitable[None]]

_HANDLERS: Final[dict[type, Handler | None]] = {
    GetExchangesAction: ActionRunner._get_exchanges,
    ValidateCredentialsAction: ActionRunner._validate,
    SubscribeTransactionsAction: ActionRunner._subscribe,
    UnsubscribeTransactionsAction: None,  # answered at once, even at the limit of actions
}


class _CoverageOfType(Struct, rename={"from_ms": "from"}):
    """Start of the range read for one type."""

    transaction_type: str
    from_ms: int | None
    account: str = ""


class _AnswerEnd(Struct):
    """Fields of an answer that decide how to continue."""

    total_transactions: int
    partial: bool
    next_cursor: str | None
    coverage: list[_CoverageOfType]


class _LiveListener:
    """Sends the events of a live subscription, one part per account."""

    def __init__(
        self, clock: Clock, output: ClientOutput, body: SubscribeTransactionsAction
    ) -> None:
        self.subscriptions: list[LiveSubscription] = []
        self.exchanges = _accounts_of(body.exchange)
        self._clock = clock
        self._output = output
        self._id = body.id
        self._number = 0

    @property
    def slow(self) -> bool:
        """Whether the client is a slow consumer."""
        return self._output.behind

    def note(self, batch: list[Record]) -> None:
        """Record which records of the history were sent."""
        for record in batch:
            if len(self.subscriptions) == 1:
                self.subscriptions[0].note(record)
                continue
            for each in self.subscriptions:
                if record.account is not None and record.account.name == each.query.name:
                    each.note(record)

    def covered(self, coverage: list[_CoverageOfType]) -> None:
        """Record how far back the history reaches."""
        for entry in coverage:
            for each in self.subscriptions:
                if entry.account in ("", each.query.name):
                    each.covered(entry.transaction_type, entry.from_ms)

    def types(self, parts: Callable[[LiveSubscription], tuple[LivePart, ...]]) -> list[LiveType]:
        """Return how each type is followed."""
        return [
            _live_type(part, each.query.name if len(self.subscriptions) > 1 else UNSET)
            for each in self.subscriptions
            for part in parts(each)
        ]

    def push(self, record: LiveRecord) -> None:
        """Send a record."""
        self._number += 1
        event = b'{"type":"transaction","exchange":%b,"change":"%b","number":%d,' % (
            json.encode(record.account),
            b"updated" if record.changed else b"new",
            self._number,
        )
        event += b'"timestamp":"%b","transaction":%b}' % (self._now(), record.payload)
        self._output.send_text(with_id(event, self._id))

    def status(self, status: LiveStatus) -> None:
        """Send a changed state."""
        event = TransactionStatus(
            exchange=status.account,
            state=status.state,
            reason=status.reason,
            complete_to=status.read_to_ms,
            types=[_live_type(part, UNSET) for part in status.types],
            errors=[to_builtins(error) for error in status.errors],
            timestamp=self._now().decode(),
        )
        self._output.send_text(encode_masked(event, self._id))

    def _now(self) -> bytes:
        return iso(self._clock.wall_us() // 1_000).encode()


def _live_type(part: LivePart, account: str | UnsetType) -> LiveType:
    return LiveType(part.transaction_type, part.source, part.delay_s, account)


class _Progress:
    """Sends the progress of a transaction subscription, at most once in `interval_s`."""

    def __init__(
        self,
        clock: Clock,
        interval_s: float,
        send: Callable[[bytes], None],
        body: SubscribeTransactionsAction,
    ) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._send = send
        self._body = body
        self._sent_s = float("-inf")

    def __call__(self, run: Run | JointRun, *, ended: bool = False) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._sent_s < self._interval_s and not ended:
            return
        self._sent_s = now_s
        query = run.query
        progress = TransactionProgress(
            exchange=query.request.exchange,
            total_transactions=run.totals.count,
            came_to=run.reached_ms,
            start_time=query.from_ms,
            end_time=query.to_ms,
            waiting_s=round(run.waiting_s, 3),
            timestamp=iso(self._clock.wall_us() // 1_000),
            exports=[
                AwaitedExport(each.exchange, each.name, each.requested_at) for each in run.exports
            ]
            or UNSET,
        )
        self._send(encode_masked(progress, self._body.id))


def _refusal_of(error: OnebookError) -> CommandRefused:
    extra = {name: value for name, value in error.details.items() if name.startswith("supported")}
    if error.retry_after_s is not None:
        extra["retry_after"] = max(1, -int(-error.retry_after_s // 1))
    elif isinstance(error, RateLimitExceeded | ExchangeFailed):
        extra["retry_after"] = 1
    return CommandRefused(error.code, error.message, **extra)
