"""HTTP requests through the proxy of each address, for httpx.

httpx speaks HTTP CONNECT itself. For SOCKS it needs another package and leaves the socket open if
the proxy refuses, so `SocksBackend` opens those connections, with the package that picows uses.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final

import httpcore
import httpx
from python_socks import ProxyError
from python_socks.async_.asyncio import Proxy

from onebook.proxies import Proxies

CLOSE_S: Final = 2.0  # time limit of closing a connection


class ProxiedTransport(httpx.AsyncBaseTransport):
    """Sends each request through the proxy of its address.

    Args:
        proxies: Which proxy that is.
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
