"""A gateway or recorder node: follows the books of its streams on feeds nodes over NATS.

`RemoteSupervisor` and `RemoteCatalogue` have the interfaces of `feeds.Supervisor` and
`feeds.Catalogue`. The supervisor drives one `Replica` for each open book.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Self

from msgspec.structs import replace
from prometheus_client import Counter

from onebook import metrics
from onebook.books import Books
from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.config import FeedSettings, NodeSettings
from onebook.exchanges import EXCHANGES
from onebook.feeds import Catalogue
from onebook.feeds.stats import ACTIVE, OFFLINE
from onebook.fusing import TopCounts
from onebook.model import Health, Instrument
from onebook.nodes import lists, wire
from onebook.nodes.background import BackgroundTasks
from onebook.nodes.interest import LocalInterest, encode_interest, page_asked
from onebook.nodes.membership import NodeHeartbeat, NodeRole, ranking
from onebook.nodes.nats import REQUEST_TIMEOUT_S, NatsBus
from onebook.nodes.payloads import WireError
from onebook.nodes.presence import Presence
from onebook.nodes.refusals import Refusals
from onebook.nodes.replica import Effect, Replica, apply
from onebook.nodes.subjects import LIST, SNAPSHOT, WANTS, BookKey
from onebook.rest import Rest
from onebook.signals import Signal

log = logging.getLogger("onebook.nodes")

SWEEP_S: Final = 1.0
LINGER_S: Final = 10.0  # how long a book is followed after its last subscriber has left
SNAPSHOT_RETRY_S: Final = 0.1  # between snapshot requests for a book that is out of sync
REQUESTS_MAX: Final = 64  # concurrent snapshot requests
FIRST_LISTS_S: Final = 10.0  # how long a gateway without lists is not ready

GAPS: Final = Counter(
    "onebook_node_gaps", "Missing messages between nodes, detected by their numbers."
)
SNAPSHOTS: Final = Counter(
    "onebook_node_snapshots", "Book snapshots requested from feeds nodes, by result.", ["result"]
)
APPLIED: Final = Counter("onebook_node_applied", "Messages about books received from feeds nodes.")
for _result in ("live", "not_live", "none"):
    SNAPSHOTS.labels(_result)


class RemoteCatalogue(Catalogue):
    """The instruments of all exchanges as listed by feeds nodes; reads no lists itself."""

    def __init__(self, *, rest: Rest, settings: FeedSettings) -> None:
        super().__init__({}, rest=rest, settings=settings)
        self.via = dict.fromkeys(settings.ccxt.exchanges, "ccxt")
        # Exchanges of the feeds nodes; until their first message, those of the settings.
        self.served: set[str] = {*(settings.exchanges or EXCHANGES), *settings.ccxt.exchanges}
        self.problems: dict[str, str] = {}
        self.facts: dict[str, tuple[int, int]] = {}  # depth and levels_max, by exchange
        self._first = asyncio.Event()

    def unread(self) -> set[str]:
        """Return the exchanges in use whose lists have not arrived."""
        return self.served - self._listed.keys()

    def problem(self, exchange: str) -> str:
        """Return why feeds nodes cannot read the list of `exchange`; "" if they can."""
        return self.problems.get(exchange, "")

    @property
    def complete(self) -> bool:
        """Whether every list has arrived at least once."""
        return self._first.is_set()

    async def first_read(self, timeout_s: float = FIRST_LISTS_S) -> bool:
        """Wait for the lists of all exchanges of feeds nodes; return whether they arrived."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._first.wait()
        except TimeoutError:
            return False
        return True

    def received(
        self,
        exchange: str,
        page: lists.ListPage,
        rows: Sequence[lists.Row],
        transfers: Mapping[str, lists.TransferRow] = MappingProxyType({}),
    ) -> None:
        """Apply a complete list."""
        self.transfers[exchange] = lists.transfers_of(transfers)
        self.facts[exchange] = page.depth, page.levels_max
        if page.read_on is not None:
            self.read_on[exchange] = page.read_on
        self.update(exchange, lists.instruments_of(exchange, rows))
        self.note_complete()
        self.on_read(exchange)

    def note_complete(self) -> None:
        """Update whether all lists have arrived."""
        if self.served and not self.unread():
            self._first.set()


