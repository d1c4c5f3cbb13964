"""Helpers for tests that use a gateway over real sockets."""

from contextlib import suppress

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus


async def refused(url, **options):
    """The HTTP response to a refused upgrade."""
    with pytest.raises(InvalidStatus) as caught:
        async with connect(url, proxy=None, **options):
            pass
    return caught.value.response


class Watched:
    """A transport that reports what is written."""

    def __init__(self, transport, on_write):
        self._transport = transport
        self._on_write = on_write

    def write(self, data):
        self._on_write(data)
        self._transport.write(data)

    def __getattr__(self, name):
        return getattr(self._transport, name)


async def unread(client, message):
    """Send data that the server will not read completely."""
    with suppress(ConnectionClosed):
        await client.socket.send(message)


async def raw(client, data):
    """Send bytes to the server, bypassing the client library."""
    client.socket.transport.write(data)
