"""Checks of the network: the service's port, connections to exchanges, and clock skew."""

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from statistics import median
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpx

from onebook import __version__
from onebook.config import ServerSettings, Settings
from onebook.doctor.findings import Finding, fault, ok, warning
from onebook.errors import ConfigError
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Exchange
from onebook.feeds import enabled
from onebook.times import s_of_http_date

AT_ONCE_MAX: Final = 8
SKEW_WARNING_S: Final = 1.5  # a Date header has whole seconds
SKEW_FAULT_S: Final = 5.0  # exchanges refuse signed requests of this age
REFUSED: Final = {403, 451}  # by country or by address
PORTS: Final = {"ws": 80, "http": 80, "wss": 443, "https": 443}
CLOCK_ADVICE: Final = "Run an NTP client (chrony or systemd-timesyncd): timedatectl set-ntp true"
LIVE_CHECK: Final = "To check their protocols too: onebook exchanges check --live"
FIREWALL_ADVICE: Final = (
    "Allow DNS and outgoing TCP to this host and port, or leave it out of feeds.exchanges."
)


class ExchangeAnswer(NamedTuple):
    """What an exchange's servers answered; `skew_s` is our clock minus theirs."""

    problem: str = ""
    advice: str = ""
    skew_s: float | None = None


async def network_findings(settings: Settings, *, exchanges_too: bool = True) -> list[Finding]:
    """Examine the service's port and, unless disabled, the connection to every exchange in use."""
    server = settings.server
    found = [await _port(server)]
    if server.metrics_port:
        found += _metrics_ports(server, settings.node.workers, running="A node" in found[0].message)
    if not exchanges_too:
        return found
    try:
        wanted = enabled(EXCHANGES, settings.feeds)
    except ConfigError:
        return found  # a fault of the settings, which are examined elsewhere
    direct = {name: each for name, each in wanted.items() if not each.via}
    answers = await _ask_all(direct, settings.feeds.connect_timeout_s)
    found += _reached(answers)
    found += _clock([each.skew_s for each in answers.values() if each.skew_s is not None])
    return found


async def _port(server: ServerSettings) -> Finding:
    """Whether the port is free, or what answers there."""
    place = f"{server.host} port {server.port}"
    reason = _bound(server.host, server.port)
    if reason is None:
        return ok("port", f"{place} is free.")
    # Any program may listen there, and answer anything.
    with suppress(httpx.HTTPError, ValueError, KeyError, TypeError, RecursionError):
        return await _node(server, place)
    return fault(
        "port",
        f"The service cannot listen on {place}: {reason}.",
        "Stop the program that listens there (ss -ltnp), or set server.host and server.port.",
    )


def _metrics_ports(server: ServerSettings, workers: int, *, running: bool) -> Iterator[Finding]:
    """Whether the ports of /metrics are free, while no node runs that has them."""
    host, first = server.metrics_host, server.metrics_port
    assert first is not None
    for port in range(first, first + 1 + workers):
        problem = _bound(host, port)
        if problem is None:
            yield ok("metrics port", f"{host} port {port} is free.")
        elif running:
            yield ok("metrics port", f"{host} port {port} is in use, and a node runs.")
        else:
            yield fault(
                "metrics port",
                f"/metrics cannot listen on {host} port {port}: {problem}.",
                "Stop the program that listens there (ss -ltnp), or set server.metrics_port.",
            )


