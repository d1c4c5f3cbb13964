"""A feeds node: opens the books assigned to it, publishes their changes, answers requests.

Drives `Ownership` and `GatewayInterest`; `feeds.Supervisor` holds the connections to exchanges.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Self

from msgspec import msgpack
from msgspec.structs import replace
from prometheus_client import Counter, Gauge

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.config import FeedSettings, NodeSettings
from onebook.core.types import LEVELS_MAX
from onebook.exchanges.kit import Exchange
from onebook.feeds import Catalogue, Supervisor
from onebook.model import Instrument
from onebook.nodes import lists
from onebook.nodes.background import BackgroundTasks
from onebook.nodes.handover import Ownership
from onebook.nodes.interest import PAGE_KEYS, GatewayInterest, interest_of, page_asked
from onebook.nodes.membership import NodeHeartbeat, NodeRole, NodeState, ranking
from onebook.nodes.nats import REQUEST_TIMEOUT_S, NatsBus
from onebook.nodes.payloads import (
    TIME_MAX,
    TIME_SPAN_MAX,
    PayloadReader,
    WireError,
    require_size,
    sender_of,
)
from onebook.nodes.presence import HEARTBEAT_INTERVAL_S, Presence
from onebook.nodes.publisher import PublishedBooks
from onebook.nodes.subjects import BOOKS, LIST, LIVE, SNAPSHOT, WANTS, key_of

log = logging.getLogger("onebook.nodes")

MARK_S: Final = 0.25  # interval of publishing the message numbers of idle books
COUNT_S: Final = 1.0  # interval of updates of metrics
CLOCKS_S: Final = 1.0  # interval of heartbeats with the clocks of exchanges
POLL_S: Final = 0.1  # interval of checking whether leaving books are live on their new nodes
RANKINGS_MAX: Final = 100_000  # cached until the set of nodes changes
KEY_BYTES_MAX: Final = 256  # maximum of a snapshot request

SERVED: Final = Gauge("onebook_node_books", "Books that this feeds node serves.", ["exchange"])
PUBLISHED: Final = Counter("onebook_node_published", "Messages about books published to gateways.")
MOVED: Final = Counter(
    "onebook_node_books_moved", "Books that this node took over or gave up.", ["direction"]
)


_keys = PayloadReader(list[str])


class FeedsNode:
    """Serves books to gateways while entered.

    Args:
        node: This node.
        exchanges: The exchanges in use (see `feeds.enabled`).
    """

    def __init__(
        self,
        node: int,
        exchanges: Mapping[str, Exchange],
        *,
        bus: NatsBus,
        books: PublishedBooks,
        catalogue: Catalogue,
        supervisor: Supervisor,
        settings: NodeSettings,
        feeds: FeedSettings,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.node = node
        self.presence = Presence(
            node, NodeRole.FEEDS, bus=bus, settings=settings, describe=self._describe, clock=clock
        )
        self.interest = GatewayInterest()
        self._exchanges = exchanges
        self._bus = bus
        self._books = books
        self._catalogue = catalogue
        self._supervisor = supervisor
        self._settings = settings
        self._clock = clock
        self._lists: dict[str, lists.PublishedList] = {}
        self._rankings: dict[str, tuple[int, ...]] = {}
        self._opened: dict[str, Instrument] = {}
        self._unlisted: set[str] = set()  # open here but missing from the list
        self._asking: set[int] = set()  # gateways whose subscriptions are being requested
        self._polling = False
        self._polled_at = self._marked_at = self._counted_at = float("-inf")
        self._clocks_at = float("-inf")
        self._published = 0
        self._draining = False
        self._handed_over = asyncio.Event()
        self._tasks = BackgroundTasks()
        self.ownership = Ownership(
            node,
            ranking=self._ranking,
            linger_s=feeds.linger_s,
            grace_s=HEARTBEAT_INTERVAL_S,
        )

    async def __aenter__(self) -> Self:
        self._catalogue.on_read.subscribe(self._listed)
        for name in self._exchanges:
            if self._catalogue.loaded(name):
                self._listed(name)
        presence = self.presence
        presence.on_changed.subscribe(self._members_changed)
        presence.on_heartbeat.subscribe(self._heartbeat)
        presence.on_tick.subscribe(self._tick)
        subjects = presence.subjects
        self._bus.subscribe(subjects.interest, self._interest)
        answers: dict[str, Callable[[bytes], bytes]] = {
            SNAPSHOT: self._answer_snapshot,
            LIVE: self._answer_live,
            LIST: self._answer_list,
            BOOKS: self._answer_books,
        }
        for what, answer in answers.items():
            self._bus.subscribe(subjects.request(self.node, what), self._answering(answer))
        await presence.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.presence.__aexit__(*details)
        await self._tasks.cancel()
        self._close(self.ownership.abandon())

    async def drain(self, timeout_s: float) -> None:
        """Hand over all books to other nodes; return when done or after `timeout_s`."""
        self._draining = True
        self.presence.set_state(NodeState.DRAINING)
        try:
            async with asyncio.timeout(timeout_s):
                await self._handed_over.wait()
        except TimeoutError:
            log.warning("%d books were not handed over in %g s.", len(self.ownership), timeout_s)

    def _others(self) -> bool:
        alive = self.presence.members.alive(NodeRole.FEEDS)
        return any(node != self.node and each.state is NodeState.UP for node, each in alive.items())

    # Sent by this node

    def _describe(self, me: NodeHeartbeat) -> NodeHeartbeat:
        catalogue = self._catalogue
        return replace(
            me,
            books=len(self._books),
            live=sum(1 for _ in self._books.live()),
            lists={name: each.digest for name, each in self._lists.items()},
            states={name: self._supervisor.state(name) for name in self._exchanges},
            problems={
                name: catalogue.problem(name) for name in self._exchanges if catalogue.problem(name)
            },
            exchange_clocks=self._exchange_clocks(me.sent_us),
        )

    def _exchange_clocks(self, now_us: int) -> dict[str, tuple[int, int]]:
        """Return the exchanges' clocks as measured here, if they are due."""
        now = now_us / 1_000_000
        if now - self._clocks_at < CLOCKS_S:
            return {}
        self._clocks_at = now
        found: dict[str, tuple[int, int]] = {}
        for name in self._exchanges:
            reading = self._books.skew(name).reading(now)
            # A value out of range would make the other nodes refuse the heartbeat.
            if reading and 0 <= reading[0] <= TIME_MAX and reading[1] <= TIME_SPAN_MAX:
                found[name] = reading
        return found

    def _listed(self, name: str) -> None:
        """Record that an exchange's list was read or could not be read."""
        if not self._catalogue.loaded(name):
            return
        exchange = self._exchanges[name]
        self._lists[name] = lists.PublishedList(
            self._catalogue.listed(name),
            depth=exchange.depth,
            levels_max=exchange.depth if exchange.truncate else LEVELS_MAX,
            read_on=self._catalogue.read_on.get(name),
            transfers=self._catalogue.transfers.get(name, {}),
        )
        for key in [each for each in self._unlisted if key_of(each).exchange == name]:
            self._open(key)

    def _answering(self, answer: Callable[[bytes], bytes]) -> Callable[[bytes, str], None]:
        def act(payload: bytes, reply: str) -> None:
            if not reply:
                return
            try:
                answered = answer(payload)
            except WireError as error:
                self.presence.refusals.refused("request", error, None)
                answered = b""
            self._bus.publish(reply, answered)

        return act

    def _answer_snapshot(self, payload: bytes) -> bytes:
        require_size(payload, KEY_BYTES_MAX)
        key = key_of(payload.decode(errors="replace"))
        return self._books.snapshot(key, self._clock.monotonic())

    def _answer_live(self, payload: bytes) -> bytes:
        keys = _keys.read(payload)
        return msgpack.encode([key for key in keys if self._books.is_live(key_of(key))])

    def _answer_list(self, payload: bytes) -> bytes:
        request = lists.request_of(payload)
        listed = self._lists.get(request.exchange)
        return b"" if listed is None else listed.page(request.page)

    def _answer_books(self, payload: bytes) -> bytes:
        """Answer with the requested page of served books, for `onebook nodes`."""
        page = page_asked(payload)
        rows = sorted(
            (book.instrument.exchange, book.instrument.symbol, book.health, book.reason or "")
            for book in self._books
        )
        return msgpack.encode(rows[page * PAGE_KEYS : (page + 1) * PAGE_KEYS])

    # Received from other nodes

    def _interest(self, payload: bytes, reply: str) -> None:
        refusals = self.presence.refusals
        try:
            interest = interest_of(payload, whole=False)
        except WireError as error:
            refusals.refused("interest", error, sender_of(payload))
            return
        if interest.gateway not in self._gateways():
            refusals.unknown("interest")
            return  # its next heartbeat has this change's number and triggers `_ask`
        if self.interest.changed(interest):
            self._update([*interest.added, *interest.dropped])
        else:
            self._ask(interest.gateway)

    def _heartbeat(self, heartbeat: NodeHeartbeat) -> None:
        if heartbeat.role is not NodeRole.FEEDS and not self.interest.current(
            heartbeat.node, heartbeat.wants_seq
        ):
            self._ask(heartbeat.node)

    def _ask(self, gateway: int) -> None:
        """Request all subscriptions of a gateway."""
        if gateway not in self._asking and gateway in self._gateways():
            self._asking.add(gateway)
            self._tasks.begin(self._read_wants(gateway), f"wants of gateway {gateway:x}")

    async def _read_wants(self, gateway: int) -> None:
        try:
            subject = self.presence.subjects.request(gateway, WANTS)
            keys: list[str] = []
            number, pages, seq = 0, 1, -1
            while number < pages:
                payload = await self._bus.request(subject, str(number).encode(), REQUEST_TIMEOUT_S)
                if payload is None:
                    return
                page = interest_of(payload, whole=True)
                if page.gateway != gateway or (number and page.seq != seq):
                    return  # its next heartbeat triggers another request
                keys += page.added
                number, pages, seq = number + 1, page.pages, page.seq
            if gateway in self._gateways():
                self.interest.replaced(gateway, seq, keys)
                self._update()
        except WireError as error:
            self.presence.refusals.refused("interest", error, gateway)
        finally:
            self._asking.discard(gateway)

    def _gateways(self) -> Mapping[int, NodeHeartbeat]:
        return self.presence.members.followers()

    def _members_changed(self) -> None:
        self._rankings.clear()
        if self.presence.members.connected:
            alive = self._gateways()
            for gateway in self.interest.gateways():
                if gateway not in alive:
                    self.interest.forget(gateway)
        self._update()

    # Consequences

    def _ranking(self, key: str) -> tuple[int, ...]:
        found = self._rankings.get(key)
        if found is None:
            if len(self._rankings) >= RANKINGS_MAX:
                self._rankings.clear()
            nodes = self.presence.members.serving(key_of(key).exchange)
            found = self._rankings[key] = ranking(key, nodes)
        return found

    def _tick(self, now: float) -> None:
        members = self.presence.members
        if self._draining and not (len(self.ownership) and self._others()):
            self._handed_over.set()
        if not members.connected and members.isolated_s >= self._settings.isolated_s:
            abandoned = self.ownership.abandon()
            if abandoned:
                log.warning("NATS is unreachable: closing %d books.", len(abandoned))
            self._close(abandoned)
            return
        if now - self._marked_at >= MARK_S:
            self._marked_at = now
            self._books.mark()
            if self.ownership.moving:
                self._update()
        if now - self._counted_at >= COUNT_S:
            self._counted_at = now
            self._publish_metrics()
        if not self._polling and now - self._polled_at >= POLL_S and self.ownership.leaving():
            self._polling, self._polled_at = True, now
            self._tasks.begin(self._poll(), "books that leave")

    def _update(self, keys: Iterable[str] | None = None) -> None:
        """Open and close books according to the live nodes and the gateways' subscriptions."""
        if not self.presence.members.connected:
            return
        changes = self.ownership.update(self.interest, self._clock.monotonic(), keys)
        for key in changes.opened:
            self._open(key)
        self._close(changes.closed)
        if changes.opened:
            MOVED.labels("taken").inc(len(changes.opened))
        if changes.closed:
            MOVED.labels("given").inc(len(changes.closed))

    def _open(self, key: str) -> None:
        exchange, symbol = key_of(key)
        instrument = self._catalogue.instrument(exchange, symbol)
        if instrument is None:
            self._unlisted.add(key)
            return
        self._unlisted.discard(key)
        if key in self.ownership and key not in self._opened:
            self._opened[key] = instrument
            self._supervisor.acquire(instrument)

    def _close(self, keys: list[str]) -> None:
        for key in keys:
            self._unlisted.discard(key)
            instrument = self._opened.pop(key, None)
            if instrument is not None:
                self._supervisor.release_now(instrument)

    async def _poll(self) -> None:
        """Query which books in handover are live on their new nodes."""
        try:
            by_node: dict[int, list[str]] = {}
            for key, node in self.ownership.leaving().items():
                by_node.setdefault(node, []).append(key)
            for node, keys in by_node.items():
                answer = await self._bus.request(
                    self.presence.subjects.request(node, LIVE),
                    msgpack.encode(keys[:PAGE_KEYS]),
                    REQUEST_TIMEOUT_S,
                )
                if answer:
                    try:
                        self.ownership.live_elsewhere(_keys.read(answer), self._clock.monotonic())
                    except WireError as error:
                        self.presence.refusals.refused("request", error, node)
        finally:
            self._polling = False

    def _publish_metrics(self) -> None:
        PUBLISHED.inc(self._books.published - self._published)
        self._published = self._books.published
        counts = dict.fromkeys(self._exchanges, 0)
        for book in self._books:
            counts[book.instrument.exchange] += 1
        for name, count in counts.items():
            SERVED.labels(name).set(count)
