"""The connections of an exchange in virtual time: does what `feeds.feed` does, without sockets.

Frames arrive in order, each after a delay; a connection can be cut, stalled or refused.
"""

from collections.abc import Callable, Iterable
from random import Random
from urllib.parse import parse_qsl, urlsplit

from onebook.books import Books
from onebook.clock import Handle, ManualClock
from onebook.exchanges.kit.contract import Fetch, FrameForm, Seeded
from onebook.feeds.connection import TICK_S
from onebook.feeds.limits import FeedLimits
from onebook.feeds.outbox import Request, SendPing, Transmit
from onebook.feeds.session import FeedSession
from onebook.feeds.stats import ExchangeStats
from onebook.inflate import inflated
from onebook.model import Health, Instrument
from proofs.venue import Dropped, Venue, Wire

DELAY_S = (0.001, 0.08)
REST_DELAY_S = (0.01, 0.6)
RECONNECT_S = (0.05, 0.6)


class Link:
    """One exchange's connection, reopened whenever it ends."""

    def __init__(
        self, venue: Venue, books: Books, clock: ManualClock, rng: Random, limits: FeedLimits
    ) -> None:
        self._mute = False
        self._deaf = False
        self._held: list[str | bytes | Dropped] = []
        self._venue = venue
        self._books = books
        self._clock = clock
        self._rng = rng
        self._limits = limits
        self._stats = ExchangeStats(venue.name)
        self._instruments: dict[Instrument, None] = {}
        self._session: FeedSession | None = None
        self._wire: Wire | None = None
        self._epoch = 0
        self._arrives_s = 0.0
        self._connecting = False
        self._ticker: Handle | None = None

    def acquire(self, instrument: Instrument) -> None:
        """Add an instrument whose book is open."""
        self._instruments[instrument] = None
        if self._session is not None:
            self._session.add([instrument], self._clock.now_s)
            self._execute()
        elif not self._connecting:
            self._connect_later(0.0)

    def release(self, instrument: Instrument) -> None:
        """Remove an instrument."""
        self._instruments.pop(instrument, None)
        if self._session is not None:
            self._session.remove([instrument], self._clock.now_s)
            self._execute()

    def cut(self) -> None:
        """Lose the socket without a close frame."""
        self._down("cut")

    @property
    def is_seeded(self) -> bool:
        """Whether its books start at requested bodies."""
        return isinstance(self._venue.exchange.connector([]), Seeded)

    def silence(self, *, pongs: bool) -> None:
        """Deliver nothing from now on; optionally still answer pings."""
        self._mute, self._deaf = True, not pongs

    def resume(self) -> None:
        """Deliver the delayed frames and continue: TCP delays data, but does not lose it."""
        self._mute = self._deaf = False
        held, self._held = self._held, []
        for frame in held:
            self._put(frame)

    def _connect_later(self, delay_s: float) -> None:
        self._connecting = True
        self._after(delay_s, self._connect)

    def _after(self, delay_s: float, callback: Callable[[], None]) -> Handle:
        return self._clock.call_at(self._clock.now_s + delay_s, callback)

    def _connect(self) -> None:
        self._connecting = False
        if not self._instruments or self._session is not None:
            return
        now = self._clock.now_s
        if not self._venue.reachable:
            for instrument in list(self._instruments):
                self._refuse(instrument, now)
            self._connect_later(self._rng.uniform(*RECONNECT_S))
            return
        self._epoch += 1
        self._session = FeedSession(
            self._venue.exchange,
            list(self._instruments),
            books=self._books,
            limits=self._limits,
            stats=self._stats,
            jitter=self._rng.random,
        )
        self._arrives_s = now
        self._session.opened(now)
        self._wire = Wire(self._venue.front.session(self._path()), self._put)
        self._venue.front.joined(self._wire)
        self._execute()
        self._tick_later(self._epoch)

    def _refuse(self, instrument: Instrument, now: float) -> None:
        self._books.set_health(instrument, Health.OFFLINE, "offline", now)

    def _path(self) -> str:
        url = urlsplit(self._venue.exchange.ws_url)
        return url.path + (f"?{url.query}" if url.query else "")

    def _put(self, frame: str | bytes | Dropped) -> None:
        """Send a frame from the exchange; it arrives later, after all earlier ones."""
        if self._mute:
            self._held.append(frame)
            return
        epoch = self._epoch
        self._arrives_s = max(self._arrives_s, self._clock.now_s + self._rng.uniform(*DELAY_S))

        def arrive() -> None:
            if epoch != self._epoch or self._session is None:
                return
            if isinstance(frame, Dropped):
                self._down(frame.reason)
                return
            data = frame.encode() if isinstance(frame, str) else frame
            if self._venue.exchange.frames is FrameForm.COMPRESSED:
                data = inflated(data, self._limits.frame_bytes_max)
            self._session.received(data, self._clock.now_s)
            self._execute()

        self._clock.call_at(self._arrives_s, arrive)

    def _execute(self) -> None:
        session = self._session
        if session is None:
            return
        for action in session.drain(self._clock.now_s):
            match action:
                case Transmit(frame):
                    self._transmit(frame)
                case Request(fetch):
                    self._fetch(fetch)
                case SendPing():
                    self._pong()
                case _:
                    self._down("ended")
                    return

    def _transmit(self, frame: bytes) -> None:
        epoch, wire = self._epoch, self._wire

        def reach() -> None:
            if epoch != self._epoch or wire is None:
                return
            try:
                self._venue.front.received(wire, frame.decode())
            except Dropped as dropped:
                self._put(dropped)

        self._after(DELAY_S[0], reach)

    def _pong(self) -> None:
        """The remote host answers pings even if the exchange behind it is dead."""
        epoch = self._epoch

        def answer() -> None:
            if epoch == self._epoch and self._session is not None:
                self._session.received_control(self._clock.now_s)

        if not self._deaf:
            self._after(self._rng.uniform(*DELAY_S), answer)

    def _fetch(self, fetch: Fetch) -> None:
        epoch = self._epoch

        def reach() -> None:
            url = urlsplit(fetch.path)
            answer = self._venue.front.get(url.path, dict(parse_qsl(url.query)))
            self._after(self._rng.uniform(*DELAY_S), lambda: back(answer))

        def back(answer) -> None:
            if epoch != self._epoch or self._session is None:
                return
            if answer is None or answer.status != 200:
                self._session.fetch_failed(fetch.instrument, "no body", self._clock.now_s)
            else:
                self._session.fetched(fetch.instrument, answer.body, self._clock.now_s)
            self._execute()

        self._after(self._rng.uniform(*REST_DELAY_S), reach)

    def _tick_later(self, epoch: int) -> None:
        def tick() -> None:
            if epoch != self._epoch or self._session is None:
                return
            self._session.tick(self._clock.now_s)
            self._execute()
            self._tick_later(epoch)

        self._after(TICK_S, tick)

    def _down(self, reason: str) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        self._epoch += 1
        session.closed(self._clock.now_s)
        assert self._wire is not None
        self._venue.front.left(self._wire)
        self._wire = None
        self._held.clear()
        self._connect_later(self._rng.uniform(*RECONNECT_S))


class Links:
    """The supervisor of a simulated world: reference counted, one connection per exchange."""

    def __init__(
        self,
        links: dict[str, Link],
        books: Books,
        levels_max: dict[str, int],
        state: Callable[[str], str],
    ) -> None:
        self.state = state
        self._links = links
        self._books = books
        self._levels_max = levels_max
        self._users: dict[Instrument, int] = {}

    def in_use(self) -> Iterable[str]:
        return self._links.keys()

    def acquire(self, instrument: Instrument) -> None:
        users = self._users.get(instrument, 0)
        self._users[instrument] = users + 1
        if not users:
            self._books.open(instrument, levels_max=self._levels_max[instrument.exchange])
            self._links[instrument.exchange].acquire(instrument)

    def release(self, instrument: Instrument) -> None:
        self._users[instrument] -= 1
        if not self._users[instrument]:
            del self._users[instrument]
            self._links[instrument.exchange].release(instrument)
            self._books.close(instrument)

    def wanted(self) -> Iterable[Instrument]:
        return list(self._users)
