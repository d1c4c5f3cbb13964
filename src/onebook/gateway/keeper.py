"""What happens to connections by the clock: one beat a second for all of them.

Ten thousand idle clients need no task and no timer each: the keeper walks short lists. Pings are
spread over their interval, deadlines wait in the order in which they fall due, and only clients
that are behind are looked at. It also sends everyone away when the node drains.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from onebook.gateway import counters
from onebook.gateway.codes import CloseCode
from onebook.gateway.hub import Hub
from onebook.gateway.messages import ServerShutdown, encode
from onebook.gateway.protocol import Connection
from onebook.streams import iso_us

BEAT_S: Final = 1.0
DRAIN_STEP_S: Final = 0.1

log = logging.getLogger("onebook.gateway")


class Keeper:
    """Timeouts, pings and slow clients; an async context manager that beats."""

    def __init__(
        self, hub: Hub, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._hub = hub
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None
        self._wheel: list[set[Connection]] = [
            set() for _ in range(max(1, round(hub.settings.ping_interval_s / BEAT_S)))
        ]
        self._beats = 0
        self._conflated = self._messages = self._published = self._saturated = 0
        hub.on_opened = self.opened
        hub.on_lost = self.lost

    async def __aenter__(self) -> "Keeper":
        self._task = asyncio.create_task(self._run(), name="gateway-keeper")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for connection in tuple(self._hub.connections):
            connection.abort()
            self._hub.settle(connection)
        await self._hub.stop()

    def opened(self, connection: Connection) -> None:
        """Give a new connection its second of the ping interval."""
        connection.slot = random.randrange(len(self._wheel))  # noqa: S311
        self._wheel[connection.slot].add(connection)

    def lost(self, connection: Connection) -> None:
        """Forget a connection."""
        self._wheel[connection.slot].discard(connection)

    def beat(self) -> None:
        """Do what a second brings."""
        now_s = self._hub.monotonic()
        self._beats += 1
        self._time_out(now_s)
        self._end_slow(now_s)
        self._abort_unanswered(now_s)
        self._ping(self._wheel[self._beats % len(self._wheel)], now_s)
        self._report()

    async def _run(self) -> None:
        while True:
            await self._sleep(BEAT_S)
            try:
                self.beat()
            except Exception:
                # A defect in one beat must not end the beats: deadlines and bills hang on them.
                log.exception("A beat of the gateway failed.")

    def _time_out(self, now_s: float) -> None:
        hub = self._hub
        while hub.unauthenticated:
            connection, deadline = next(iter(hub.unauthenticated.items()))
            if deadline > now_s:
                break
            del hub.unauthenticated[connection]
            hub.carry(connection, connection.client.timed_out(now=hub.now()))

    def _end_slow(self, now_s: float) -> None:
        for connection in tuple(self._hub.lagging):
            unread = connection.transport.get_write_buffer_size()
            if unread < connection.unread:
                connection.unread, connection.progress_at = unread, now_s
            elif now_s - connection.progress_at >= self._hub.settings.slow_timeout_s:
                connection.end(CloseCode.SLOW, "nothing was read")

    def _abort_unanswered(self, now_s: float) -> None:
        closing = self._hub.closing
        while closing:
            connection, deadline = next(iter(closing.items()))
            if deadline > now_s:
                break
            del closing[connection]
            connection.abort()

    def _ping(self, connections: set[Connection], now_s: float) -> None:
        for connection in tuple(connections):
            # Who is behind answers late, and is watched by what it reads instead.
            if connection.ended or connection.behind:
                continue
            # The first ping was sent at connect, so the turn may come too early for its answer.
            if not connection.ping_at:
                connection.ping(now_s)
            elif now_s - connection.ping_at >= self._hub.settings.ping_interval_s:
                connection.end(CloseCode.SLOW, "no pong")

    def _report(self) -> None:
        hub, streams = self._hub, self._hub.streams
        counters.CONFLATED.inc(hub.fanout.conflated_total - self._conflated)
        counters.MESSAGES.inc(hub.messages_total - self._messages)
        counters.PUBLISHED.inc(streams.published_total - self._published)
        self._conflated, self._messages = hub.fanout.conflated_total, hub.messages_total
        self._published = streams.published_total
        counters.BEHIND.set(len(hub.lagging))
        counters.STREAMS.set(len(streams))
        counters.BACKLOG.set(streams.backlog)
        counters.SATURATED.inc(streams.saturated_total - self._saturated)
        self._saturated = streams.saturated_total

    # Draining

    async def drain(self, drain_s: float | None = None) -> None:
        """Take nobody more, tell everyone when to return, and close each at its time."""
        hub = self._hub
        hub.draining = True
        drain_s = hub.settings.drain_s if drain_s is None else drain_s
        started_s = hub.monotonic()
        leaving = sorted(self._announce(drain_s), key=lambda pair: pair[0])
        for after_s, connection in leaving:
            while (wait_s := started_s + after_s - hub.monotonic()) > 0:
                await self._sleep(min(wait_s, DRAIN_STEP_S))
            connection.end(CloseCode.DRAINING, "the node drains")
        give_up_s = hub.monotonic() + hub.settings.close_timeout_s
        while hub.connections and hub.monotonic() < give_up_s:
            await self._sleep(DRAIN_STEP_S)
        for connection in tuple(hub.connections):
            connection.abort()
        self._hub.settle_all()

    def _announce(self, drain_s: float) -> list[tuple[float, Connection]]:
        """Tell each client its own time, spread evenly so that they do not return together."""
        hub = self._hub
        timestamp = iso_us(hub.wall_us())
        connections = [each for each in hub.connections if not each.ended]
        random.shuffle(connections)
        leaving = []
        for place, connection in enumerate(connections, start=1):
            after_s = drain_s * place / len(connections)
            notice = ServerShutdown(
                message="This node goes away; connect again at the time given.",
                reconnect_in_ms=round(after_s * 1_000),
                timestamp=timestamp,
            )
            connection.say(encode(notice))
            leaving.append((after_s, connection))
        return leaving
