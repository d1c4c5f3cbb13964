"""One stream: a view of the live books of one symbol, and its updates as JSON or protobuf.

Every update names the exchanges whose books are left out.
"""

import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple

from onebook.books import Books
from onebook.clock import SYSTEM_CLOCK, Clock, iso_us
from onebook.core import LEVELS_MAX, View
from onebook.crossings import CrossingReport
from onebook.model import GIB_BYTES
from onebook.orderbook import BookTimes
from onebook.streams.basket import BasketMembers, Lookup, percents_of
from onebook.streams.crossings import CROSSING_LEVELS_MAX, CrossingView, reports_json
from onebook.streams.fill import FILL_LEVELS_MAX, FillView, RouteView
from onebook.streams.members import StreamMembers, times_json
from onebook.streams.options import ARRAY, CROSSING, DELTA, FULL, PROTOBUF, ViewOptions
from onebook.streams.packed import PackedUpdates, answer, content, wrapped
from onebook.transfers import Transfers, no_transfers

# A late update shortens the wait for the next one by its delay, at most by this share of the
# interval, so that a loaded node keeps the pace.
LATENESS_MADE_UP_MAX: Final = 0.5
FIRST_UPDATE_S: Final = 3.0  # until the first update of a new stream without a live book
FIRST_LIVE_S: Final = 1.0  # that a new stream waits for others after its first live book
RATE_KNOWN_S: Final = 1.0  # a younger stream has no useful estimate of its cost
THIRTY_DAYS_S: Final = 30 * 86_400

IN_EVERY_ID: Final = 6  # options up to `group`; ids contain later ones only if chosen
IN_EVERY_FILL: Final = 2  # the same of the members of `fill`

_json = msgspec.json.encode


class StreamKey(NamedTuple):
    """Identity of a stream: equal subscriptions share one.

    `exchanges` is sorted; with the option `quotes` it has the members of the basket.
    """

    symbol: str
    exchanges: tuple[str, ...]
    options: ViewOptions = ViewOptions()

    @property
    def id(self) -> str:
        """The public name of the stream, the same for every client and on every node.

        A hash of the values in their order, as JSON. Options added after the first release are
        omitted unless chosen, so that adding them changed no id.
        """
        chosen = list(map(_named, astuple(self.options)))
        while len(chosen) > IN_EVERY_ID and not chosen[-1]:
            chosen.pop()
        named = _json((self.symbol, self.exchanges, *chosen))
        return "sub_" + hashlib.sha256(named).hexdigest()[:12]


def _named(option: object) -> object:
    """Convert an option to the form that ids are hashed from."""
    if option is None:
        return ""
    if not isinstance(option, msgspec.Struct):
        return option
    values = ["" if each is UNSET else each for each in astuple(option)]
    while len(values) > IN_EVERY_FILL and not values[-1]:
        values.pop()
    return values


def members_of(key: StreamKey, lookup: Lookup) -> StreamMembers:
    """Return the members of a stream."""
    options = key.options
    if not options.quotes:
        return StreamMembers(key.exchanges, [lookup(each, key.symbol) for each in key.exchanges])
    is_part_excluded = options.fill is not None and bool(options.fill.exclude)
    depth = converted_depth(
        options.depth if options.fill is None else FILL_LEVELS_MAX,
        crossings=options.crossings,
        every=options.group is not None or is_part_excluded,
    )
    fees = options.fees if isinstance(options.fees, dict) else None
    return BasketMembers(key.exchanges, key.symbol, lookup, fees, depth, net=options.net)


def converted_depth(depth: int, *, crossings: str | None, every: bool) -> int:
    """Return the levels a side that a basket converts for a view of this depth."""
    if every:
        return LEVELS_MAX
    return depth if crossings is None else max(depth, CROSSING_LEVELS_MAX)


