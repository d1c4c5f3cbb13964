"""One seed, one execution: exchanges, feeds, books, streams and a gateway in virtual time.

Everything except the sockets is real: the simulator's dialects, `feeds.Session` with the
connectors, `Books`, `Streams`, the gateway with its commands and frames. Time, latencies, faults
and the clients' actions come from the seed. Each update is compared with the exchanges' own
history, so that a book is always either correct or not live, never a third state.
"""

from collections.abc import Callable
from random import Random

from onebook.accounts import Accounts, Peppers
from onebook.books import Books
from onebook.config import GatewaySettings
from onebook.core.types import LEVELS_MAX
from onebook.exchanges import EXCHANGES
from onebook.feeds.limits import FeedLimits
from onebook.gateway import Gateway
from onebook.model import Health, Instrument
from onebook.signals import Signal
from onebook.simulator import DIALECTS
from onebook.simulator.kit.market import MarketBooks
from onebook.store import Store
from onebook.streams import StreamKey, ViewOptions
from proofs.client import Client
from proofs.clock import world_clock
from proofs.link import Link, Links
from proofs.venue import Venue
from proofs.viewer import Broken, Viewer

PUBLISH_S = 0.2
READ_S = 0.02
WATCH_S = 0.25
LASTS_S = 10.0
CALM_MAX_S = 60.0  # after the last fault, everything must be live again within this time
CALM_STEP_S = 2.0
BEHIND_MAX_S = 5.0  # the longest interval of a view, plus one or two unread updates
SYMBOLS = ("BTC/USDT", "ETH/USDT")
# Exchanges that list both, and carry both on one connection, as the links of this world do.
LISTING = sorted(
    name
    for name, dialect in DIALECTS.items()
    if {*SYMBOLS} <= {each.symbol for each in dialect.listings}
    and EXCHANGES[name].limits.topics >= len(SYMBOLS)
)
LIMITS = FeedLimits(retry_offline_s=5.0, resync_max_s=4.0, stable_s=5.0)

GATEWAY = GatewaySettings()
NO_DATABASE = "sqlite+aiosqlite:///no/such/file"  # nothing here uses it


class Catalogue:
    """The instrument of a symbol on an exchange."""

    def __init__(self, venues: dict[str, Venue]) -> None:
        self._venues = venues
        self.on_read: Signal[[str]] = Signal()

    def instrument(self, exchange: str, symbol: str) -> Instrument | None:
        venue = self._venues.get(exchange)
        return venue.instruments.get(symbol) if venue else None

    def exchanges(self, symbol: str) -> list[str]:
        return [name for name, venue in self._venues.items() if symbol in venue.instruments]

    def pairs(self, exchange: str) -> list[str]:
        return list(self._venues[exchange].instruments)

    def unread(self) -> set[str]:
        return set()

    def suggest(self, symbol: str, n: int = 3) -> list[str]:
        return []

    def state(self, exchange: str) -> str:
        return "active"


