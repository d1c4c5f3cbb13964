"""Books through a proxy: HTTP CONNECT and SOCKS5 with real sockets, refusals and failures."""

import asyncio
import base64
import logging
import re
from contextlib import suppress
from typing import Any, Self

import pytest

import onebook
from library.place import PATIENCE_S, SYMBOL, feeds, until
from onebook.library import FeedSettings, Health, NoLiveBook, UnknownSymbol
from onebook.proxies import Proxies
from onebook.simulator import SimulatedExchanges

USER, PASSWORD = "jane", "s3cret-word"
NAMES = ["okx", "bitstamp"]  # without and with a snapshot over REST


class ProxyServer:
    """A proxy on loopback that speaks HTTP CONNECT and SOCKS5, with a password.

    `answers` is what it does with the next requests: "ok", "refuse" or "silent".
    """

    def __init__(self) -> None:
        self.answers = "ok"
        self.asked: list[str] = []  # the authorities it was asked for
        self.wrong_passwords = 0
        self.open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.kill()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def url(self, scheme: str, password: str = PASSWORD) -> str:
        return f"{scheme}://{USER}:{password}@127.0.0.1:{self.port}"

    def kill(self) -> None:
        """Break every tunnel."""
        for writer in tuple(self.open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open.add(writer)
        try:
            first = await reader.readexactly(1)
            await (self._socks if first == b"\x05" else self._connect)(first, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # a cancelled task of a stream server would be reported as a failed callback
        finally:
            self.open.discard(writer)
            self._tasks.discard(task)
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _connect(
        self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode()
        method, authority, _ = head.split(" ", 2)
        if method != "CONNECT":  # plain HTTP: the whole URL is asked for
            await self._plain(head, reader, writer)
            return
        self.asked.append(authority)
        await self._stall()
        expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if f"Basic {expected}\r\n" not in head:
            self.wrong_passwords += 1
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        elif self.answers == "refuse":
            writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await self._tunnel(authority, reader, writer)

    async def _plain(
        self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        method, url, rest = head.split(" ", 2)
        authority, _, path = url.removeprefix("http://").partition("/")
        self.asked.append(authority)
        host, port = authority.rsplit(":", 1)
        upstream, out = await asyncio.open_connection(host, int(port))
        rest = re.sub("Proxy-Authorization: .*\r\n", "", rest)
        rest = rest.replace("Connection: keep-alive", "Connection: close")
        out.write(f"{method} /{path} {rest}".encode())
        writer.write(await upstream.read())
        out.close()

    async def _socks(
        self, _: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        assert 2 in methods, "a password is offered"
        writer.write(b"\x05\x02")
        await reader.readexactly(1)
        user = await reader.readexactly((await reader.readexactly(1))[0])
        password = await reader.readexactly((await reader.readexactly(1))[0])
        if (user, password) != (USER.encode(), PASSWORD.encode()):
            self.wrong_passwords += 1
            writer.write(b"\x01\x01")
            return
        writer.write(b"\x01\x00")
        _, _, _, kind = await reader.readexactly(4)
        if kind == 1:
            host = ".".join(map(str, await reader.readexactly(4)))
        else:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append(f"{host}:{port}")
        await self._stall()
        if self.answers == "refuse":
            writer.write(b"\x05\x05\x00\x01" + bytes(6))
            return
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await self._tunnel(f"{host}:{port}", reader, writer)

    async def _stall(self) -> None:
        if self.answers == "silent":
            await asyncio.Event().wait()

    async def _tunnel(
        self, authority: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, port = authority.rsplit(":", 1)
        upstream, out = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(_pump(reader, out), _pump(upstream, writer))
        finally:
            out.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError("one side has closed the tunnel")


@pytest.fixture
async def proxy():
    async with asyncio.timeout(PATIENCE_S * 3), ProxyServer() as server:
        yield server


@pytest.fixture
async def sim():
    async with SimulatedExchanges(NAMES, rate_hz=20) as found:
        yield found


def hosts_of(sim: SimulatedExchanges) -> set[str]:
    return {url.split("/")[2] for urls in sim.urls.values() for url in (urls.ws, urls.rest) if url}


@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])
async def test_books_and_lists_come_through_it(proxy, sim, scheme) -> None:
    books = onebook.order_book(
        SYMBOL, exchanges=NAMES, feeds=feeds(sim), proxy=proxy.url(scheme), depth=10
    )
    async with books:
        await until(aiter(books), lambda update: len(update.exchanges) == 2 and not update.stale)
    assert set(proxy.asked) == hosts_of(sim), "nothing was reached without it"
    assert not proxy.wrong_passwords


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_a_book_is_stale_when_it_dies_and_returns_through_it(proxy, sim, scheme) -> None:
    books = onebook.order_book(
        SYMBOL, exchanges="okx", feeds=feeds(sim), proxy=proxy.url(scheme), depth=10
    )
    async with books:
        updates = aiter(books)
        await until(updates, lambda update: update.live)
        asked = len(proxy.asked)
        proxy.kill()
        lost = await until(updates, lambda update: not update.live)
        assert lost.exchanges["okx"].state in (Health.STALE, Health.OFFLINE, Health.SYNCING)
        await until(updates, lambda update: update.live)
        assert len(proxy.asked) > asked


@pytest.mark.parametrize("scheme", ["http", "socks5"])
@pytest.mark.parametrize("trouble", ["refuse", "silent", "wrong password", "gone"])
async def test_its_refusal_is_a_problem_of_the_book_and_its_password_is_nowhere(
    proxy, sim, scheme, trouble, caplog
) -> None:
    caplog.set_level(logging.DEBUG)
    url = proxy.url(scheme, "wr0ng-word" if trouble == "wrong password" else PASSWORD)
    if trouble in ("refuse", "silent"):
        proxy.answers = trouble
    if trouble == "gone":
        url = f"{scheme}://{USER}:{PASSWORD}@127.0.0.1:1"
    books = onebook.order_book(SYMBOL, exchanges="okx", feeds=feeds(sim), proxy=url, timeout_s=1.5)
    with pytest.raises((NoLiveBook, UnknownSymbol)) as caught:
        async with books:
            pass
    texts = [str(caught.value), repr(books), repr(feeds(sim, proxy=url)), caplog.text]
    for text in texts:
        assert PASSWORD not in text
        assert "wr0ng-word" not in text
        assert base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode() not in text
    if trouble == "wrong password":
        assert proxy.wrong_passwords
    assert not [task for task in asyncio.all_tasks() if "feed " in task.get_name()]


async def test_the_environment_names_it_and_its_exceptions(proxy, sim, monkeypatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy.url("socks5"))
    async with onebook.order_book(SYMBOL, exchanges="okx", feeds=feeds(sim)) as books:
        await until(aiter(books), lambda update: update.live)
    assert proxy.asked
    proxy.asked.clear()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    async with onebook.order_book(SYMBOL, exchanges="okx", feeds=feeds(sim)) as books:
        await until(aiter(books), lambda update: update.live)
    monkeypatch.delenv("NO_PROXY")
    async with onebook.order_book(
        SYMBOL, exchanges="okx", feeds=feeds(sim), proxy="direct"
    ) as books:
        await until(aiter(books), lambda update: update.live)
    assert not proxy.asked


@pytest.mark.parametrize(
    ("variables", "url", "expected"),
    [
        ({}, "wss://a.example/ws", None),
        ({"HTTPS_PROXY": "http://p:1"}, "wss://a.example/ws", "http://p:1"),
        ({"https_proxy": "p:1"}, "wss://a.example/ws", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "ws://a.example/ws", None),
        ({"HTTP_PROXY": "http://p:1"}, "ws://a.example/ws", "http://p:1"),
        ({"ALL_PROXY": "socks5h://p:1"}, "wss://a.example/ws", "socks5://p:1"),
        (
            {"ALL_PROXY": "socks5://p:1", "HTTPS_PROXY": "http://q:2"},
            "wss://a.example/",
            "http://q:2",
        ),
        ({"ALL_PROXY": "socks5://p:1", "NO_PROXY": "a.example"}, "wss://a.example/", None),
        ({"ALL_PROXY": "socks5://p:1", "NO_PROXY": ".example"}, "wss://a.example:99/", None),
        ({"ALL_PROXY": "socks5://p:1", "NO_PROXY": "b, a.example:99"}, "wss://a.example:99/", None),
        ({"ALL_PROXY": "socks5://p:1", "NO_PROXY": "*"}, "wss://a.example/", None),
        ({"ALL_PROXY": "socks5://p:1", "NO_PROXY": "ample"}, "wss://a.example/", "socks5://p:1"),
    ],
)
def test_the_variables_of_the_environment(monkeypatch, variables, url, expected) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Proxies().of(url) == expected
    assert Proxies("direct").of(url) is None
    assert Proxies("http://own:3").of(url) == "http://own:3"


@pytest.mark.parametrize(
    "address",
    ["ftp://u:pass-w0rd@h:1", "socks5://", "h:1", "http://u:pass-w0rd@h:1/path", "http://h:x"],
)
def test_an_address_that_is_none_is_refused_without_being_quoted(address) -> None:
    for make in (
        lambda: onebook.order_book(SYMBOL, proxy=address),
        lambda: FeedSettings(proxy=address),
        lambda: Proxies(address),
    ):
        with pytest.raises(ValueError, match="must be an address") as caught:
            make()
        assert "pass-w0rd" not in str(caught.value)
    with pytest.raises(TypeError, match="proxy must be text"):
        onebook.order_book(SYMBOL, proxy=5)