def _bound(host: str, port: int) -> str | None:
    """Why a port cannot be bound; None where it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # As the service binds it: a port in TIME_WAIT counts as free.
        with socket.create_server((host, port), family=family):
            return None
    except OSError as error:
        return error.strerror or str(error)


async def _node(server: ServerSettings, place: str) -> Finding:
    scheme = "https" if server.tls_cert_file else "http"
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(server.host, server.host)  # noqa: S104
    # This machine's own certificate: its name is the public one.
    async with httpx.AsyncClient(verify=False, timeout=5, trust_env=False) as http:  # noqa: S501
        answer = (await http.get(f"{scheme}://{host}:{server.port}/readyz")).json()
    if answer["ready"] and not answer["problems"]:
        return ok("port", f"A node listens on {place} and is ready.")
    problems = " ".join(answer["problems"]) or "it is not ready."
    advice = "See the log of the node; docs/guides/operate.md explains each problem."
    make = warning if answer["ready"] else fault
    return make("port", f"A node listens on {place}: {problems}", advice)


async def _ask_all(
    exchanges: Mapping[str, Exchange], timeout_s: float
) -> dict[str, ExchangeAnswer]:
    places = asyncio.Semaphore(AT_ONCE_MAX)
    headers = {"User-Agent": f"onebook/{__version__}"}
    async with httpx.AsyncClient(timeout=timeout_s, headers=headers) as http:

        async def ask(exchange: Exchange) -> ExchangeAnswer:
            async with places:
                return await _ask(exchange, http, timeout_s)

        answers = await asyncio.gather(*map(ask, exchanges.values()))
    return dict(zip(exchanges, answers, strict=True))


async def _ask(exchange: Exchange, http: httpx.AsyncClient, timeout_s: float) -> ExchangeAnswer:
    try:
        async with asyncio.timeout(timeout_s):
            await _connect(exchange.ws_url)
    except (OSError, TimeoutError) as error:
        return ExchangeAnswer(_reason(exchange.ws_url, error), FIREWALL_ADVICE)
    began_s = time.time()
    try:
        answer = await http.head(exchange.rest_url)
    except httpx.HTTPError as error:
        return ExchangeAnswer(_reason(exchange.rest_url, error), FIREWALL_ADVICE)
    if answer.status_code in REFUSED:
        advice = "It refuses this address or country: leave it out of feeds.exchanges."
        return ExchangeAnswer(f"{_host(exchange.rest_url)} answers {answer.status_code}.", advice)
    return ExchangeAnswer(skew_s=skew_s(answer.headers.get("date", ""), began_s, time.time()))


def skew_s(date: str, began_s: float, ended_s: float) -> float | None:
    """Our clock minus theirs, from a Date header of whole seconds; None without one."""
    try:
        theirs_s = s_of_http_date(date)
    except ValueError:
        return None
    return (began_s + ended_s) / 2 - (theirs_s + 0.5)


async def _connect(url: str) -> None:
    """TCP and, if the address has it, TLS; no byte of a protocol above."""
    parts = urlsplit(url)
    tls = ssl.create_default_context() if parts.scheme in ("wss", "https") else None
    port = parts.port or PORTS[parts.scheme]
    _, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _reason(url: str, error: BaseException) -> str:
    if isinstance(error, (TimeoutError, httpx.TimeoutException)):
        return f"{_host(url)} does not answer in time."
    return f"{_host(url)} cannot be reached: {error}."


def _reached(answers: Mapping[str, ExchangeAnswer]) -> Iterator[Finding]:
    bad = {name: each for name, each in answers.items() if each.problem}
    if bad and len(bad) == len(answers):
        name, first = next(iter(bad.items()))
        message = f"None of {len(answers)} can be reached; {name}: {first.problem}"
        yield fault("exchanges", message, first.advice)
        return
    for name, each in bad.items():
        yield warning("exchanges", f"{name}: {each.problem}", each.advice)
    if answers:
        reached = f"{len(answers) - len(bad)} of {len(answers)} can be reached."
        yield ok("exchanges", f"{reached} {LIVE_CHECK}")


def _clock(skews_s: list[float]) -> list[Finding]:
    """Compare with the median of the exchanges: one of them may be wrong."""
    if not skews_s:
        advice = "Check it by hand: timedatectl, chronyc tracking."
        return [warning("clock", "No exchange returned its time.", advice)]
    middle_s = median(skews_s)
    shown = f"The clock is {abs(middle_s):.1f} s {'ahead of' if middle_s > 0 else 'behind'}"
    shown += f" that of {len(skews_s)} exchanges."
    if abs(middle_s) >= SKEW_FAULT_S:
        return [fault("clock", shown, CLOCK_ADVICE)]
    if abs(middle_s) >= SKEW_WARNING_S:
        return [warning("clock", shown, CLOCK_ADVICE)]
    return [ok("clock", f"It agrees with that of {len(skews_s)} exchanges within 1.5 s.")]
