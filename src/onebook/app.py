"""The one place that knows every part: what a node is made of, in which order it starts and stops.

Parts are entered from the bottom up and left from the top down. The node listens at once and reads
the lists of exchanges meanwhile. SIGTERM drains first: not ready at once, clients told when to
return, meters flushed; a second signal stops without waiting. SIGHUP reads the settings and the TLS
certificate again: see `onebook.reload`.
"""

import asyncio
import gc
import hmac
import logging
import platform
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI

from onebook import (
    __version__,
    api,
    core,
    feeder,
    feeds,
    gateway,
    http,
    logs,
    preflight,
    reload,
    web,
)
from onebook.accounts import Accounts
from onebook.accounts.pepper import load_pepper
from onebook.accounts.spill import UsageFile, take_in
from onebook.accounts.usage import new_epoch
from onebook.api.documents import asyncapi_of
from onebook.api.status import base_url
from onebook.books import Books
from onebook.clock import SystemClock
from onebook.config import ExchangeSettings, Settings, catalogue
from onebook.errors import ConfigError, DatabaseUnavailable
from onebook.exchanges.contract import Exchange
from onebook.gateway import direct
from onebook.gateway.directory import ACTIVE
from onebook.metrics import BUILD
from onebook.nodes.bus import NatsBus
from onebook.nodes.gateway_node import RemoteCatalogue, RemoteSupervisor
from onebook.nodes.key_sharing import KeySharing
from onebook.nodes.presence import new_node_id
from onebook.rest import Rest
from onebook.store import Store
from onebook.transactions.credentials import Vault, master_keys
from onebook.transactions.registry import adapters_of
from onebook.transactions.service import Transactions

log = logging.getLogger("onebook.app")

COMPILABLE: Final[Mapping[str, Any]] = {
    "core": core,
    "last step to clients": direct,
}
SHOWN_SETTINGS = ("accounts.", "gateway.")  # on the public page: limits, no paths and addresses


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
        """Where people reach it."""
        scheme = "https" if self.settings.server.tls_cert_file else "http"
        host, port = self.address
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
        return f"{scheme}://{shown}:{port}"

    @property
    def lost_bytes(self) -> int:
        """Bytes of usage that could not be written."""
        return self.accounts.lost_bytes

    async def drain(self) -> None:
        """Send the clients away."""
        await self.gateway.drain()


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
    clock = SystemClock()
    preflight.require(settings)
    settings = feeder.own_settings(settings, overrides)
    async with AsyncExitStack() as stack:
        server = settings.server
        listening = http.sharing if server.port_shared else http.listening
        listener = stack.enter_context(listening(server.host, server.port))
        metrics = None
        if server.metrics_port is not None:
            metrics = stack.enter_context(http.listening(server.metrics_host, server.metrics_port))
        store = await stack.enter_async_context(Store(settings.store.url))
        # A pepper without its database means that the database was deleted, or is elsewhere.
        await store.upgrade(create=not settings.store.pepper_file.exists())
        pepper = load_pepper(settings.store.pepper_file)
        usage_file = await _usage_file(settings, store, clock.wall_ms())
        if usage_file is not None:
            stack.callback(usage_file.release)
        accounts = await stack.enter_async_context(
            Accounts(
                store,
                pepper,
                settings=settings.accounts,
                clock_ms=clock.wall_ms,
                usage_file=usage_file,
            )
        )
        rest = await stack.enter_async_context(Rest())
        transactions = _transactions(settings, store, pepper)
        stack.push_async_callback(transactions.close)
        books = Books()
        sharing: KeySharing | None = None
        listed: feeds.Catalogue
        supervisor: feeds.Supervisor | RemoteSupervisor
        if settings.node.role == "gateway":
            bus = await stack.enter_async_context(NatsBus(settings.nats, name="onebook gateway"))
            listed = remote = RemoteCatalogue(rest=rest, settings=settings.feeds)
            supervisor = RemoteSupervisor(
                new_node_id(), bus=bus, books=books, catalogue=remote, settings=settings.node
            )
            await stack.enter_async_context(supervisor)
            sharing = await stack.enter_async_context(
                KeySharing(supervisor.presence, bus=bus, tiers=settings.accounts.tiers)
            )
            accounts.limits = sharing.rates
        else:
            parts = await feeder.feeding(stack, settings, overrides, rest=rest, books=books)
            listed, supervisor = parts.catalogue, parts.supervisor
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
            sharing.on_counted = front.authenticator.trim
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
        _name_the_slow()
        _publish_build()
        log.info("Onebook %s listens on %s.", __version__, node.url)
        if node.metrics_address is not None:
            log.info("Metrics are at %s port %d.", *node.metrics_address)
        yield node


