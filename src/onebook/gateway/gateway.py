"""The gateway as one thing to start and stop: hub, streams and keeper on one event loop."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol, Self

from onebook.accounts import Accounts
from onebook.books import Books
from onebook.config import GatewaySettings, StreamSettings
from onebook.feeds import Catalogue
from onebook.gateway import directory as directories
from onebook.gateway.directory import Directory
from onebook.gateway.hub import Hub
from onebook.gateway.keeper import Keeper
from onebook.gateway.protocol import Connection
from onebook.streams import Clock, Streams, ports


class Supervisor(ports.Supervisor, directories.Supervisor, Protocol):
    """Who keeps the books, and knows how the exchanges do."""


class Gateway:
    """Serves WebSocket clients while it is entered; `protocol` is for `uvicorn.Config(ws=...)`.

    Made in a running event loop. `via` names the library of each exchange that comes through one.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        accounts: Accounts,
        books: Books,
        catalogue: Catalogue,
        supervisor: Supervisor,
        clock: Clock,
        streams: StreamSettings | None = None,
        via: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        directory = Directory(catalogue, supervisor, monotonic=clock.monotonic, via=via)
        self.hub = Hub(settings, accounts=accounts, directory=directory, clock=clock)
        self.streams = self.hub.streams = Streams(
            books=books,
            supervisor=supervisor,
            catalogue=catalogue,
            publisher=self.hub.fanout,
            clock=clock,
            settings=streams,
        )
        directory.expected_gb = self.streams.expected_gb
        self.keeper = Keeper(self.hub)
        self.protocol: type[Connection] = self.hub.protocol

    async def __aenter__(self) -> Self:
        await self.keeper.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.keeper.__aexit__(*details)
        self.streams.stop()

    async def drain(self) -> None:
        """Send every client away within the settings' drain time, and take no more."""
        await self.keeper.drain()
