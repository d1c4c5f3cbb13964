"""A simulated exchange in a world of virtual time, and the complete history of its books."""

from collections import deque
from functools import partial
from random import Random
from typing import NamedTuple

from contract.venue import list_body
from onebook.clock import ManualClock
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import BookChannel, Exchange, LossDetection
from onebook.simulator import DIALECTS
from onebook.simulator.kit import (
    ChannelKey,
    Dropped,
    ExchangeBoard,
    Frame,
    Now,
    PublishedBook,
    RestReply,
    TextChanges,
)
from onebook.simulator.kit import SimulatedSession as ClientSession
from onebook.simulator.kit.loopback import Front
from onebook.simulator.kit.market import MarketBooks
from onebook.simulator.kit.server import FAULTS, Case

HISTORY_MAX = 4_000

# The faults that a connector can detect. Without numbers, a missing frame is undetectable, and
# Kraken's checksum covers only ten levels: there the order of TCP is the guarantee, and it is
# preserved.
SEEN_BY_ALL = ("garbage", "nan", "crossed")
SEEN_UNLESS_SIGNED = ("negative",)  # except where it is an ask
SEEN_BY_NUMBERS = ("gap", "duplicate", "wrong_symbol", "reorder")
SEEN_BY_COUNT = ("gap", "duplicate")  # numbers are assigned per client, and therefore in order
SEEN_BY_CHECKSUM = ("checksum", "duplicate")


def requests_replace(exchange: Exchange) -> bool:
    """Whether a request of this exchange replaces previous ones: it has no unsubscription."""
    assert isinstance(exchange.connector, partial), exchange.name
    channel = exchange.connector.args[0]
    assert isinstance(channel, BookChannel), exchange.name
    return channel.unsubscribe is None


class State(NamedTuple):
    """The state of a book from a time on: amounts by price, in units of lot and tick."""

    since_s: float
    number: int
    bids: dict[int, int]
    asks: dict[int, int]


class Wire:
    """A client from the exchange's perspective: a session, and the destination of frames."""

    def __init__(self, session: ClientSession, put) -> None:
        self.session = session
        self.put = put


class Venue:
    """One exchange: books, protocol, clients, history, and injected faults."""

    def __init__(self, name: str, market: MarketBooks, clock: ManualClock, rng: Random) -> None:
        kind = DIALECTS[name]
        self.name = name
        self.exchange: Exchange = EXCHANGES[name]
        self.reachable = True
        self.publishing = True
        self.rest_failing = False
        self.fault_share = 0.0
        self.was_muted = False
        self.history: dict[str, deque[State]] = {}
        self._market = market
        self._clock = clock
        self._rng = rng
        self._board = ExchangeBoard(kind.listings, market.books(name), rules=kind.rules)
        self._dialect = kind(self._board)
        self.front = Front(self._dialect, self._board, clock=clock, instead=self._failure)
        body = list_body(self.exchange, self._dialect, self._now())
        listed = self.exchange.parse_instruments(body)
        self.instruments = {each.symbol: each for each in listed}
        faults = SEEN_BY_ALL
        if not kind.rules.signed_amounts:
            faults += SEEN_UNLESS_SIGNED
        if self.exchange.guard is LossDetection.NUMBERS:
            faults += SEEN_BY_NUMBERS
        if self.exchange.guard is LossDetection.COUNT:
            faults += SEEN_BY_COUNT
        if self.exchange.guard is LossDetection.CHECKSUM:
            faults += SEEN_BY_CHECKSUM
        self._faults = faults
        self._held: dict[PublishedBook, str] = {}
        self._late_tops: dict[ChannelKey, list[Frame]] = {}
        self._listings = {listing.symbol: listing for listing in kind.listings}

    def units(self, symbol: str) -> tuple[int, int]:
        """The ticks of a price of 1, and the lots of an amount of 1."""
        listing = self._listings[symbol]
        return 10**listing.price_decimals, 10**listing.amount_decimals

    def publish(self) -> None:
        """Advance the books one step, and send the changes to their subscribers."""
        if not self.publishing:
            return
        windows = self._board.windows()
        self.observe_all()  # a subscription since the last step may have its first state
        for _ in range(self._dialect.rules.states):
            for _ in self._market.step(self.name, {each.listing.symbol for each in windows}):
                pass
            for key, frame in self._board.collect(self._dialect, self._now()):
                self._tell_top(key, frame)
            self.observe_all()
        for channel in windows:
            self.observe(channel)
            while (changes := channel.advance()) is not None:
                self._tell(channel, changes)

    def _tell_top(self, key: ChannelKey, frame: Frame) -> None:
        """Send a best price; each is independent, so it may be lost, duplicated or late."""
        frames = [*self._late_tops.pop(key, ()), frame]
        if self._rng.random() < self.fault_share:
            kind = self._rng.choice(("lost", "doubled", "late"))
            if kind == "late":
                self._late_tops[key] = frames
            frames = frames * 2 if kind == "doubled" else []
        for client in self.front.clients:
            if key in client.session.topics.values():
                self.front.send(client, client.session.formed(list(frames), frame))

    def _tell(self, channel: PublishedBook, changes: TextChanges) -> None:
        case = Case(self._dialect, channel, changes, self._board.listings, self._now())
        frames = self._spoilt(case, channel)
        self.observe(channel)
        for client in self.front.clients:
            for key in client.session.topics.values():
                if key == channel.key:
                    self.front.send(client, client.session.formed(frames, case.frame()))

    def observe(self, channel: PublishedBook) -> None:
        """Record the state of a book if it is new."""
        channel = channel.newest
        states = self.history.setdefault(channel.listing.symbol, deque(maxlen=HISTORY_MAX))
        if not states or states[-1].number != channel.sequence:
            states.append(State(self._clock.now_s, channel.sequence, *channel.levels()))

    def observe_all(self) -> None:
        """Record the state of every book."""
        for channel in self._board.windows():
            self.observe(channel)

    def _spoilt(self, case: Case, channel: PublishedBook) -> list[Frame]:
        """The frames of a change; a frame held back earlier follows it."""
        late = self._held.pop(channel, None)
        if late is not None:
            return [case.frame(), late]
        if self._rng.random() >= self.fault_share:
            return [case.frame()]
        kind = self._rng.choice(self._faults)
        if kind == "reorder":
            self._held[channel] = case.frame()
            return []
        return FAULTS[kind](case)

    def watch(self) -> None:
        """Heartbeats and idle limits."""
        self.front.watch()

    def heal(self) -> None:
        """End all faults."""
        self.reachable = self.publishing = True
        self.rest_failing = False
        self.fault_share = 0.0
        self._held.clear()
        self._board.refused.clear()
        self._board.muted.clear()

    def refuse(self, symbol: str) -> None:
        # Refused names are silently omitted from the next request, which replaces this one.
        self.was_muted |= requests_replace(self.exchange)
        self._board.refused.add(self.instruments[symbol].native)

    def mute(self, symbol: str) -> None:
        self.was_muted = True
        self._board.muted.add(self.instruments[symbol].native)

    def _failure(self, path, query) -> RestReply | None:
        return RestReply(503, b'{"msg":"try later"}') if self.rest_failing else None

    def _now(self) -> Now:
        return Now(self._clock.now_s, self._clock.wall_ms())


__all__ = ["Dropped", "Venue", "Wire"]