@dataclass
class PartialList:
    """The received pages of one list, all from one node and with one digest."""

    node: int
    digest: str = ""
    number: int = 0
    pages: int = 1
    rows: list[lists.Row] = field(default_factory=list)
    transfers: dict[str, lists.TransferRow] = field(default_factory=dict)


class RemoteListReader:
    """Reads the instrument lists of feeds nodes, page by page, when their digests change.

    It requests one page at a time from each node and keeps the pages if a later one does not
    arrive, so that a gateway with a slow CPU or link makes progress with every answer.

    Args:
        catalogue: Receives each list.
        lister: Returns the node whose list of an exchange is used.
        subject: Returns the subject on which a node answers list requests.
        timeout_s: Timeout of one page, which is requested again at the next heartbeat.
        refusals: Counts rejected pages.
    """

    def __init__(
        self,
        catalogue: RemoteCatalogue,
        *,
        bus: NatsBus,
        tasks: BackgroundTasks,
        lister: Callable[[str], int | None],
        subject: Callable[[int], str],
        timeout_s: float,
        refusals: Refusals,
    ) -> None:
        self._catalogue = catalogue
        self._bus = bus
        self._tasks = tasks
        self._lister = lister
        self._subject = subject
        self._timeout_s = timeout_s
        self._refusals = refusals
        self._digests: dict[str, str] = {}  # digests of the read lists, by exchange
        self._partial: dict[str, PartialList] = {}
        self._reading: set[int] = set()  # nodes from which pages are being requested

    def update(self, heartbeat: NodeHeartbeat) -> None:
        """Read the lists of a feeds node whose digests are new."""
        node = heartbeat.node
        if node in self._reading:
            return
        changed = [
            exchange
            for exchange, digest in heartbeat.lists.items()
            if self._digests.get(exchange) != digest and self._lister(exchange) == node
        ]
        if changed:
            self._reading.add(node)
            self._tasks.begin(self._read(node, changed), f"lists of {heartbeat.name}")

    async def _read(self, node: int, exchanges: Sequence[str]) -> None:
        try:
            for exchange in exchanges:
                if not await self._read_list(node, exchange):
                    return  # the next heartbeat triggers another request
        finally:
            self._reading.discard(node)

    async def _read_list(self, node: int, exchange: str) -> bool:
        """Read the missing pages of a list; return whether the node answered."""
        part = self._partial.pop(exchange, None)
        if part is None or part.node != node:
            part = PartialList(node)
        while part.number < part.pages:
            payload = await self._bus.request(
                self._subject(node), lists.encode_request(exchange, part.number), self._timeout_s
            )
            if payload is None:
                self._partial[exchange] = part
                return False
            if not payload:
                return True  # the node no longer has this list
            try:
                page = lists.page_of(payload)
            except WireError as error:
                self._refusals.refused("list", error, node)
                return True
            if part.number and page.digest != part.digest:
                return True  # the list has changed: its new digest triggers another request
            part.rows += page.rows
            part.transfers |= page.transfers
            part.number, part.pages, part.digest = part.number + 1, page.pages, page.digest
        self._digests[exchange] = part.digest
        self._catalogue.received(exchange, page, part.rows, part.transfers)
        return True


class RemoteBook:
    """A book that this gateway follows; `unfollow` ends its NATS subscription."""

    __slots__ = ("count", "instrument", "key", "replica", "unfollow", "unused_since")

    def __init__(
        self, instrument: Instrument, replica: Replica, unfollow: Callable[[], None]
    ) -> None:
        self.instrument = instrument
        self.key = BookKey(instrument.exchange, instrument.symbol)
        self.replica = replica
        self.count = 0
        self.unused_since: float | None = None
        self.unfollow = unfollow


