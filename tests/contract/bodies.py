"""One hostile HTTP server on loopback and one client of ours; prints the outcome and its cost.

A program of its own, as peak memory is the process's:

    python tests/contract/bodies.py CLIENT ANSWER...
"""

import asyncio
import gzip
import json
import resource
import sys
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from random import Random
from typing import Final

from clocks import made_of, sleeping
from onebook.client.failures import ServiceError
from onebook.client.rest import RestClient
from onebook.errors import ExchangeFailed
from onebook.rest import Rest
from onebook.transactions.adapter import Environment, SourceFailed
from onebook.transactions.bybit.api import API
from onebook.transactions.bybit.endpoints import ENTRY
from onebook.transactions.client import Call, ExchangeClient
from onebook.transactions.limits import Retries

DATA_BYTES_MAX: Final = 3 << 30  # a client without a bound fails here, not the machine
TOTAL_S: Final = 1.5
BODY_BYTES_MAX: Final = 4 << 20
BOMB_BYTES: Final = 256 << 20
OK: Final = b"HTTP/1.1 200 OK\r\n"
CHUNKED: Final = OK + b"Transfer-Encoding: chunked\r\n\r\n"
JSON: Final = b'{"a":1}'


def whole(body: bytes, *headers: bytes) -> bytes:
    """A response with Content-Length."""
    lines = b"".join(each + b"\r\n" for each in headers)
    return OK + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


@cache
def bomb(size: int) -> bytes:
    """`size` zeros, compressed with gzip."""
    packer = zlib.compressobj(1, wbits=31)
    mib = bytes(1 << 20)
    return b"".join(packer.compress(mib) for _ in range(size >> 20)) + packer.flush()


async def _endless(head: bytes, part: bytes) -> AsyncIterator[bytes]:
    yield head
    while True:
        yield part


async def _trickle(head: bytes, part: bytes) -> AsyncIterator[bytes]:
    yield head
    while True:
        yield part
        await asyncio.sleep(0.2)


async def _at_once(answer: bytes) -> AsyncIterator[bytes]:
    yield answer


GZIP: Final = b"Content-Encoding: gzip"
EMPTY_BLOCK: Final = b"\x00\x00\x00\xff\xff"  # of deflate: five bytes that stand for none
GZIP_HEADER: Final = gzip.compress(b"")[:10]
ANSWERS: Final[dict[str, Callable[[], AsyncIterator[bytes]]]] = {
    "plain": lambda: _at_once(whole(JSON)),
    "identity": lambda: _at_once(whole(JSON, b"Content-Encoding: identity")),
    "gzip": lambda: _at_once(whole(gzip.compress(JSON), GZIP)),
    "zlib": lambda: _at_once(whole(zlib.compress(JSON), b"Content-Encoding: Deflate")),
    "gzip_bomb": lambda: _at_once(whole(bomb(BOMB_BYTES), GZIP)),
    "gzip_in_gzip": lambda: _at_once(
        whole(gzip.compress(bomb(BOMB_BYTES)), b"Content-Encoding: gzip, gzip")
    ),
    "gzip_twice_named": lambda: _at_once(whole(gzip.compress(bomb(BOMB_BYTES)), GZIP, GZIP)),
    "brotli": lambda: _at_once(whole(JSON, b"Content-Encoding: br")),
    "gzip_truncated": lambda: _at_once(whole(gzip.compress(JSON)[:-9], GZIP)),
    "gzip_and_more": lambda: _at_once(whole(gzip.compress(JSON) * 2, GZIP)),
    "not_gzip": lambda: _at_once(whole(JSON, GZIP)),
    "endless": lambda: _endless(CHUNKED, b"10000\r\n" + bytes(1 << 16) + b"\r\n"),
    "endless_of_nothing": lambda: _endless(
        OK + GZIP + b"\r\nTransfer-Encoding: chunked\r\n\r\na\r\n" + GZIP_HEADER + b"\r\n",
        b"ffff\r\n" + EMPTY_BLOCK * 13_107 + b"\r\n",
    ),
    "endless_without_length": lambda: _endless(OK + b"\r\n", bytes(1 << 16)),
    "trickle": lambda: _trickle(CHUNKED, b"1\r\nx\r\n"),
    "single_byte_chunks": lambda: _endless(CHUNKED, b"1\r\nx\r\n" * 10_000),
    "length_too_long": lambda: _at_once(OK + b"Content-Length: 99999999\r\n\r\n" + JSON),
    "length_too_short": lambda: _at_once(OK + b"Content-Length: 7\r\n\r\n" + JSON * 2),
    "length_of_4400_digits": lambda: _at_once(
        OK + b"Content-Length: " + b"9" * 4_400 + b"\r\n\r\n" + JSON
    ),
    "chunk_of_30_digits": lambda: _at_once(CHUNKED + b"f" * 30 + b"\r\n" + JSON),
    "endless_header": lambda: _endless(OK + b"X-A: ", bytes(1 << 16).replace(b"\0", b"a")),
    "endless_headers": lambda: _endless(OK, b"X-A: b\r\n" * 1_000),
    "endless_trailers": lambda: _endless(CHUNKED + b"0\r\n", b"X-A: b\r\n" * 1_000),
    "endless_early_hints": lambda: _endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "trickle_of_headers": lambda: _trickle(OK, b"X-A: b\r\n"),
    "not_http": lambda: _at_once(b"\x16\x03\x01\x02\x00" * 100),
}


