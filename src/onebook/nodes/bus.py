"""NATS as the nodes use it: publish without waiting, callbacks, requests with a deadline.

`publish` is synchronous and never blocks: messages wait in the client's buffer for the task that
writes them. What does not fit, or comes while there is no connection, is dropped and counted:
receivers see the missing number and ask for a snapshot. Needs the extra `onebook[nats]`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol, Self

from prometheus_client import Counter, Gauge

from onebook.config import NatsSettings
from onebook.nodes import nats_login

log = logging.getLogger("onebook.nodes")

FLUSH_S: Final = 1
CLOSE_S: Final = 5.0
COUNT_S: Final = 1.0  # how often the metrics of what was sent are brought up to date

NATS_UP: Final = Gauge("onebook_nats_up", "1 while this node is connected to NATS.")
DROPPED: Final = Counter(
    "onebook_nats_dropped", "Messages between nodes that were dropped, by cause.", ["cause"]
)
SENT: Final = Counter("onebook_nats_sent", "Messages published to NATS.")
SENT_BYTES: Final = Counter("onebook_nats_sent_bytes", "Payload bytes published to NATS.")
for _cause in ("disconnected", "full", "too_large", "slow"):
    DROPPED.labels(_cause)

Received = Callable[[bytes, str], None]  # payload, and the subject of the answer or ""


def _nothing() -> None:
    """Ignore that messages were dropped."""


class Bus(Protocol):
    """How nodes talk."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""

    def publish(self, subject: str, payload: bytes | bytearray) -> None:
        """Send a message to all subscribers, or drop it."""

    def subscribe(
        self, subject: str, received: Received, dropped: Callable[[], None] = _nothing
    ) -> Callable[[], None]:
        """Have messages of a subject received; returns what ends that.

        `dropped` is called where messages were lost on this side.
        """

    async def request(self, subject: str, payload: bytes, timeout_s: float) -> bytes | None:
        """Return a subscriber's answer, None where none came in time."""


class NatsBus:
    """A connection to NATS while it is entered, made again whenever it is lost.

    Args:
        settings: Addresses and credentials of NATS.
        name: The name of this connection in NATS' own monitoring.
    """

    def __init__(self, settings: NatsSettings, *, name: str) -> None:
        self._settings = settings
        self._name = name
        self._client: Any = None
        self._changes: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._dropping: dict[Any, Callable[[], None]] = {}
        self._sent = self._sent_bytes = 0  # since the metrics were brought up to date
        self._too_large = False
        self._logged = ""  # the last error since the connection was lost or made
        self._closing = False

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._client is not None and bool(self._client.is_connected)

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            ConfigError: NATS cannot be reached, or refuses this node.
        """
        self._errors = nats_login.library_errors()
        self._client = await nats_login.connect(
            self._settings,
            name=self._name,
            failed=self._failed,
            disconnected=self._disconnected,
            reconnected=self._reconnected,
        )
        NATS_UP.set(1)
        self._tasks = [
            asyncio.create_task(self._count(), name="nats counts"),
            asyncio.create_task(self._follow(), name="nats subscriptions"),
        ]
        return self

    async def __aexit__(self, *details: object) -> None:
        if self.connected:
            try:
                await self._client.flush(timeout=FLUSH_S)
            except (self._errors.Error, TimeoutError, OSError) as error:
                log.info("The last messages may not have been delivered: %s", error)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._closing = True
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._client.close()
        except TimeoutError:
            log.warning("The connection to NATS did not close in %g s.", CLOSE_S)
            self._client.abort()
        NATS_UP.set(0)
        self._publish_counts()

    def publish(self, subject: str, payload: bytes | bytearray) -> None:
        """Send a message to all subscribers, or drop it (the hot path of a feeds node)."""
        client, size = self._client, len(payload)
        if not client.is_connected:
            DROPPED.labels("disconnected").inc()
        elif size > client.max_payload:
            self._refuse(size)
        elif client.pending_data_size + size > self._settings.outbox_bytes_max:
            DROPPED.labels("full").inc()
        else:
            client.publish_direct(subject, payload)
            self._sent += 1
            self._sent_bytes += size

    def subscribe(
        self, subject: str, received: Received, dropped: Callable[[], None] = _nothing
    ) -> Callable[[], None]:
        """Have messages of a subject received; returns what ends that."""
        entry: dict[str, Any] = {"subject": subject, "received": received, "dropped": dropped}
        self._changes.put_nowait(("subscribe", entry))
        return lambda: self._changes.put_nowait(("unsubscribe", entry))

    async def request(self, subject: str, payload: bytes, timeout_s: float) -> bytes | None:
        """Return a subscriber's answer, None where none came in time."""
        try:
            answer = await self._client.request(subject, payload, timeout=timeout_s)
        except (self._errors.Error, TimeoutError, OSError):
            return None
        data: bytes = answer.data
        return data

    def _refuse(self, size: int) -> None:
        """Drop a message that NATS would close the connection for; log the first."""
        DROPPED.labels("too_large").inc()
        if not self._too_large:
            self._too_large = True
            log.error(
                "A message of %d bytes is longer than NATS takes (%d); raise its max_payload.",
                size,
                self._client.max_payload,
            )

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(COUNT_S)
            self._publish_counts()

    def _publish_counts(self) -> None:
        SENT.inc(self._sent)
        SENT_BYTES.inc(self._sent_bytes)
        self._sent = self._sent_bytes = 0

    async def _follow(self) -> None:
        """Subscribe and unsubscribe in the order in which that was asked for."""
        while True:
            what, entry = await self._changes.get()
            try:
                if what == "subscribe":
                    await self._begin(entry)
                elif "subscription" in entry:
                    subscription = entry.pop("subscription")
                    self._dropping.pop(subscription, None)
                    await subscription.unsubscribe()
            except (self._errors.Error, OSError) as error:
                log.warning("Could not %s %s: %s", what, entry["subject"], error)

    async def _begin(self, entry: dict[str, Any]) -> None:
        received = entry["received"]

        def deliver(payload: bytes, reply: str) -> None:
            try:
                received(payload, reply)
            except Exception:
                log.exception("Processing a message on %s failed.", entry["subject"])

        subscription = await self._client.subscribe_direct(entry["subject"], deliver)
        entry["subscription"] = subscription
        self._dropping[subscription] = entry["dropped"]

    def _failed(self, error: Exception) -> None:
        if isinstance(error, self._errors.SlowConsumerError):
            DROPPED.labels("slow").inc()
            self._dropping.get(error.sub, _nothing)()
            return
        text = str(error) or type(error).__name__
        if text != self._logged:  # nats-py reports each attempt to connect, five a second
            self._logged = text
            log.info("NATS: %s", text)

    async def _disconnected(self) -> None:
        NATS_UP.set(0)
        if self._closing:
            return
        log.warning("Lost the connection to NATS; reconnecting.")

    async def _reconnected(self) -> None:
        NATS_UP.set(1)
        self._logged = ""
        log.info("Reconnected to NATS.")
