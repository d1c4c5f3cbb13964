"""`onebook top`: live status of a node, from its `/metrics` and `/readyz`."""

import json
import ssl
import time
from typing import Annotated, Final

import httpx
import typer
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from onebook import config
from onebook.cli.common import console, fail, reported
from onebook.cli.operator import ConfigFile
from onebook.cli.top_view import Between, Readiness, Scrape, screen
from onebook.errors import InvalidRequest
from onebook.inflate import ACCEPTED, BodyReader, Uninflatable

TIMEOUT_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 16 << 20  # maximum of /metrics; a large node sends about 1 MB
PIPE_ROWS: Final = 10_000  # without a terminal, show everything
ANY_HOST: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104


@reported
def top_command(
    url: Annotated[
        str | None, typer.Option(help="URL of the node; default: from the settings.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="URL of /metrics, if it has its own address."),
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.5, max=60, help="Seconds between two scrapes.")
    ] = 2.0,
    looks: Annotated[
        int,
        typer.Option(
            min=0,
            help=(
                "Print N screens and exit; 0: refresh until Ctrl-C, or a single screen in a pipe."
            ),
        ),
    ] = 0,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do not verify the node's certificate.")
    ] = False,
    file: ConfigFile = None,
) -> None:
    """Show a running node: load, clients, database and exchanges, those with problems first.

    Rates are measured between two scrapes. Press Ctrl-C to stop.

    Example: onebook top --url https://books.example --metrics http://127.0.0.1:9100
    """
    server = config.load(file).server
    public = url or _own_url(server.host, server.port, tls=server.tls_cert_file is not None)
    private = metrics
    if private is None:
        private = public
        if url is None and server.metrics_port is not None:
            private = _own_url(server.metrics_host, server.metrics_port, tls=False)
    # Like the clients: the system's certificate authorities, or those of SSL_CERT_FILE.
    verify = False if insecure else ssl.create_default_context()
    with httpx.Client(timeout=TIMEOUT_S, verify=verify, trust_env=False) as http:
        node = _Node(http, public.rstrip("/"), private.rstrip("/"))
        if looks or not console.is_terminal:
            _print(node, looks or 1, interval)
        else:
            _follow(node, interval)


def _print(node: "_Node", looks: int, interval_s: float) -> None:
    before = node.scrape()
    for _ in range(looks):
        time.sleep(interval_s)
        now = node.scrape()
        console.print(_screen(node, before, now))
        before = now


def _follow(node: "_Node", interval_s: float) -> None:
    """Refresh until Ctrl-C; retries a node that does not answer."""
    before: Scrape | None = node.scrape()
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            try:
                now = node.scrape()
                if before is not None:
                    live.update(_screen(node, before, now), refresh=True)
                before = now
            except InvalidRequest as error:
                live.update(Text(error.message, "bold red"), refresh=True)
                before = None


def _own_url(host: str, port: int, *, tls: bool) -> str:
    if not port:
        fail("server.port is 0, so the port of the node is unknown: use --url.")
    return f"{'https' if tls else 'http'}://{ANY_HOST.get(host, host)}:{port}"


class _Node:
    """HTTP access to the node."""

    def __init__(self, http: httpx.Client, url: str, metrics_url: str) -> None:
        self.url = url
        self._http = http
        self._metrics_url = metrics_url

    def scrape(self) -> Scrape:
        """Fetch the metrics."""
        url = f"{self._metrics_url}/metrics"
        status, body = self._get(url)
        text = body.decode(errors="replace")
        try:
            if status == httpx.codes.OK and "onebook_build_info" in text:
                return Scrape(text, time.monotonic())
        except ValueError:
            raise InvalidRequest(f"{url} sent unreadable metrics.") from None
        raise InvalidRequest(f"{url} returned {status} without Onebook's metrics: set --metrics.")

    def readiness(self) -> Readiness:
        """Fetch the readiness."""
        url = f"{self.url}/readyz"
        try:
            body = json.loads(self._get(url)[1])
            return Readiness(bool(body["ready"]), tuple(body["problems"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidRequest(f"{url} is not an Onebook node.") from None

    def _get(self, url: str) -> tuple[int, bytes]:
        """Fetch a page; returns status and body, of at most `ANSWER_BYTES_MAX`."""
        try:
            with self._http.stream("GET", url, headers={"Accept-Encoding": ACCEPTED}) as answer:
                body = BodyReader(answer.headers.get_list("content-encoding"), ANSWER_BYTES_MAX)
                for part in answer.iter_raw():
                    body.add(part)
                    while body.pending:
                        body.add(b"")
                return answer.status_code, body.end()
        except Uninflatable as error:
            raise InvalidRequest(f"{url} sent an unreadable answer: {error}.") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # "[Errno 111] Connection refused": the number adds nothing.
            reason = str(error).partition("] ")[2] or str(error) or type(error).__name__
            raise InvalidRequest(f"Cannot reach {url}: {reason}.") from None


def _screen(node: _Node, before: Scrape, now: Scrape) -> RenderableType:
    return screen(
        Between(before, now),
        node.readiness(),
        url=node.url,
        wall_s=time.time(),
        width=console.width,
        height=console.height if console.is_terminal else PIPE_ROWS,
    )
