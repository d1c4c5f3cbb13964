"""Cursors: opaque, signed, good after a restart, bound to the query and the keys they came from:
the caller's, and the exchange's, because another account has other records.

A cursor holds no secret and no record: the range as it was fixed by the first page, how far every
source has come, and a MAC. Sources that have come equally far share one place; one that failed
keeps its own, so that the next request reads what is missing. Where an exchange's own cursors last,
they are in it too.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, TypeVar

from msgspec import MsgspecError, Struct, msgpack
from msgspec.structs import replace

from onebook.errors import InvalidRequest
from onebook.transactions.record import FIRST, RecordKey
from onebook.transactions.windows import Bookmark

VERSION: Final = 2
JOINT_VERSION: Final = 3
MAC_BYTES: Final = 16
CHARS_MAX: Final = 40_000  # forty sources at places of their own take 5,000, 300 wallets 15,000

Place = tuple[int, str]
DONE: Final[Place] = (1 << 62, "")  # nothing is left
GIVEN_UP: Final[Place] = (1 << 62, "!")  # it failed in a way that asking again does not cure


class CursorState(Struct, frozen=True, array_like=True, kw_only=True):
    """State of a query between two pages.

    Args:
        after: Position of the last record that was delivered.
        others: The places of sources that are elsewhere.
        bookmarks: The exchange's own cursors, of sources whose cursors last.
        kept: From when on a source shows all there was, Unix ms, where that is not the whole range.
        flaws: Why what a source delivered is not complete, where it is not: a code.
        unplaced: Records without a time of their own that were given out: their place may differ in
            the next answer.
        account: The exchange credentials that the pages before were read with.
    """

    version: int = VERSION
    digest: str
    key: str
    account: str
    now_ms: int
    from_ms: int
    to_ms: int
    after: Place
    others: dict[str, Place] = {}
    kept: dict[str, int] = {}
    bookmarks: dict[str, Bookmark] = {}
    flaws: dict[str, str] = {}
    unplaced: tuple[str, ...] = ()

    def place(self, source: str) -> Place:
        """Position of a source."""
        return self.others.get(source, self.after)


NO_CURSOR: Final = "Field cursor is not a cursor of this service."


class JointState(Struct, frozen=True, array_like=True, kw_only=True):
    """State of a query of several accounts between two pages: that of each."""

    version: int = JOINT_VERSION
    digest: str
    key: str
    states: dict[str, CursorState]


State = TypeVar("State", CursorState, JointState)


class Cursors:
    """Signs and opens cursors.

    Args:
        secret: A secret of the node that outlives it; every node of a service has the same.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.sha256(b"onebook cursor v1 " + secret).digest()

    def seal(self, state: CursorState) -> str:
        """The text of a cursor; what would make it too long is read again instead."""
        text = self._sealed(state)
        if len(text) > CHARS_MAX:
            text = self._sealed(replace(state, bookmarks={}))
        if len(text) > CHARS_MAX:
            kept = {k: v for k, v in state.others.items() if v != DONE or "/" not in k}
            text = self._sealed(replace(state, bookmarks={}, others=kept))
        return text

    def _sealed(self, state: CursorState) -> str:
        return self._signed(msgpack.encode(state))

    def _signed(self, body: bytes) -> str:
        return urlsafe_b64encode(self._mac(body) + body).decode().rstrip("=")

    def open(self, text: str, *, digest: str, key_id: str) -> CursorState:
        """Where a cursor points.

        Raises:
            InvalidRequest: It is none of ours, or of another query or key.
        """
        state = self._read(text, CursorState)
        _refuse_other(state, digest, key_id)
        return state

    def seal_joint(self, states: dict[str, CursorState], *, digest: str, key_id: str) -> str:
        """The text of a cursor of several accounts."""
        key = key_digest(key_id)
        joint = JointState(digest=digest, key=key, states=states)
        text = self._signed(msgpack.encode(joint))
        if len(text) > CHARS_MAX:
            bare = {name: replace(state, bookmarks={}) for name, state in states.items()}
            text = self._signed(msgpack.encode(replace(joint, states=bare)))
        return text

    def open_joint(self, text: str, *, digest: str, key_id: str) -> dict[str, CursorState]:
        """Where a cursor of several accounts points.

        Raises:
            InvalidRequest: It is none of ours, or of another query or key.
        """
        state = self._read(text, JointState)
        if state.version != JOINT_VERSION:
            raise InvalidRequest(NO_CURSOR)
        _refuse_other(state, digest, key_id)
        return state.states

    def account(self, api_key: str) -> str:
        """The name of exchange credentials inside a cursor; reveals nothing of them."""
        return self._mac(b"account " + api_key.encode()).hex()

    def _read(self, text: str, kind: type[State]) -> State:
        try:
            if len(text) > CHARS_MAX:
                raise ValueError
            whole = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            mac, body = whole[:MAC_BYTES], whole[MAC_BYTES:]
            if not hmac.compare_digest(mac, self._mac(body)):
                raise ValueError
            return msgpack.decode(body, type=kind)
        except (ValueError, MsgspecError):
            raise InvalidRequest(NO_CURSOR) from None

    def _mac(self, body: bytes) -> bytes:
        return hmac.new(self._secret, body, hashlib.sha256).digest()[:MAC_BYTES]


def _refuse_other(state: CursorState | JointState, digest: str, key_id: str) -> None:
    if state.key != key_digest(key_id):
        raise InvalidRequest("Field cursor belongs to another API key.")
    if state.digest != digest:
        raise InvalidRequest(
            "Field cursor belongs to another query: exchange, testnet, demo, "
            "transaction_types, start_time and end_time must stay as they were."
        )


def key_digest(key_id: str) -> str:
    """A key's name inside a cursor."""
    return hashlib.sha256(key_id.encode()).hexdigest()[:16]


def as_key(place: Place) -> RecordKey:
    """A place as a walker takes it."""
    return RecordKey(*place)


FIRST_PLACE: Final[Place] = (FIRST.negative_ms, FIRST.record_id)
