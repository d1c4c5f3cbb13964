"""Cursors: opaque, signed, valid across restarts, bound to the query and to both keys.

The two keys are the caller's API key and the exchange credentials, because another account has
other records. A cursor contains no secret and no record, only the range as fixed by the first page,
the position of every source, and a MAC. Sources at the same position share one entry. A failed
source has its own, so that the next request reads its missing records. Exchange cursors are
included if they remain valid.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Final, TypeVar

from msgspec import MsgspecError, Struct, msgpack
from msgspec.structs import replace

from onebook.errors import InvalidRequest
from onebook.transactions.own_transfers import TransferSide
from onebook.transactions.record import FIRST, RecordKey
from onebook.transactions.windows import Bookmark

VERSION: Final = 2
JOINT_VERSION: Final = 3
MAC_BYTES: Final = 16
CHARS_MAX: Final = 40_000  # forty sources at different positions take 5,000, 300 wallets 15,000

Place = tuple[int, str]
DONE: Final[Place] = (1 << 62, "")  # nothing left
GIVEN_UP: Final[Place] = (1 << 62, "!")  # failed permanently; a retry cannot help


class CursorState(Struct, frozen=True, array_like=True, kw_only=True):
    """State of a query between two pages.

    Args:
        after: Position of the last record that was delivered.
        others: The positions of sources that have another one.
        bookmarks: The exchange's own cursors, for sources whose cursors remain valid.
        kept: Unix ms from which a source has all records, if that is not the entire range.
        flaws: Codes of the reasons why a source's records are incomplete.
        unplaced: Delivered records without their own time; their position may differ in the next
            answer.
        account: The exchange credentials that read the earlier pages.
        boundaries: Unix ms before which a list is read from the collected records, by list.
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
    boundaries: dict[str, int] = {}

    def place(self, source: str) -> Place:
        """The position of a source."""
        return self.others.get(source, self.after)


NO_CURSOR: Final = "Field cursor is not a cursor issued by this service."


class JointState(Struct, frozen=True, array_like=True, kw_only=True):
    """State of a query of several accounts between two pages, by account.

    Args:
        transfers: Records that may be one side of a transfer between the accounts, whose other side
            may be on the next page.
    """

    version: int = JOINT_VERSION
    digest: str
    key: str
    states: dict[str, CursorState]
    transfers: tuple[TransferSide, ...] = ()


State = TypeVar("State", CursorState, JointState)


class Cursors:
    """Signs and verifies cursors.

    Args:
        secret: A persistent secret, the same on every node of a service.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.sha256(b"onebook cursor v1 " + secret).digest()

    def seal(self, state: CursorState) -> str:
        """Encode a cursor; parts that would make it too long are omitted and read again."""
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
        """Decode the state in a cursor.

        Raises:
            InvalidRequest: The cursor is not ours, or belongs to another query or key.
        """
        state = self._read(text, CursorState)
        _refuse_other(state, digest, key_id)
        return state

    def seal_joint(
        self,
        states: dict[str, CursorState],
        transfers: Sequence[TransferSide] = (),
        *,
        digest: str,
        key_id: str,
    ) -> str:
        """Encode a cursor for several accounts."""
        key = key_digest(key_id)
        joint = JointState(digest=digest, key=key, states=states, transfers=tuple(transfers))
        text = self._signed(msgpack.encode(joint))
        if len(text) > CHARS_MAX:
            bare = {name: replace(state, bookmarks={}) for name, state in states.items()}
            text = self._signed(msgpack.encode(replace(joint, states=bare)))
        return text

    def open_joint(self, text: str, *, digest: str, key_id: str) -> JointState:
        """Decode a cursor for several accounts.

        Raises:
            InvalidRequest: The cursor is not ours, or belongs to another query or key.
        """
        state = self._read(text, JointState)
        if state.version != JOINT_VERSION:
            raise InvalidRequest(NO_CURSOR)
        _refuse_other(state, digest, key_id)
        return state

    def account(self, api_key: str) -> str:
        """Digest that stands for exchange credentials in a cursor; it does not reveal them."""
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
            "transaction_types, start_time and end_time must not change."
        )


def key_digest(key_id: str) -> str:
    """Digest that stands for a key in a cursor."""
    return hashlib.sha256(key_id.encode()).hexdigest()[:16]


def as_key(place: Place) -> RecordKey:
    """Convert a position to a sort key."""
    return RecordKey(*place)


FIRST_PLACE: Final[Place] = (FIRST.negative_ms, FIRST.record_id)