@asynccontextmanager
async def serving(answer: Callable[[], AsyncIterator[bytes]]) -> AsyncIterator[str]:
    """A server that sends the same bytes to every connection and closes it; yields its address."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            async for part in answer():
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)  # drain need not wait, and the client is in this loop
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()


async def _soon(seconds: float) -> None:
    await asyncio.sleep(0)


async def by_rest(url: str) -> str:
    """The HTTP client for lists and snapshots of exchanges."""
    async with Rest(clock=sleeping(_soon)) as rest:
        try:
            body = await rest.get(f"{url}/list", total_s=TOTAL_S, bytes_max=BODY_BYTES_MAX)
        except ExchangeFailed as error:
            return f"ExchangeFailed: {error.message}"
    return f"{body!r}"


async def by_transactions(url: str) -> str:
    """The HTTP client for private histories of exchanges."""
    client = ExchangeClient(ENTRY, API, made_of(sleep=_soon), random=Random(1))
    try:
        call = Call("/v5/execution/list", "category=spot")
        retries = Retries(Random(1))
        site = client.site(Environment.MAINNET, {"": url})
        await client.ask(site, call, credentials=None, retries=retries)
    except SourceFailed as error:
        return f"SourceFailed: {error.reason.value}: {error.message}"
    finally:
        await client.close()
    return "answered"


async def by_sdk(url: str) -> str:
    """The client of a service's users."""
    async with RestClient(url, "key", attempts_max=1) as client:
        try:
            return json.dumps(await client.get("/exchanges"))
        except ServiceError as error:
            return f"ServiceError: {error.code}: {error.message}"


CLIENTS: Final[dict[str, Callable[[str], Awaitable[str]]]] = {
    "rest": by_rest,
    "transactions": by_transactions,
    "sdk": by_sdk,
}


class Stalls:
    """The longest stall of the event loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        before_s = time.monotonic()
        while True:
            await asyncio.sleep(0.001)
            now_s = time.monotonic()
            self.longest_s = max(self.longest_s, now_s - before_s)
            before_s = now_s


def peak_bytes() -> int:
    """The peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


async def main(client: str, *answers: str) -> None:
    """Request each answer once; print a line for each: outcome, peak memory, time, stall."""
    ask = CLIENTS[client]
    made = {name: ANSWERS[name] for name in answers}
    for each in made.values():
        each()  # bombs are built and kept before anything is measured
    await ask("http://127.0.0.1:9")  # imports and authorities, too
    before = peak_bytes()
    for name, answer in made.items():
        stalls, began_s = Stalls(), time.monotonic()
        watching = asyncio.create_task(stalls.watch())
        async with serving(answer) as url:
            try:
                outcome = await ask(url)
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
        watching.cancel()
        took_s = time.monotonic() - began_s
        cost = {"bytes": peak_bytes() - before, "took_s": took_s, "stall_s": stalls.longest_s}
        print(json.dumps({"answer": name, "outcome": outcome, **cost}), flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))
    asyncio.run(main(*sys.argv[1:]))