async def serve(
    settings: Settings,
    *,
    overrides: Mapping[str, ExchangeSettings] | None = None,
    on_started: Callable[[Node], Awaitable[None]] | None = None,
    on_listening: Callable[[], None] | None = None,
    reread: Callable[[], Settings] | None = None,
) -> int:
    """Run a node until SIGTERM or SIGINT, then send the clients away and stop.

    Args:
        settings: The operator's.
        overrides: As of `running`.
        on_started: Called when a node with clients listens.
        on_listening: Called when a node of any role listens.
        reread: Reads the settings again at SIGHUP; without it only the certificate is.

    Returns:
        How many bytes of usage could not be written and are lost.
    """
    logs.configure(settings.log.level, settings.log.format, access=settings.log.access)
    logs.capture()
    loop = asyncio.get_running_loop()
    asked, hurried = asyncio.Event(), asyncio.Event()
    started: list[Node | feeder.Feeder] = []

    def signalled() -> None:
        (hurried if asked.is_set() else asked).set()

    def hung_up() -> None:
        if started:
            _reload(started[0], reread, overrides)

    actions = {signal.SIGTERM: signalled, signal.SIGINT: signalled, signal.SIGHUP: hung_up}
    for number, action in actions.items():
        loop.add_signal_handler(number, action)
    try:
        async with _node(settings, overrides) as node:
            started.append(node)
            if on_listening is not None:
                on_listening()
            if on_started is not None and isinstance(node, Node):
                await on_started(node)
            await asked.wait()
            log.info("Stopping: draining clients for up to %g s.", settings.gateway.drain_s)
            await _first(node.drain(), hurried.wait())
    finally:
        for number in actions:
            loop.remove_signal_handler(number)
    log.info("Stopped.")
    return node.lost_bytes


def _node(
    settings: Settings, overrides: Mapping[str, ExchangeSettings] | None
) -> AbstractAsyncContextManager[Node | feeder.Feeder]:
    """A node of the role that the settings name."""
    if settings.node.role == "feeds":
        return feeder.running(settings, overrides=overrides)
    return running(settings, overrides=overrides)


def _reload(
    node: Node | feeder.Feeder,
    reread: Callable[[], Settings] | None,
    overrides: Mapping[str, ExchangeSettings] | None,
) -> None:
    """Take over what can change while the node runs, or nothing where there is a fault."""
    settings = node.settings
    tls = node.tls if isinstance(node, Node) else None
    try:
        new = settings
        if reread is not None:
            new = reread()
            preflight.require(new)
            new = feeder.own_settings(new, overrides)
        if isinstance(node, feeder.Feeder):
            logs.configure(new.log.level, new.log.format, access=new.log.access)
            log.info("SIGHUP: a feeds node reads its log settings again, others at a restart.")
            return
        ccxt_as_now = {"ccxt": settings.feeds.ccxt}
        wanted = feeder.exchanges_in_use(new.feeds.model_copy(update=ccxt_as_now), overrides)
        http.reserve_files(settings.server, new.gateway.connections_max)
        if tls is not None and new.server.tls_cert_file is not None:
            tls.load_cert_chain(new.server.tls_cert_file, new.server.tls_key_file)
    except (ConfigError, OSError) as error:
        log.error("SIGHUP: nothing was changed: %s", error)
        return
    before = feeder.exchanges_in_use(settings.feeds, overrides)
    changes = reload.apply(settings, new)
    logs.configure(settings.log.level, settings.log.format, access=settings.log.access)
    node.accounts.limits_changed()
    node.gateway.limits_changed()
    if isinstance(node.supervisor, feeds.Supervisor):
        _use(node.catalogue, node.supervisor, before, wanted)
    log.info(
        "SIGHUP: the settings and the TLS certificate were read again; changed: %s.",
        ", ".join(changes.applied) or "no setting",
    )
    if changes.restart:
        log.warning("SIGHUP: these take effect at a restart: %s.", ", ".join(changes.restart))


def _use(
    listed: feeds.Catalogue,
    supervisor: feeds.Supervisor,
    before: Mapping[str, Exchange],
    wanted: Mapping[str, Exchange],
) -> None:
    """Remove the exchanges that were switched off; add those that are new or changed."""
    for name in [each for each in before if before[each] != wanted.get(each)]:
        listed.drop(name)
        supervisor.drop(name)
    for name in [each for each in wanted if wanted[each] != before.get(each)]:
        supervisor.add(wanted[name])
        listed.add(wanted[name])


