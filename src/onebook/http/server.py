"""The HTTP server: REST, pages and WebSocket upgrades on one port."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import uvicorn

from onebook.clock import next_tick
from onebook.config import ServerSettings
from onebook.http.connection import HttpConnection, InputTurns
from onebook.http.deadlines import Deadlines
from onebook.http.embedded import EmbeddedServer
from onebook.http.listeners import BACKLOG, AcceptWatch, reserve_files
from onebook.http.socket_limits import PROBES_MAX, AddressCounter, Sockets
from onebook.metrics import LOOP_LAG

KEEP_ALIVE_TIMEOUT_S: Final = 5.0  # that an idle connection is kept open
TICK_S: Final = 0.25
STOP_S: Final = 5  # for requests under way when everything else has stopped

log = logging.getLogger("onebook.http")


class HttpServer(EmbeddedServer):
    """The server of the one port, with deadlines for the beginning and the end of TLS.

    The socket of `/metrics` speaks plain HTTP.
    """

    def __init__(
        self, config: uvicorn.Config, *, settings: ServerSettings, metrics: socket.socket | None
    ) -> None:
        super().__init__(config)
        self._metrics = metrics
        self._settings = settings

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on the sockets given."""
        config, settings = self.config, self._settings
        self.servers = [
            await asyncio.get_running_loop().create_server(
                lambda: config.http_protocol_class(  # type: ignore[call-arg]
                    config=config, server_state=self.server_state, app_state={}
                ),
                sock=each,
                backlog=BACKLOG,
                **(_tls(config.ssl, settings) if config.ssl and each is not self._metrics else {}),
            )
            for each in sockets or ()
        ]
        self.started = True


def _tls(context: ssl.SSLContext, settings: ServerSettings) -> dict[str, Any]:
    """The options of a listener with TLS: its handshake and its end have deadlines too."""
    return {
        "ssl": context,
        "ssl_handshake_timeout": settings.header_timeout_s,
        "ssl_shutdown_timeout": settings.write_timeout_s,
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
    keep_alive_timeout_s: float = KEEP_ALIVE_TIMEOUT_S,
    metrics: socket.socket | None = None,
) -> AsyncIterator[None]:
    """Serve REST, pages and WebSocket upgrades on one socket for as long as the context lasts.

    `connections_max` returns the limit of WebSocket connections, which may change meanwhile.
    `answer_timeout_s` is for a request and its answer, longer than the application ever takes;
    `keep_alive_timeout_s` is how long an idle connection is kept.
    `metrics` is a second listener without WebSocket; the application tells its requests apart by
    their port. Its sockets count among all.

    Raises:
        ConfigError: The process may not open enough files.
    """
    reserve_files(settings, connections_max())
    deadlines = Deadlines(
        settings, answer_timeout_s=answer_timeout_s, keep_alive_timeout_s=keep_alive_timeout_s
    )
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
        ws=websocket or "none",  # type: ignore[arg-type]  # it calls it, as any factory
        lifespan="off",
        log_config=None,
        access_log=False,  # its log would show keys in paths
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=list(forwarded_from),
        timeout_graceful_shutdown=STOP_S,
    )
    config.load()
    config.ssl = tls
    server = HttpServer(config, settings=settings, metrics=metrics)
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
    """One timer for every connection."""
    while True:
        now_s = time.monotonic()
        due_s = next_tick(now_s, TICK_S)
        await asyncio.sleep(due_s - now_s)
        LOOP_LAG.observe(max(0.0, time.monotonic() - due_s))
        try:
            deadlines.check()
            watch.check()
        except Exception:
            # An exception in one check must not end the checks: sockets would stay open.
            log.exception("Checking the deadlines of HTTP connections failed.")
