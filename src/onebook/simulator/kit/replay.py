"""Replay: recorded frames, answered to the service's own subscriptions on loopback.

    async with Replay([Path("OKX.ws.1.0")], speed=10) as replay:
        ws_url, rest_url = replay.urls["okx"]

A client that subscribes gets the exchange's acknowledgement and then, from the beginning, the
recorded order-book frames of what it asked for, in recorded order; nothing else is sent. At the
end the connection stays open and heartbeats are answered, so that the last book stays live.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit.contract import Exchange
from onebook.simulator.kit.board import Dropped, ExchangeBoard, RestReply
from onebook.simulator.kit.dialects import DIALECTS
from onebook.simulator.kit.front import Front, redirected
from onebook.simulator.kit.loopback import Loopback, LoopbackClient, Urls
from onebook.simulator.kit.scripts import Line, Script, scripts

LOOP_PAUSE_S: Final = 1.0
WATCH_S: Final = 0.25
GOING_AWAY: Final = 1001
REST_BOOK_PATH: Final = "/api/v3/depth"


class Playback:
    """The frames of some natives on their way to one client."""

    def __init__(self, client: LoopbackClient, natives: Iterable[str]) -> None:
        self.client = client
        self.natives = set(natives)

    def includes(self, line: Line) -> bool:
        """Whether a frame is to be sent: not if it was unsubscribed or asked for again."""
        keys = self.client.session.topics.values()
        return line.native in self.natives and any(key.native == line.native for key in keys)


class ReplayedExchange:
    """One recorded exchange on one port.

    Args:
        script: What is recorded of it.
        speed: 2 is twice as fast as recorded; None as fast as the client reads.
        loop: Whether it starts over at the end.
        playing: Called whenever a playback starts or ends.
        port: Where it listens; 0 takes a free one.
        clock: The time of this exchange.
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
        """The recorded REST book, where the exchange's books start by REST."""
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
        """Stop listening and playing."""
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
                # A REST book cannot be announced anew on an open socket: the client returns.
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
                await self.front.say_when_read(playback.client, line.frame)
        await playback.client.drained()


class Replay:
    """Recordings as exchanges on loopback, as an asynchronous context manager.

    `finished` is set while nothing is left to be sent to any subscriber; never in a replay that
    loops.

    Args:
        paths: Recordings; those of one exchange, sockets and REST, belong together.
        speed: See `ReplayedExchange`.
        loop: Start over at the end.
        port: The first exchange listens here, the next ones above it; 0 takes free ones.

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
        """Where feeds find each exchange."""
        return {name: exchange.loopback.urls for name, exchange in self._exchanges.items()}

    def exchanges(self) -> dict[str, Exchange]:
        """The exchanges' facts with addresses that point here."""
        return {name: redirected(EXCHANGES[name], urls) for name, urls in self.urls.items()}

    async def __aenter__(self) -> Self:
        for exchange in self._exchanges.values():
            self._stack.push_async_callback(exchange.stop)
            await exchange.loopback.start()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
