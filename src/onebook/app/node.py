"""Builds and runs a node that serves clients: feeds, accounts, gateway, REST and pages.

Parts start in the order of `running` and stop in reverse order. The node listens before it has read
the instrument lists, so that clients can connect meanwhile. This module also has the usage file,
the web application, the health report, and the metrics of disk space, backup and certificate.
"""

import asyncio
import gc
import hmac
import logging
import math
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass
from typing import Final, NamedTuple

from fastapi import FastAPI

from onebook import __version__, api, feeds, gateway, http, web
from onebook.accounts import Accounts
from onebook.accounts.pepper import load_pepper, require_same_pepper
from onebook.accounts.periodic import every
from onebook.accounts.usage import UsageFile, apply_files, new_epoch, usage_place
from onebook.api.documents import asyncapi_of
from onebook.api.status import base_url
from onebook.app import feeder
from onebook.app.recording import keep_books, record_history
from onebook.books import Books
from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.config import ExchangeSettings, ServerSettings, Settings, catalogue
from onebook.errors import ConfigError, DatabaseUnavailable
from onebook.gateway.directory import ACTIVE
from onebook.metrics import CERTIFICATE_ENDS, DISK_FREE, LAST_BACKUP
from onebook.model import SECOND_MS
from onebook.nodes.gateway_node import RemoteCatalogue, RemoteSupervisor
from onebook.nodes.key_sharing import KeySharing
from onebook.nodes.nats import NatsBus
from onebook.nodes.presence import new_node_id
from onebook.ops import preflight
from onebook.ops.preflight import publish_build, warn_of_missing_extensions
from onebook.rest import Rest
from onebook.store import Store
from onebook.store.database import BACKED_UP_AT
from onebook.transactions.adapter import AdapterEntry, EventType
from onebook.transactions.collected import Collection
from onebook.transactions.collector import Collector
from onebook.transactions.credentials import Vault, master_keys
from onebook.transactions.registry import adapters_of, exports_of
from onebook.transactions.service import Transactions

ANSWER_MARGIN_S: Final = 60.0  # in addition to the timeout of the longest response
MEASURE_INTERVAL_S: Final = 60.0  # for disk space, backup and certificate
SHOWN_SETTINGS: Final = ("accounts.", "gateway.")  # on the public page: no paths or addresses

log = logging.getLogger("onebook.app")


@dataclass(frozen=True, kw_only=True)
class Node:
    """The parts of a running node."""

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
        """Base URL of the public port."""
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


