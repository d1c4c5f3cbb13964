"""Replay of recordings: recorded frames, served to the service's own subscriptions on loopback.

    async with Replay([Path("OKX.ws.1.0")], speed=10) as replay:
        ws_url, rest_url = replay.urls["okx"]

A client that subscribes gets the exchange's acknowledgement and then, from the beginning, the
recorded order book frames of its subscription in recorded order, and nothing else. At the end the
connection stays open and heartbeats are answered, so that the last book stays live.

`scripts` sorts recordings by exchange and reduces them to order book frames by native name. An
exchange is recognized by the host of the recorded URL. Recordings of the simulator are recognized
by the path, and by the frames if several exchanges share a path; among exchanges with the same
protocol the first is used. Recordings contain no instrument list, so it is made from the native
names that occur.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit.contract import Exchange
from onebook.feeds.recording import ConnectionOpened, Entry, Fetched, Received, RecordingError, read
from onebook.simulator.kit.board import TOP, Dropped, ExchangeBoard, Frame, RestReply
from onebook.simulator.kit.loopback import (
    Front,
    Loopback,
    LoopbackClient,
    Urls,
    redirected,
)
from onebook.simulator.kit.market import ListedSymbol
from onebook.simulator.kit.server import DIALECTS

LOOP_PAUSE_S: Final = 1.0
WATCH_S: Final = 0.25
GOING_AWAY: Final = 1001
REST_BOOK_PATH: Final = "/api/v3/depth"
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
NATIVE_CHARACTERS_MAX: Final = 64  # longest name of a pair
DECIMALS: Final = 8  # of listings; the true steps are not recorded
# To split natives without a separator; longest first.
QUOTES: Final = (
    *("FDUSD", "USDT", "USDC", "BUSD", "TUSD", "USDE", "USD1", "BIDR", "USD", "EUR", "GBP"),
    *("TRY", "BRL", "ARS", "JPY", "AUD", "DAI", "BTC", "ETH", "BNB", "SOL", "XRP", "TRX"),
)


class Line(NamedTuple):
    """One recorded order-book frame."""

    at: float
    native: str
    frame: Frame
    is_top: bool = False  # a frame of the faster channel, which clients subscribe separately


class Script(NamedTuple):
    """The recording of one exchange."""

    name: str
    listings: tuple[ListedSymbol, ...]
    lines: tuple[Line, ...]  # in recorded order
    bodies: dict[str, bytes]  # REST books by native


def scripts(paths: Iterable[Path]) -> dict[str, Script]:
    """Read recordings into one script per exchange.

    Raises:
        RecordingError: A file is not a recording, or nothing in it can be replayed.
    """
    lines: dict[str, list[Line]] = {}
    bodies: dict[str, dict[str, bytes]] = {}
    for path in paths:
        for name, entries in by_exchange(read(path), path.name).items():
            lines.setdefault(name, []).extend(_lines(name, entries))
            bodies.setdefault(name, {}).update(_bodies(entries))
    return {name: _script(name, lines[name], bodies[name]) for name in lines}


def by_exchange(entries: list[Entry], file: str) -> dict[str, list[Entry]]:
    """Sort a file's entries by exchange; a frame belongs to the last opened connection."""
    found: dict[str, list[Entry]] = {}
    owners: dict[str, str] = {}  # by address, which simulators may share
    connected = ""
    for at, entry in enumerate(entries):
        owner = connected
        if isinstance(entry, ConnectionOpened | Fetched):
            address = urlsplit(entry.url).netloc
            if address not in owners:
                owners[address] = exchange_of(entry.url, file, _texts(entries[at:]))
            owner = owners[address]
        if isinstance(entry, ConnectionOpened):
            connected = owner
        if not owner:
            raise RecordingError(f"{file} has frames before any connection was opened.")
        found.setdefault(owner, []).append(entry)
    return found