class Opening:
    """Time of a view's first update: it waits shortly for all books to be live."""

    __slots__ = ("live_at", "opened_at")

    def __init__(self, opened_at: float) -> None:
        self.opened_at = opened_at
        self.live_at: float | None = None  # when its first book was seen live

    def due(self, members: StreamMembers, now: float) -> float:
        """Return the time of the first update, given the present health of the books."""
        if not members.live:
            self.live_at = None
            return self.opened_at + FIRST_UPDATE_S
        if self.live_at is None:
            self.live_at = now
        return self.live_at + FIRST_LIVE_S if members.awaited else now


class Stream:
    """One view of one symbol, and the state of the last published update."""

    __slots__ = (
        "_clock",
        "_extended_at",
        "_extras",
        "_full",
        "_head_delta",
        "_head_full",
        "_head_short",
        "_on",
        "_packed",
        "_packed_content",
        "_reports",
        "_stale_json",
        "_stamp",
        "_times",
        "_top",
        "_transfers",
        "_wall_us",
        "broken",
        "bytes_published",
        "crossings",
        "due",
        "fills",
        "forced",
        "id",
        "interval_s",
        "key",
        "members",
        "merged_at",
        "opening",
        "owner",
        "paced_at",
        "published_at",
        "update_number",
        "users",
        "view",
    )

    def __init__(
        self,
        key: StreamKey,
        members: StreamMembers,
        opened_at: float,
        stamp: Callable[[int], str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        transfers: Transfers = no_transfers,
    ) -> None:
        self.key = key
        self._transfers = transfers
        self._stamp = stamp or iso_us
        self._clock = clock
        self.opening = Opening(opened_at)
        self._stale_json = b"[]"
        self.owner = ""  # its owners in the fair queue
        self.bytes_published = 0
        self.id = key.id
        self.interval_s = key.options.interval_ms / 1_000
        self.members = members
        self.view: View | None = None  # created when first due: idle streams have no merged levels
        self._packed: PackedUpdates | None = None  # with `encoding: protobuf`
        self._packed_content: bytes | None = b""
        self.fills: FillView | RouteView | None = None
        self.crossings: CrossingView | None = None
        self.users = 0
        self.update_number = 0
        self._wall_us = 0  # of the last update
        self.published_at = self.merged_at = float("-inf")
        self.paced_at = float("-inf")  # start of its interval
        self.due: float | None = None  # when it is to be published; None while it is clean
        self.forced = True  # publish even if the merge shows no difference
        self.broken = False  # the last attempt to publish it failed
        self._full: bytes | None = None
        self._extras = b""
        self._extended_at = 0.0  # when `_extras` were true, in monotonic seconds
        self._reports: tuple[CrossingReport, ...] = ()
        self._times: BookTimes | None = None  # without the time of sending
        shared = b',"symbol":%b,"subscription_id":"%b"' % (_json(key.symbol), self.id.encode())
        self._head_full = b'{"type":"aggregated_orderbook_update"' + shared
        self._head_delta = b'{"type":"aggregated_orderbook_delta"' + shared
        self._on = key.options.on
        self._head_short = b'{"type":%b,"symbol":%b,' % (_json(self._on), _json(key.symbol))
        self._top = b""  # the best levels of the last merge

    def pace_from(self, due: float | None, now: float) -> None:
        """Start the interval after an update; `due` is when it was due, if it was."""
        late_s = 0.0 if due is None else max(0.0, now - due)
        self.paced_at = now - min(late_s, self.interval_s * LATENESS_MADE_UP_MAX)

    @property
    def newest_at(self) -> float:
        """When the newest data of the view arrived, in monotonic seconds."""
        return max((book.updated_at for book in self.members.books), default=self.published_at)

    def expected_gb(self, now: float) -> float | None:
        """GiB in 30 days at the rate so far, before compression; None while unknown."""
        lasted_s = now - self.opening.opened_at
        if lasted_s < RATE_KNOWN_S or not self.bytes_published:
            return None
        return round(self.bytes_published / lasted_s * THIRTY_DAYS_S / GIB_BYTES, 3)

    def full(self) -> bytes:
        """The whole book of the last update, built once for all requests."""
        if self._full is None:
            self._full = self.full_for(None)
        return self._full

    def full_for(self, message_id: str | int | float | None) -> bytes:
        """The whole book of the last update as the answer to one client's message."""
        if self._packed is not None:
            found = self._packed.whole(self.update_number, self._packed_content, message_id)
            if found is not None:
                return found
            self._extend()
            return wrapped(self._full_json(message_id))
        return self._full_json(message_id)

    def _full_json(self, message_id: str | int | float | None) -> bytes:
        head = self._head_full
        if message_id is not None:
            head += b',"id":' + _json(message_id)
        assert self.view is not None
        return self.view.full(self._opened(head), self._closed(b""))

    def merge(self) -> bool:
        """Merge the current books; returns whether the view changed."""
        if self.view is None:
            self.view = _view(self.key)
            if self.key.options.encoding == PROTOBUF:
                with_changes = self.key.options.mode == DELTA and self._on is None
                self._packed = PackedUpdates(self.view, with_changes=with_changes)
            self.fills = _fills(self.key)
            self.crossings = _crossings(self.key, self._transfers)
        self.members.prepare()
        changed = self.view.merge(self.members.cores)
        if self.fills is not None:
            changed |= self.fills.merge(self.members)
        crossed = self.crossings is not None and self.crossings.merge(self.members)
        if self._on is None or not changed:
            return changed or crossed
        before, self._top = self._top, self.view.top()
        return crossed if self._on == CROSSING else self._top != before

    def advance(self, wall_us: int, now: float) -> bytes:
        """Make the merged state the next update and encode it in the stream's mode."""
        # Levels and stale names must match: a slow client may get this update later.
        same_members = self._stale_json == self.members.stale_json
        self._stale_json = self.members.stale_json
        options = self.key.options
        self._extended_at = now
        if self.crossings is not None:
            self._reports = self.crossings.reports(self.members, now)
        if options.times:
            self._times = self.members.times(self._clock.wall_us(), self._clock.monotonic())
        self.update_number += 1
        self._wall_us = wall_us
        self._full = None
        if self._packed is not None:
            self._packed_content = content(
                self.members, options, now, self.fills, self._reports,
                self._times, self._clock.wall_us(),
            )  # fmt: skip
            changes = self._packed.advance(self.update_number, wall_us, self._packed_content)
            return changes or self.full()
        self._extend()
        if options.mode == FULL:
            return self.full()
        if self._on is not None:
            is_short = same_members and self.update_number > 1
            return self._short() if is_short else self.full()
        return self._delta() or self.full()

    def _extend(self) -> None:
        """Encode the optional members of the update as JSON."""
        self._extras = _extras(
            self.members, self.key.options, self._extended_at, self.fills, self._reports
        )

    def _delta(self) -> bytes | None:
        """The changed levels since the last update; None for the first update."""
        assert self.view is not None
        before = b',"previous_update_number":%d' % (self.update_number - 1)
        after = b',"checksum":%d' % self.view.checksum()
        delta = self.view.delta(self._opened(self._head_delta + before), self._closed(after))
        return delta if self.update_number > 1 else None

    def _short(self) -> bytes:
        """The best levels only, and what was requested."""
        return b"%b%b%b%b}" % (self._head_short, self._top, self._extras, self._sent())

    def _sent(self) -> bytes:
        """The times of the update, with the present one as that of sending."""
        if self._times is None:
            return b""
        return b',"times":' + times_json(self._times, self._clock.wall_us())

    def _opened(self, head: bytes) -> bytes:
        return b'%b,"update_number":%d,"timestamp":"%b","data":{' % (
            head,
            self.update_number,
            self._stamp(self._wall_us).encode(),
        )

    def _closed(self, after: bytes) -> bytes:
        extras = self._extras + self._sent()
        return b',"stale_exchanges":%b%b}%b}' % (self._stale_json, extras, after)


class BookRequest:
    """A one-time request for a view, answered when a new stream would first publish."""

    __slots__ = ("_stamp", "answer", "due", "key", "members", "message_id", "opening", "transfers")

    def __init__(
        self,
        key: StreamKey,
        members: StreamMembers,
        opened_at: float,
        *,
        message_id: str | int | float | None,
        answer: Callable[[bytes], None],
        stamp: Callable[[int], str] | None = None,
        transfers: Transfers = no_transfers,
    ) -> None:
        self.key = key
        self.transfers = transfers
        self._stamp = stamp or iso_us
        self.members = members
        self.opening = Opening(opened_at)
        self.message_id = message_id
        self.answer = answer
        self.due: float | None = None

    def encode(self, wall_us: int, now: float, *, past: Books | None = None) -> bytes:
        """The current book, as `aggregated_orderbook_data`; with states if it is of the past."""
        view = _view(self.key)
        self.members.prepare()
        view.merge(self.members.cores)
        fills = _fills(self.key)
        if fills is not None:
            fills.merge(self.members)
        crossings = _crossings(self.key, self.transfers)
        if crossings is not None:
            crossings.merge(self.members)
        options = self.key.options
        reports = () if crossings is None else crossings.reports(self.members, now)
        times = self.members.times(wall_us, now) if options.times else None
        if options.encoding == PROTOBUF and past is None:
            packed = answer(
                view,
                self.key.symbol,
                self.key.exchanges,
                content(self.members, options, now, fills, reports, times, wall_us),
                time_us=wall_us,
                message_id=self.message_id,
            )
            if packed is not None:
                return packed
        extras = _extras(self.members, options, now, fills, reports)
        if times is not None:
            extras += b',"times":' + times_json(times, wall_us)
        after = b""
        if past is not None:
            extras += b',"states":' + self.members.states_json(past, now)
            after = b',"checksum":%d' % view.checksum()
        found = self._as_json(view, extras, wall_us, after)
        return wrapped(found) if options.encoding == PROTOBUF else found

    def _as_json(self, view: View, extras: bytes, wall_us: int, after: bytes) -> bytes:
        head = b'{"type":"aggregated_orderbook_data","symbol":%b,"timestamp":"%b"' % (
            _json(self.key.symbol),
            self._stamp(wall_us).encode(),
        )
        if self.message_id is not None:
            head += b',"id":' + _json(self.message_id)
        tail = b',"stale_exchanges":%b%b}%b}' % (self.members.stale_json, extras, after)
        return view.full(head + b',"data":{', tail)


def _extras(
    members: StreamMembers,
    options: ViewOptions,
    now: float,
    fills: FillView | RouteView | None,
    reports: tuple[CrossingReport, ...],
) -> bytes:
    """The members of `data` that were requested, but for `times`."""
    ages = b',"ages":' + members.ages_json(now) if options.ages else b""
    coverage = b',"coverage":' + members.coverage_json() if options.coverage else b""
    fill = b',"fill":' + fills.json(members, now) if fills is not None else b""
    crossed = b',"crossings":' + reports_json(reports) if options.crossings is not None else b""
    converted = b""
    if isinstance(members, BasketMembers):
        converted = b',"conversions":' + members.conversions_json(now)
    return ages + coverage + fill + crossed + converted


def _view(key: StreamKey) -> View:
    options = key.options
    return View(
        key.exchanges,
        depth=options.depth,
        group=options.group,
        split=options.split,
        arrays=options.levels == ARRAY,
        fees=_percents(key) if options.net else None,
        within=options.within,
    )


def _percents(key: StreamKey) -> list[str]:
    """Return the fee of each member of a view with fees."""
    fees = key.options.fees
    assert isinstance(fees, dict)  # a key has the table itself
    return percents_of(fees, key.exchanges, key.symbol)


def _fills(key: StreamKey) -> FillView | RouteView | None:
    sizes, fees = key.options.fill, key.options.fees
    if sizes is None:
        return None
    if fees is None:
        return FillView(key.exchanges, sizes)
    return RouteView(key.exchanges, sizes, _percents(key))


def _crossings(key: StreamKey, transfers: Transfers) -> CrossingView | None:
    least, fees = key.options.crossings, key.options.fees
    if least is None or fees is None:
        return None
    coin = key.symbol.partition("/")[0]
    return CrossingView(key.exchanges, least, _percents(key), coin, transfers)