@asynccontextmanager
async def running(
    settings: Settings,
    *,
    overrides: Mapping[str, ExchangeSettings] | None = None,
    port_shared: bool = False,
    gateway_limits: gateway.GatewayLimits = gateway.LIMITS,
    timeouts: http.HttpTimeouts = http.TIMEOUTS,
) -> AsyncIterator[Node]:
    """Run a node within the context.

    Args:
        settings: The operator's settings.
        overrides: Addresses of simulated or replayed exchanges, by name. If given, no other
            exchange is connected.
        port_shared: Whether other gateways of this user listen on the port too (SO_REUSEPORT).
        gateway_limits: Limits of client connections.
        timeouts: Timeouts of HTTP connections.

    Raises:
        ConfigError: The node cannot start with these settings.
    """
    clock = SYSTEM_CLOCK
    preflight.require(settings)
    settings = feeder.own_settings(settings, overrides)
    async with AsyncExitStack() as stack:
        server = settings.server
        listener, metrics = _listeners(stack, server, port_shared=port_shared)
        store = await stack.enter_async_context(Store(settings.store.url))
        # A pepper file without a database means that it was deleted or moved, so none is created.
        await store.database.upgrade(create=not settings.store.pepper_file.exists())
        peppers = load_pepper(settings.store.pepper_file)
        await require_same_pepper(store, peppers, clock.wall_ms())
        kept_usage = await usage_file(settings, store, clock.wall_ms())
        if kept_usage is not None:
            stack.callback(kept_usage.release)
        await stack.enter_async_context(upkeep(settings, store))
        rest = await stack.enter_async_context(Rest(proxies=settings.feeds.proxies))
        transactions = _transactions(settings, store, peppers.current)
        stack.push_async_callback(transactions.close)
        await stack.enter_async_context(collecting(settings, store, transactions))
        books = Books()
        if settings.node.role == "all":
            await record_history(stack, settings, books)
        listed, supervisor, sharing = await _book_parts(
            stack, settings, overrides, rest=rest, books=books
        )
        if settings.node.role == "all":
            keep_books(settings.history, listed, supervisor)
        accounts = await stack.enter_async_context(
            Accounts(
                store,
                peppers,
                settings=settings.accounts,
                clock=clock,
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
                transfers=listed.transfer,
                limits=gateway_limits,
                history=settings.history.dir,
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
        if port_shared and isinstance(listed, RemoteCatalogue):
            await listed.first_read()  # because no load balancer checks /readyz first
        await stack.enter_async_context(_http(node, clock, listener, metrics, timeouts))
        _freeze_memory()
        node.gateway.connections.on_grown.subscribe(_freeze_memory)
        _report_start(node)
        yield node


def _listeners(
    stack: AsyncExitStack, server: ServerSettings, *, port_shared: bool
) -> tuple[socket.socket, socket.socket | None]:
    """Open the public socket, and the socket of `/metrics` if it has its own port."""
    listening = http.sharing if port_shared else http.listening
    listener = stack.enter_context(listening(server.host, server.port))
    if server.metrics_port is None:
        return listener, None
    return listener, stack.enter_context(http.listening(server.metrics_host, server.metrics_port))


class BookParts(NamedTuple):
    """The sources of books; `sharing` is set only on a gateway with several nodes."""

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
    """Start the feeds of this process or, on a gateway node, the connection to feeds nodes."""
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
    """Return the transaction service with all its exchanges."""
    ours = settings.transactions
    vault = Vault(store.credentials, master_keys(ours))
    exports = exports_of(ours, store, vault)
    return Transactions(
        adapters_of(ours, exports),
        vault,
        cursor_secret=hmac.digest(pepper, b"transaction cursors", "sha256"),
        settings=ours,
        collection=Collection(store.collected, vault, sealed=ours.collect_encrypted),
        exports=exports,
    )


@asynccontextmanager
async def collecting(
    settings: Settings, store: Store, transactions: Transactions
) -> AsyncIterator[None]:
    """Collect the exchange accounts while the node runs, if the settings enable it."""
    collector = Collector(transactions, store.facts, settings=settings.transactions)
    if not settings.transactions.collect_every:
        yield
        return
    task = asyncio.create_task(collector.run(), name="collect transactions")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _http(
    node: Node,
    clock: Clock,
    listener: socket.socket,
    metrics: socket.socket | None,
    timeouts: http.HttpTimeouts,
) -> AbstractAsyncContextManager[None]:
    """Serve REST, pages and WebSocket upgrades on one socket."""
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
        timeouts=timeouts,
        metrics=metrics,
    )


def _report_start(node: Node) -> None:
    """Log the addresses, and missing compiled extensions."""
    warn_of_missing_extensions()
    publish_build()
    log.info("Onebook %s listens on %s.", __version__, node.url)
    if node.metrics_address is not None:
        log.info("Metrics are at %s port %d.", *node.metrics_address)


def _freeze_memory() -> None:
    """gc.freeze() long-lived objects to keep collector pauses short.

    At the start, and whenever many connections were opened: each has a dozen objects, so the
    collector would need a second for a hundred thousand. A frozen object is freed like any other
    unless it is in a cycle, and a closed connection leaves none.
    """
    gc.collect()
    gc.freeze()


async def usage_file(settings: Settings, store: Store, now_ms: int) -> UsageFile | None:
    """Apply the usage files of earlier runs, and create the one of this run.

    Raises:
        ConfigError: The database is unavailable.
    """
    folder, name = usage_place(settings.store, store)
    try:
        await apply_files(folder, name, store, now_ms)
    except DatabaseUnavailable as error:
        raise ConfigError(error.reason) from error
    try:
        return UsageFile.create(folder, name, new_epoch())
    except OSError as error:
        log.warning(
            "Cannot create the usage file in %s (%s); usage will be lost if the node crashes "
            "during a database outage. Set store.usage_dir.",
            folder,
            error.strerror or error,
        )
        return None


@asynccontextmanager
async def upkeep(settings: Settings, store: Store) -> AsyncIterator[None]:
    """Measure disk space, last backup and certificate now and every minute, for `/metrics`."""

    async def measure() -> None:
        await asyncio.to_thread(_measure_files, settings, store)
        at_ms = await store.facts.get(BACKED_UP_AT)
        LAST_BACKUP.set(math.nan if at_ms is None else int(at_ms) / SECOND_MS)

    with suppress(DatabaseUnavailable):  # the store logs it
        await measure()
    task = asyncio.create_task(every(MEASURE_INTERVAL_S, measure, what="Measuring the upkeep"))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _measure_files(settings: Settings, store: Store) -> None:
    ends = preflight.tls_ends(settings.server)
    CERTIFICATE_ENDS.set(math.nan if ends is None else ends.timestamp())
    beside = settings.store.pepper_file if store.database.path is None else store.database.path
    folders = {"data": beside.parent, "usage": usage_place(settings.store, store)[0]}
    for files, folder in folders.items():
        with suppress(OSError):
            DISK_FREE.labels(files).set(shutil.disk_usage(folder).free)


def web_application(node: Node, clock: Clock) -> FastAPI:
    """Return the web application of a node: REST and pages."""
    settings = node.settings
    services = api.Services(
        accounts=node.accounts,
        transactions=node.transactions,
        health=lambda: health_of(node, clock.wall_ms()),
        published_fees=node.catalogue.published_fees,
        book_at=node.gateway.book_at,
        quality=node.gateway.quality,
        recorded=node.gateway.recorded,
        websocket=api.WebSocketFacts(
            gateway.MESSAGES, gateway.ERRORS, gateway.ACTION_ERRORS, gateway.CLOSE_CODES
        ),
        settings=settings.api,
        query_key_allowed=settings.gateway.query_key_allowed,
        metrics_port=node.metrics_address[1] if node.metrics_address is not None else None,
        metrics_token=settings.server.metrics_token.get_secret_value(),
        clock=clock,
    )
    application = api.create_app(services)
    site = web.Site(
        openapi=application.openapi,
        asyncapi=lambda: asyncapi_of(services, web.PLACEHOLDER_URL),
        base_url=lambda request: base_url(request, services),
        exchanges=[section_of(each) for each in node.transactions.exchanges],
        limits=[
            web.DocumentedLimit(each.name, str(each.default), each.meaning)
            for each in catalogue(settings)
            if each.name.startswith(SHOWN_SETTINGS)
        ],
    )
    application.include_router(web.pages(site))
    return application


def section_of(entry: AdapterEntry) -> web.TransactionSection:
    """The section about an exchange on the page of the interface."""
    books = entry.bookkeeping
    unproven = [(books.word(kind), each) for kind, each in books.unproven]
    if books.unheld is not None:
        unproven.append((EventType.HOLDINGS.value, books.unheld))
    return web.TransactionSection(
        entry.name,
        entry.display,
        entry.types,
        advice=entry.advice,
        credentials=tuple(field.label for field in entry.fields),
        hosts=tuple(
            (environment.value, name, url)
            for environment, hosts in entry.hosts.items()
            for name, url in hosts.items()
        ),
        omitted=tuple(entry.omitted.items()),
        unproven=tuple((kind, each.what, each.why) for kind, each in unproven),
        reference=f"/docs/reference/{entry.reference}",
    )


def health_of(node: Node, now_ms: int) -> api.HealthFacts:
    """Return the readiness and problems of a node, for `/readyz` and `/api/v1/health`."""
    states = {name: node.supervisor.state(name) for name in node.supervisor.stats}
    problems = [f"{name} is {state}." for name, state in states.items() if state != ACTIVE]
    reachable = node.accounts.reachable(now_ms)
    if not reachable:
        problems.append("The database does not answer.")
    writable = node.accounts.writable()
    if not writable:
        age_s = node.accounts.meter.flush_age_s()
        problems.append(f"No usage has been written to the database for {age_s:.0f} s.")
    remote = node.supervisor if isinstance(node.supervisor, RemoteSupervisor) else None
    if remote is not None:
        problems += remote.problems()
    return api.HealthFacts(
        ready=reachable and writable and (remote is None or remote.ready),
        draining=node.gateway.draining,
        active_exchanges=sum(state == ACTIVE for state in states.values()),
        problems=tuple(problems),
    )
