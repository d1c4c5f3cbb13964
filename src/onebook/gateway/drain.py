"""Sends clients away: stop accepting, announce reconnect times, close.

For good when the node stops, or for as long as the node has no books to show (`isolate`).
"""

import asyncio
import random
from typing import Final

from onebook.clock import Clock
from onebook.config import GatewaySettings
from onebook.gateway.charges import Charges
from onebook.gateway.codes import CloseCode
from onebook.gateway.messages import encode
from onebook.gateway.registry import ClientPort, ConnectionRegistry
from onebook.gateway.replies import ServerShutdown
from onebook.streams import iso_us

DRAIN_STEP_S: Final = 0.1
SHUTDOWN: Final = "This node shuts down; connect again at the time given."
ISOLATED: Final = "This node receives no books now; connect again at the time given."


class Drain:
    """Closes every connection, spread over the drain time; no new ones while it `refuses`."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        connections: ConnectionRegistry,
        charges: Charges,
        clock: Clock,
    ) -> None:
        self._settings = settings
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
        """Stop accepting, and send the clients away over the drain time."""
        if self._isolated is None and not self.begun:
            leaving = self._send_away(self._settings.drain_s, ISOLATED, "the node has no books")
            self._isolated = asyncio.create_task(leaving, name="clients of an isolated gateway")

    def rejoin(self) -> None:
        """Accept again; clients that were not closed yet stay."""
        if self._isolated is not None:
            self._isolated.cancel()
            self._isolated = None

    async def run(self, drain_s: float | None = None) -> None:
        """Stop accepting, announce staggered reconnect times, close."""
        self.begun = True
        self.rejoin()
        drain_s = self._settings.drain_s if drain_s is None else drain_s
        await self._send_away(drain_s, SHUTDOWN, "the node drains")
        give_up_s = self._clock.monotonic() + self._settings.close_timeout_s
        while len(self._connections) and self._clock.monotonic() < give_up_s:
            await self._clock.sleep(DRAIN_STEP_S)
        for connection in self._connections:
            connection.output.abort()
        self._charges.settle_all()

    async def _send_away(self, drain_s: float, message: str, reason: str) -> None:
        started_s = self._clock.monotonic()
        for after_s, connection in self._announce(drain_s, message):
            while (wait_s := started_s + after_s - self._clock.monotonic()) > 0:
                await self._clock.sleep(min(wait_s, DRAIN_STEP_S))
            connection.end(CloseCode.DRAINING, reason)

    def _announce(self, drain_s: float, message: str) -> list[tuple[float, ClientPort]]:
        """Announce reconnect times, spread evenly so that clients do not reconnect together."""
        timestamp = iso_us(self._clock.wall_us())
        connections = [each for each in self._connections if not each.output.ended]
        random.shuffle(connections)
        leaving = []
        for position, connection in enumerate(connections, start=1):
            after_s = drain_s * position / len(connections)
            notice = ServerShutdown(
                message=message,
                reconnect_in_ms=round(after_s * 1_000),
                timestamp=timestamp,
            )
            connection.output.send_text(encode(notice))
            leaving.append((after_s, connection))
        return leaving
