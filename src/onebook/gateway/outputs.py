"""What follows from a client's message, as values: the hub carries them out."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from onebook.gateway.commands import Id
from onebook.streams import StreamKey


class Now(Struct, frozen=True):
    """The time of a message: monotonic seconds and microseconds since 1970."""

    s: float
    wall_us: int


class Say(Struct, frozen=True):
    """Send this text."""

    payload: bytes


class Verify(Struct, frozen=True):
    """Verify a key, then call `verified` or `refused`; nothing is heard until then."""

    api_key: str
    message_id: Id = None

    def __repr__(self) -> str:
        return "Verify(...)"


class Subscribe(Struct, frozen=True):
    """Listen to a stream, instead of `previous` if there was one for the symbol."""

    key: StreamKey
    previous: StreamKey | None


class Unsubscribe(Struct, frozen=True):
    """Stop listening to a stream."""

    key: StreamKey


class Look(Struct, frozen=True):
    """Answer once with the book of this key."""

    key: StreamKey
    message_id: Id


class Resend(Struct, frozen=True):
    """Send the whole book of this subscription."""

    key: StreamKey
    message_id: Id


class Act(Struct, frozen=True):
    """Carry out an action of the transaction interface: one of `actions.ACTIONS`."""

    body: Any


class End(Struct, frozen=True):
    """Close the connection."""

    code: int
    reason: str


Output = Say | Verify | Subscribe | Unsubscribe | Look | Resend | Act | End
Outputs = Iterable[Output]


class Refusal(Exception):
    """A message cannot be served: becomes one error message."""

    def __init__(self, error: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.extra = extra
