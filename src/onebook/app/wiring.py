"""Builds a node with clients from its parts, in the order in which they start.

Parts are stopped in reverse order. The node listens at once and reads the instrument lists
meanwhile.
"""

import gc
import hmac
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from typing import Final, NamedTuple

from onebook import __version__, feeds, gateway, http
from onebook.accounts import Accounts
from onebook.accounts.pepper import load_pepper, require_same_pepper
from onebook.app import feeder
from onebook.app.node import Node
from onebook.app.upkeep import upkeep
from onebook.app.usage_files import usage_file
from onebook.app.web_application import web_application
from onebook.books import Books
from onebook.clock import Clock
from onebook.config import ExchangeSettings, ServerSettings, Settings
from onebook.nodes.gateway_node import RemoteCatalogue, RemoteSupervisor
from onebook.nodes.key_sharing import KeySharing
from onebook.nodes.nats import NatsBus
from onebook.nodes.presence import new_node_id
from onebook.ops import preflight
from onebook.ops.preflight import publish_build, warn_of_missing_extensions
from onebook.rest import Rest
from onebook.store import Store
from onebook.transactions.credentials import Vault, master_keys
from onebook.transactions.registry import adapters_of
from onebook.transactions.service import Transactions

# Of the longest answer, for what is around its records.
ANSWER_MARGIN_S: Final = 60.0

log = logging.getLogger("onebook.app")


@asynccontextmanager
async def running(
    settings: Settings, *, overrides: Mapping[str, ExchangeSettings] | None = None
) -> AsyncIterator[Node]:
    """Run a node for as long as the context lasts.

    Args:
        settings: The operator's.
        overrides: Where exchanges are instead, by name: simulated or replayed ones. When given,
            no other exchange is connected to.

    Raises:
        ConfigError: The node cannot start with these settings.
    """
    clock = Clock()
    preflight.require(settings)
    settings = feeder.own_settings(settings, overrides)
    async with AsyncExitStack() as stack:
        server = settings.server
        listener, metrics = _listeners(stack, server)
        store = await stack.enter_async_context(Store(settings.store.url))
        # A pepper without a database: the database was deleted or moved.
        await store.database.upgrade(create=not settings.store.pepper_file.exists())
        peppers = load_pepper(settings.store.pepper_file)
        await require_same_pepper(store, peppers, clock.wall_ms())
        kept_usage = await usage_file(settings, store, clock.wall_ms())
        if kept_usage is not None:
            stack.callback(kept_usage.release)
        await stack.enter_async_context(upkeep(settings, store))
        rest = await stack.enter_async_context(Rest())
        transactions = _transactions(settings, store, peppers.current)
        stack.push_async_callback(transactions.close)
        books = Books()
        listed, supervisor, sharing = await _book_parts(
            stack, settings, overrides, rest=rest, books=books
        )
        accounts = await stack.enter_async_context(
            Accounts(
                store,
                peppers,
                settings=settings.accounts,
                clock_ms=clock.wall_ms,
                usage_file=kept_usage,
                limits=None if sharing is None else sharing.rates,
            )
        )
        front = await stack.enter_async_context(
            gateway.Gateway(
                settings.gateway,
                accounts=accounts,
                books=books,
                catalogue=listed,
                supervisor=supervisor,
                clock=clock,
                streams=settings.streams,
                via=listed.via,
                peers=sharing,
                transactions=transactions,
            )
        )
        if sharing is not None:
            front.connections.on_counted.subscribe(sharing.counted)
            sharing.on_counted.subscribe(front.authenticator.trim)
        if isinstance(supervisor, RemoteSupervisor):
            supervisor.on_isolated.subscribe(front.isolated)
        node = Node(
            settings=settings,
            store=store,
            accounts=accounts,
            books=books,
            catalogue=listed,
            supervisor=supervisor,
            gateway=front,
            transactions=transactions,
            tls=preflight.tls_context(settings.server),
            address=listener.getsockname()[:2],
            metrics_address=metrics.getsockname()[:2] if metrics is not None else None,
        )
        if server.port_shared and isinstance(listed, RemoteCatalogue):
            await listed.first_read()  # no load balancer asks /readyz before it sends clients
        await stack.enter_async_context(_http(node, clock, listener, metrics))
        _settle_memory()
        _report_start(node)
        yield node


def _listeners(
    stack: AsyncExitStack, server: ServerSettings
) -> tuple[socket.socket, socket.socket | None]:
    """The socket of the service and, where it has its own, that of `/metrics`."""
    listening = http.sharing if server.port_shared else http.listening
    listener = stack.enter_context(listening(server.host, server.port))
    if server.metrics_port is None:
        return listener, None
    return listener, stack.enter_context(http.listening(server.metrics_host, server.metrics_port))


class BookParts(NamedTuple):
    """Where books come from; `sharing` only on a gateway among several."""

    catalogue: feeds.Catalogue
    supervisor: feeds.Supervisor | RemoteSupervisor
    sharing: KeySharing | None = None


async def _book_parts(
    stack: AsyncExitStack,
    settings: Settings,
    overrides: Mapping[str, ExchangeSettings] | None,
    *,
    rest: Rest,
    books: Books,
) -> BookParts:
    """Start the feeds of this process or, on a gateway, the connection to feeds nodes."""
    if settings.node.role != "gateway":
        parts = await feeder.feeding(stack, settings, overrides, rest=rest, books=books)
        return BookParts(parts.catalogue, parts.supervisor)
    bus = await stack.enter_async_context(NatsBus(settings.nats, name="onebook gateway"))
    catalogue = RemoteCatalogue(rest=rest, settings=settings.feeds)
    supervisor = RemoteSupervisor(
        new_node_id(), bus=bus, books=books, catalogue=catalogue, settings=settings.node
    )
    await stack.enter_async_context(supervisor)
    sharing = await stack.enter_async_context(
        KeySharing(supervisor.presence, bus=bus, tiers=settings.accounts.tiers)
    )
    return BookParts(catalogue, supervisor, sharing)


def _transactions(settings: Settings, store: Store, pepper: bytes) -> Transactions:
    """The transaction interface with every exchange that it has."""
    ours = settings.transactions
    vault = Vault(store.credentials, master_keys(ours))
    return Transactions(
        adapters_of(ours),
        vault,
        cursor_secret=hmac.digest(pepper, b"transaction cursors", "sha256"),
        settings=ours,
    )


def _http(
    node: Node, clock: Clock, listener: socket.socket, metrics: socket.socket | None
) -> AbstractAsyncContextManager[None]:
    """REST, pages and WebSocket upgrades on one socket."""
    limits, transactions = node.settings.gateway, node.settings.transactions
    longest_s = max(transactions.deadline_s, transactions.stream_deadline_s)
    return http.serving(
        web_application(node, clock),
        listener,
        websocket=node.gateway.protocol,
        turns=node.gateway.turns,
        address_limiter=node.gateway.address_limiter,
        connections_max=lambda: limits.connections_max,
        forwarded_from=limits.forwarded_from,
        tls=node.tls,
        settings=node.settings.server,
        answer_timeout_s=longest_s + node.transactions.unread_s + ANSWER_MARGIN_S,
        metrics=metrics,
    )


def _report_start(node: Node) -> None:
    """Log what listens where, and what this installation lacks."""
    warn_of_missing_extensions()
    publish_build()
    log.info("Onebook %s listens on %s.", __version__, node.url)
    if node.metrics_address is not None:
        log.info("Metrics are at %s port %d.", *node.metrics_address)


def _settle_memory() -> None:
    """gc.freeze() long-lived objects to keep collector pauses short."""
    gc.collect()
    gc.freeze()
