"""A running node: its parts, its addresses, and its drain."""

import ssl
from dataclasses import dataclass

from onebook import feeds, gateway
from onebook.accounts import Accounts
from onebook.books import Books
from onebook.config import Settings
from onebook.nodes.gateway_node import RemoteSupervisor
from onebook.store import Store
from onebook.transactions.service import Transactions


@dataclass(frozen=True, kw_only=True)
class Node:
    """A running service."""

    settings: Settings
    store: Store
    accounts: Accounts
    books: Books
    catalogue: feeds.Catalogue
    supervisor: feeds.Supervisor | RemoteSupervisor
    gateway: gateway.Gateway
    transactions: Transactions
    tls: ssl.SSLContext | None
    address: tuple[str, int]
    metrics_address: tuple[str, int] | None

    @property
    def url(self) -> str:
        """Base URL of its public port."""
        scheme = "https" if self.settings.server.tls_cert_file else "http"
        host, port = self.address
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
        return f"{scheme}://{shown}:{port}"

    @property
    def lost_bytes(self) -> int:
        """Bytes of usage that could not be written."""
        return self.accounts.lost_bytes

    async def drain(self) -> None:
        """Drain the clients."""
        await self.gateway.drain()
