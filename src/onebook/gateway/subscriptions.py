"""Opens and closes the streams of clients, counts their views, and fetches books."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from onebook.clock import Clock
from onebook.errors import HistoryUnavailable, InvalidRequest, OnebookError
from onebook.gateway.commands import CommandRefused
from onebook.gateway.effects import CloseView, FetchBook, OpenView, PlayView, ResendBook
from onebook.gateway.fanout import ClientOutput, Fanout, FrameVariant, StreamTail
from onebook.gateway.frames import binary_frame
from onebook.gateway.keepalive import NEVER
from onebook.gateway.messages import encode, encode_refusal, with_view
from onebook.gateway.processor import NONE_NUMBERED, NONE_SUBSCRIBED, KeyViews
from onebook.gateway.registry import ClientPort
from onebook.gateway.replies import HistoryEnd
from onebook.gateway.scheduler import Slices
from onebook.streams import Stream, StreamKey, Streams, packed
from onebook.streams.options import PROTOBUF
from onebook.streams.past import NO_HISTORY, UNREADABLE, PastBooks
from onebook.streams.plays import Play

PLAYS_MAX: Final = 16  # of this node; each has its own books
PLAYS_OF_CLIENT_MAX: Final = 2
WAIT_S: Final = 0.25  # for more of the history, or a client that reads too slowly
NEAR_US: Final = 3_000_000  # from the present, from which on live messages are kept
CATCH_UP_S: Final = 5.0  # for the recorder to write what was live when the stream was opened
TOO_MANY_PLAYS: Final = "Too many subscriptions of this {} play the past; end one, or retry later."

log = logging.getLogger("onebook.gateway")


class PlayOutput:
    """The publisher of one play: sends its messages to one client."""

    def __init__(self, output: ClientOutput, form: FrameVariant) -> None:
        self._output = output
        self._form = form

    def publish(self, stream: Stream, payload: bytes, full: Callable[[], bytes]) -> None:
        """Send an update."""
        self._output.write(self._form.update(payload))

    def status(self, stream: Stream, payload: bytes) -> None:
        """Send a changed health of an exchange."""
        self._output.write(self._form.message(payload))

    def flush(self, ends_at: float) -> bool:
        """Do nothing: messages are written at once."""
        return False


class PlayedView:
    """A subscription that plays the past."""

    def __init__(self, effect: PlayView, form: FrameVariant, *, replaces_play: bool) -> None:
        self.effect = effect
        self.form = form
        self.replaces_play = replaces_play
        self.play: Play | None = None  # once the history was opened
        self.began = 0.0  # when the first moment was shown
        self.task: asyncio.Task[None] | None = None


class SubscriptionManager:
    """Executes the effects of commands that concern streams."""

    def __init__(
        self,
        *,
        streams: Streams,
        fanout: Fanout,
        views: KeyViews,
        clock: Clock,
        past: PastBooks | None = None,
    ) -> None:
        self._streams = streams
        self._fanout = fanout
        self._views = views
        self._clock = clock
        self._past = past
        self._reading: set[asyncio.Task[None]] = set()
        self._plays: dict[tuple[ClientPort, str, str | None], PlayedView] = {}

    async def stop(self) -> None:
        """Cancel the reads of the history."""
        plays = [each.task for each in self._plays.values() if each.task is not None]
        for task in (*self._reading, *plays):
            task.cancel()
        await asyncio.gather(*self._reading, *plays, return_exceptions=True)

    def open(self, client: ClientPort, effect: OpenView) -> None:
        """Subscribe a client to a stream in place of the view's previous one."""
        key = client.processor.key
        assert key is not None
        stream = self._streams.open(effect.key, key.key_id)
        self._views.join(key.key_id, (effect.key, effect.view))
        if effect.previous is not None:
            self._close(client, effect.previous, effect.view, effect.previous_number)
        form = FrameVariant(client.output.packed, effect.view, effect.number)
        self._fanout.join(client.output, stream, form)
        for status in self._streams.marks(stream):
            client.output.send_text(with_view(status, effect.view))

    def close(self, client: ClientPort, effect: CloseView) -> None:
        """Unsubscribe a client from a stream."""
        self._close(client, effect.key, effect.view, effect.number)

    def play(self, client: ClientPort, effect: PlayView) -> None:
        """Play a view from a past moment on, in place of the view's previous stream."""
        view = effect.view
        owner = client.processor.key
        assert owner is not None
        self._views.join(owner.key_id, (view.key, view.view))
        name = client, view.key.symbol, view.view
        form = FrameVariant(client.output.packed, view.view, view.number)
        played = PlayedView(effect, form, replaces_play=name in self._plays)
        if view.previous is not None:
            self._close(client, view.previous, view.view, view.previous_number)
        own = sum(each[0] is client for each in self._plays)
        limited = "connection" if own >= PLAYS_OF_CLIENT_MAX else ""
        limited = limited or ("node" if len(self._plays) >= PLAYS_MAX else "")
        self._plays[name] = played
        work = self._run(client, played, limited)
        played.task = asyncio.get_running_loop().create_task(work, name="play")

    async def _run(self, client: ClientPort, played: PlayedView, limited: str) -> None:
        """Play until the present, then subscribe to the live stream."""
        effect, view = played.effect, played.effect.view
        try:
            if self._past is None:
                raise HistoryUnavailable(NO_HISTORY)
            if limited:
                raise HistoryUnavailable(TOO_MANY_PLAYS.format(limited), retry_after_s=1.0)
            output = PlayOutput(client.output, played.form)
            played.play = await self._past.play(view.key, effect.start_us, output)
            client.output.send_text(effect.reply)
            await self._play_on(client, played, played.play, self._past)
        except Exception as error:
            if not isinstance(error, OnebookError):
                log.exception("The history of %s cannot be played.", view.key.symbol)
                error = HistoryUnavailable(UNREADABLE)
            self._refuse_play(client, played, error)

    def _refuse_play(self, client: ClientPort, played: PlayedView, error: OnebookError) -> None:
        """End a play; the live subscription that it was to replace begins again."""
        view = played.effect.view
        refusal = CommandRefused(error.code, error.message, symbol=view.key.symbol)
        client.output.send_text(
            encode_refusal(refusal, played.effect.message_id, self._clock.wall_us(), view=view.view)
        )
        is_kept = played.play is None and not played.replaces_play
        previous, number = (view.previous, view.previous_number) if is_kept else (None, 0)
        self._close(client, view.key, view.view, view.number)
        client.processor.restore(view.key.symbol, view.view, previous, number)
        if previous is not None:
            self.open(client, OpenView(previous, None, view.view, number))

    async def _play_on(
        self, client: ClientPort, played: PlayedView, play: Play, past: PastBooks
    ) -> None:
        """Play to the end of the history, and from there to the first live book that was kept."""
        speed = played.effect.speed
        played.began = self._clock.monotonic()
        tail: StreamTail | None = None
        slices = Slices(self._clock)
        gives_up_at = NEVER  # set while the history has nothing more
        try:
            while True:
                joins_us = None if tail is None else tail.base_us
                while (due_us := play.due_us) is not None:
                    if joins_us is not None and due_us >= joins_us:
                        break
                    await self._wait(client, played, due_us)
                    play.advance()
                    await slices.next()
                    joins_us = None if tail is None else tail.base_us
                if speed and due_us is None:
                    until_us = play.until_us if joins_us is None else min(play.until_us, joins_us)
                    await self._wait(client, played, until_us)
                if tail is not None and self._joins(tail, play, gives_up_at):
                    assert tail.base_us is not None
                    await self._wait(client, played, min(play.until_us, tail.base_us))
                    if self._joins(tail, play, gives_up_at):  # it may have begun again
                        self._join_live(client, played, play, tail)
                        return
                    continue
                if due_us is not None:
                    continue
                is_near = self._clock.wall_us() - play.until_us < NEAR_US
                has_more = await past.load(play)
                if tail is None and (is_near or not has_more):
                    tail = self._open_tail(client, play)
                if tail is not None:
                    self._begin_tail(tail)
                if has_more:
                    gives_up_at = NEVER
                    continue
                gives_up_at = min(gives_up_at, self._clock.monotonic() + CATCH_UP_S)
                await self._clock.sleep(WAIT_S)
        finally:
            if tail is not None:
                self._fanout.end_tail(tail)
                self._streams.close(tail.stream)

    def _open_tail(self, client: ClientPort, play: Play) -> StreamTail:
        """Open the live stream, and keep its messages until the history has reached them."""
        owner = client.processor.key
        stream = self._streams.open(play.key, "" if owner is None else owner.key_id)
        return self._fanout.tail(stream, self._clock.wall_us)

    def _begin_tail(self, tail: StreamTail) -> None:
        """Begin with the book of now, if the stream has nothing to publish."""
        stream = tail.stream
        if tail.base_us is None and stream.update_number:
            self._streams.publish_now(stream)
            if tail.base_us is None and stream.due is None:
                tail.begin()

    def _joins(self, tail: StreamTail, play: Play, gives_up_at: float) -> bool:
        """Whether everything before the first live book was played, or cannot be."""
        if tail.base_us is None:
            return False
        return play.until_us >= tail.base_us or self._clock.monotonic() >= gives_up_at

    def _played_us(self, played: PlayedView) -> int:
        """Return the recorded time that is due now."""
        effect = played.effect
        lasted_s = self._clock.monotonic() - played.began
        return effect.start_us + round(lasted_s * 1_000_000 * effect.speed)

    async def _wait(self, client: ClientPort, played: PlayedView, at_us: int) -> None:
        """Wait until a moment is due, and until the client reads."""
        effect = played.effect
        if effect.speed:
            due = played.began + (at_us - effect.start_us) / 1_000_000 / effect.speed
            while (wait_s := due - self._clock.monotonic()) > 0:
                await self._clock.sleep(wait_s)
        while client.output.behind:
            await self._clock.sleep(WAIT_S)

    def _join_live(
        self, client: ClientPort, played: PlayedView, play: Play, tail: StreamTail
    ) -> None:
        """Continue with the live stream: with the book and the updates that were kept."""
        view = played.effect.view
        del self._plays[client, view.key.symbol, view.view]
        client.processor.forget_play(view.key.symbol, view.view)
        play.close()
        tail.stream.users += 1
        assert tail.base_us is not None
        event = HistoryEnd(
            symbol=view.key.symbol,
            subscription_id=view.key.id,
            recorded_until=client.processor.stamp(min(play.until_us, tail.base_us)),
            timestamp=client.processor.stamp(self._clock.wall_us()),
        )
        client.output.send_text(with_view(encode(event), view.view))
        self._fanout.join_tail(client.output, tail, played.form)
        for status in self._streams.marks(tail.stream):
            client.output.send_text(with_view(status, view.view))

    def _close(self, client: ClientPort, key: StreamKey, view: str | None, number: int) -> None:
        played = self._plays.pop((client, key.symbol, view), None)
        if played is not None:
            if played.play is not None:
                played.play.close()
            if played.task is not None and played.task is not asyncio.current_task():
                played.task.cancel()
            owner = client.processor.key
            assert owner is not None
            self._views.leave(owner.key_id, (key, view))
            return
        stream = self._streams.find(key)
        form = FrameVariant(client.output.packed, view, number)
        self._fanout.leave(client.output, stream, form)
        self._streams.close(stream)
        owner = client.processor.key
        assert owner is not None
        self._views.leave(owner.key_id, (key, view))

    def fetch(self, client: ClientPort, effect: FetchBook) -> None:
        """Send a book once, as soon as it is available."""
        if effect.as_of_us is not None:
            self._fetch_past(client, effect, effect.as_of_us)
            return
        waiting = client.fetches = client.fetches or set()
        processor = client.processor
        processor.fetching += 1
        cancel: Callable[[], None] | None = None

        def answer(payload: bytes) -> None:
            processor.fetching -= 1
            if cancel is not None:
                waiting.discard(cancel)
            _send_book(client, effect, payload)

        before = processor.fetching
        cancel = self._streams.fetch(effect.key, answer, message_id=effect.message_id)
        if processor.fetching == before:
            waiting.add(cancel)

    def _fetch_past(self, client: ClientPort, effect: FetchBook, at_us: int) -> None:
        """Send the book of a past moment once it was read."""
        client.fetches = client.fetches or set()
        client.processor.fetching += 1
        task = asyncio.get_running_loop().create_task(self._answer_past(client, effect, at_us))

        def cancel() -> None:
            task.cancel()

        self._reading.add(task)
        client.fetches.add(cancel)

        def ended(_: object) -> None:
            self._reading.discard(task)
            client.processor.fetching -= 1
            if client.fetches is not None:
                client.fetches.discard(cancel)

        task.add_done_callback(ended)

    async def _answer_past(self, client: ClientPort, effect: FetchBook, at_us: int) -> None:
        try:
            if self._past is None:
                raise HistoryUnavailable(NO_HISTORY)
            payload = await self._past.fetch(effect.key, at_us, effect.message_id)
        except OnebookError as error:
            code = "invalid_parameters" if isinstance(error, InvalidRequest) else error.code
            refusal = CommandRefused(code, error.message, symbol=effect.key.symbol)
            wall_us = self._clock.wall_us()
            client.output.send_text(
                encode_refusal(refusal, effect.message_id, wall_us, view=effect.view)
            )
        else:
            _send_book(client, effect, payload)

    def resend(self, client: ClientPort, effect: ResendBook) -> None:
        """Send the whole book of a subscription."""
        played = self._plays.get((client, effect.key.symbol, effect.view))
        if played is not None:
            if played.play is not None and played.play.stream is not None:
                whole = played.play.resend(self._played_us(played), effect.message_id)
                client.output.write(played.form.update(whole))
            return
        stream = self._streams.find(effect.key)
        self._streams.publish_now(stream)
        form = FrameVariant(client.output.packed, effect.view, effect.number)
        skipped = self._fanout.take_skipped(client.output, stream, form)
        client.output.write(form.update(stream.full_for(effect.message_id), skipped))

    def release(self, client: ClientPort) -> None:
        """End all subscriptions and unanswered requests of a client."""
        self._fanout.forget(client.output)
        processor = client.processor
        subscriptions, processor.subscriptions = processor.subscriptions, NONE_SUBSCRIBED
        numbers, processor.numbers = processor.numbers, NONE_NUMBERED
        for named, key in subscriptions.items():
            self._close(client, key, named[1], numbers.get(named, 0))
        fetches, client.fetches = client.fetches, None
        for cancel in fetches or ():
            cancel()


def _send_book(client: ClientPort, effect: FetchBook, payload: bytes) -> None:
    if effect.key.options.encoding == PROTOBUF:
        client.output.write(binary_frame(packed.with_view(payload, effect.view)))
    else:
        client.output.send_text(with_view(payload, effect.view))
