"""The one place that knows every part: what a node is made of, in which order it starts and stops.

Parts are entered from the bottom up and left from the top down. SIGTERM drains first: not ready
at once, clients told when to return, meters flushed; a second signal stops without waiting.
"""

import asyncio
import gc
import hmac
import logging
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

from onebook import __version__, api, core, exchanges, feeds, gateway, logs, web
from onebook.accounts import Accounts
from onebook.accounts.pepper import load_pepper
from onebook.api.documents import asyncapi_of
from onebook.books import Books
from onebook.config import ExchangeSettings, FeedSettings, Settings, catalogue
from onebook.errors import ConfigError
from onebook.feeds import listener as feed_listener
from onebook.gateway import direct
from onebook.rest import Rest
from onebook.store import Store
from onebook.transactions.bybit import Bybit
from onebook.transactions.credentials import Vault, master_keys
from onebook.transactions.service import Transactions

log = logging.getLogger("onebook.app")

BACKLOG = 4_096
SHOWN_SETTINGS = ("accounts.", "gateway.")  # on the public page: limits, no paths and addresses
HTTP_STOP_S = 5  # seconds for REST requests under way when everything else has stopped


class SystemClock:
    """The time of this machine.

    `monotonic` is the clock behind the event loop's time, so that callbacks agree with it; the
    loop's own is cut to milliseconds on uvloop, and round trips are shorter than that.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def monotonic(self) -> float:
        """Seconds that only grow."""
        return time.monotonic()

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back at a time of `monotonic`."""
        return self._loop.call_at(when, callback)

    def wall_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True)
class Node:
    """A running service."""

    settings: Settings
    store: Store
    accounts: Accounts
    books: Books
    catalogue: feeds.Catalogue
    supervisor: feeds.Supervisor
    gateway: gateway.Gateway
    transactions: Transactions
    address: tuple[str, int]

    @property
    def url(self) -> str:
        """Where people reach it."""
        scheme = "https" if self.settings.server.tls_cert_file else "http"
        host, port = self.address
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
        return f"{scheme}://{shown}:{port}"


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: the node decides when it ends."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


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
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(_listener(settings))
        store = await stack.enter_async_context(Store(settings.store.url))
        await store.upgrade()
        pepper = load_pepper(settings.store.pepper_file)
        accounts = await stack.enter_async_context(
            Accounts(store, pepper, settings=settings.accounts, clock_ms=clock.wall_ms)
        )
        rest = await stack.enter_async_context(Rest())
        wanted = _feed_settings(settings, overrides)
        known = feeds.enabled(exchanges.EXCHANGES, wanted)
        books = Books()
        listed = feeds.Catalogue(known, rest=rest, settings=wanted)
        supervisor = feeds.Supervisor(
            known, books=books, rest=rest, catalogue=listed, settings=wanted
        )
        await stack.enter_async_context(listed)
        await stack.enter_async_context(supervisor)
        front = await stack.enter_async_context(
            gateway.Gateway(
                settings.gateway,
                accounts=accounts,
                books=books,
                catalogue=listed,
                supervisor=supervisor,
                clock=clock,
            )
        )
        transactions = _transactions(settings, store, pepper)
        stack.push_async_callback(transactions.close)
        node = Node(
            settings=settings,
            store=store,
            accounts=accounts,
            books=books,
            catalogue=listed,
            supervisor=supervisor,
            gateway=front,
            transactions=transactions,
            address=listener.getsockname()[:2],
        )
        await stack.enter_async_context(_http(node, clock, listener))
        _settle_memory()
        _name_the_slow()
        log.info("Onebook %s listens on %s.", __version__, node.url)
        yield node


async def serve(
    settings: Settings,
    *,
    overrides: Mapping[str, ExchangeSettings] | None = None,
    on_started: Callable[[Node], Awaitable[None]] | None = None,
) -> None:
    """Run a node until SIGTERM or SIGINT, then send the clients away and stop."""
    logs.configure(settings.log.level, settings.log.format)
    loop = asyncio.get_running_loop()
    asked, hurried = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (hurried if asked.is_set() else asked).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    try:
        async with running(settings, overrides=overrides) as node:
            if on_started is not None:
                await on_started(node)
            await asked.wait()
            log.info("Stopping: clients leave within %g s.", settings.gateway.drain_s)
            await _first(node.gateway.drain(), hurried.wait())
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    log.info("Stopped.")


