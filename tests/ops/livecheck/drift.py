"""A proxy between a feed and a simulated exchange that edits WebSocket messages and REST bodies.

The exchange keeps its own protocol and the connector its own: only what passes is changed, as an
exchange would change it. Real sockets on both sides.
"""

import asyncio
import gzip
import json
import re
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
from msgspec.structs import replace
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from onebook.exchanges.kit import Exchange

HOST = "127.0.0.1"


class Kick(Exception):
    """The exchange closes the connection, with a code and a reason."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code, self.words = code, words


class Drift:
    """Base class; changes nothing. One object per checked exchange."""

    def down(self, text: str) -> Iterable[str | bytes]:
        """The messages to deliver instead of one of the exchange: several, one or none."""
        return (text,)

    def up(self, text: str) -> tuple[str | None, Iterable[str | bytes]]:
        """The message to send instead of ours, and immediate replies."""
        return text, ()

    def body(self, path: str, body: bytes) -> bytes:
        """The REST body to deliver instead."""
        return body


class Edited(Drift):
    """Applies a function to every message of the exchange."""

    def __init__(self, edit: Callable[[str], str | None]) -> None:
        self._edit = edit

    def down(self, text: str) -> Iterable[str | bytes]:
        edited = self._edit(text)
        return () if edited is None else (edited,)


class Injected(Drift):
    """Inserts a message after some others."""

    def __init__(self, message: str | bytes, after: int = 12) -> None:
        self._message, self._after = message, after
        self._count = 0

    def down(self, text: str) -> Iterable[str | bytes]:
        self._count += 1
        return (text, self._message) if self._count == self._after else (text,)


class Bodies(Drift):
    """Applies a function to the REST bodies of a path, with their number."""

    def __init__(self, path: str, edit: Callable[[bytes, int], bytes]) -> None:
        self._path, self._edit = path, edit
        self._count = 0

    def body(self, path: str, body: bytes) -> bytes:
        if not path.startswith(self._path):
            return body
        self._count += 1
        return self._edit(body, self._count)


class RefusedVerb(Drift):
    """WOO X: all other commands are unknown."""

    def up(self, text: str) -> tuple[str | None, Iterable[str | bytes]]:
        request = json.loads(text)
        if request["cmd"] in ("SUBSCRIBE", "PING", "PONG"):
            return text, ()
        words = "Command type invalid!"
        answer = {"id": request["id"], "cmd": request["cmd"], "success": False, "data": words}
        return None, (json.dumps(answer),)


class KicksAfter(Drift):
    """The exchange closes a connection that sends more messages than it allows."""

    def __init__(self, most: int) -> None:
        self._most, self._count = most, 0

    def up(self, text: str) -> tuple[str | None, Iterable[str | bytes]]:
        self._count += 1
        if self._count > self._most:
            self._count = 0
            raise Kick(1008, "too many messages per connection")
        return text, ()


class Twin(Drift):
    """Gate: BTC_USDC is another name of the BTC_USDT book."""

    def __init__(self) -> None:
        self._history: list[str] = []
        self._subscribed = False

    def body(self, path: str, body: bytes) -> bytes:
        if path != "/api/v4/spot/currency_pairs":
            return body
        rows: list[dict[str, Any]] = json.loads(body)
        like = next(row for row in rows if row["id"] == "BTC_USDT")
        return json.dumps([*rows, {**like, "id": "BTC_USDC", "quote": "USDC"}]).encode()

    def down(self, text: str) -> Iterable[str | bytes]:
        if '"s":"ob.BTC_USDT' not in text:
            return (text,)
        twin = text.replace("BTC_USDT", "BTC_USDC")
        self._history.append(twin)
        return (text, twin) if self._subscribed else (text,)

    def up(self, text: str) -> tuple[str | None, Iterable[str | bytes]]:
        request = json.loads(text)
        if request["channel"] != "spot.obu":  # best prices of the pair that the simulator lists
            return text.replace('"BTC_USDT","BTC_USDC"', '"BTC_USDT"'), ()
        if not any("BTC_USDC" in each for each in request.get("payload") or ()):
            return text, ()
        assert len(request["payload"]) == 1, "one name in a request"
        self._subscribed = request["event"] == "subscribe"
        answer = json.dumps(request | {"result": {"status": "success"}})
        return None, (answer, *(self._history if self._subscribed else ()))


class DriftProxy:
    """Stands in front of a simulated exchange; `exchange` has the facts with its address."""

    def __init__(self, exchange: Exchange, drift: Drift) -> None:
        self._upstream = exchange
        self._drift = drift
        self._stack = AsyncExitStack()
        self._ws = urlsplit(exchange.ws_url)
        self._rest = urlsplit(exchange.rest_url)

    async def __aenter__(self) -> Self:
        self._http = await self._stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        server = await self._stack.enter_async_context(
            serve(
                self._handle,
                HOST,
                0,
                process_request=self._answer,
                compression=None,
                max_size=None,
                ping_interval=None,
                close_timeout=1,
            )
        )
        port = next(iter(server.sockets)).getsockname()[1]
        self.exchange = replace(
            self._upstream,
            ws_url=f"ws://{HOST}:{port}{self._ws.path}",
            rest_url=f"http://{HOST}:{port}{self._rest.path}",
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return None
        answer = await self._http.get(f"http://{self._rest.netloc}{request.path}")
        body = self._drift.body(request.path.partition("?")[0], answer.content)
        headers = Headers({"Content-Length": str(len(body)), "Connection": "close"})
        return Response(answer.status_code, "Answer", headers, body)

    async def _handle(self, feed: ServerConnection) -> None:
        assert feed.request is not None
        url = f"ws://{self._ws.netloc}{feed.request.path}"
        with suppress(ConnectionClosed):
            async with connect(
                url, compression=None, max_size=None, ping_interval=None, close_timeout=1
            ) as exchange:
                tasks = [
                    asyncio.create_task(self._down(exchange, feed)),
                    asyncio.create_task(self._up(feed, exchange)),
                ]
                try:
                    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        if isinstance(kick := task.exception(), Kick):
                            await feed.close(kick.code, kick.words)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)

    async def _down(self, exchange: Any, feed: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            async for message in exchange:
                for each in self._edited(message):
                    await feed.send(each)

    def _edited(self, message: str | bytes) -> Iterable[str | bytes]:
        """Edit text in its original form; binary messages that are not text pass unchanged."""
        if isinstance(message, str):
            return self._drift.down(message)
        zipped = message[:2] == b"\x1f\x8b"
        try:
            text = (gzip.decompress(message) if zipped else message).decode()
        except UnicodeDecodeError:
            edited = self._drift.down("")
            return (message, *(each for each in edited if each))
        form: Callable[[bytes], bytes] = gzip.compress if zipped else bytes
        return [
            form(each.encode()) if isinstance(each, str) else each
            for each in self._drift.down(text)
        ]

    async def _up(self, feed: ServerConnection, exchange: Any) -> None:
        with suppress(ConnectionClosed):
            async for message in feed:
                text = message if isinstance(message, str) else message.decode()
                passed, answers = self._drift.up(text)
                for each in answers:
                    await feed.send(each)
                if passed is not None:
                    await exchange.send(passed)


def without(member: str) -> Callable[[str], str]:
    """Make an edit that removes a member with a number."""
    pattern = re.compile(rf'"{member}":-?\d+,?')
    return lambda text: pattern.sub("", text)
