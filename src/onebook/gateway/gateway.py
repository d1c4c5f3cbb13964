"""Builds, starts and drains the gateway."""

import asyncio
import gc
import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from onebook.accounts import Accounts
from onebook.books import Books
from onebook.clock import Clock
from onebook.config import GatewaySettings, StreamSettings
from onebook.errors import HistoryUnavailable, InvalidRequest
from onebook.feeds import Catalogue
from onebook.fees import TakerFees
from onebook.gateway import metrics
from onebook.gateway.authentication import Authenticator, Charges, KeyEvents, KeyPeers
from onebook.gateway.codes import CloseCode
from onebook.gateway.commands import CommandRefused, GetAggregatedOrderbook
from onebook.gateway.connection import ClientConnection, ConnectionParts
from onebook.gateway.directory import Directory, GatewaySupervisor, requested_stream
from onebook.gateway.fanout import Fanout
from onebook.gateway.limits import LIMITS, GatewayLimits
from onebook.gateway.messages import converted, encode
from onebook.gateway.metrics import GatewayTotals
from onebook.gateway.processor import CommandProcessor, KeyViews
from onebook.gateway.reference import without_zone
from onebook.gateway.registry import ClientPort, ConnectionRegistry
from onebook.gateway.replies import ServerShutdown
from onebook.gateway.scheduler import TURN_S, Scheduler, Slices, Turns
from onebook.gateway.subscriptions import SubscriptionManager
from onebook.gateway.transactions import ActionRunner
from onebook.gateway.upgrade import OFFENCE_PAUSE_MAX_S, AddressLimiter, Offenders, Upgrader
from onebook.streams import Streams, iso_us
from onebook.streams.past import NO_HISTORY, PastBooks, QualityQuery, RecordedTimes
from onebook.transactions.service import Transactions
from onebook.transfers import Transfers, no_transfers

DRAIN_STEP_S: Final = 0.1
LEAVING_STEP_S: Final = 0.01  # connections that leave within it are closed after one sleep
SHUTDOWN: Final = "This node is shutting down; reconnect at the given time."
ISOLATED: Final = "This node currently receives no books; reconnect at the given time."


