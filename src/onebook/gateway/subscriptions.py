"""Opens and closes the streams of clients, counts their views, and fetches books."""

import asyncio
from collections.abc import Callable

from onebook.clock import Clock
from onebook.errors import HistoryUnavailable, InvalidRequest, OnebookError
from onebook.gateway.commands import CommandRefused
from onebook.gateway.effects import CloseView, FetchBook, OpenView, ResendBook
from onebook.gateway.fanout import Fanout, FrameVariant
from onebook.gateway.frames import binary_frame
from onebook.gateway.messages import encode_refusal, with_view
from onebook.gateway.processor import NONE_NUMBERED, NONE_SUBSCRIBED, KeyViews
from onebook.gateway.registry import ClientPort
from onebook.streams import StreamKey, Streams, packed
from onebook.streams.options import PROTOBUF
from onebook.streams.past import NO_HISTORY, PastBooks


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

    async def stop(self) -> None:
        """Cancel the reads of the history."""
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

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

    def _close(self, client: ClientPort, key: StreamKey, view: str | None, number: int) -> None:
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
