"""One stream: a view of the live books of one symbol, and its updates as JSON.

Only books that are live are merged, and the names of those left out stand in every update.
"""

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from onebook.books import Books, LiveBook
from onebook.core import Book, View
from onebook.model import GIB_BYTES, Health, Instrument

RATE_KNOWN_S: Final = 1.0  # a younger stream says nothing about what it will cost
THIRTY_DAYS_S: Final = 30 * 86_400

FULL: Final = "full"
DELTA: Final = "delta"
OBJECT: Final = "object"
ARRAY: Final = "array"

_json = msgspec.json.encode


class StreamKey(NamedTuple):
    """What makes two subscriptions the same stream.

    `exchanges` is sorted; `group` is the price step in its shortest decimal text, "" for none.
    """

    symbol: str
    exchanges: tuple[str, ...]
    depth: int = 20
    interval_ms: int = 100
    mode: str = FULL
    levels: str = OBJECT
    split: bool = False
    group: str = ""

    @property
    def id(self) -> str:
        """The public name of the stream, the same for every client and on every node."""
        return "sub_" + hashlib.sha256(_json(self)).hexdigest()[:12]


class Members:
    """The instruments behind a view, and those of their books that may be shown now."""

    __slots__ = ("books", "cores", "instruments", "live", "names", "stale_json")

    def __init__(self, names: Sequence[str], instruments: Sequence[Instrument | None]) -> None:
        self.names = names
        self.instruments = instruments
        self.books: list[LiveBook] = []
        self.cores: list[Book | None] = []
        self.live = False
        self.stale_json = b"[]"

    def refresh(self, books: Books) -> None:
        """Look again at whose book is live; needed whenever a health changed."""
        found = [books.get(each) if each is not None else None for each in self.instruments]
        shown = [
            book if book is not None and book.health is Health.LIVE else None for book in found
        ]
        self.books = [book for book in shown if book is not None]
        self.cores = [book.core if book is not None else None for book in shown]
        self.live = bool(self.books)
        self.stale_json = _json(
            [name for name, book in zip(self.names, shown, strict=True) if book is None]
        )


class Stream:
    """One view of one symbol, and the state of the last update that was published."""

    __slots__ = (
        "_full",
        "_head_delta",
        "_head_full",
        "broken",
        "bytes_published",
        "due",
        "forced",
        "id",
        "interval_s",
        "key",
        "members",
        "merged_at",
        "opened_at",
        "published_at",
        "timestamp",
        "update_number",
        "users",
        "view",
    )

    def __init__(
        self, key: StreamKey, instruments: Sequence[Instrument | None], opened_at: float
    ) -> None:
        self.key = key
        self.opened_at = opened_at
        self.bytes_published = 0
        self.id = key.id
        self.interval_s = key.interval_ms / 1_000
        self.members = Members(key.exchanges, instruments)
        self.view = _view(key)
        self.users = 0
        self.update_number = 0
        self.timestamp = b""
        self.published_at = self.merged_at = float("-inf")
        self.due: float | None = None  # when it is to be published; None while it is clean
        self.forced = True  # publish even if the merge shows no difference
        self.broken = False  # the last attempt to publish it failed
        self._full: bytes | None = None
        shared = b',"symbol":%b,"subscription_id":"%b"' % (_json(key.symbol), self.id.encode())
        self._head_full = b'{"type":"aggregated_orderbook_update"' + shared
        self._head_delta = b'{"type":"aggregated_orderbook_delta"' + shared

    @property
    def newest_at(self) -> float:
        """When the newest data of the view came in, in monotonic seconds."""
        return max((book.updated_at for book in self.members.books), default=self.published_at)

    def expected_gb(self, now: float) -> float | None:
        """GiB in 30 days at the rate so far, before compression; None while there is no rate."""
        lasted_s = now - self.opened_at
        if lasted_s < RATE_KNOWN_S or not self.bytes_published:
            return None
        return round(self.bytes_published / lasted_s * THIRTY_DAYS_S / GIB_BYTES, 3)

    def full(self) -> bytes:
        """The whole book of the last update, built once however many ask."""
        if self._full is None:
            self._full = self.full_for(None)
        return self._full

    def full_for(self, message_id: str | int | float | None) -> bytes:
        """The whole book of the last update as the answer to one client's message."""
        head = self._head_full
        if message_id is not None:
            head += b',"id":' + _json(message_id)
        return self.view.full(self._opened(head), self._closed(b""))

    def merge(self) -> bool:
        """Take in the books as they are now; whether anything visible changed."""
        return self.view.merge(self.members.cores)

    def advance(self, wall_us: int) -> bytes:
        """Make the merged state the next update and encode it in the stream's mode."""
        self.update_number += 1
        self.timestamp = iso_us(wall_us).encode()
        self._full = None
        if self.key.mode == FULL:
            return self.full()
        return self._delta() or self.full()

    def _delta(self) -> bytes | None:
        """The changed levels since the last update; None where there was no last update."""
        before = b',"previous_update_number":%d' % (self.update_number - 1)
        after = b',"checksum":%d' % self.view.checksum()
        delta = self.view.delta(self._opened(self._head_delta + before), self._closed(after))
        return delta if self.update_number > 1 else None

    def _opened(self, head: bytes) -> bytes:
        return b'%b,"update_number":%d,"timestamp":"%b","data":{' % (
            head,
            self.update_number,
            self.timestamp,
        )

    def _closed(self, after: bytes) -> bytes:
        return b',"stale_exchanges":%b}%b}' % (self.members.stale_json, after)


class Question:
    """One look at a book without a subscription: answered by the first live book or in time."""

    __slots__ = ("answer", "due", "key", "members", "message_id")

    def __init__(
        self,
        key: StreamKey,
        members: Members,
        *,
        message_id: str | int | float | None,
        answer: Callable[[bytes], None],
    ) -> None:
        self.key = key
        self.members = members
        self.message_id = message_id
        self.answer = answer
        self.due: float | None = None

    def encode(self, wall_us: int) -> bytes:
        """The book as it is now, as `aggregated_orderbook_data`."""
        view = _view(self.key)
        view.merge(self.members.cores)
        head = b'{"type":"aggregated_orderbook_data","symbol":%b,"timestamp":"%b"' % (
            _json(self.key.symbol),
            iso_us(wall_us).encode(),
        )
        if self.message_id is not None:
            head += b',"id":' + _json(self.message_id)
        return view.full(
            head + b',"data":{', b',"stale_exchanges":' + self.members.stale_json + b"}}"
        )


def iso_us(wall_us: int) -> str:
    """ISO 8601 in UTC with microseconds and Z."""
    seconds, micros = divmod(wall_us, 1_000_000)
    return f"{_whole_second(seconds)}.{micros:06d}Z"


def _view(key: StreamKey) -> View:
    return View(
        key.exchanges,
        depth=key.depth,
        group=key.group or None,
        split=key.split,
        arrays=key.levels == ARRAY,
    )


_second_text = (-1, "")


def _whole_second(seconds: int) -> str:
    """The text of a second; kept, because a thousand updates share it."""
    global _second_text
    if _second_text[0] != seconds:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        _second_text = (seconds, text)
    return _second_text[1]