class World:
    """A whole service against simulated exchanges, from one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.clock = world_clock()
        self.books = Books()
        names = sorted(self.rng.sample(LISTING, self.rng.randint(2, 4)))
        self._market = MarketBooks({name: DIALECTS[name].offer() for name in names}, seed=seed)
        self.venues = {
            name: Venue(name, self._market, self.clock, Random(f"{seed}/{name}")) for name in names
        }
        self.links = {
            name: Link(venue, self.books, self.clock, Random(f"{seed}/{name}/link"), LIMITS)
            for name, venue in self.venues.items()
        }
        levels_max = {
            name: EXCHANGES[name].depth if EXCHANGES[name].truncate else LEVELS_MAX
            for name in names
        }
        catalogue = Catalogue(self.venues)
        self.gateway = Gateway(
            GATEWAY,
            accounts=Accounts(Store(NO_DATABASE), Peppers(b"p" * 32), clock=self.clock),
            books=self.books,
            catalogue=catalogue,
            supervisor=Links(self.links, self.books, levels_max, catalogue.state),
            clock=self.clock,
        )
        self.clients: list[Client] = []
        self.done: list[str] = []  # the events so far, for the report of a failure
        self.broken: list[str] = []
        self.updates = 0  # checked updates
        self._faults_until_s = self.clock.now_s + LASTS_S

    def run(self) -> None:
        """Run the faults, then the calm, and shut down."""
        try:
            self._every(PUBLISH_S, self._publish)
            self._every(WATCH_S, self._watch)
            self._every(READ_S, self._read)
            for number in range(self.rng.randint(1, 3)):
                packed = self.rng.random() < 0.5
                self.clients.append(Client(self.gateway, f"client {number}", packed=packed))
                self._subscribe()
            while self.clock.now_s < self._faults_until_s and not self.broken:
                self._act()
                self.clock.move_to(self.clock.now_s + self.rng.expovariate(2.0))
            self._heal()
            self._recover()
        except Broken as broken:
            self.broken.append(str(broken))
        if self.broken:
            last = "\n  ".join(self.done[-25:])
            raise AssertionError(f"seed {self.seed}: {self.broken[0]}\n  {last}")

    def _read(self) -> None:
        for client in self.clients:
            try:
                client.read(self.check)
            except Broken as broken:
                self.broken.append(f"{self.clock.now_s:.3f} {broken}")

    def check(self, viewer: Viewer) -> None:
        for venue in self.venues.values():
            venue.observe_all()
        self.updates += 1
        viewer.check(self.venues, viewer.at_s, self._age_max_s)

    def _age_max_s(self, name: str) -> float:
        """How long an exchange may be silent before its book must be removed.

        An exchange may acknowledge a repeated subscription and never send to it while frames of the
        earlier one are still on their way: they fill the book, and then `quiet` is the limit. A
        REST probe detects that sooner.
        """
        venue = self.venues[name]
        if venue.was_muted and not self.links[name].is_seeded:
            return venue.exchange.quiet_max_s + 2.0
        return venue.exchange.silence_max_s + 2.0

    def _every(self, interval_s: float, act: Callable[[], None]) -> None:
        def again() -> None:
            act()
            self.clock.call_at(self.clock.now_s + interval_s, again)

        self.clock.call_at(self.clock.now_s + interval_s, again)

    def _publish(self) -> None:
        self._market.move()
        for venue in self.venues.values():
            venue.publish()

    def _watch(self) -> None:
        for venue in self.venues.values():
            venue.watch()

    # Events

    def _act(self) -> None:
        name = self.rng.choice(sorted(self.venues))
        act = self.rng.choice(ACTS)
        self.done.append(f"{self.clock.now_s:.3f} {act.__name__} {name}")
        act(self, name)

    def _subscribe(self, name: str = "") -> None:
        self.rng.choice(self.clients).subscribe(self._view())

    def _look(self, name: str) -> None:
        self.rng.choice(self.clients).look(self._view())

    def _view(self) -> StreamKey:
        names = tuple(sorted(self.venues))
        chosen = self.rng.sample(names, self.rng.randint(1, len(names)))
        return StreamKey(
            symbol=self.rng.choice(SYMBOLS),
            exchanges=tuple(sorted(chosen)),
            options=ViewOptions(
                depth=self.rng.choice((5, 20, 100)),
                interval_ms=self.rng.choice((10, 100, 1_000)),
                mode=self.rng.choice(("full", "delta")),
                levels="array",
                split=True,
            ),
        )

    def _unsubscribe(self, name: str) -> None:
        client = self.rng.choice(self.clients)
        if client.viewers:
            client.unsubscribe(self.rng.choice(sorted(client.viewers)))

    def _resync(self, name: str) -> None:
        client = self.rng.choice(self.clients)
        if client.viewers:
            client.resync(self.rng.choice(sorted(client.viewers)))

    def _stop_reading(self, name: str) -> None:
        self.rng.choice(self.clients).reading = False

    def _read_again(self, name: str) -> None:
        self.rng.choice(self.clients).reading = True

    def _cut(self, name: str) -> None:
        self.links[name].cut()

    def _stall(self, name: str) -> None:
        self.links[name].silence(pongs=False)

    def _silence(self, name: str) -> None:
        self.links[name].silence(pongs=True)

    def _freeze(self, name: str) -> None:
        self.venues[name].publishing = False

    def _restore(self, name: str) -> None:
        self.venues[name].heal()
        self.links[name].resume()

    def _spoil(self, name: str) -> None:
        self.venues[name].fault_share = self.rng.choice((0.02, 0.2, 0.8))

    def _vanish(self, name: str) -> None:
        self.venues[name].reachable = False
        self.links[name].cut()

    def _fail_rest(self, name: str) -> None:
        self.venues[name].rest_failing = True

    def _refuse(self, name: str) -> None:
        self.venues[name].refuse(self.rng.choice(SYMBOLS))

    def _mute(self, name: str) -> None:
        self.venues[name].mute(self.rng.choice(SYMBOLS))

    def _heal(self) -> None:
        self.done.append(f"{self.clock.now_s:.3f} calm")
        for name in self.venues:
            self._restore(name)
        for client in self.clients:
            client.reading = True

    def _recover(self) -> None:
        """Wait until everything is live again in time, and stays so for a while."""
        slowest_s = max(venue.exchange.snapshot_s for venue in self.venues.values())
        calm_s = max(CALM_MAX_S, 2 * slowest_s + CALM_STEP_S)
        end_s = self.clock.now_s + calm_s
        well, missing = 0, []
        while well < 3 and self.clock.now_s < end_s:
            self.clock.move_to(self.clock.now_s + CALM_STEP_S)
            missing = self._missing()
            well = 0 if missing else well + 1
        if missing:
            raise Broken(f"after {calm_s:g} s of calm: {', '.join(missing)}")

    def _missing(self) -> list[str]:
        """List what should be live and visible, but is not."""
        missing = []
        for client in self.clients:
            for viewer in client.viewers.values():
                missing += [each for each in map(self._not_live, viewer.key.exchanges) if each]
                missing += [each for each in [self._behind(viewer)] if each]
        return missing

    def _not_live(self, exchange: str) -> str:
        """The wanted book of an exchange that is not live; "" if all are."""
        for book in self.books:
            if book.instrument.exchange == exchange and book.health is not Health.LIVE:
                return f"{exchange} {book.instrument.symbol} is {book.health} ({book.reason})"
        return ""

    def _behind_max_s(self, name: str) -> float:
        venue = self.venues[name]
        return self._age_max_s(name) if venue.was_muted else BEHIND_MAX_S

    def _behind(self, viewer: Viewer) -> str:
        """Why a client lacks what the exchanges have; "" if it lacks nothing."""
        if viewer.shown is None:
            return "" if viewer.updates else f"no book of {viewer.key}"
        try:
            viewer.check(self.venues, self.clock.now_s, self._behind_max_s)
        except Broken as broken:
            return str(broken)
        return ""


ACTS = (
    World._subscribe,
    World._unsubscribe,
    World._look,
    World._resync,
    World._stop_reading,
    World._read_again,
    World._read_again,
    World._cut,
    World._stall,
    World._silence,
    World._freeze,
    World._restore,
    World._restore,
    World._restore,
    World._spoil,
    World._spoil,
    World._vanish,
    World._fail_rest,
    World._refuse,
    World._mute,
)
