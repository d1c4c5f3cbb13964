"""The thinking of one connection: what its frames and its silences do to the books.

No socket and no clock: frames and monotonic seconds come in, books change at once, and what must
be done outside waits in `take` as actions. Every rule of the fault matrix is here: a book in doubt
is marked at once and asked for again alone; only what cannot be repaired so, ends the connection.
"""

import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from onebook.books import CHECKSUM, Books, LiveBook
from onebook.config import FeedSettings
from onebook.exchanges.contract import (
    Acknowledged,
    Alive,
    Closing,
    Connector,
    Delta,
    Exchange,
    Fetch,
    Gap,
    Output,
    ProtocolError,
    Refused,
    Send,
    Snapshot,
    Verify,
)
from onebook.feeds.actions import PING, Action, End, Request, Transmit
from onebook.feeds.pace import Tally, full_jitter_s
from onebook.feeds.stats import ExchangeStats
from onebook.model import Health, Instrument
from onebook.rest import Bucket

log = logging.getLogger("onebook.feeds")

WATCH_S: Final = 0.25  # how often each instrument is looked at
NEVER: Final = float("inf")

# Why a book is in doubt: the words in metrics and, where no other text is at hand, for clients.
GAP: Final = "gap"
PROTOCOL: Final = "protocol"
BUG: Final = "internal error"
QUIET: Final = "quiet"
NO_SNAPSHOT: Final = "no snapshot"
FETCH_FAILED: Final = "snapshot request failed"
DISCONNECTED: Final = "disconnected"

# Why a connection ends.
SILENT: Final = "nothing received"
RENEWED: Final = "renewed before its age limit"
QUEUE_FULL: Final = "too many frames wait to be sent"
FAULTS: Final = "too many frames that cannot be understood"
CHECKSUMS: Final = "too many wrong checksums"
BEYOND_REPAIR: Final = "a book could not be repaired"


class Watch:
    """What is awaited of one instrument; all times in monotonic seconds."""

    __slots__ = (
        "alive_at",
        "book",
        "checksums",
        "due_at",
        "fetches",
        "fetching",
        "instrument",
        "resync_at",
        "tries",
        "was_filled",
    )

    def __init__(self, book: LiveBook, checksums_max: int, due_at: float) -> None:
        self.instrument = book.instrument
        self.book = book
        self.alive_at = 0.0
        self.due_at = due_at  # its snapshot must be here by then
        self.resync_at = NEVER
        self.tries = 0  # resyncs since it was last well for a while
        self.fetches = 0  # since its last snapshot
        self.fetching = 0  # under way now
        self.was_filled = False  # this connection has brought its book before
        self.checksums = Tally(checksums_max)


