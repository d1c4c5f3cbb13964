"""Small tools of tests that speak to a gateway over real sockets."""

from contextlib import suppress

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus


async def refused(url, **options):
    """The HTTP answer to an upgrade that is not accepted."""
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
    """Send what the server will not read to its end."""
    with suppress(ConnectionClosed):
        await client.socket.send(message)


async def raw(client, data):
    """Bytes to the server, past the client library."""
    client.socket.transport.write(data)
