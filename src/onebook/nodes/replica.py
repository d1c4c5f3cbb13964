"""Sans-I/O state machine of one book on a gateway, which follows the feeds node that serves it.

A node's messages are applied in the order of their numbers. A missing number invalidates the book
at once; a snapshot is requested to make it live again. Until the snapshot arrives, later messages
are held, up to a limit.

While a book moves from one node to another, both may send it for a moment. The first node's book is
shown until the second has sent a snapshot; then the better one by ranking is shown, so that the
book is never stale in between. Messages of a node without a heartbeat are ignored before their
bodies are decoded (`known`). A rejected message has no effect; the next sequence number reveals the
gap.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from onebook.books import Books
from onebook.exchanges.kit import Delta, Snapshot, TopOfBook
from onebook.model import Health, Instrument, Reason
from onebook.nodes.wire import BookState, Kind, NodeMessage, delta_of, snapshot_of, state_of


class ReplaceLevels(NamedTuple):
    """Replace the levels of the book, which makes it live."""

    snapshot: Snapshot
    age_ms: int


class SetHealth(NamedTuple):
    """Change the book to a health other than live."""

    health: Health
    reason: Reason
    detail: str = ""


Effect = ReplaceLevels | Delta | TopOfBook | SetHealth


def apply(effects: Sequence[Effect], books: Books, instrument: Instrument, now: float) -> bool:
    """Execute effects in order; return False if the book rejected levels and needs a snapshot."""
    for effect in effects:
        if isinstance(effect, Delta):  # the hot path
            if books.change(effect, now) is not None:
                return False
            continue
        if isinstance(effect, TopOfBook):
            books.top(effect, now)
            continue
        book = books.get(instrument)
        offline = book is not None and book.health is Health.OFFLINE
        if isinstance(effect, ReplaceLevels):
            if offline:  # an offline book must be syncing before it accepts levels
                books.set_health(instrument, Health.SYNCING, Reason.SUBSCRIBING, now)
            if books.fill(effect.snapshot, now - effect.age_ms / 1_000) is not None:
                return False
        else:
            if offline and effect.health is Health.STALE:
                books.set_health(instrument, Health.SYNCING, Reason.SUBSCRIBING, now)
            books.set_health(instrument, effect.health, effect.reason, now, detail=effect.detail)
    return True


LOST_NODE: Final = "the feeds node of this book missed its heartbeats"
NO_NODE: Final = "no feeds node serves this exchange"
MOVED: Final = "another feeds node takes this book over"
LOST_MESSAGE: Final = "a message between nodes was lost"


HELD_MAX: Final = 2_000  # messages per book that are held until its snapshot arrives

NOTHING: Final[tuple[Effect, ...]] = ()

Content = Delta | TopOfBook | ReplaceLevels | BookState | None  # decoded; None for a MARK


class SourceNode:
    """One node's numbered messages about the book; created by the first message."""

    __slots__ = ("epoch", "held", "live", "node", "seq")

    def __init__(self, first: NodeMessage) -> None:
        self.node = first.node
        self.epoch = first.epoch
        # Number of the last applied message; None while unknown.
        self.seq: int | None = 0 if first.seq == 1 else None
        self.live = False
        self.held: dict[int, Content] = {}  # messages after the awaited snapshot, by number


