"""nats-py's client, with synchronous publishing and synchronous subscription callbacks.

nats-py passes each message through a queue to a task of its subscription, and its `publish` is a
coroutine. For callbacks that never wait, this costs more than the message itself. Imported only if
nats-py is installed.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.protocol.command import pub_cmd

Delivered = Callable[[bytes, str], None]  # payload, and the subject of the answer or ""


class DirectClient(Client):
    """A client whose subscriptions made by `subscribe_direct` have no queue."""

    async def subscribe_direct(self, subject: str, delivered: Delivered) -> Any:
        """Call `delivered` with each message of a subject; it must not raise."""

        async def through_queue(message: Any) -> None:
            """Fallback, called by nats-py if a release of it bypasses `_process_msg`."""
            delivered(message.data, message.reply)

        through_queue.direct = delivered  # type: ignore[attr-defined]
        return await self.subscribe(subject, cb=through_queue)

    def publish_direct(self, subject: str, payload: bytes | bytearray) -> None:
        """Queue a message for the flusher, as `publish` does on an open connection."""
        command, flushes = pub_cmd(subject, "", payload), self._flush_queue
        assert flushes is not None
        self._pending.append(command)
        self._pending_data_size += len(command)
        if flushes.empty():
            flushes.put_nowait(asyncio.Future())

    def abort(self) -> None:
        """Close the socket at once and drop unwritten data."""
        writer = getattr(self._transport, "_io_writer", None)  # WebSocket: its close has a timeout
        if writer is not None:
            writer.transport.abort()

    async def _attempt_reconnect(self) -> None:
        """Reconnect at once; nats-py would first wait for pending writes, even on a dead link."""
        self.abort()
        await super()._attempt_reconnect()

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        """Deliver a parsed message; this is the hot path of a gateway."""
        subscription = self._subs.get(sid)
        direct = getattr(getattr(subscription, "_cb", None), "direct", None)
        if direct is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            direct(data, reply.decode())
