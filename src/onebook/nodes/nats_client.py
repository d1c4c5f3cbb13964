"""nats-py's client with synchronous publishing and subscription callbacks.

nats-py passes each message through a queue to the subscription's task, and its `publish` is a
coroutine. For callbacks that never wait, this overhead exceeds the cost of the message. This module
is imported only if nats-py is installed.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.protocol.command import pub_cmd

Delivered = Callable[[bytes, str], None]  # payload, and the subject of the answer or ""


class DirectClient(Client):
    """A client with subscriptions that have no queue (`subscribe_direct`)."""

    async def subscribe_direct(self, subject: str, delivered: Delivered) -> Any:
        """Call `delivered` with each message of a subject; it must not raise."""

        async def through_queue(message: Any) -> None:
            """Fallback in case a release of nats-py bypasses `_process_msg`."""
            delivered(message.data, message.reply)

        through_queue.direct = delivered  # type: ignore[attr-defined]
        return await self.subscribe(subject, cb=through_queue)

    def publish_direct(self, subject: str, payload: bytes | bytearray) -> None:
        """Queue a message for the flusher, like `publish` on an open connection."""
        command, flushes = pub_cmd(subject, "", payload), self._flush_queue
        assert flushes is not None
        self._pending.append(command)
        self._pending_data_size += len(command)
        if flushes.empty():
            flushes.put_nowait(asyncio.Future())

    def abort(self) -> None:
        """Close the socket at once and drop unwritten data."""
        writer = getattr(self._transport, "_io_writer", None)  # WebSocket has none
        if writer is not None:
            writer.transport.abort()

    async def _attempt_reconnect(self) -> None:
        """Reconnect at once; nats-py would first wait for pending writes, even on a dead link."""
        self.abort()
        await super()._attempt_reconnect()

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        """Deliver a parsed message (the hot path of a gateway)."""
        subscription = self._subs.get(sid)
        direct = getattr(getattr(subscription, "_cb", None), "direct", None)
        if direct is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            direct(data, reply.decode())