class RemoteSupervisor:
    """Follows books of feeds nodes while entered; books are reference counted.

    `on_isolated` is called with True when NATS has been unreachable for `isolated_s`, and with
    False when it is reachable again.

    Args:
        node: This node.
        books: Holds the replicas.
        catalogue: The instruments; filled by this supervisor.
        settings: Timeouts of heartbeats and of isolation.
        role: The role of this node: a gateway or a recorder.
        request_timeout_s: Timeout of a request to a feeds node.
    """

    def __init__(
        self,
        node: int,
        *,
        bus: NatsBus,
        books: Books,
        catalogue: RemoteCatalogue,
        settings: NodeSettings,
        role: NodeRole = NodeRole.GATEWAY,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.node = node
        self.presence = Presence(
            node, role, bus=bus, settings=settings, describe=self._describe, clock=clock
        )
        self.stats: dict[str, str] = {}  # state of each exchange of the feeds nodes
        self._bus = bus
        self._books = books
        self._catalogue = catalogue
        self._settings = settings
        self._request_timeout_s = request_timeout_s
        self._clock = clock
        self._wants = LocalInterest(node)
        self._followed: dict[BookKey, RemoteBook] = {}
        self._announcing = False
        self._pending: dict[BookKey, None] = {}  # books that are out of sync
        self._requests = 0
        self._applied = 0
        self._swept_at = float("-inf")
        self.isolated = False
        self.on_isolated: Signal[[bool]] = Signal()
        self._began_at = clock.monotonic()
        self._tasks = BackgroundTasks()
        self._lists = RemoteListReader(
            catalogue,
            bus=bus,
            tasks=self._tasks,
            lister=self._lister,
            subject=lambda node: self.presence.subjects.request(node, LIST),
            timeout_s=request_timeout_s,
            refusals=self.presence.refusals,
        )

    async def __aenter__(self) -> Self:
        presence = self.presence
        presence.on_changed.subscribe(self._members_changed)
        presence.on_heartbeat.subscribe(self._heartbeat)
        presence.on_tick.subscribe(self._tick)
        self._bus.subscribe(presence.subjects.request(self.node, WANTS), self._answer_wants)
        await presence.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.presence.__aexit__(*details)
        await self._tasks.cancel()

    # Calls of streams

    def acquire(self, instrument: Instrument) -> None:
        """Add a subscriber of a book; the first one starts following it."""
        key = BookKey(instrument.exchange, instrument.symbol)
        followed = self._followed.get(key)
        if followed is not None and followed.instrument is not instrument and not followed.count:
            self._drop(followed)  # the exchange lists another market under this symbol now
            followed = None
        if followed is None:
            followed = self._follow(key, instrument)
        followed.count += 1
        followed.unused_since = None

    def release(self, instrument: Instrument) -> None:
        """Remove a subscriber; a book without any is followed for `LINGER_S` more."""
        followed = self._followed[BookKey(instrument.exchange, instrument.symbol)]
        followed.count -= 1
        if not followed.count:
            followed.unused_since = self._clock.monotonic()

    def in_use(self) -> Collection[str]:
        """Return the exchanges that a feeds node has reported."""
        return self.stats.keys()

    def state(self, exchange: str) -> str:
        """Return "active", "maintenance", "limited" or "offline"."""
        return self.stats.get(exchange, OFFLINE)

    def active_exchanges(self) -> int:
        """Return the number of exchanges that a feeds node is connected to."""
        return sum(1 for state in self.stats.values() if state == ACTIVE)

    def problems(self) -> list[str]:
        """Return the reasons why this node receives no books, as sentences."""
        return self.presence.problems()

    @property
    def ready(self) -> bool:
        """Whether clients may connect: not isolated, and the lists have arrived or are overdue."""
        overdue = self._clock.monotonic() - self._began_at >= FIRST_LISTS_S
        return (self._catalogue.complete or overdue) and not self.isolated

    # Received from feeds nodes

    def _describe(self, me: NodeHeartbeat) -> NodeHeartbeat:
        return replace(
            me,
            wants_seq=self._wants.seq,
            wanted=len(self._followed),
            books=len(self._books),
            live=sum(1 for _ in self._books.live()),
        )

    def _answer_wants(self, payload: bytes, reply: str) -> None:
        try:
            page = page_asked(payload)
        except WireError as error:
            self.presence.refusals.refused("request", error, None)
            return
        if reply:
            self._bus.publish(reply, encode_interest(self._wants.page(page)))

    def _members_changed(self) -> None:
        for followed in self._followed.values():
            self._place(followed)
        self._note_exchanges()

    def _heartbeat(self, heartbeat: NodeHeartbeat) -> None:
        if heartbeat.role is not NodeRole.FEEDS:
            return
        self._note_exchanges()
        self._lists.update(heartbeat)
        self._measure_clocks(heartbeat)

    def _measure_clocks(self, heartbeat: NodeHeartbeat) -> None:
        """Bound the clocks of exchanges by a feeds node's measurements of them.

        The heartbeat was sent after ours that it returns and before its own arrival, so it is like
        an exchange's answer to a request for its time.
        """
        mine_us = heartbeat.clocks.get(self.node)
        now = self._clock.monotonic()
        if mine_us is None or mine_us / 1_000_000 > now:
            return
        for name, (at_us, resolution_us) in heartbeat.exchange_clocks.items():
            if name in self._catalogue.facts:
                self._books.skew(name).answered(
                    at_us, mine_us / 1_000_000, now, resolution_us=resolution_us
                )

    def _lister(self, exchange: str) -> int | None:
        """Return the node whose list is used; all gateways choose the same one."""
        feeds = self.presence.members.alive(NodeRole.FEEDS)
        nodes = [node for node, each in feeds.items() if exchange in each.lists]
        return ranking(f"list {exchange}", nodes)[0] if nodes else None

    def _note_exchanges(self) -> None:
        """Set the state of each exchange to the best state reported by any node."""
        states: dict[str, str] = {}
        problems: dict[str, str] = {}
        for each in self.presence.members.alive(NodeRole.FEEDS).values():
            for name, state in each.states.items():
                if state == ACTIVE or states.get(name, OFFLINE) == OFFLINE:
                    states[name] = state
            problems.update(each.problems)
        # An exchange stays known after its nodes have left; it is offline then.
        self.stats = {**dict.fromkeys(self.stats, OFFLINE), **states}
        if self.stats:
            self._catalogue.served = set(self.stats)
            self._catalogue.note_complete()
        self._catalogue.problems = problems

    # Books

    def _follow(self, key: BookKey, instrument: Instrument) -> RemoteBook:
        depth, levels_max = self._catalogue.facts[instrument.exchange]
        self._books.open(instrument, levels_max=levels_max, window=depth, tops=TopCounts())
        replica = Replica(instrument)
        unfollow = self._bus.subscribe(
            self.presence.subjects.book(key),
            lambda payload, reply: self._received(followed, payload),
            lambda: self._act(followed, replica.lost()),
        )
        followed = self._followed[key] = RemoteBook(instrument, replica, unfollow)
        self._wants.add(key.text)
        if not self._announcing:
            self._announcing = True
            asyncio.get_running_loop().call_soon(self._announce)
        self._place(followed)
        return followed

    def _drop(self, followed: RemoteBook) -> None:
        followed.unfollow()
        del self._followed[followed.key]
        self._pending.pop(followed.key, None)
        self._wants.drop(followed.key.text)
        self._books.close(followed.instrument)
        self._announce()

    def _announce(self) -> None:
        """Publish changes of this node's subscriptions."""
        self._announcing = False
        for interest in self._wants.changes():
            self._bus.publish(self.presence.subjects.interest, encode_interest(interest))

    def _place(self, followed: RemoteBook) -> None:
        """Update the nodes that may serve a replica's book."""
        members = self.presence.members
        nodes = ranking(followed.key.text, members.serving(followed.key.exchange))
        leaving = ranking(followed.key.text, members.draining())
        self._act(followed, followed.replica.served_by([*nodes, *leaving]))

    def _received(self, followed: RemoteBook, payload: bytes) -> None:
        """Apply a message of a feeds node about a book (the hot path)."""
        self._applied += 1
        replica = followed.replica
        frame = None
        try:
            frame = wire.frame_of(payload)
            effects = replica.received(frame)
        except WireError as error:
            self._refuse(error, frame)
            return
        if effects:
            self._act(followed, effects)
        elif not replica.in_sync:
            self._pending[followed.key] = None

    def _refuse(self, error: WireError, frame: wire.NodeMessage | None) -> None:
        """Count a rejected message about a book; `frame` is its head, if decoded."""
        self.presence.refusals.refused("book", error, None if frame is None else frame.node)

    def _act(self, followed: RemoteBook, effects: Sequence[Effect]) -> None:
        """Execute a replica's effects."""
        now = self._clock.monotonic()
        if not apply(effects, self._books, followed.instrument, now):
            followed.replica.refused()
        if not followed.replica.in_sync:
            self._pending[followed.key] = None
            self._ask(followed, now)

    def _ask(self, followed: RemoteBook, now: float) -> None:
        """Request a snapshot if one is due, with a limit of concurrent requests."""
        if self._requests >= REQUESTS_MAX:
            return
        node = followed.replica.ask(now, SNAPSHOT_RETRY_S)
        if node is not None:
            self._requests += 1
            self._tasks.begin(self._request(followed, node), f"snapshot of {followed.key.text}")

    async def _request(self, followed: RemoteBook, node: int) -> None:
        try:
            payload = await self._bus.request(
                self.presence.subjects.request(node, SNAPSHOT),
                followed.key.text.encode(),
                self._request_timeout_s,
            )
            frame = wire.frame_of(payload) if payload else None
        except WireError as error:
            self.presence.refusals.refused("book", error, node)
            frame = None
        finally:
            self._requests -= 1
        if self._followed.get(followed.key) is not followed:
            return
        if frame is None:
            SNAPSHOTS.labels("none").inc()
        else:
            live = frame.kind is wire.Kind.SNAPSHOT
            SNAPSHOTS.labels("live" if live else "not_live").inc()
        try:
            effects = followed.replica.answered(node, frame)
        except WireError as error:
            self._refuse(error, frame)
            return
        self._act(followed, effects)

    def _note_isolation(self) -> None:
        """Check whether NATS has been unreachable for `isolated_s`, or is reachable again."""
        members = self.presence.members
        isolated = not members.connected and members.isolated_s >= self._settings.isolated_s
        if isolated is self.isolated:
            return
        self.isolated = isolated
        if isolated:
            log.warning(
                "NATS has been unreachable for %g s: sending clients to other nodes.",
                self._settings.isolated_s,
            )
        else:
            log.info("NATS is reachable again: accepting clients.")
        self.on_isolated(isolated)

    def _tick(self, now: float) -> None:
        self._note_isolation()
        for key in list(self._pending):
            followed = self._followed[key]
            if followed.replica.in_sync:
                del self._pending[key]
            else:
                self._ask(followed, now)
        if now - self._swept_at >= SWEEP_S:
            self._swept_at = now
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        for followed in list(self._followed.values()):
            since = followed.unused_since
            if since is not None and now - since >= LINGER_S:
                self._drop(followed)
        APPLIED.inc(self._applied)
        self._applied = 0
        for followed in self._followed.values():
            GAPS.inc(followed.replica.gaps)
            followed.replica.gaps = 0
        for book in self._books.live():
            book.measure()
        counts: dict[tuple[str, Health], int] = {}
        for book in self._books:
            place = book.instrument.exchange, book.health
            counts[place] = counts.get(place, 0) + 1
        for name in self.stats:
            for health in Health:
                metrics.BOOKS.labels(name, health).set(counts.get((name, health), 0))
