"""Simulated exchanges on loopback: a market, a port each, updates at a pace, faults on demand.

    async with SimulatedExchanges(["okx", "kraken"], seed=7) as sim:
        ws_url, rest_url = sim.urls["okx"]
        sim["okx"].corrupt_next("BTC/USDT", "gap")

Point the service at `sim.exchanges()`. With `rate_hz=0` nothing moves but by `sim.step()`, so
that a test never waits for time to pass.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, NamedTuple, Self

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit.contract import Exchange, LossDetection
from onebook.simulator.kit.board import (
    ChannelKey,
    ExchangeBoard,
    PublishedBook,
    RestReply,
    TextChanges,
)
from onebook.simulator.kit.dialects import DIALECTS
from onebook.simulator.kit.faults import FAULTS, Case
from onebook.simulator.kit.front import Front, redirected
from onebook.simulator.kit.loopback import Loopback, Urls
from onebook.simulator.kit.market import MarketBooks

RATE_HZ: Final = 10.0
WATCH_S: Final = 0.25
FAULTS_QUEUED_MAX: Final = 1_000
ALL_LEVELS: Final = 1 << 20


def nothing(symbol: str) -> None:
    """Do nothing about a published change."""


class Truth(NamedTuple):
    """A book as it was last published: amounts by price, decimal texts, best first."""

    bids: dict[str, str]
    asks: dict[str, str]


class SimulatedExchange:
    """One exchange on one port; the methods are what a person or a test can do to it.

    `on_published` is called with the symbol after each change of a published book.
    """

    def __init__(self, name: str, market: MarketBooks, *, clock: Clock) -> None:
        kind = DIALECTS[name]
        self.name = name
        self._market = market
        self._board = ExchangeBoard(kind.listings, market.books(name), rules=kind.rules)
        self._dialect = kind(self._board)
        self._front = Front(self._dialect, self._board, clock=clock, instead=self._failure)
        self._natives = {listing.symbol: listing.native for listing in kind.listings}
        self._planned: dict[str, deque[str]] = {}
        self._rest_failures: deque[RestReply] = deque(maxlen=FAULTS_QUEUED_MAX)
        self._frozen = False
        self.on_published: Callable[[str], object] = nothing
        self._loopback = Loopback(name, self._front)

    @property
    def urls(self) -> Urls:
        """Where a feed finds it."""
        return self._loopback.urls

    @property
    def clients(self) -> int:
        """How many are connected."""
        return len(self._front.clients)

    @property
    def breaches(self) -> dict[str, int]:
        """How often clients went beyond a limit that it enforces, by what the limit is of."""
        return dict(self._front.breaches)

    def followers(self, symbol: str) -> int:
        """How many connections follow a symbol."""
        native = self._natives[symbol]
        return sum(
            any(key.native == native for key in client.session.topics.values())
            for client in self._front.clients
        )

    async def start(self) -> None:
        """Come (back), on the same port."""
        await self._loopback.start()

    async def stop(self) -> None:
        """Vanish without a close frame."""
        await self._loopback.stop()

    def freeze(self) -> None:
        """Publish nothing new; acks, snapshots, pongs and heartbeats go on."""
        self._frozen = True

    def thaw(self) -> None:
        """Publish again."""
        self._frozen = False

    def silence(self) -> None:
        """Send only pongs on open connections: no data, acks or heartbeats."""
        self._front.silent = True

    def speak(self) -> None:
        """End the silence; what was not sent meanwhile is lost."""
        self._front.silent = False

    def drop_next_frame(self, symbol: str) -> None:
        """Lose the next update of a symbol on its way."""
        self.corrupt_next(symbol, "gap")

    def corrupt_next(self, symbol: str, kind: str) -> None:
        """Spoil the next update of a symbol; kinds are the names in `FAULTS`.

        Raises:
            ValueError: No such kind, or this exchange sends no checksum.
        """
        if kind not in FAULTS:
            raise ValueError(f"unknown fault {kind!r}; there are: {', '.join(FAULTS)}")
        if kind == "checksum" and EXCHANGES[self.name].guard is not LossDetection.CHECKSUM:
            raise ValueError(f"{self.name} sends no checksum")
        planned = self._planned.setdefault(self._natives[symbol], deque(maxlen=FAULTS_QUEUED_MAX))
        planned.append(kind)

    def admit_all(self) -> None:
        """Take connection attempts and requests at any rate, so that no test waits for them."""
        self._front.admit_all()

    def refuse(self, symbol: str, *, named: bool = True) -> None:
        """Answer subscriptions of a symbol as this exchange answers unknown ones.

        Where not `named`, by an error that does not name the symbol.
        """
        self._board.nameless = not named
        self._board.refused.add(self._natives[symbol])

    def limit(self, times: int) -> None:
        """Answer the next subscription requests with "too many requests"."""
        self._board.limited = times

    def announce(self, frame: str, times: int = 1) -> None:
        """Send a frame to every client, `times` times."""
        for client in self._front.clients:
            self._front.say(client, [frame] * times)

    def set_system(self, system: str) -> None:
        """Change the state of the trading engine and publish it.

        Raises:
            ValueError: This exchange announces no such state.
        """
        status = self._dialect.rules.status
        if status is None:
            raise ValueError(f"{self.name} does not publish the state of its trading engine")
        self._board.system = system
        self.announce(status(system))

    def relist(self, symbol: str, price_ppm: int) -> None:
        """List another coin under the letters of a symbol, at so much of its price from now on."""
        self._market.books(self.name)[symbol].price_ppm = price_ppm
        for _ in self._market.step(self.name, (symbol,)):
            pass
        self.publish()

    def ack_without_snapshot(self, symbol: str) -> None:
        """Acknowledge subscriptions of a symbol and send nothing for it."""
        self._board.muted.add(self._natives[symbol])

    def kill_stream(self, symbol: str) -> None:
        """Deliver no update of a symbol, while its book and REST answers move on."""
        self._board.dead.add(self._natives[symbol])

    def fail_rest(self, status: int, *, times: int = 1, retry_after_s: int | None = None) -> None:
        """Answer the next REST requests with an error, such as 429 or 503."""
        retry = () if retry_after_s is None else (("Retry-After", str(retry_after_s)),)
        self._rest_failures.extend([RestReply(status, b'{"msg":"try later"}', retry)] * times)

    def heal(self) -> None:
        """Forget every fault that is planned or in force."""
        self._front.silent = self._frozen = False
        self._planned.clear()
        self._rest_failures.clear()
        self._board.refused.clear()
        self._board.nameless, self._board.limited = False, 0
        self._board.muted.clear()
        self._board.dead.clear()

    def book(self, symbol: str, levels: int | None = None) -> Truth:
        """The book as its clients must have it once they read everything that was sent.

        With `levels` only so many of each side, the best.
        """
        native = self._natives[symbol]
        channels = [c for c in self._board.followed() if c.key.native == native]
        channel = channels[0] if channels else self._board.channel(ChannelKey(native, ALL_LEVELS))
        assert channel is not None
        return Truth(*channel.truth(levels))

    def publish(self) -> None:
        """Advance the subscribed books one step, and send the changes."""
        if self._frozen:
            return
        followed = self._board.followed()
        for _ in self._market.step(self.name, {channel.listing.symbol for channel in followed}):
            pass
        for channel in followed:
            while (changes := channel.advance()) is not None:
                self._publish(channel, changes)

    def _publish(self, channel: PublishedBook, changes: TextChanges) -> None:
        self.on_published(channel.listing.symbol)
        if channel.key.native in self._board.dead:
            return
        case = Case(self._dialect, channel, changes, self._board.listings, self._front.now())
        planned = self._planned.get(channel.key.native)
        frames = FAULTS[planned.popleft()](case) if planned else [case.frame()]
        for client in self._front.clients:
            for key in client.session.topics.values():
                if key == channel.key:
                    self._front.say(client, client.session.formed(frames, case.frame()))

    def watch(self) -> None:
        """Send the heartbeats that are due and drop the clients that are silent."""
        self._front.watch()

    def _failure(self, path: str, query: Mapping[str, str]) -> RestReply | None:
        """What is answered instead of the truth."""
        return self._rest_failures.popleft() if self._rest_failures else None


class SimulatedExchanges:
    """Several simulated exchanges over one market, as an asynchronous context manager.

    Args:
        names: CCXT ids; all by default.
        seed: The same seed gives the same books.
        rate_hz: Updates a second of each followed book; 0 moves only by `step`.
        clock: The time of this exchange.
    """

    def __init__(
        self,
        names: Iterable[str] = tuple(DIALECTS),
        *,
        seed: int = 1,
        rate_hz: float = RATE_HZ,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        chosen = list(names)
        unknown = [name for name in chosen if name not in DIALECTS]
        if unknown:
            raise ValueError(
                f"no simulated exchange {unknown[0]!r}; there are: {', '.join(DIALECTS)}"
            )
        self.rate_hz = rate_hz
        self._market = MarketBooks(
            {name: DIALECTS[name] for name in chosen},
            seed=seed,
            monotonic=clock.monotonic if rate_hz else None,
        )
        self._exchanges = {
            name: SimulatedExchange(name, self._market, clock=clock) for name in chosen
        }
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    def __getitem__(self, name: str) -> SimulatedExchange:
        return self._exchanges[name]

    @property
    def urls(self) -> dict[str, Urls]:
        """Where feeds find each exchange."""
        return {name: exchange.urls for name, exchange in self._exchanges.items()}

    def exchanges(self) -> dict[str, Exchange]:
        """The exchanges' facts with addresses that point here."""
        return {name: redirected(EXCHANGES[name], urls) for name, urls in self.urls.items()}

    def step(self) -> None:
        """Move the market once and publish everywhere."""
        self._market.move()
        for exchange in self._exchanges.values():
            exchange.publish()

    async def __aenter__(self) -> Self:
        for exchange in self._exchanges.values():
            await exchange.start()
            self._stack.push_async_callback(exchange.stop)
        loops = [self._watch()] + ([self._pace()] if self.rate_hz else [])
        self._tasks = [asyncio.create_task(loop) for loop in loops]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def _pace(self) -> None:
        """Publish one exchange after the other, spread over the interval."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            self._market.move()
            for exchange in self._exchanges.values():
                exchange.publish()
                # A moment that was missed is not made up for: the pace never becomes a burst.
                due = max(due + 1 / self.rate_hz / len(self._exchanges), loop.time())
                await asyncio.sleep(due - loop.time())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            for exchange in self._exchanges.values():
                exchange.watch()
