"""Subscriptions of clients: streams are opened and closed, views counted, books fetched."""

from collections.abc import Callable
from typing import Any, Final

from onebook.gateway.effects import CloseView, FetchBook, OpenView, ResendBook
from onebook.gateway.fanout import Fanout
from onebook.gateway.processor import NONE_SUBSCRIBED, KeyViews
from onebook.gateway.subscriber import Subscriber
from onebook.streams import StreamKey, Streams


class SubscriptionManager:
    """Executes the commands about streams."""

    def __init__(self, *, streams: Streams, fanout: Fanout, views: KeyViews) -> None:
        self._streams = streams
        self._fanout = fanout
        self._views = views

    def execute(
        self, subscriber: Subscriber, effect: OpenView | CloseView | FetchBook | ResendBook
    ) -> None:
        """Execute a command."""
        SUBSCRIPTION_EFFECTS[type(effect)](self, subscriber, effect)

    def open(self, subscriber: Subscriber, effect: OpenView) -> None:
        """Subscribe a client to a stream; it replaces the one it had for the symbol."""
        key = subscriber.processor.key
        assert key is not None
        stream = self._streams.open(effect.key, key.key_id)
        self._views.join(key.key_id, effect.key)
        if effect.previous is not None:
            self._close(subscriber, effect.previous)
        self._fanout.join(subscriber, stream)
        for status in self._streams.marks(stream):
            subscriber.send_text(status)

    def close(self, subscriber: Subscriber, effect: CloseView) -> None:
        """Unsubscribe a client from a stream."""
        self._close(subscriber, effect.key)

    def _close(self, subscriber: Subscriber, view: StreamKey) -> None:
        stream = self._streams.find(view)
        self._fanout.leave(subscriber, stream)
        self._streams.close(stream)
        owner = subscriber.processor.key
        assert owner is not None
        self._views.leave(owner.key_id, view)

    def fetch(self, subscriber: Subscriber, effect: FetchBook) -> None:
        """Send a book once, when it is available."""
        waiting = subscriber.fetches = subscriber.fetches or set()
        processor = subscriber.processor
        processor.fetching += 1
        cancel: Callable[[], None] | None = None

        def answer(payload: bytes) -> None:
            processor.fetching -= 1
            if cancel is not None:
                waiting.discard(cancel)
            subscriber.send_text(payload)

        before = processor.fetching
        cancel = self._streams.fetch(effect.key, answer, message_id=effect.message_id)
        if processor.fetching == before:
            waiting.add(cancel)

    def resend(self, subscriber: Subscriber, effect: ResendBook) -> None:
        """Send the whole book of a subscription."""
        stream = self._streams.find(effect.key)
        self._streams.publish_now(stream)
        subscriber.send_text(stream.full_for(effect.message_id))

    def release(self, subscriber: Subscriber) -> None:
        """End all subscriptions and unanswered requests of a client."""
        self._fanout.forget(subscriber)
        processor = subscriber.processor
        subscriptions, processor.subscriptions = processor.subscriptions, NONE_SUBSCRIBED
        for view in subscriptions.values():
            self._close(subscriber, view)
        fetches, subscriber.fetches = subscriber.fetches, None
        for cancel in fetches or ():
            cancel()


SUBSCRIPTION_EFFECTS: Final[dict[type, Callable[[SubscriptionManager, Subscriber, Any], None]]] = {
    OpenView: SubscriptionManager.open,
    CloseView: SubscriptionManager.close,
    FetchBook: SubscriptionManager.fetch,
    ResendBook: SubscriptionManager.resend,
}