async def _first(*waits: Awaitable[object]) -> None:
    """Wait for whichever ends first; the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _listener(settings: Settings) -> Iterator[socket.socket]:
    """The socket, taken before anything else starts: a taken port is the commonest mistake."""
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"Cannot listen on {host} port {port}: {reason}.") from None
    with listener:
        yield listener


def _transactions(settings: Settings, store: Store, pepper: bytes) -> Transactions:
    """The transaction interface with every exchange that it has."""
    ours = settings.transactions
    vault = Vault(store, master_keys(ours))
    return Transactions(
        [Bybit(ours)],
        vault,
        cursor_secret=hmac.digest(pepper, b"transaction cursors", "sha256"),
        settings=ours,
    )


def _feed_settings(
    settings: Settings, overrides: Mapping[str, ExchangeSettings] | None
) -> FeedSettings:
    if overrides is None:
        return settings.feeds
    names = {"exchanges": tuple(overrides), "overrides": dict(overrides)}
    return settings.feeds.model_copy(update=names)


@asynccontextmanager
async def _http(node: Node, clock: SystemClock, listener: socket.socket) -> AsyncIterator[None]:
    """REST, pages and WebSocket upgrades on one socket."""
    settings = node.settings.server
    config = uvicorn.Config(
        _application(node, clock),
        ws=node.gateway.protocol,
        lifespan="off",
        log_config=None,
        access_log=False,  # it would show keys in paths
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=list(node.settings.gateway.forwarded_from),
        timeout_graceful_shutdown=HTTP_STOP_S,
        ssl_certfile=settings.tls_cert_file,
        ssl_keyfile=settings.tls_key_file,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"The TLS certificate cannot be used: {error}.") from None
    server = Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    try:
        yield
    finally:
        server.should_exit = True
        await task


def _application(node: Node, clock: SystemClock) -> FastAPI:
    settings = node.settings
    services = api.Services(
        accounts=node.accounts,
        transactions=node.transactions,
        health=lambda: _health(node, clock.wall_ms()),
        websocket=api.WebSocketFacts(gateway.MESSAGES, gateway.ERRORS, gateway.CLOSE_CODES),
        settings=settings.api,
        query_key_allowed=settings.gateway.query_key_allowed,
        now_ms=clock.wall_ms,
        now_s=clock.monotonic,
    )
    application = api.create_app(services)
    site = web.Site(
        openapi=application.openapi,
        asyncapi=lambda: asyncapi_of(services),
        exchanges=[
            web.TransactionSection(each.name, each.display, each.types)
            for each in node.transactions.exchanges
        ],
        limits=[
            web.Limit(each.name, str(each.default), each.meaning)
            for each in catalogue(settings)
            if each.name.startswith(SHOWN_SETTINGS)
        ],
    )
    application.include_router(web.pages(site))
    return application


def _health(node: Node, now_ms: int) -> api.HealthFacts:
    states = {name: node.supervisor.state(name) for name in node.supervisor.stats}
    problems = [f"{name} is {state}." for name, state in states.items() if state != "active"]
    reachable = node.accounts.reachable(now_ms)
    if not reachable:
        problems.append("The database does not answer.")
    return api.HealthFacts(
        ready=reachable and not node.gateway.hub.draining,
        draining=node.gateway.hub.draining,
        active_exchanges=node.supervisor.active_exchanges(),
        problems=tuple(problems),
    )


def _name_the_slow() -> None:
    """Say which compiled parts are missing, or were compiled for another picows."""
    parts = {"core": core, "first step of frames": feed_listener, "last step to clients": direct}
    missing = [name for name, module in parts.items() if not module.COMPILED]
    if missing:
        log.warning(
            "Pure Python does the work of what is not compiled for this installation, slower: %s. "
            "Installing Onebook again with a C compiler at hand makes it whole.",
            ", ".join(missing),
        )


def _settle_memory() -> None:
    """Take what lives for ever out of the collector's sight: its pauses grow with what it sees."""
    gc.collect()
    gc.freeze()
