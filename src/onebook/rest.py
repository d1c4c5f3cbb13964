"""Outgoing HTTP to exchanges: budgets, timeouts, retries and one clear error.

It deals with hosts only: callers build paths and parse bodies. When a host answers 429, 418 or 503
with Retry-After (RFC 9110 section 10.2.3), all requests to it wait.

httpx supports HTTP CONNECT proxies itself. For SOCKS it needs another package, and leaks the socket
if the proxy refuses, so `SocksBackend` opens those connections with the package that picows uses.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from http.cookiejar import CookieJar
from typing import Any, Final, NamedTuple, Self

import anyio
import httpcore
import httpx
from python_socks import ProxyError
from python_socks.async_.asyncio import Proxy

from onebook.backoff import TryAgain, full_jitter_s, retried
from onebook.clock import SYSTEM_CLOCK, Clock, s_of_http_date
from onebook.errors import ExchangeFailed
from onebook.exchanges.kit import FETCHES_BURST, Limit, Quota, Scope, bucket_within
from onebook.inflate import ACCEPTED, TooLong, Uninflatable, read_body
from onebook.proxies import ENVIRONMENT, Proxies

CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 10.0  # also for writing, and for waiting for a pooled connection
TOTAL_S: Final = 60.0  # one request, waits and retries included
ATTEMPTS_MAX: Final = 5
RETRY_BASE_S: Final = 0.5
RETRY_MAX_S: Final = 10.0
BODY_BYTES_MAX: Final = 32 << 20  # the longest instrument list known is about half of this
UNSTATED: Final = (Limit(600, 60.0, Scope.ADDRESS),)  # for a host without known limits, in weight
HOLD_S: Final = {418: 120.0, 429: 10.0, 503: 0.0}  # pause by status, without a Retry-After
HOLD_MAX_S: Final = 3_600.0  # longer Retry-After values are cut
UNSENT: Final = (httpx.ConnectError, httpx.ConnectTimeout)  # before a request was written
RETRIED: Final = frozenset((418, 429, 500, 502, 503, 504))
CONNECTIONS_MAX: Final = 64
SPARE_SHARE: Final = 0.5  # of a burst, reserved: deferrable requests do not use it
RELEASE_S: Final = 5.0  # a cancelled request closes its connection within this
CLOSE_S: Final = 2.0  # time limit of closing a connection
JSON: Final = {"Content-Type": "application/json"}
SAFE_METHODS: Final = frozenset(("GET", "HEAD"))  # nothing else is sent twice


class Answer(NamedTuple):
    """An HTTP response of any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Timed(NamedTuple):
    """The body of an answer, and the monotonic times of request and arrival."""

    body: bytes
    sent_at: float
    received_at: float


def _has_no_password(record: logging.LogRecord) -> bool:
    """Return whether a log record of httpcore is without the password of a proxy."""
    return "roxy-Authorization" not in record.getMessage()


# httpcore logs each step at level DEBUG with the headers, for programs that ask for it.
for _logger in ("httpcore.connection", "httpcore.http11", "httpcore.proxy"):
    logging.getLogger(_logger).addFilter(_has_no_password)


class NoCookies(CookieJar):
    """Drops cookies: no exchange's API needs any, and a cookie jar grows without bound."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Keep nothing."""


