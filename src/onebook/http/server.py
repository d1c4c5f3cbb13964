"""uvicorn as the server of the public port: listening sockets, TLS deadlines, start and stop."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import uvicorn
from prometheus_client import Gauge

from onebook import sockets
from onebook.clock import next_tick
from onebook.config import ServerSettings
from onebook.errors import ConfigError
from onebook.http.connection import (
    TIMEOUTS,
    Deadlines,
    HttpConnection,
    HttpTimeouts,
    InputTurns,
)
from onebook.http.socket_limits import PROBES_MAX, AddressCounter, Sockets
from onebook.metrics import LOOP_LAG

BACKLOG: Final = 4_096
FILES_RESERVE: Final = 256  # file descriptors for feeds, database and logs

ACCEPT_FAILING: Final = Gauge(
    "onebook_accept_failing",
    "1 while sockets cannot be accepted: the process is out of file descriptors.",
)

log = logging.getLogger("onebook.http")


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Bind a socket before anything else starts, because a port in use is the most common error.

    Raises:
        ConfigError: The address is in use or not permitted.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise _cannot_listen(host, port, error) from None
    with listener:
        sockets.send_at_once(listener)
        yield listener


@contextmanager
def sharing(host: str, port: int) -> Iterator[socket.socket]:
    """Bind a socket to a port that processes of this user share (SO_REUSEPORT).

    It listens only once the server starts; from then on the kernel assigns clients to it.

    Raises:
        ConfigError: The port is in use by a process that does not share it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # like `create_server`
        try:
            bound.bind((host, port))
        except OSError as error:
            raise _cannot_listen(host, port, error) from None
        sockets.send_at_once(bound)
        yield bound


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(f"Cannot listen on {host} port {port}: {error.strerror or error}.")


def reserve_files(settings: ServerSettings, connections_max: int) -> None:
    """Raise the limit of open files as these limits require.

    Raises:
        ConfigError: The system does not permit that many open files.
    """
    sockets_max = connections_max + settings.http_connections_max
    sockets.raise_file_limit(sockets_max + PROBES_MAX + FILES_RESERVE)


class AcceptWatch:
    """Reports failing accepts, which the event loop only logs."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._failing = False

    def check(self) -> None:
        """Log when accepts start and stop failing."""
        failing = sockets.files_exhausted(self._listener.fileno())
        if failing and not self._failing:
            log.error("Cannot accept connections: the process is out of file descriptors.")
        elif self._failing and not failing:
            log.info("Connections can be accepted again.")
        self._failing = failing
        ACCEPT_FAILING.set(failing)


DATE_S: Final = 1.0  # interval of renewing the Date header


class EmbeddedServer(uvicorn.Server):
    """uvicorn without signal handlers and without its ten ticks per second on an idle node."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Stop serving: `serve` closes all connections and returns."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Renew the Date header until the server stops."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(DATE_S):
                    await self._ending.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers: the node decides when to stop."""
        yield


TICK_S: Final = 0.25
STOP_S: Final = 5  # timeout of running requests after everything else has stopped


class HttpServer(EmbeddedServer):
    """The server of the public port, with deadlines for the start and end of TLS.

    The socket of `/metrics` speaks plain HTTP.
    """

    def __init__(
        self, config: uvicorn.Config, *, timeouts: HttpTimeouts, metrics: socket.socket | None
    ) -> None:
        super().__init__(config)
        self._metrics = metrics
        self._timeouts = timeouts

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on the given sockets."""
        config, timeouts = self.config, self._timeouts
        self.servers = [
            await asyncio.get_running_loop().create_server(
                lambda: config.http_protocol_class(  # type: ignore[call-arg]
                    config=config, server_state=self.server_state, app_state={}
                ),
                sock=each,
                backlog=BACKLOG,
                **(_tls(config.ssl, timeouts) if config.ssl and each is not self._metrics else {}),
            )
            for each in sockets or ()
        ]
        self.started = True


def _tls(context: ssl.SSLContext, timeouts: HttpTimeouts) -> dict[str, Any]:
    """Return the options of a TLS listener, with deadlines for handshake and shutdown."""
    return {
        "ssl": context,
        "ssl_handshake_timeout": timeouts.header_s,
        "ssl_shutdown_timeout": timeouts.write_s,
    }


@asynccontextmanager
async def serving(
    application: Any,
    listener: socket.socket,
    *,
    websocket: Callable[..., asyncio.Protocol] | None,
    turns: InputTurns,
    address_limiter: AddressCounter,
    connections_max: Callable[[], int],
    forwarded_from: Sequence[str],
    tls: ssl.SSLContext | None,
    settings: ServerSettings,
    answer_timeout_s: float,
    timeouts: HttpTimeouts = TIMEOUTS,
    metrics: socket.socket | None = None,
) -> AsyncIterator[None]:
    """Serve REST, pages and WebSocket upgrades on one socket within the context.

    `connections_max` returns the present limit of WebSocket connections. `answer_timeout_s` limits
    a request with its response and exceeds the timeouts of the application; `timeouts` are for the
    other states of a connection. `metrics` is a second listener without WebSocket, whose requests
    the application recognises by their port. Its sockets count as client sockets.

    Raises:
        ConfigError: The process may not open enough files.
    """
    reserve_files(settings, connections_max())
    deadlines = Deadlines(timeouts, answer_timeout_s=answer_timeout_s)
    bound = {
        "turns": turns,
        "deadlines": deadlines,
        "counted": Sockets(
            address_limiter,
            sockets_max=lambda: connections_max() + settings.http_connections_max,
            probes_max=PROBES_MAX,
        ),
        "metrics_port": metrics.getsockname()[1] if metrics is not None else None,
    }
    config = uvicorn.Config(
        application,
        http=type("BoundHttpConnection", (HttpConnection,), bound),
        ws=websocket or "none",  # type: ignore[arg-type] # uvicorn calls it as a factory
        lifespan="off",
        log_config=None,
        access_log=False,  # uvicorn's log would contain keys in paths
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=list(forwarded_from),
        timeout_graceful_shutdown=STOP_S,
    )
    config.load()
    config.ssl = tls
    server = HttpServer(config, timeouts=timeouts, metrics=metrics)
    watch = AcceptWatch(listener)
    listeners = [listener] if metrics is None else [listener, metrics]
    serving = asyncio.create_task(server.serve(sockets=listeners), name="http")
    checking = asyncio.create_task(_check(deadlines, watch), name="http-deadlines")
    try:
        yield
    finally:
        server.end()
        await serving
        checking.cancel()
        await asyncio.gather(checking, return_exceptions=True)


async def _check(deadlines: Deadlines, watch: AcceptWatch) -> None:
    """Run one timer for all connections."""
    while True:
        now_s = time.monotonic()
        due_s = next_tick(now_s, TICK_S)
        await asyncio.sleep(due_s - now_s)
        LOOP_LAG.observe(max(0.0, time.monotonic() - due_s))
        try:
            deadlines.check()
            watch.check()
        except Exception:
            # An exception must not stop the checks, or sockets would stay open.
            log.exception("Checking the deadlines of HTTP connections failed.")
