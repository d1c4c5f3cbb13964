"""The gateway's protocol class in an echo mode, for conformance suites.

`python -m gateway.echo PORT` from the folder `tests` (with `src` on the path) echoes every message
to a suite such as Autobahn's; without the messages' meaning, but through the same bytes in and out.
"""

import asyncio
import sys

import uvicorn

from onebook.config import GatewaySettings
from onebook.gateway import frames
from onebook.gateway.client import Client
from onebook.gateway.hub import Hub
from onebook.gateway.protocol import Connection
from onebook.gateway.turns import Turns

OPEN_WIDE = GatewaySettings(
    path="/api/v1/ws",
    message_bytes_max=32 << 20,
    keyless_message_bytes_max=32 << 20,
    flood_burst=1_000_000,
    unsent_bytes_max=1 << 30,
)


class EchoHub:
    """The few things a connection asks of its hub, and no conversation."""

    handshake = Hub.handshake

    def __init__(self, settings=OPEN_WIDE):
        self.settings = settings
        loop = asyncio.get_running_loop()
        self.monotonic = loop.time
        self.turns = Turns(turn_s=settings.turn_s, monotonic=loop.time, call_soon=loop.call_soon)
        self.protocol = type("EchoConnection", (Echo,), {"hub": self, "__slots__": ()})
        self._origins = None
        self._extensions = [frames.SharedDeflate()]

    def client(self):
        return Client(settings=self.settings, tiers=None, directory=None, limits=None, views=None)

    def wall_us(self):
        return 0

    def has_room(self):
        return True

    def pause_s(self, connection, forwarded_for):
        return 0.0

    def knock(self, connection):
        return 0.0

    def rest(self, connection, seconds):
        connection.rest(True)
        asyncio.get_running_loop().call_later(seconds, connection.rest, False)

    def opened(self, connection, api_key):
        connection.ping_at = 0.0

    def _nothing(self, *_):
        pass

    refused = frame_received = fell_behind = caught_up = ending = lost = answered = _nothing


class Echo(Connection):
    """Says back what it hears, as text or as bytes."""

    __slots__ = ()

    def message(self, data, *, text):
        if text:
            try:
                data.decode()
            except UnicodeDecodeError:
                self.end(1007, "the message is not UTF-8")
                return
            self.say(data)
        else:
            frame = frames.text_frame(data)
            self.write(bytes((0x82,)) + frame[1:])


async def main(port):
    async def app(scope, receive, send):
        pass

    config = uvicorn.Config(
        app, port=port, ws=EchoHub().protocol, lifespan="off", log_level="warning"
    )
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