class Wire:
    """Sends requests over an httpx client and reads whole responses; cancelling leaks nothing.

    httpcore returns a connection to its pool under anyio's shield, which protects only against
    anyio's own cancellation: `Task.cancel` during `aclose` would leak the connection. Every request
    therefore runs in its own task, which is cancelled through an anyio scope, and the caller waits
    until that task has ended.

    Args:
        client: Closed with this object.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._under_way: dict[asyncio.Task[Answer], anyio.CancelScope] = {}

    @property
    def in_use(self) -> int:
        """Number of pool connections that are assigned to a request; 0 without a pool."""
        pool = getattr(self._client._transport, "_pool", None)
        if pool is None or self._client._mounts:  # with proxies there are several pools
            return len(self._under_way)
        return len(pool._requests)

    async def close(self) -> None:
        """Cancel all requests and close every connection."""
        for scope in self._under_way.values():
            scope.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=RELEASE_S)
        await self._client.aclose()

    async def answer(self, request: httpx.Request, *, bytes_max: int, total_s: float) -> Answer:
        """Send a request and read the whole answer.

        Raises:
            TimeoutError: The answer is not complete within `total_s`.
            TooLong: The body is longer than `bytes_max`, as received or inflated.
            Uninflatable: Its Content-Encoding is not supported, or it is damaged.
            httpx.TransportError
        """
        scope = anyio.CancelScope()
        reading = self._read(request, bytes_max, scope)
        task = asyncio.create_task(reading, name=f"GET {request.url.path}")
        self._under_way[task] = scope
        task.add_done_callback(self._under_way.pop)
        try:
            async with asyncio.timeout(total_s):
                return await asyncio.shield(task)
        finally:
            if not task.done():
                scope.cancel()
                await ended(task, RELEASE_S)

    async def _read(
        self, request: httpx.Request, bytes_max: int, scope: anyio.CancelScope
    ) -> Answer:
        with scope:
            request.headers["Accept-Encoding"] = ACCEPTED
            response = await self._client.send(request, stream=True)
            try:
                assert isinstance(response.stream, httpx.AsyncByteStream)
                encodings = response.headers.get_list("content-encoding")
                body = await read_body(response.stream, encodings, bytes_max=bytes_max)
                return Answer(response.status_code, response.headers, body)
            finally:
                await response.aclose()
        raise asyncio.CancelledError


async def ended(task: asyncio.Task[Answer], timeout_s: float) -> None:
    """Wait until a task has ended, even if cancelled meanwhile; its result is dropped."""
    cancelled: asyncio.CancelledError | None = None
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_s
    while not task.done() and (left_s := until_s - loop.time()) > 0:
        try:
            await asyncio.wait((task,), timeout=left_s)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


class Host:
    """Rate limit and pauses of one host.

    Half of a window's budget may be used at once and the other half is refilled evenly, so no
    window exceeds the budget, regardless of its start.
    """

    __slots__ = ("held_until", "holds", "quota")

    def __init__(self, limits: Sequence[Limit], holds: Mapping[int, float] = HOLD_S) -> None:
        self.holds = holds  # seconds by status, if the answer has no Retry-After
        self.quota = Quota([bucket_within(each, FETCHES_BURST) for each in limits])
        self.held_until = 0.0

    def wait_s(self, weight: float, now: float) -> float:
        """Return the seconds that a request of `weight` would wait now."""
        return max(self.held_until - now, self.quota.wait_s(weight, now))

    def spares(self, weight: float, now: float) -> bool:
        """Whether a request of `weight` may be sent now and leaves enough for a burst."""
        return self.held_until <= now and self.quota.spares(weight, SPARE_SHARE, now)


@cache
def trusted_authorities(*, environment: bool = True) -> ssl.SSLContext:
    """Certificate authorities for outgoing HTTPS, read once: parsing them takes 20 ms.

    Args:
        environment: Whether `SSL_CERT_FILE` and `SSL_CERT_DIR` replace those of this package.
    """
    return httpx.create_ssl_context(trust_env=environment)


def _client(proxies: Proxies) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=CONNECTIONS_MAX)

    def transport(proxy: str | None) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(verify=trusted_authorities(), limits=limits, proxy=proxy)

    return httpx.AsyncClient(
        timeout=httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        limits=limits,
        follow_redirects=False,
        verify=trusted_authorities(),
        cookies=NoCookies(),
        mounts={"all://": ProxiedTransport(proxies, transport)} if proxies.any else None,
        trust_env=False,
    )


class Rest:
    """The one HTTP client of the node.

    Args:
        client: Created here if None; closed with this object in both cases.
        proxies: Chooses the proxy of a client created here.
        clock: Times the waits.
        jitter: Returns a number in [0, 1) for each retry.
    """

    def __init__(
        self,
        client: httpx.AsyncClient | None = None,
        *,
        proxies: Proxies = ENVIRONMENT,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._client = client or _client(proxies)
        self._wire = Wire(self._client)
        self._clock = clock
        self._jitter = jitter
        self._hosts: dict[str, Host] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._wire.close()

    @property
    def connections_in_use(self) -> int:
        """Number of connections that are assigned to a request."""
        return self._wire.in_use

    def budget(
        self, url: str, limits: Sequence[Limit], holds: Mapping[int, float] | None = None
    ) -> None:
        """Set the limits of the host of `url`, in its weight units.

        `holds` are pauses in seconds by status, in addition to those of `HOLD_S`.
        """
        name = authority(httpx.URL(url))
        if name not in self._hosts:
            self._hosts[name] = Host(limits, HOLD_S | dict(holds or {}))

    def spares(self, url: str, weight: float) -> bool:
        """Whether the host of `url` has budget for a deferrable request."""
        name = authority(httpx.URL(url))
        host = self._hosts.setdefault(name, Host(UNSTATED))
        return host.spares(weight, self._clock.monotonic())

    async def get(
        self,
        url: str,
        *,
        weight: float = 1,
        total_s: float = TOTAL_S,
        bytes_max: int = BODY_BYTES_MAX,
    ) -> bytes:
        """GET a URL and return the body of a 200 response, of at most `bytes_max` bytes.

        Raises:
            ExchangeFailed: No such response within `total_s` and the retries.
        """
        answer = await self.send("GET", url, weight=weight, total_s=total_s, bytes_max=bytes_max)
        return data_of(answer, url)

    async def timed(self, url: str, *, weight: float = 1, total_s: float, bytes_max: int) -> Timed:
        """GET a URL once and time it; the wait for the budget is not included.

        Raises:
            ExchangeFailed: No 200 response within `total_s`.
        """
        request = self._client.build_request("GET", url)
        name = authority(request.url)
        deadline = self._clock.monotonic() + total_s
        await self._wait_turn(name, weight, deadline)
        sent_at = self._clock.monotonic()
        try:
            answer = await self._answered(name, request, weight, deadline, bytes_max)
        except TimeoutError:
            raise ExchangeFailed(f"{name} did not answer within {total_s:g} s.") from None
        except TryAgain as again:
            raise again.failure from None
        return Timed(data_of(answer, url), sent_at, self._clock.monotonic())

    async def post(
        self,
        url: str,
        content: bytes,
        *,
        weight: float = 1,
        total_s: float = TOTAL_S,
        bytes_max: int = BODY_BYTES_MAX,
    ) -> bytes:
        """POST JSON once and return the body of a 200 response.

        Raises:
            ExchangeFailed: No such response within `total_s`.
        """
        answer = await self.send(
            "POST",
            url,
            headers=JSON,
            content=content,
            weight=weight,
            total_s=total_s,
            bytes_max=bytes_max,
        )
        return data_of(answer, url)

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        weight: float = 1,
        total_s: float = TOTAL_S,
        bytes_max: int = BODY_BYTES_MAX,
    ) -> Answer:
        """Send a request and return the response; failures of safe methods are retried.

        Raises:
            ExchangeFailed: No answer, a redirect, a body over the limit, or a wait for the
                budget or a Retry-After that exceeds `total_s`.
        """
        request = self._client.build_request(method, url, headers=headers, content=content)
        name = authority(request.url)
        deadline = self._clock.monotonic() + total_s
        attempts = ATTEMPTS_MAX if method in SAFE_METHODS else 1

        async def attempt(number: int) -> Answer:
            await self._wait_turn(name, weight, deadline)
            try:
                answer = await self._answered(name, request, weight, deadline, bytes_max)
            except TimeoutError:
                raise ExchangeFailed(f"{name} did not answer within {total_s:g} s.") from None
            if answer.status in RETRIED and number < attempts:
                raise TryAgain(ExchangeFailed(f"{name} answered {answer.status}."))
            return answer

        return await retried(
            attempt,
            attempts_max=attempts,
            failed=lambda number, again: self._back_off_s(number, deadline, again.failure),
            sleep=self._clock.sleep,
        )

    async def _answered(
        self, name: str, request: httpx.Request, weight: float, deadline: float, bytes_max: int
    ) -> Answer:
        """Send a request once and note the pause that the answer demands."""
        try:
            left_s = max(0.0, deadline - self._clock.monotonic())
            answer = await self._once(request, left_s, bytes_max)
        except Uninflatable as error:
            raise TryAgain(ExchangeFailed(f"{name}: unreadable answer: {error}.")) from None
        except httpx.TransportError as error:
            if isinstance(error, UNSENT):
                self._hosts[name].quota.give_back(weight)
            reason = f"{name} cannot be reached: {plain(error)}."
            raise TryAgain(ExchangeFailed(reason)) from None
        self._hold(name, answer)
        return answer

    async def _wait_turn(self, name: str, weight: float, deadline: float) -> None:
        host = self._hosts.setdefault(name, Host(UNSTATED))
        now = self._clock.monotonic()
        wait_s = host.wait_s(weight, now)
        if now + wait_s > deadline:
            raise ExchangeFailed(
                f"{name} allows no more requests for {wait_s:.0f} s.", retry_after_s=wait_s
            )
        host.quota.take(weight, now)
        try:
            while wait_s > 0:
                await self._clock.sleep(wait_s)
                # The host may have sent a Retry-After meanwhile.
                wait_s = host.held_until - self._clock.monotonic()
                if self._clock.monotonic() + wait_s > deadline:
                    raise ExchangeFailed(
                        f"{name} asked us to wait {wait_s:.0f} s.", retry_after_s=wait_s
                    )
        except BaseException:
            host.quota.give_back(weight)  # the request was never sent
            raise

    async def _once(self, request: httpx.Request, total_s: float, bytes_max: int) -> Answer:
        host = request.url.host
        try:
            answer = await self._wire.answer(request, bytes_max=bytes_max, total_s=total_s)
        except TooLong:
            raise ExchangeFailed(f"{host} answered with more than {bytes_max} bytes.") from None
        if 300 <= answer.status < 400 and "location" in answer.headers:
            raise ExchangeFailed(f"{host} redirects; redirects are not followed.")
        return answer

    def _hold(self, name: str, answer: Answer) -> None:
        host = self._hosts[name]
        if answer.status in host.holds:
            now_s = self._clock.wall_ms() / 1_000
            asked_s = retry_after_s(answer.headers.get("retry-after"), now_s)
            hold_s = host.holds[answer.status] if asked_s is None else asked_s
            host.held_until = max(host.held_until, self._clock.monotonic() + hold_s)

    def _back_off_s(self, attempt: int, deadline: float, failure: Exception) -> float:
        wait_s = full_jitter_s(attempt, RETRY_BASE_S, RETRY_MAX_S, random=self._jitter())
        if self._clock.monotonic() + wait_s > deadline:
            raise failure
        return wait_s


def data_of(answer: Answer, url: str) -> bytes:
    """Return the body of a 200 response.

    Raises:
        ExchangeFailed: The response has another status.
    """
    if answer.status != 200:
        raise ExchangeFailed(f"{httpx.URL(url).host} answered {answer.status} instead of data.")
    return answer.body


def authority(url: httpx.URL) -> str:
    """Return the key of a URL's rate limit: host and port, because services may share a host."""
    return url.netloc.decode("ascii")


