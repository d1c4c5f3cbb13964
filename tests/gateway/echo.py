"""The gateway's protocol class in an echo mode, for conformance suites.

`python -m gateway.echo PORT` from the folder `tests` (with `src` on the path) echoes every message
to a suite such as Autobahn's; without the messages' meaning, but through the same bytes in and out.
"""

import asyncio
import sys
from functools import partial

import uvicorn

from onebook.clock import Clock
from onebook.config import GatewaySettings
from onebook.gateway import GatewayLimits, frames
from onebook.gateway.authentication import Authenticator, Charges
from onebook.gateway.connection import ClientConnection, ConnectionParts
from onebook.gateway.fanout import Fanout
from onebook.gateway.lifecycle import ConnectionEvent, ConnectionState
from onebook.gateway.metrics import GatewayTotals
from onebook.gateway.processor import CommandProcessor
from onebook.gateway.registry import ConnectionRegistry
from onebook.gateway.scheduler import TURN_S, Scheduler, Turns
from onebook.gateway.subscriptions import SubscriptionManager
from onebook.gateway.upgrade import AddressLimiter, Offenders, Upgrader

MESSAGE_BYTES_MAX = 32 << 20
OPEN_WIDE = GatewayLimits(flood_burst=1_000_000, unsent_bytes_max=1 << 30)


def echoing():
    """A protocol whose connections echo; without accounts and books."""
    settings = GatewaySettings()
    clock, connections = Clock(), ConnectionRegistry()
    loop = asyncio.get_running_loop()
    charges = Charges(meter=None, connections=connections, clock=clock)
    fanout = Fanout(join_bytes_max=1, monotonic=clock.monotonic)
    offenders = Offenders(0.0, 0.0)
    parts = ConnectionParts(
        settings=settings,
        limits=OPEN_WIDE,
        clock=clock,
        connections=connections,
        turns=Turns(turn_s=TURN_S, monotonic=clock.monotonic, call_soon=loop.call_soon),
        scheduler=Scheduler(clock, on_tick=lambda: None),
        upgrader=Upgrader(
            settings,
            address_limiter=AddressLimiter(0),
            offenders=offenders,
            clock=clock,
            has_room=lambda: True,
        ),
        offenders=offenders,
        authenticator=Authenticator(
            settings, accounts=None, connections=connections, charges=charges, clock=clock
        ),
        subscriptions=SubscriptionManager(streams=None, fanout=fanout, views=None, clock=clock),
        fanout=fanout,
        totals=GatewayTotals(),
        make_processor=lambda: EchoProcessor(
            settings=settings,
            tiers=None,
            directory=None,
            limits=None,
            views=None,
            gateway_limits=OPEN_WIDE,
        ),
    )
    return partial(Echo, parts)


class EchoProcessor(CommandProcessor):
    """Accepts long messages without a key."""

    __slots__ = ()

    @property
    def message_bytes_max(self):
        return MESSAGE_BYTES_MAX


class Echo(ClientConnection):
    """Sends back received messages, as text or as bytes."""

    __slots__ = ()

    def _move(self, event, detail=None):
        if event is ConnectionEvent.UPGRADE_ACCEPTED:  # without a welcome, a ping and a key
            self.state = ConnectionState.AUTHENTICATED
        else:
            super()._move(event, detail)

    def message(self, data, *, text):
        if text:
            try:
                data.decode()
            except UnicodeDecodeError:
                self.end(1007, "the message is not UTF-8")
                return
            self.output.send_text(data)
        else:
            frame = frames.text_frame(data)
            self.output.write(bytes((0x82,)) + frame[1:])


async def main(port):
    async def app(scope, receive, send):
        pass

    config = uvicorn.Config(app, port=port, ws=echoing(), lifespan="off", log_level="warning")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