def _texts(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the received frames as text."""
    return (each.frame.decode(errors="replace") for each in entries if isinstance(each, Received))


def _lines(name: str, entries: list[Entry]) -> list[Line]:
    frames = [(entry.at, entry.frame) for entry in entries if isinstance(entry, Received)]
    messages = [(at, message_of(frame)) for at, frame in frames]
    named = [(at, native_of(name, frame), frame) for at, frame in messages]
    is_top = DIALECTS[name].is_top
    return [Line(at, native, frame, is_top(frame)) for at, native, frame in named if native]


def native_of(name: str, frame: Frame) -> str | None:
    """Return the native whose order book a recorded frame contains; None for any other frame.

    Dialects decode their own frames; for damaged frames and those of other protocols they raise any
    of the exceptions below.
    """
    try:
        native = DIALECTS[name].native_of(frame)
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError, ArithmeticError):
        return None
    return native if isinstance(native, str) and len(native) <= NATIVE_CHARACTERS_MAX else None


def message_of(frame: bytes) -> Frame:
    """Convert a recorded frame to a message: text if it is valid UTF-8, else binary."""
    try:
        return frame.decode()
    except UnicodeDecodeError:
        return frame


def _bodies(entries: list[Entry]) -> dict[str, bytes]:
    """Return the first REST book of each native, which its first frames join."""
    found: dict[str, bytes] = {}
    for entry in entries:
        if isinstance(entry, Fetched):
            for native in parse_qs(urlsplit(entry.url).query).get("symbol", []):
                found.setdefault(native, entry.body)
    return found


def _script(name: str, lines: list[Line], bodies: dict[str, bytes]) -> Script:
    natives = dict.fromkeys(line.native for line in lines)
    listings = tuple(filter(None, (listing_of(name, native) for native in natives)))
    if not listings:
        raise RecordingError(f"The recording of {name} has no order-book frame of a spot pair.")
    listed = {listing.native for listing in listings}
    return Script(name, listings, tuple(line for line in lines if line.native in listed), bodies)


def listing_of(name: str, native: str) -> ListedSymbol | None:
    """Make the listing of a native; None if its currencies cannot be separated (futures)."""
    simulated = DIALECTS[name].listings
    known = next((each.symbol for each in simulated if each.native == native), None)
    if known is not None:
        return ListedSymbol(known, native, DECIMALS, DECIMALS)
    example = simulated[0]
    separator = example.native.upper().removeprefix(example.base).removesuffix(example.quote)
    text = native.upper()
    if separator:
        parts = text.split(separator)
    else:
        quote = next((each for each in QUOTES if text.endswith(each)), "")
        parts = [text.removesuffix(quote), quote]
    if len(parts) != 2 or not all(parts):
        return None
    return ListedSymbol("/".join(parts), native, DECIMALS, DECIMALS)


def exchange_of(url: str, file: str, frames: Iterable[str] = ()) -> str:
    """Find the exchange of a recorded URL, by its frames if several match.

    Raises:
        RecordingError: The exchange or its protocol version is not supported.
    """
    parts = urlsplit(url)
    if parts.hostname in LOOPBACK:
        names = [name for name, each in EXCHANGES.items() if _same_path(each.ws_url, url)]
        known = (name for frame in frames for name in names if native_of(name, frame))
        if names:
            return names[0] if len(names) == 1 else next(known, names[0])
    for name, exchange in EXCHANGES.items():
        ours = urlsplit(exchange.ws_url)
        if parts.hostname == urlsplit(exchange.rest_url).hostname and parts.scheme != "wss":
            return name
        if parts.hostname == ours.hostname:
            if _same_path(exchange.ws_url, url):
                return name
            raise RecordingError(
                f"{file} cannot be replayed: it was recorded from {parts.path or '/'} of "
                f"{parts.hostname}, but the address of {exchange.display} is now {ours.path}."
            )
    raise RecordingError(
        f"{file} cannot be replayed: {parts.hostname} is none of {', '.join(EXCHANGES)}."
    )


def _same_path(ours: str, theirs: str) -> bool:
    return urlsplit(ours).path.rstrip("/") == urlsplit(theirs).path.rstrip("/")


class Playback:
    """Playback of the frames of some natives to one client."""

    def __init__(self, client: LoopbackClient, natives: Iterable[str]) -> None:
        self.client = client
        self.natives = set(natives)

    def includes(self, line: Line) -> bool:
        """Return whether to send a frame: not after it was unsubscribed or subscribed again."""
        keys = self.client.session.topics.values()
        return line.native in self.natives and any(
            key.native == line.native and (key.depth == TOP) is line.is_top for key in keys
        )


class ReplayedExchange:
    """One recorded exchange on one port.

    Args:
        script: Its recording.
        speed: 2 is twice as fast as recorded; None is as fast as the client reads.
        loop: Whether to start over at the end.
        playing: Called with 1 when a playback starts, with -1 when it ends.
        port: Its port; 0 for a free one.
        clock: The clock of the exchange.
    """

    def __init__(
        self,
        script: Script,
        *,
        speed: float | None,
        loop: bool,
        playing: Callable[[int], None],
        port: int = 0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        kind = DIALECTS[script.name]
        board = ExchangeBoard(script.listings, {}, rules=kind.rules)
        self._script = script
        self._speed = speed
        self._loop = loop
        self._playing = playing
        self._playbacks: dict[Playback, asyncio.Task[None]] = {}
        self.front = Front(
            kind(board), board, clock=clock, instead=self._book, started=self._start, gone=self._end
        )
        self.loopback = Loopback(script.name, self.front, port=port)

    def _book(self, path: str, query: Mapping[str, str]) -> RestReply | None:
        """Return the recorded REST book if the exchange's books start from REST."""
        body = self._script.bodies.get(query.get("symbol", "")) if path == REST_BOOK_PATH else None
        return RestReply(200, body) if body is not None else None

    def _start(self, client: LoopbackClient) -> None:
        natives = set(client.session.started)
        for playback in self._playbacks:
            if playback.client is client:
                playback.natives -= natives
        playback = Playback(client, natives)
        self._playing(1)
        self._playbacks[playback] = task = asyncio.create_task(self._play(playback))
        task.add_done_callback(lambda _: self._done(playback))

    def _done(self, playback: Playback) -> None:
        self._playbacks.pop(playback, None)
        self._playing(-1)

    def _end(self, client: LoopbackClient) -> None:
        for playback, task in self._playbacks.items():
            if playback.client is client:
                task.cancel()

    async def stop(self) -> None:
        """Stop listening and end all playbacks."""
        await self.loopback.stop()
        tasks = list(self._playbacks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _play(self, playback: Playback) -> None:
        await self._once(playback)
        while self._loop:
            await asyncio.sleep(LOOP_PAUSE_S)
            if self._script.bodies:
                # A REST book cannot start over on an open socket, so the client must reconnect.
                return playback.client.put(Dropped("The recording starts over.", GOING_AWAY))
            await self._once(playback)

    async def _once(self, playback: Playback) -> None:
        loop = asyncio.get_running_loop()
        lines = [line for line in self._script.lines if line.native in playback.natives]
        start_s = loop.time()
        for line in lines:
            if self._speed is not None:
                due_s = start_s + (line.at - lines[0].at) / self._speed
                await asyncio.sleep(max(0.0, due_s - loop.time()))
            if playback.includes(line):
                await self.front.send_when_read(playback.client, line.frame)
        await playback.client.drained()


class Replay:
    """Recordings as exchanges on loopback, as an asynchronous context manager.

    `finished` is set while no frame is left to send to any subscriber; never if the replay loops.

    Args:
        paths: Recordings; those of one exchange (sockets and REST) are merged.
        speed: See `ReplayedExchange`.
        loop: Start over at the end.
        port: Port of the first exchange, the next ones follow; 0 for free ones.

    Raises:
        RecordingError: A file cannot be read or replayed.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        *,
        speed: float | None = 1.0,
        loop: bool = False,
        port: int = 0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.finished = asyncio.Event()
        self.scripts = scripts(paths)
        self._running = 0
        self._stack = AsyncExitStack()
        self._watching: asyncio.Task[None] | None = None
        self._exchanges = {
            name: ReplayedExchange(
                script,
                speed=speed,
                loop=loop,
                playing=self._count,
                port=port and port + number,
                clock=clock,
            )
            for number, (name, script) in enumerate(self.scripts.items())
        }

    @property
    def urls(self) -> dict[str, Urls]:
        """Addresses of each exchange."""
        return {name: exchange.loopback.urls for name, exchange in self._exchanges.items()}

    def exchanges(self) -> dict[str, Exchange]:
        """Return the exchanges' facts with the addresses of this replay."""
        return {name: redirected(EXCHANGES[name], urls) for name, urls in self.urls.items()}

    async def __aenter__(self) -> Self:
        for exchange in self._exchanges.values():
            self._stack.push_async_callback(exchange.stop)
            await exchange.loopback.start()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._watching is not None
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self._stack.aclose()

    def _count(self, change: int) -> None:
        self._running += change
        if self._running:
            self.finished.clear()
        else:
            self.finished.set()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            for exchange in self._exchanges.values():
                exchange.front.watch()
