"""Opens and closes the streams of clients, counts their views, and fetches books."""

from collections.abc import Callable

from onebook.gateway.effects import CloseView, FetchBook, OpenView, ResendBook
from onebook.gateway.fanout import Fanout, FrameVariant
from onebook.gateway.frames import binary_frame
from onebook.gateway.messages import with_view
from onebook.gateway.processor import NONE_NUMBERED, NONE_SUBSCRIBED, KeyViews
from onebook.gateway.registry import ClientPort
from onebook.streams import StreamKey, Streams, packed
from onebook.streams.options import PROTOBUF


class SubscriptionManager:
    """Executes the effects of commands that concern streams."""

    def __init__(self, *, streams: Streams, fanout: Fanout, views: KeyViews) -> None:
        self._streams = streams
        self._fanout = fanout
        self._views = views

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
        waiting = client.fetches = client.fetches or set()
        processor = client.processor
        processor.fetching += 1
        cancel: Callable[[], None] | None = None

        def answer(payload: bytes) -> None:
            processor.fetching -= 1
            if cancel is not None:
                waiting.discard(cancel)
            if effect.key.options.encoding == PROTOBUF:
                client.output.write(binary_frame(packed.with_view(payload, effect.view)))
            else:
                client.output.send_text(with_view(payload, effect.view))

        before = processor.fetching
        cancel = self._streams.fetch(effect.key, answer, message_id=effect.message_id)
        if processor.fetching == before:
            waiting.add(cancel)

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
