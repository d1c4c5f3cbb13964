"""Simulated exchanges on loopback: a market, one port each, updates at a rate, faults on demand.

    async with SimulatedExchanges(["okx", "kraken"], seed=7) as sim:
        ws_url, rest_url = sim.urls["okx"]
        sim["okx"].corrupt_next("BTC/USDT", "gap")

Point the service at `sim.exchanges()`. With `rate_hz=0` only `sim.step()` moves the market, so that
tests need not wait for time to pass. `FAULTS` lists the faults of single frames: each affects one
frame of a symbol, for all of its clients, and a feed must then invalidate and resync that book.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from decimal import Decimal
from importlib import import_module
from typing import Final, NamedTuple, Self

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.exchanges import EXCHANGES, NAMES
from onebook.exchanges.kit.contract import Exchange, LossDetection
from onebook.simulator.kit.board import (
    ChannelKey,
    Dialect,
    ExchangeBoard,
    Frame,
    Now,
    PublishedBook,
    RestReply,
    TextChanges,
)
from onebook.simulator.kit.loopback import Front, Loopback, Urls, redirected
from onebook.simulator.kit.market import ListedSymbol, MarketBooks

DIALECTS: Final[dict[str, type[Dialect]]] = {
    name: import_module(f"onebook.simulator.{name}").DIALECT for name in NAMES
}
RATE_HZ: Final = 10.0
WATCH_S: Final = 0.25
FAULTS_QUEUED_MAX: Final = 1_000
ALL_LEVELS: Final = 1 << 20
HUGE_BYTES: Final = 4 * 1024 * 1024 + 1  # one byte more than a feed accepts


class Case(NamedTuple):
    """The frame to send, and its parts."""

    dialect: Dialect
    channel: PublishedBook
    changes: TextChanges
    natives: Iterable[str]
    now: Now

    def frame(self, changes: TextChanges | None = None) -> Frame:
        """Encode the true frame, or one with other changes."""
        return self.dialect.delta(self.channel, changes or self.changes, self.now)


def gap(case: Case) -> list[Frame]:
    """Lose the frame and its numbers."""
    return []


def duplicate(case: Case) -> list[Frame]:
    """Send the frame twice."""
    return [case.frame()] * 2


def garbage(case: Case) -> list[Frame]:
    """Truncate the frame."""
    frame = case.frame()
    return [frame[: len(frame) // 2]]


def checksum(case: Case) -> list[Frame]:
    """Change the checksum."""
    frame = case.frame()
    assert isinstance(frame, str), "no binary frame has a checksum"
    field = f'"{case.dialect.rules.checksum_field}":'
    return [frame.replace(field, f"{field}1", 1)]


def nan(case: Case) -> list[Frame]:
    """Send a price that is not a number."""
    return [case.frame(_with_bid(case.changes, "NaN", "1"))]


def negative(case: Case) -> list[Frame]:
    """Send a negative amount."""
    price = case.channel.top(1).bids[0][0]
    return [case.frame(_with_bid(case.changes, price, "-1"))]


def huge(case: Case) -> list[Frame]:
    """Send an oversized frame: valid JSON with much white space, or zeros."""
    frame = case.frame()
    if isinstance(frame, bytes):
        return [frame.ljust(HUGE_BYTES, b"\0")]
    return [frame[:-1] + " " * (HUGE_BYTES - len(frame)) + frame[-1]]


def crossed(case: Case) -> list[Frame]:
    """Add a bid above the best ask, which stays until the next snapshot."""
    true = case.frame()
    return [true, case.frame(case.channel.cross())]


def wrong_symbol(case: Case) -> list[Frame]:
    """Send the changes under the name of another pair."""
    native = case.channel.listing.native
    other = next(name for name in case.natives if name != native)
    return [case._replace(channel=case.channel.labelled(other)).frame()]


def lie(case: Case) -> list[Frame]:
    """Double the amount of a bid."""
    price, amount = case.channel.top(3).bids[-1]
    return [case.frame(_with_bid(case.changes, price, str(2 * Decimal(amount))))]


def _with_bid(changes: TextChanges, price: str, amount: str) -> TextChanges:
    return TextChanges([*changes.bids, (price, amount)], changes.asks)


Fault = Callable[[Case], list[Frame]]
FAULTS: Final[dict[str, Fault]] = {
    "gap": gap,
    "duplicate": duplicate,
    "garbage": garbage,
    "checksum": checksum,
    "nan": nan,
    "negative": negative,
    "huge": huge,
    "crossed": crossed,
    "wrong_symbol": wrong_symbol,
}


def nothing(symbol: str) -> None:
    """Do nothing."""


class Truth(NamedTuple):
    """The last published book: amounts by price as decimal text, best first."""

    bids: dict[str, str]
    asks: dict[str, str]


class SimulatedExchange:
    """One simulated exchange on one port, with methods to inspect it and to inject faults.

    `on_published` is called with the symbol after each change of a published book.
    """

    def __init__(self, name: str, market: MarketBooks, *, clock: Clock) -> None:
        kind = DIALECTS[name]
        self.name = name
        self._market = market
        self._clock = clock
        self._board = ExchangeBoard(kind.listings, market.books(name), rules=kind.rules)
        self._dialect = kind(self._board)
        self._front = Front(self._dialect, self._board, clock=clock, instead=self._failure)
        self._natives = {listing.symbol: listing.native for listing in kind.listings}
        self._delisted: dict[str, ListedSymbol] = {}
        self._planned: dict[str, deque[Fault]] = {}
        self._rest_failures: deque[RestReply] = deque(maxlen=FAULTS_QUEUED_MAX)
        self._frozen = False
        self._state = 0  # states since the last message of the depth
        self.on_published: Callable[[str], object] = nothing
        self._loopback = Loopback(name, self._front)

    @property
    def urls(self) -> Urls:
        """The addresses of this exchange."""
        return self._loopback.urls

    @property
    def clients(self) -> int:
        """Number of connected clients."""
        return len(self._front.clients)

    @property
    def breaches(self) -> dict[str, int]:
        """Number of exceeded limits by kind."""
        return dict(self._front.breaches)

    def followers(self, symbol: str) -> int:
        """Return the number of connections subscribed to a symbol."""
        native = self._natives[symbol]
        return sum(
            any(key.native == native for key in client.session.topics.values())
            for client in self._front.clients
        )

    async def start(self) -> None:
        """Start listening, on the same port as before."""
        await self._loopback.start()

    async def stop(self) -> None:
        """Stop listening and end connections without a close frame."""
        await self._loopback.stop()

    def freeze(self) -> None:
        """Publish no changes; acknowledgements, snapshots, pongs and heartbeats continue."""
        self._frozen = True

    def unfreeze(self) -> None:
        """Publish again."""
        self._frozen = False

    def silence(self) -> None:
        """Send only pongs on open connections: no data, acknowledgements or heartbeats."""
        self._front.silent = True

    def end_silence(self) -> None:
        """Send again; frames of the silence are lost."""
        self._front.silent = False

    def drop_next_frame(self, symbol: str) -> None:
        """Lose the next update of a symbol."""
        self.corrupt_next(symbol, "gap")

    def corrupt_next(self, symbol: str, kind: str) -> None:
        """Inject a fault of `FAULTS` into the next update of a symbol.

        Raises:
            ValueError: The kind is unknown, or this exchange sends no checksum.
        """
        if kind not in FAULTS:
            raise ValueError(f"unknown fault {kind!r}; there are: {', '.join(FAULTS)}")
        if kind == "checksum" and EXCHANGES[self.name].guard is not LossDetection.CHECKSUM:
            raise ValueError(f"{self.name} sends no checksum")
        self._plan(symbol, FAULTS[kind])

    def lie_next(self, symbol: str) -> None:
        """Send a wrong amount in the next update of a symbol, without any sign of it."""
        self._plan(symbol, lie)

    def _plan(self, symbol: str, fault: Fault) -> None:
        planned = self._planned.setdefault(self._natives[symbol], deque(maxlen=FAULTS_QUEUED_MAX))
        planned.append(fault)

    def admit_all(self) -> None:
        """Allow connection attempts and requests at any rate, so that tests need not wait."""
        self._front.admit_all()

    def refuse(self, symbol: str, *, named: bool = True) -> None:
        """Answer subscriptions of a symbol as this exchange answers unknown ones.

        Without `named`, the error does not name the symbol.
        """
        self._board.nameless = not named
        self._board.refused.add(self._natives[symbol])

    def limit(self, times: int) -> None:
        """Answer the next subscription requests with "too many requests"."""
        self._board.limited = times

    def announce(self, frame: str, times: int = 1) -> None:
        """Send a frame to every client, `times` times."""
        for client in self._front.clients:
            self._front.send(client, [frame] * times)

    def set_system(self, system: str) -> None:
        """Set the state of the trading engine and publish it.

        Raises:
            ValueError: This exchange does not publish the state.
        """
        status = self._dialect.rules.status
        if status is None:
            raise ValueError(f"{self.name} does not publish the state of its trading engine")
        self._board.system = system
        self.announce(status(system))

    def relist(self, symbol: str, price_ppm: int) -> None:
        """List another coin under a symbol, from now on at `price_ppm` of the price."""
        self._market.books(self.name)[symbol].price_ppm = price_ppm
        for _ in self._market.step(self.name, (symbol,)):
            pass
        self.publish()

    def delist(self, symbol: str) -> None:
        """Leave a symbol that no client follows out of the instrument list, and refuse it."""
        native = self._natives[symbol]
        self._delisted[symbol] = self._board.listings.pop(native)

    def list_again(self, symbol: str) -> None:
        """List a delisted symbol."""
        self._board.listings[self._natives[symbol]] = self._delisted.pop(symbol)

    def ack_without_snapshot(self, symbol: str) -> None:
        """Acknowledge subscriptions of a symbol without sending data."""
        self._board.muted.add(self._natives[symbol])

    def kill_stream(self, symbol: str) -> None:
        """Send no updates of a symbol while its book and REST bodies continue to change."""
        self._board.dead.add(self._natives[symbol])

    def fail_rest(self, status: int, *, times: int = 1, retry_after_s: int | None = None) -> None:
        """Answer the next REST requests for books or lists with an error status, as 429 or 503."""
        retry = () if retry_after_s is None else (("Retry-After", str(retry_after_s)),)
        self._rest_failures.extend([RestReply(status, b'{"msg":"try later"}', retry)] * times)

    def heal(self) -> None:
        """Clear all planned and active faults."""
        self._front.silent = self._frozen = False
        self._planned.clear()
        self._rest_failures.clear()
        self._board.refused.clear()
        self._board.nameless, self._board.limited = False, 0
        self._board.muted.clear()
        self._board.dead.clear()

    def newest(self, symbol: str, levels: int | None = None) -> Truth:
        """Return the newest book, which may be ahead of the last message of the depth.

        `levels` limits it to the best levels of each side.
        """
        native = self._natives[symbol]
        channels = [c for c in self._board.followed() if c.key.native == native]
        return Truth(*channels[0].newest.truth(levels)) if channels else self.book(symbol, levels)

    def book(self, symbol: str, levels: int | None = None) -> Truth:
        """Return the book that clients must have once they have read all frames.

        `levels` limits it to the best levels of each side.
        """
        native = self._natives[symbol]
        channels = [c for c in self._board.followed() if c.key.native == native]
        channel = channels[0] if channels else self._board.channel(ChannelKey(native, ALL_LEVELS))
        assert channel is not None
        return Truth(*channel.truth(levels))

    @property
    def states(self) -> int:
        """Number of states of the market in a message of the depth."""
        return self._dialect.rules.states

    def publish(self) -> None:
        """Advance the subscribed books by one message of the depth, and send the changes."""
        for _ in range(self.states):
            self.publish_state()

    def publish_state(self) -> None:
        """Advance the subscribed books one state: send best prices, at the last also the depth."""
        if self._frozen and not self._state:  # the depth follows its best prices first
            return
        followed = self._board.followed()
        for _ in self._market.step(self.name, {channel.listing.symbol for channel in followed}):
            pass
        for key, frame in self._board.collect(self._dialect, Now.of(self._clock)):
            self._publish_top(key, frame)
        self._state = (self._state + 1) % self.states
        if self._state:
            return
        for channel in followed:
            while (changes := channel.advance()) is not None:
                self._publish(channel, changes)

    def _publish_top(self, key: ChannelKey, frame: Frame) -> None:
        for client in self._front.clients:
            if key in client.session.topics.values():
                self._front.send(client, client.session.formed([frame], frame))

    def _publish(self, channel: PublishedBook, changes: TextChanges) -> None:
        self.on_published(channel.listing.symbol)
        if channel.key.native in self._board.dead:
            return
        case = Case(self._dialect, channel, changes, self._board.listings, Now.of(self._clock))
        planned = self._planned.get(channel.key.native)
        frames = planned.popleft()(case) if planned else [case.frame()]
        for client in self._front.clients:
            for key in client.session.topics.values():
                if key == channel.key:
                    self._front.send(client, client.session.formed(frames, case.frame()))

    def watch(self) -> None:
        """Send due heartbeats and disconnect silent clients."""
        self._front.watch()

    def _failure(self, path: str, query: Mapping[str, str]) -> RestReply | None:
        """Return the planned error response, if any; requests for the time use up none."""
        clock = self._dialect.rules.clock
        if not self._rest_failures or (clock is not None and path == clock[0]):
            return None
        return self._rest_failures.popleft()


class SimulatedExchanges:
    """Several simulated exchanges over one market, as an asynchronous context manager.

    Args:
        names: CCXT ids; all by default.
        seed: The same seed makes the same books.
        rate_hz: Updates per second of each subscribed book; 0 moves only by `step`.
        clock: The clock of the exchanges.
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
                f"unknown simulated exchange {unknown[0]!r}; available:  {', '.join(DIALECTS)}"
            )
        self.rate_hz = rate_hz
        self._market = MarketBooks(
            {name: DIALECTS[name].offer() for name in chosen},
            seed=seed,
            clock=clock.monotonic if rate_hz else None,
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
        """Addresses of each exchange."""
        return {name: exchange.urls for name, exchange in self._exchanges.items()}

    def exchanges(self) -> dict[str, Exchange]:
        """Return the exchanges' facts with the addresses of this simulation."""
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
        loops = [self._watch()]
        if self.rate_hz:
            paces = enumerate(self._exchanges.values())
            loops += [self._move(), *(self._pace(each, place) for place, each in paces)]
        self._tasks = [asyncio.create_task(loop) for loop in loops]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def _move(self) -> None:
        while True:
            self._market.move()
            await asyncio.sleep(1 / self.rate_hz)

    async def _pace(self, exchange: SimulatedExchange, place: int) -> None:
        """Publish one exchange: its states evenly over the interval, between those of others."""
        now_s = asyncio.get_running_loop().time
        due_s = now_s() + place / len(self._exchanges) / self.rate_hz
        while True:
            await asyncio.sleep(due_s - now_s())
            exchange.publish_state()
            # Missed times are skipped, so that no burst follows.
            due_s = max(due_s + 1 / self.rate_hz / exchange.states, now_s())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            for exchange in self._exchanges.values():
                exchange.watch()