class Replica:
    """The book as published by its nodes.

    Before any message and after each change, call `served_by` with the live nodes that may serve
    the book, best first. Methods return effects on the book, in order.

    Args:
        instrument: The instrument of the book.
        held_max: Messages held until a snapshot arrives; further ones are dropped and the snapshot
        is requested again.
    """

    def __init__(self, instrument: Instrument, *, held_max: int = HELD_MAX) -> None:
        self.instrument = instrument
        self.gaps = 0
        self._held_max = held_max
        self._known: Sequence[int] = ()
        self._sources: dict[int, SourceNode] = {}
        self._shown: SourceNode | None = None
        self.asking: int | None = None  # the node whose reply is awaited
        self._asked_at = float("-inf")

    @property
    def live(self) -> bool:
        """Whether the serving node reports the book as live."""
        return self._shown is not None and self._shown.live

    @property
    def shown(self) -> int | None:
        """The node that serves this book."""
        return self._shown.node if self._shown is not None else None

    @property
    def in_sync(self) -> bool:
        """Whether the book is in sync with the best node and needs no request."""
        if not self._known:
            return True
        source = self._sources.get(self._known[0])
        return source is not None and source.seq is not None

    def served_by(self, nodes: Sequence[int]) -> Sequence[Effect]:
        """Set the live nodes, best first; the book of a dead node becomes stale."""
        self._known = nodes
        for node in [each for each in self._sources if each not in nodes]:
            del self._sources[node]
        if self.asking not in nodes:
            self.asking = None
        if self._shown is None or self._shown.node in nodes:
            return NOTHING
        self._shown = None
        detail = LOST_NODE if nodes else NO_NODE
        return (SetHealth(Health.STALE, Reason.DISCONNECTED, detail),)

    def received(self, frame: NodeMessage) -> Sequence[Effect]:
        """Process a message that a node published.

        Raises:
            WireError: The message is invalid.
        """
        shown = self._shown
        if (
            shown is not None
            and frame.node == shown.node
            and frame.seq == (shown.seq or 0) + 1
            and frame.epoch == shown.epoch
            and frame.kind in (Kind.DELTA, Kind.TOP)
            and shown.live
        ):  # the hot path
            delta = delta_of(frame, self.instrument)
            shown.seq = frame.seq
            return (delta,)
        if frame.node not in self._known:
            return NOTHING
        content = self._content(frame)
        source = self._source(frame)
        if source is None:
            return NOTHING
        if frame.epoch > source.epoch:
            before = self._begin_again(source, frame)
            return [*before, *self._apply_message(self._sources[frame.node], frame.seq, content)]
        return self._apply_message(source, frame.seq, content)

    def _apply_message(self, source: SourceNode, seq: int, content: Content) -> Sequence[Effect]:
        """Process a message of a source's current epoch."""
        if isinstance(content, ReplaceLevels):
            return self._whole(source, seq, content)
        if source.seq is None:
            if self.asking == source.node:
                self._hold(source, seq, content)
            return NOTHING
        if seq <= source.seq:
            return NOTHING
        if content is None:
            return self._gap(source)
        if seq > source.seq + 1:
            effects = self._gap(source)
            self._hold(source, seq, content)
            return effects
        return self._next(source, seq, content)

    def answered(self, node: int, frame: NodeMessage | None) -> Sequence[Effect]:
        """Process the reply to `ask`: a snapshot, a health, or None if there was no reply.

        Raises:
            WireError: The message is invalid.
        """
        if self.asking != node:
            return NOTHING
        self.asking = None
        if frame is None or frame.node != node:
            return NOTHING
        content = self._content(frame)
        source = self._source(frame)
        if source is None or (source.seq is not None and frame.seq < source.seq):
            return NOTHING
        before: Sequence[Effect] = NOTHING
        if frame.epoch > source.epoch:
            before = self._begin_again(source, frame)
            source = self._sources[node]
        if isinstance(content, ReplaceLevels):
            return [*before, *self._whole(source, frame.seq, content)]
        if isinstance(content, BookState):
            source.seq = frame.seq
            return [*before, *self._health(source, content), *self._release(source)]
        return before

    def ask(self, now: float, wait_s: float) -> int | None:
        """Return the node to request a snapshot from now; None if no request is due.

        A request is due at once, and every `wait_s` until the book is `in_sync`.
        """
        if self.in_sync or self.asking is not None or now - self._asked_at < wait_s:
            return None
        self.asking, self._asked_at = self._known[0], now
        return self.asking

    def lost(self) -> Sequence[Effect]:
        """Invalidate all message numbers, because messages were dropped."""
        effects: list[Effect] = []
        for source in self._sources.values():
            effects += self._gap(source)
        return effects

    def refused(self) -> None:
        """Request a snapshot, because the book rejected the shown node's levels."""
        if self._shown is not None:
            self._forget_number(self._shown)

    def _content(self, frame: NodeMessage) -> Content:
        match frame.kind:
            case Kind.SNAPSHOT:
                return ReplaceLevels(*snapshot_of(frame, self.instrument))
            case Kind.DELTA | Kind.TOP:
                return delta_of(frame, self.instrument)
            case Kind.HEALTH:
                return state_of(frame)
            case Kind.MARK:
                return None

    def _source(self, frame: NodeMessage) -> SourceNode | None:
        """Return the source of a message; None if its node is unknown or its epoch is old."""
        if frame.node not in self._known:
            return None
        source = self._sources.get(frame.node)
        if source is None:
            source = self._sources[frame.node] = SourceNode(frame)
        return source if frame.epoch >= source.epoch else None

    def _begin_again(self, source: SourceNode, frame: NodeMessage) -> Sequence[Effect]:
        """Reset a source whose node closed and reopened the book."""
        effects = NOTHING if frame.kind is Kind.SNAPSHOT else self._gap(source)
        renewed = self._sources[source.node] = SourceNode(frame)
        if source is self._shown:
            self._shown = renewed
            renewed.live = source.live
        return effects

    def _next(self, source: SourceNode, seq: int, content: Content) -> Sequence[Effect]:
        """Process the next message in order."""
        source.seq = seq
        if isinstance(content, BookState):
            return self._health(source, content)
        if isinstance(content, ReplaceLevels):
            return self._whole(source, seq, content)
        if content is not None and source is self._shown and source.live:
            return (content,)
        if source.live:  # another node's book is shown, and levels are kept only for that one
            source.seq = None
        return NOTHING

    def _whole(self, source: SourceNode, seq: int, levels: ReplaceLevels) -> Sequence[Effect]:
        if source.seq is not None and seq < source.seq:
            return NOTHING
        source.seq, source.live = seq, True
        shown = self._shown
        if shown is not None and shown is not source and shown.live and self._better(shown, source):
            source.seq = None
            return NOTHING
        self._shown = source
        if self.asking == source.node:
            self.asking = None
        return [levels, *self._release(source)]

    def _better(self, one: SourceNode, other: SourceNode) -> bool:
        return self._known.index(one.node) < self._known.index(other.node)

    def _health(self, source: SourceNode, state: BookState) -> Sequence[Effect]:
        source.live = False
        shown = self._shown
        if shown is not source and shown is not None and shown.live:
            return NOTHING
        if shown is not None and shown is not source and self._better(shown, source):
            return NOTHING
        self._shown = source
        if state.reason == Reason.NOT_WANTED:
            self._forget_number(source)
            return (SetHealth(Health.STALE, Reason.DISCONNECTED, MOVED),)
        try:
            reason = Reason(state.reason)
        except ValueError:
            reason = Reason.DISCONNECTED  # replaces a code of a later release
        return (SetHealth(state.health, reason, state.detail),)

    def _release(self, source: SourceNode) -> list[Effect]:
        """Process the held messages that follow the current number of the source."""
        effects: list[Effect] = []
        held, source.held = source.held, {}
        for seq in sorted(held):
            content = held.pop(seq)
            if source.seq is None or seq > source.seq + 1:
                source.held = {seq: content, **held}
                effects += self._gap(source, keep=True) if source.seq is not None else ()
                break
            if seq == source.seq + 1:
                effects += self._next(source, seq, content)
        return effects

    def _hold(self, source: SourceNode, seq: int, content: Content) -> None:
        if content is None:
            return
        if len(source.held) >= self._held_max:
            source.held.clear()
        source.held[seq] = content

    def _gap(self, source: SourceNode, *, keep: bool = False) -> Sequence[Effect]:
        """Handle a missing number, which invalidates the source's levels."""
        if source.seq is None:
            return NOTHING
        self.gaps += 1
        was_live = source.live
        self._forget_number(source, keep=keep)
        self._asked_at = float("-inf")
        if source is self._shown and was_live:
            return (SetHealth(Health.STALE, Reason.GAP, LOST_MESSAGE),)
        return NOTHING

    def _forget_number(self, source: SourceNode, *, keep: bool = False) -> None:
        source.seq, source.live = None, False
        if not keep:
            source.held.clear()
