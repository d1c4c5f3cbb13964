"""Updates of a stream as protobuf, by `onebook.proto`; without the number of the subscription.

The core writes the levels, protobuf's library the rest. The gateway puts what differs between
clients in front of an update or after it: joined messages are read as one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from onebook.core import Packer, View
from onebook.updates import Update

_json = msgspec.json.encode


class Content(NamedTuple):
    """What an update has besides levels.

    `stale` are positions of exchanges, `ages_ms` is by position, `more` is a JSON object.
    """

    stale: Sequence[int]
    ages_ms: Sequence[int]
    more: bytes


class PackedUpdates:
    """Encodes the updates of one view; changes follow only what clients can apply them to."""

    __slots__ = ("_packer", "_scales", "_time_us", "_view", "_with_changes")

    def __init__(self, view: View, *, with_changes: bool) -> None:
        self._view = view
        self._packer = Packer(view)
        self._with_changes = with_changes
        self._scales: tuple[int, int] | None = None  # of the last update
        self._time_us = 0  # of the last update

    def advance(self, number: int, time_us: int, content: Content) -> bytes | None:
        """Encode the changes of the last merge as an update; None if it must be the whole book."""
        before, self._scales = self._scales, self._packer.scales
        elapsed_us, self._time_us = time_us - self._time_us, time_us
        if not self._with_changes or number == 1 or before is None or before != self._scales:
            return None
        levels = self._packer.pack(True)
        if levels is None:
            return None
        head = Update(update_number=number, elapsed_us=elapsed_us, **self._checked(content))
        return _bytes(head) + levels

    def whole(
        self, number: int, content: Content, message_id: str | int | float | None = None
    ) -> bytes | None:
        """Encode the whole book as the last update; None if a number is too large."""
        levels = self._packer.pack(False)
        if levels is None:
            return None
        head = Update(
            update_number=number,
            time_us=self._time_us,
            id=_id_text(message_id),
            **self._checked(content),
        )
        return _bytes(head) + levels

    def _checked(self, content: Content) -> dict[str, object]:
        fields: dict[str, object] = content._asdict()
        return fields | {"checksum": self._view.checksum()} if self._with_changes else fields


def answer(
    view: View,
    symbol: str,
    exchanges: Sequence[str],
    content: Content,
    *,
    time_us: int,
    message_id: str | int | float | None,
) -> bytes | None:
    """Encode the answer to a one-time request; None if a number is too large."""
    levels = Packer(view).pack(False)
    if levels is None:
        return None
    head = Update(
        time_us=time_us,
        exchanges=exchanges,
        symbol=symbol,
        id=_id_text(message_id),
        **content._asdict(),
    )
    return _bytes(head) + levels


def wrapped(message: bytes) -> bytes:
    """Encode a JSON message of the same update, whose numbers are too large for protobuf."""
    return _bytes(Update(json=message))


def with_subscription(payload: bytes, number: int) -> bytes:
    """Put the number of the client's subscription in front of an update."""
    return _bytes(Update(subscription=number)) + payload


def with_skipped(payload: bytes, skipped: int) -> bytes:
    """Add the number of skipped states to an update, unless it is 0."""
    return payload + _bytes(Update(skipped=skipped)) if skipped else payload


def with_view(payload: bytes, view: str | None) -> bytes:
    """Add the client's view name to an answer."""
    return payload if view is None else payload + _bytes(Update(view=view))


def _bytes(update: Any) -> bytes:
    encoded: bytes = update.SerializeToString()
    return encoded


def _id_text(message_id: str | int | float | None) -> str:
    return "" if message_id is None else _json(message_id).decode()