async def _usage_file(settings: Settings, store: Store, now_ms: int) -> UsageFile | None:
    """Take in the usage that earlier runs could not write, and make this run's file for it.

    Raises:
        ConfigError: The database does not take it.
    """
    folder, name = _usage_place(settings, store)
    try:
        await take_in(folder, name, store, now_ms)
    except DatabaseUnavailable as error:
        raise ConfigError(error.reason) from error
    try:
        return UsageFile.create(folder, name, new_epoch())
    except OSError as error:
        log.warning(
            "Usage that the database does not take cannot be kept in %s: %s. "
            "A crash while the database is away loses it; set store.usage_dir.",
            folder,
            error.strerror or error,
        )
        return None


def _usage_place(settings: Settings, store: Store) -> tuple[Path, str]:
    """The folder of usage files, and what their names begin with."""
    beside = settings.store.pepper_file if store.path is None else store.path
    return settings.store.usage_dir or beside.parent, store.name


async def _first(*waits: Awaitable[object]) -> None:
    """Wait for whichever ends first; the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _transactions(settings: Settings, store: Store, pepper: bytes) -> Transactions:
    """The transaction interface with every exchange that it has."""
    ours = settings.transactions
    vault = Vault(store, master_keys(ours))
    return Transactions(
        adapters_of(ours),
        vault,
        cursor_secret=hmac.digest(pepper, b"transaction cursors", "sha256"),
        settings=ours,
    )


def _http(
    node: Node, clock: SystemClock, listener: socket.socket, metrics: socket.socket | None
) -> AbstractAsyncContextManager[None]:
    """REST, pages and WebSocket upgrades on one socket."""
    limits = node.settings.gateway
    return http.serving(
        _application(node, clock),
        listener,
        websocket=node.gateway.protocol,
        turns=node.gateway.turns,
        address_limiter=node.gateway.address_limiter,
        connections_max=lambda: limits.connections_max,
        forwarded_from=limits.forwarded_from,
        tls=node.tls,
        settings=node.settings.server,
        metrics=metrics,
    )


def _application(node: Node, clock: SystemClock) -> FastAPI:
    settings = node.settings
    services = api.Services(
        accounts=node.accounts,
        transactions=node.transactions,
        health=lambda: _health(node, clock.wall_ms()),
        websocket=api.WebSocketFacts(gateway.MESSAGES, gateway.ERRORS, gateway.CLOSE_CODES),
        settings=settings.api,
        query_key_allowed=settings.gateway.query_key_allowed,
        metrics_port=node.metrics_address[1] if node.metrics_address is not None else None,
        now_ms=clock.wall_ms,
        now_s=clock.monotonic,
    )
    application = api.create_app(services)
    site = web.Site(
        openapi=application.openapi,
        asyncapi=lambda: asyncapi_of(services, web.PLACEHOLDER_URL),
        base_url=lambda request: base_url(request, services),
        exchanges=[
            web.TransactionSection(each.name, each.display, each.types)
            for each in node.transactions.exchanges
        ],
        limits=[
            web.DocumentedLimit(each.name, str(each.default), each.meaning)
            for each in catalogue(settings)
            if each.name.startswith(SHOWN_SETTINGS)
        ],
    )
    application.include_router(web.pages(site))
    return application


def _health(node: Node, now_ms: int) -> api.HealthFacts:
    states = {name: node.supervisor.state(name) for name in node.supervisor.stats}
    problems = [f"{name} is {state}." for name, state in states.items() if state != ACTIVE]
    reachable = node.accounts.reachable(now_ms)
    if not reachable:
        problems.append("The database does not answer.")
    writable = node.accounts.writable()
    if not writable:
        age_s = node.accounts.meter.flush_age_s()
        problems.append(f"The database has taken no usage for {age_s:.0f} s.")
    remote = node.supervisor if isinstance(node.supervisor, RemoteSupervisor) else None
    if remote is not None:
        problems += remote.problems()
    return api.HealthFacts(
        ready=reachable and writable and (remote is None or remote.ready),
        draining=node.gateway.draining,
        active_exchanges=sum(state == ACTIVE for state in states.values()),
        problems=tuple(problems),
    )


def _name_the_slow() -> None:
    """Log which compiled extensions are missing, or were compiled for another picows."""
    missing = [name for name, module in COMPILABLE.items() if not module.COMPILED]
    if missing:
        log.warning(
            "Compiled extensions unavailable (%s); using the slower pure-Python versions. "
            "Reinstall with a C compiler.",
            ", ".join(missing),
        )


def _publish_build() -> None:
    """Set the build information metric."""
    compiled = all(module.COMPILED for module in COMPILABLE.values())
    python = platform.python_version()
    BUILD.info({"version": __version__, "python": python, "compiled": "yes" if compiled else "no"})


def _settle_memory() -> None:
    """gc.freeze() long-lived objects to keep collector pauses short."""
    gc.collect()
    gc.freeze()