def retry_after_s(text: str | None, now_s: float) -> float | None:
    """Read a Retry-After header, seconds or an HTTP date; None if it is neither."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text), HOLD_MAX_S)
    try:
        return min(max(0.0, s_of_http_date(text) - now_s), HOLD_MAX_S)
    except ValueError:
        return None


def plain(error: Exception) -> str:
    """Describe an exception by its and its cause's class, because their texts may hold secrets."""
    name = type(error).__name__
    words = "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    return f"{words} ({type(cause).__name__})" if isinstance(cause, OSError) else words


class ProxiedTransport(httpx.AsyncBaseTransport):
    """Sends each request through the proxy of its address.

    Args:
        proxies: Chooses the proxy.
        make: Creates a transport, given the address of an HTTP proxy or None.
    """

    def __init__(
        self, proxies: Proxies, make: Callable[[str | None], httpx.AsyncHTTPTransport]
    ) -> None:
        self._proxies = proxies
        self._make = make
        self._transports: dict[str | None, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        proxy = self._proxies.of(str(request.url))
        transport = self._transports.get(proxy)
        if transport is None:
            is_socks = proxy is not None and proxy.startswith("socks")
            transport = self._transports[proxy] = self._make(None if is_socks else proxy)
            if proxy is not None and is_socks:
                transport._pool._network_backend = SocksBackend(proxy)
        return await transport.handle_async_request(request)

    async def aclose(self) -> None:
        """Close every connection."""
        for transport in self._transports.values():
            await transport.aclose()


class SocksBackend(httpcore.AsyncNetworkBackend):
    """Opens connections through a SOCKS proxy, which also resolves host names."""

    def __init__(self, proxy: str) -> None:
        self._proxy = proxy

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to a host.

        Raises:
            httpcore.ConnectError, httpcore.ConnectTimeout: Proxy or host are unreachable.
        """
        try:
            async with asyncio.timeout(timeout):
                sock = await Proxy.from_url(self._proxy).connect(host, port)
                return SocksStream(*await asyncio.open_connection(sock=sock))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout("the proxy did not answer in time") from error
        except (ProxyError, OSError) as error:
            raise httpcore.ConnectError(f"the proxy: {error}") from error


class SocksStream(httpcore.AsyncNetworkStream):
    """A connection through a SOCKS proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return the next bytes, none at the end."""
        try:
            async with asyncio.timeout(timeout):
                return await self._reader.read(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes."""
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(buffer)
                await self._writer.drain()
        except TimeoutError as error:
            raise httpcore.WriteTimeout from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        """Close the connection."""
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Begin TLS with the host."""
        try:
            async with asyncio.timeout(timeout):
                await self._writer.start_tls(ssl_context, server_hostname=server_hostname)
        except BaseException as error:
            self._writer.transport.abort()
            if isinstance(error, TimeoutError):
                raise httpcore.ConnectTimeout from error
            if isinstance(error, OSError):  # as is ssl.SSLError
                raise httpcore.ConnectError(str(error)) from error
            raise
        return self

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore asks of a connection."""
        if info == "is_readable":  # an idle connection that the host has closed
            return self._reader.at_eof()
        return self._writer.get_extra_info({"client_addr": "sockname"}.get(info, info))