class Session:
    """One connection's state between `opened` and `closed`.

    Args:
        exchange: Its facts.
        instruments: Those whose books are already open.
        books: Where frames go.
        settings: Limits and waits.
        stats: Counters of the exchange, shared by its connections.
        jitter: A number in [0, 1) for each wait.
    """

    def __init__(
        self,
        exchange: Exchange,
        instruments: Sequence[Instrument],
        *,
        books: Books,
        settings: FeedSettings,
        stats: ExchangeStats,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.pending = False  # something waits in `take`
        self.ended: End | None = None
        self._exchange = exchange
        self._books = books
        self._change = books.change
        self._settings = settings
        self._stats = stats
        self._jitter = jitter
        self._connector: Connector = exchange.connector(instruments)
        self._receive = self._connector.received
        self._watches: dict[Instrument, Watch] = {}
        self._broken: list[Watch] = []  # to be asked for again after this frame
        self._queue: deque[bytes] = deque()
        self._requests: list[Fetch] = []
        # The burst and what comes back in a second make the exchange's rate together.
        per_s = exchange.frames_per_s
        self._bucket = Bucket(per_s * 0.8, max(1.0, per_s * 0.2))
        self._faults = Tally(settings.faults_max)
        self._heard_at = 0.0
        self._pinged_at = 0.0
        self._urgent: list[Action] = []
        self._beat_at = NEVER
        self._renew_at = NEVER
        self._look_at = 0.0
        self._adopt(instruments, 0.0)

    @property
    def instruments(self) -> list[Instrument]:
        """Return what this connection carries."""
        return list(self._watches)

    def opened(self, now: float) -> None:
        """Begin: the socket is open."""
        self._heard_at = self._pinged_at = now
        self._bucket.refill(now)
        # Spread, because connections opened together would be renewed together.
        renew_before_s = self._settings.renew_before_s * (1.0 + self._jitter())
        self._renew_at = now + max(
            self._exchange.lifetime_s - renew_before_s, self._settings.stable_s
        )
        if self._exchange.heartbeat is not None:
            self._beat_at = now + self._exchange.heartbeat.every_s
        for watch in self._watches.values():
            self._books.set_health(watch.instrument, Health.SYNCING, "", now)
        self._execute(self._connector.opened, now)
        for watch in self._watches.values():
            watch.due_at = self._due_at(now)

    def received(self, frame: bytes, now: float) -> None:
        """Act on one message (the hot path: what `_execute` does, without the calls)."""
        if self.ended is not None:
            return
        self._heard_at = now
        self._stats.frames += 1
        try:
            for output in self._receive(frame):
                if type(output) is Delta:
                    reason = self._change(output, now)
                    if reason is not None:
                        self._doubt(output.instrument, reason, reason, now)
                else:
                    ACTS[type(output)](self, output, now)
        except Exception as error:
            self._failed(error, now)
        if self._broken:
            self._repair(now)

    def heard(self, now: float) -> None:
        """Note a protocol-level ping or pong: the other side is there."""
        self._heard_at = now

    def fetched(self, instrument: Instrument, body: bytes, now: float) -> None:
        """Act on the body of a `Request`."""
        watch = self._answered(instrument)
        if watch is not None:
            watch.due_at = now + self._exchange.snapshot_s
            self._execute(lambda: self._connector.fetched(instrument, body), now)

    def fetch_failed(self, instrument: Instrument, now: float) -> None:
        """Act on a `Request` that brought nothing."""
        if self._answered(instrument) is not None:
            self._doubt(instrument, FETCH_FAILED, FETCH_FAILED, now)
            self._repair(now)

    def add(self, instruments: Sequence[Instrument], now: float) -> None:
        """Carry more instruments, whose books are already open."""
        self._adopt(instruments, now)
        if self.ended is None:
            self._execute(lambda: self._connector.add(instruments), now)
            for instrument in instruments:
                self._watches[instrument].due_at = self._due_at(now)

    def remove(self, instruments: Sequence[Instrument], now: float) -> None:
        """Carry these no longer."""
        for instrument in instruments:
            self._watches.pop(instrument, None)
        if self.ended is None:
            self._execute(lambda: self._connector.remove(instruments), now)

    def tick(self, now: float) -> None:
        """Let time pass: silence, heartbeats, age, and what is awaited of each instrument."""
        if self.ended is not None:
            return
        self._stats.heard_at = max(self._stats.heard_at, self._heard_at)
        self._listen(now)
        self._beat(now)
        if now >= self._renew_at:
            self._end(RENEWED, now, at_once=True)
        elif now >= self._look_at:
            self._look_at = now + WATCH_S
            for watch in self._watches.values():
                self._look(watch, now)
            self._repair(now)

    def take(self, now: float) -> list[Action]:
        """Return what must be done outside now; frames beyond the pace wait for the next call."""
        self.pending = False
        if self.ended is not None:
            return [self.ended]
        actions: list[Action] = []
        if self._urgent:
            # They go at once and are paid for by what waits: exchanges count pings as frames.
            self._bucket.take(len(self._urgent), now)
            actions, self._urgent = self._urgent, []
        while self._queue and self._bucket.wait_s(1, now) <= 0:
            self._bucket.take(1, now)
            actions.append(Transmit(self._queue.popleft()))
        actions.extend(Request(fetch) for fetch in self._requests)
        self._requests.clear()
        return actions

    def closed(self, now: float, reason: str = DISCONNECTED) -> None:
        """End: the socket is gone, and with it the right to show its books."""
        if self.ended is None:
            self.ended = End(reason, at_once=False)
        self._distrust_all(reason, now)

    # What a frame says.

    def _execute(self, outputs: Callable[[], Iterable[Output]], now: float) -> None:
        try:
            for output in outputs():
                ACTS[type(output)](self, output, now)
        except Exception as error:
            self._failed(error, now)
        if self._broken:
            self._repair(now)

    def _failed(self, error: Exception, now: float) -> None:
        if isinstance(error, ProtocolError):
            self._misunderstood(error.instrument, error.reason, PROTOCOL, now)
        else:
            self._bug(error)
            self._misunderstood(None, BUG, BUG, now)

    def _apply(self, output: Delta | Verify, now: float) -> None:
        reason = self._books.apply(output, now)
        if reason is not None:
            self._doubt(output.instrument, reason, reason, now)

    def _filled(self, output: Snapshot, now: float) -> None:
        if self.ended is not None:
            return  # the frame that ended the connection said more; it revives nothing
        reason = self._books.apply(output, now)
        if reason is not None:
            self._doubt(output.instrument, reason, reason, now)
            return
        watch = self._watches.get(output.instrument)
        if watch is not None:
            watch.was_filled = True
            watch.fetches = 0

    def _gap(self, output: Gap, now: float) -> None:
        self._doubt(output.instrument, output.reason, GAP, now)

    def _send(self, output: Send, now: float) -> None:
        if len(self._queue) >= self._settings.send_queue_max:
            self._end(QUEUE_FULL, now)
            return
        self._queue.append(output.frame)
        self.pending = True

    def _fetch(self, output: Fetch, now: float) -> None:
        watch = self._watches.get(output.instrument)
        if watch is None:
            return
        watch.fetches += 1
        if watch.fetches > self._settings.refetches_max:
            self._give_up(watch, now)
            return
        watch.fetching += 1
        self._requests.append(output)
        self.pending = True

    def _acknowledged(self, output: Acknowledged, now: float) -> None:
        watch = self._watches.get(output.instrument)
        if watch is not None:
            watch.due_at = now + self._exchange.snapshot_s

    def _refused(self, output: Refused, now: float) -> None:
        watch = self._watches.get(output.instrument)
        if watch is not None:
            self._offline(watch, output.reason, now)

    def _alive(self, output: Alive, now: float) -> None:
        watch = self._watches.get(output.instrument)
        if watch is not None:
            watch.alive_at = now

    def _closing(self, output: Closing, now: float) -> None:
        self._end(output.reason, now, at_once=True)

    # What time says.

    def _listen(self, now: float) -> None:
        silent_s = now - self._heard_at
        if silent_s >= self._exchange.silence_max_s:
            self._end(SILENT, now)
        elif silent_s >= self._exchange.silence_max_s / 2 and self._pinged_at <= self._heard_at:
            self._pinged_at = now
            self._urgent.append(PING)
            self.pending = True

    def _beat(self, now: float) -> None:
        heartbeat = self._exchange.heartbeat
        if heartbeat is not None and now >= self._beat_at:
            self._beat_at = now + heartbeat.every_s
            self._urgent.append(Transmit(heartbeat.frame))
            self.pending = True

    def _look(self, watch: Watch, now: float) -> None:
        book = watch.book
        if book.health is Health.LIVE:
            watch.resync_at = watch.due_at = NEVER
            if now - max(book.updated_at, watch.alive_at) > self._exchange.quiet_max_s:
                self._doubt(watch.instrument, QUIET, QUIET, now)
            elif watch.tries and now - book.changed_at >= self._settings.stable_s:
                watch.tries = 0
        elif now >= watch.resync_at:
            self._broken.append(watch)
        elif now >= watch.due_at and not watch.fetching:
            self._doubt(watch.instrument, NO_SNAPSHOT, NO_SNAPSHOT, now)

    # What follows.

    def _distrust_all(self, reason: str, now: float) -> None:
        for watch in self._watches.values():
            if watch.book.health is Health.LIVE:
                self._stats.invalidations[DISCONNECTED] += 1
            self._books.set_health(watch.instrument, Health.STALE, reason, now)

    def _doubt(self, instrument: Instrument, reason: str, cause: str, now: float) -> None:
        watch = self._watches.get(instrument)
        if watch is None or watch.book.health is Health.OFFLINE or self.ended is not None:
            return
        self._stats.invalidations[cause] += 1
        self._books.set_health(instrument, Health.STALE, reason, now)
        if cause == CHECKSUM and watch.checksums.hit(now):
            self._end(CHECKSUMS, now)
        elif watch.resync_at == NEVER:
            self._plan(watch, now)

    def _plan(self, watch: Watch, now: float) -> None:
        settings = self._settings
        if watch.tries >= settings.resync_tries_max:
            self._give_up(watch, now)
            return
        wait_s = 0.0
        if watch.tries:
            wait_s = full_jitter_s(
                watch.tries, settings.resync_base_s, settings.resync_max_s, random=self._jitter()
            )
        watch.tries += 1
        watch.due_at = NEVER
        watch.resync_at = now + wait_s
        if not wait_s:
            self._broken.append(watch)

    def _give_up(self, watch: Watch, now: float) -> None:
        """Blame the instrument where the connection serves others, else the connection."""
        serves = any(other.book.health is Health.LIVE for other in self._watches.values())
        if watch.was_filled or not serves:
            self._end(BEYOND_REPAIR, now)
        else:
            self._offline(watch, NO_SNAPSHOT, now)

    def _offline(self, watch: Watch, reason: str, now: float) -> None:
        self._books.set_health(watch.instrument, Health.OFFLINE, reason, now)
        watch.tries = watch.fetches = 0
        watch.due_at = NEVER
        watch.resync_at = now + self._settings.retry_offline_s

    def _repair(self, now: float) -> None:
        """Ask again for what broke, after the frame that broke it was read to its end."""
        broken, self._broken = self._broken, []
        for watch in broken:
            if self.ended is None and watch.resync_at <= now and not self._recovered(watch):
                self._resync(watch, now)

    def _recovered(self, watch: Watch) -> bool:
        return watch.book.health is Health.LIVE or watch.instrument not in self._watches

    def _resync(self, watch: Watch, now: float) -> None:
        watch.resync_at = NEVER
        if watch.book.health is Health.OFFLINE:
            self._books.set_health(watch.instrument, Health.SYNCING, "", now)
        self._execute(lambda: self._connector.resync(watch.instrument), now)
        if watch.resync_at == NEVER:
            watch.due_at = self._due_at(now)

    def _misunderstood(
        self, instrument: Instrument | None, reason: str, cause: str, now: float
    ) -> None:
        if instrument is not None:
            self._doubt(instrument, reason, cause, now)
        elif self._faults.hit(now):
            self._end(FAULTS, now)
        else:
            for each in list(self._watches):
                self._doubt(each, reason, cause, now)

    def _bug(self, error: Exception) -> None:
        kind = type(error).__name__
        if kind not in self._stats.bugs:
            self._stats.bugs.add(kind)
            log.error("Acting on what %s sent failed.", self._exchange.name, exc_info=error)

    def _end(self, reason: str, now: float, *, at_once: bool = False) -> None:
        if self.ended is None:
            self.ended = End(reason, at_once)
            self.pending = True
            self._distrust_all(reason, now)

    def _answered(self, instrument: Instrument) -> Watch | None:
        watch = self._watches.get(instrument)
        if watch is not None:
            watch.fetching -= 1
        return watch if self.ended is None else None

    def _adopt(self, instruments: Iterable[Instrument], now: float) -> None:
        for instrument in instruments:
            book = self._books.get(instrument)
            assert book is not None, instrument
            self._watches[instrument] = Watch(
                book, self._settings.checksums_max, now + self._exchange.snapshot_s
            )

    def _due_at(self, now: float) -> float:
        """Return when a snapshot is due that is asked for by what is last in the queue."""
        return now + self._exchange.snapshot_s + len(self._queue) / self._bucket.rate


ACTS: Final[dict[type, Callable[..., None]]] = {
    Snapshot: Session._filled,
    Delta: Session._apply,
    Verify: Session._apply,
    Gap: Session._gap,
    Send: Session._send,
    Fetch: Session._fetch,
    Acknowledged: Session._acknowledged,
    Refused: Session._refused,
    Alive: Session._alive,
    Closing: Session._closing,
}