class Gateway:
    """Serves WebSocket clients as an async context; `protocol` is for `uvicorn.Config(ws=...)`.

    Create it in a running event loop. `via` names the library of each exchange without a connector;
    `transfers` returns the transfers of a coin on an exchange, for crossings.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        accounts: Accounts,
        books: Books,
        catalogue: Catalogue,
        supervisor: GatewaySupervisor,
        clock: Clock,
        streams: StreamSettings | None = None,
        via: Mapping[str, str] = MappingProxyType({}),
        peers: KeyPeers | None = None,
        transactions: Transactions | None = None,
        transfers: Transfers = no_transfers,
        limits: GatewayLimits = LIMITS,
        history: Path | None = None,
    ) -> None:
        monotonic = clock.monotonic
        stamp = without_zone if settings.reference_compatible else iso_us
        self.past = None if history is None else PastBooks(history, clock=clock, stamp=stamp)
        self.connections: ConnectionRegistry = ConnectionRegistry()
        self.totals = GatewayTotals()
        self.views = KeyViews()
        self.fanout = Fanout(
            join_bytes_max=limits.write_buffer_bytes_max,
            monotonic=monotonic,
        )
        self.streams = Streams(
            books=books,
            supervisor=supervisor,
            catalogue=catalogue,
            publisher=self.fanout,
            clock=clock,
            settings=streams,
            transfers=transfers,
            stamp=stamp,
        )
        self.subscriptions = SubscriptionManager(
            streams=self.streams, fanout=self.fanout, views=self.views, clock=clock, past=self.past
        )
        self.actions: ActionRunner | None = None
        if transactions is not None:
            self.actions = ActionRunner(transactions, clock=clock, limits=limits)
        self.directory = Directory(
            catalogue,
            supervisor,
            monotonic=monotonic,
            via=via,
            expected_gb=self.streams.expected_gb,
        )
        self.charges = Charges(meter=accounts.meter, connections=self.connections, clock=clock)
        self.drainer = Drain(
            settings,
            connections=self.connections,
            charges=self.charges,
            clock=clock,
            close_timeout_s=limits.close_timeout_s,
        )
        report = GatewayReport(streams=self.streams, fanout=self.fanout, totals=self.totals)
        self.scheduler = Scheduler(clock, on_tick=report.publish)
        self.turns = Turns(
            turn_s=TURN_S,
            monotonic=monotonic,
            call_soon=asyncio.get_running_loop().call_soon,
        )
        self.address_limiter = AddressLimiter(
            settings.connects_per_minute,
            settings.forwarded_from,
            sockets_per_address_max=settings.sockets_per_address_max,
        )
        self.authenticator = Authenticator(
            settings,
            accounts=accounts,
            connections=self.connections,
            charges=self.charges,
            clock=clock,
            peers=peers,
            limits=limits,
        )
        self.parts = self._make_parts(settings, accounts, clock, limits)
        self.protocol = partial(ClientConnection, self.parts)
        self._subscribe(accounts)

    def _make_parts(
        self, settings: GatewaySettings, accounts: Accounts, clock: Clock, limits: GatewayLimits
    ) -> ConnectionParts:
        offenders = Offenders(limits.offence_pause_s, OFFENCE_PAUSE_MAX_S)
        return ConnectionParts(
            settings=settings,
            limits=limits,
            clock=clock,
            connections=self.connections,
            turns=self.turns,
            scheduler=self.scheduler,
            upgrader=Upgrader(
                settings,
                address_limiter=self.address_limiter,
                offenders=offenders,
                clock=clock,
                has_room=lambda: (
                    not self.drainer.refuses and len(self.connections) < settings.connections_max
                ),
            ),
            offenders=offenders,
            authenticator=self.authenticator,
            subscriptions=self.subscriptions,
            actions=self.actions,
            fanout=self.fanout,
            totals=self.totals,
            make_processor=lambda: CommandProcessor(
                settings=settings,
                tiers=accounts.settings.tiers,
                directory=self.directory,
                limits=accounts.limits,
                views=self.views,
                gateway_limits=limits,
            ),
        )

    def _subscribe(self, accounts: Accounts) -> None:
        """Subscribe to key changes and meter flushes."""
        events = KeyEvents(connections=self.connections, charges=self.charges, now=self.parts.now)
        accounts.on_disabled.subscribe(events.key_disabled)
        accounts.on_changed.subscribe(events.key_changed)
        accounts.meter.collect_from(self.charges.portions)
        accounts.meter.on_over.subscribe(events.allowance_exceeded)
        accounts.meter.on_warning.subscribe(events.allowance_warned)

    @property
    def draining(self) -> bool:
        """Whether the gateway is draining: it closes clients and accepts no more."""
        return self.drainer.begun

    async def __aenter__(self) -> Self:
        await self.scheduler.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.scheduler.__aexit__(*details)
        for connection in self.connections:
            connection.output.abort()
            self.charges.charge_delivered(connection)
        await self.stop()

    async def stop(self) -> None:
        """Stop the tasks (key verification, actions, isolation) and the streams."""
        self.drainer.rejoin()
        await self.authenticator.stop()
        if self.actions is not None:
            await self.actions.stop()
        await self.subscriptions.stop()
        if self.past is not None:
            self.past.close()
        self.streams.stop()

    async def book_at(
        self, symbol: str, query: Mapping[str, object], at_us: int, fees: TakerFees
    ) -> bytes:
        """Return the merged book of a moment for REST.

        Args:
            symbol: The pair.
            query: The options of the view by name.
            at_us: The moment in microseconds since 1970.
            fees: The fee table of the client's key.

        Raises:
            OnebookError: An option is invalid, or the moment is not available.
        """
        if self.past is None:
            raise HistoryUnavailable(NO_HISTORY)
        try:
            body = converted({**query, "symbol": symbol}, GetAggregatedOrderbook)
            key = requested_stream(self.directory, body, None, fees)
        except CommandRefused as refusal:
            raise InvalidRequest(refusal.message) from None
        return await self.past.fetch(key, at_us, None)

    async def quality(self, query: QualityQuery) -> list[dict[str, Any]]:
        """Return the quality of the exchanges for REST.

        Raises:
            HistoryUnavailable: There is no history, or it cannot be read.
        """
        if self.past is None:
            raise HistoryUnavailable(NO_HISTORY)
        return await self.past.quality(query)

    async def recorded(self, symbol: str, start_us: int, end_us: int) -> RecordedTimes:
        """Return when books of a pair were recorded, for REST.

        Raises:
            HistoryUnavailable: There is no history, or it cannot be read.
        """
        if self.past is None:
            raise HistoryUnavailable(NO_HISTORY)
        return await self.past.recorded(symbol, start_us, end_us)

    def limits_changed(self) -> None:
        """Apply changed limits after the settings were updated in place."""
        settings = self.parts.settings
        self.address_limiter.limit(settings.connects_per_minute, settings.sockets_per_address_max)

    def isolated(self, isolated: bool) -> None:
        """While this node receives no books, send its clients to other nodes and accept none."""
        if isolated:
            self.drainer.isolate()
        else:
            self.drainer.rejoin()

    async def drain(self, drain_s: float | None = None) -> None:
        """Stop accepting, and close every connection within the drain time."""
        await self.drainer.run(drain_s)


class GatewayReport:
    """Publishes the counts of the hot path as metrics."""

    def __init__(
        self,
        *,
        streams: Streams,
        fanout: Fanout,
        totals: GatewayTotals,
    ) -> None:
        self._streams = streams
        self._fanout = fanout
        self._totals = totals
        self._conflated = self._messages = self._published = self._saturated = 0

    def publish(self) -> None:
        """Add the counts since the last call; called once a second."""
        streams = self._streams
        metrics.CONFLATED.inc(self._fanout.conflated_total - self._conflated)
        metrics.MESSAGES.inc(self._totals.messages - self._messages)
        metrics.PUBLISHED.inc(streams.published_total - self._published)
        metrics.SATURATED.inc(streams.saturated_total - self._saturated)
        self._conflated, self._messages = self._fanout.conflated_total, self._totals.messages
        self._published, self._saturated = streams.published_total, streams.saturated_total
        metrics.BEHIND.set(len(self._totals.behind))
        metrics.STREAMS.set(len(streams))
        metrics.BACKLOG.set(streams.backlog)


class Drain:
    """Closes every connection, spread over the drain time, and accepts no new ones (`refuses`).

    Runs when the node stops (`run`), and while it receives no books (`isolate`).
    """

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        connections: ConnectionRegistry,
        charges: Charges,
        clock: Clock,
        close_timeout_s: float,
    ) -> None:
        self._settings = settings
        self._close_timeout_s = close_timeout_s
        self._connections = connections
        self._charges = charges
        self._clock = clock
        self.begun = False
        self._isolated: asyncio.Task[None] | None = None

    @property
    def refuses(self) -> bool:
        """Whether no new connections are accepted."""
        return self.begun or self._isolated is not None

    def isolate(self) -> None:
        """Stop accepting, and disconnect all clients over the drain time."""
        if self._isolated is None and not self.begun:
            leaving = self._send_away(self._settings.drain_s, ISOLATED, "the node has no books")
            self._isolated = asyncio.create_task(leaving, name="clients of an isolated gateway")

    def rejoin(self) -> None:
        """Accept connections again; clients that are not closed yet stay connected."""
        if self._isolated is not None:
            self._isolated.cancel()
            self._isolated = None

    async def run(self, drain_s: float | None = None) -> None:
        """Stop accepting, announce staggered reconnect times, close."""
        self.begun = True
        self.rejoin()
        drain_s = self._settings.drain_s if drain_s is None else drain_s
        await self._send_away(drain_s, SHUTDOWN, "the node drains")
        give_up_s = self._clock.monotonic() + self._close_timeout_s
        while len(self._connections) and self._clock.monotonic() < give_up_s:
            await self._clock.sleep(DRAIN_STEP_S)
        slices = Slices(self._clock)
        for connection in self._connections:
            await slices.next()
            connection.output.abort()
        for _ in self._charges.portions():
            await self._clock.sleep(0)

    async def _send_away(self, drain_s: float, message: str, reason: str) -> None:
        started_s = self._clock.monotonic()
        leaving = await self._announce(drain_s, message)
        slices = Slices(self._clock)
        for position in range(len(leaving)):
            # Released here, because freeing all connections at the end would be one long turn.
            connection, leaving[position] = leaving[position], None
            due_s = started_s + _leaves_after_s(position, len(leaving), drain_s)
            while (wait_s := due_s - self._clock.monotonic()) > 0:
                await self._clock.sleep(min(max(wait_s, LEAVING_STEP_S), DRAIN_STEP_S))
            await slices.next()
            if connection is not None:
                connection.end(CloseCode.DRAINING, reason)

    async def _announce(self, drain_s: float, message: str) -> list[ClientPort | None]:
        """Announce reconnect times, spread evenly so that clients do not reconnect together.

        Returns the connections in the order in which they leave.
        """
        timestamp = iso_us(self._clock.wall_us())
        leaving: list[ClientPort | None] = [*self._connections]
        gc.freeze()  # otherwise the collector visits all connections in this list, again and again
        count = len(leaving)
        slices = Slices(self._clock)
        for position in range(count):
            await slices.next()
            # A step of a shuffle: shuffling all connections at once would be one long turn.
            chosen = random.randrange(position, count)  # noqa: S311
            connection, leaving[chosen] = leaving[chosen], leaving[position]
            assert connection is not None, "none has left yet"
            leaving[position] = None if connection.output.ended else connection
            if connection.output.ended:
                continue
            notice = ServerShutdown(
                message=message,
                reconnect_in_ms=round(_leaves_after_s(position, count, drain_s) * 1_000),
                timestamp=timestamp,
            )
            connection.output.send_text(encode(notice))
        return leaving


def _leaves_after_s(position: int, count: int, drain_s: float) -> float:
    return drain_s * (position + 1) / count
