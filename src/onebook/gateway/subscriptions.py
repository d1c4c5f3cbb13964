"""Opens and closes the streams of clients, counts their views, and fetches books."""

from collections.abc import Callable

from onebook.gateway.effects import CloseView, FetchBook, OpenView, ResendBook
from onebook.gateway.fanout import Fanout
from onebook.gateway.messages import with_skipped, with_view
from onebook.gateway.processor import NONE_SUBSCRIBED, KeyViews
from onebook.gateway.registry import ClientPort
from onebook.streams import StreamKey, Streams


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
            self._close(client, effect.previous, effect.view)
        self._fanout.join(client.output, stream, effect.view)
        for status in self._streams.marks(stream):
            client.output.send_text(with_view(status, effect.view))

    def close(self, client: ClientPort, effect: CloseView) -> None:
        """Unsubscribe a client from a stream."""
        self._close(client, effect.key, effect.view)

    def _close(self, client: ClientPort, key: StreamKey, view: str | None) -> None:
        stream = self._streams.find(key)
        self._fanout.leave(client.output, stream, view)
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
            client.output.send_text(with_view(payload, effect.view))

        before = processor.fetching
        cancel = self._streams.fetch(effect.key, answer, message_id=effect.message_id)
        if processor.fetching == before:
            waiting.add(cancel)

    def resend(self, client: ClientPort, effect: ResendBook) -> None:
        """Send the whole book of a subscription."""
        stream = self._streams.find(effect.key)
        self._streams.publish_now(stream)
        skipped = self._fanout.take_skipped(client.output, stream, effect.view)
        whole = with_skipped(stream.full_for(effect.message_id), skipped)
        client.output.send_text(with_view(whole, effect.view))

    def release(self, client: ClientPort) -> None:
        """End all subscriptions and unanswered requests of a client."""
        self._fanout.forget(client.output)
        processor = client.processor
        subscriptions, processor.subscriptions = processor.subscriptions, NONE_SUBSCRIBED
        for (_, view), key in subscriptions.items():
            self._close(client, key, view)
        fetches, client.fetches = client.fetches, None
        for cancel in fetches or ():
            cancel()
