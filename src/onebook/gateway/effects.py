"""Effects of client commands, as values that the connection executes."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from onebook.gateway.commands import Id
from onebook.streams import StreamKey


class MessageTime(Struct, frozen=True):
    """The time of a message: monotonic seconds and microseconds since 1970."""

    s: float
    wall_us: int


class SendText(Struct, frozen=True):
    """Send this text message."""

    payload: bytes


class VerifyKey(Struct, frozen=True):
    """Verify an API key; input is not processed until the verdict is applied."""

    api_key: str
    message_id: Id = None

    def __repr__(self) -> str:
        return "VerifyKey(...)"


class OpenView(Struct, frozen=True):
    """Subscribe to a stream, instead of `previous` if there was one for the symbol."""

    key: StreamKey
    previous: StreamKey | None


class CloseView(Struct, frozen=True):
    """Unsubscribe from a stream."""

    key: StreamKey


class FetchBook(Struct, frozen=True):
    """Answer once with the book of this key."""

    key: StreamKey
    message_id: Id


class ResendBook(Struct, frozen=True):
    """Send the whole book of this subscription."""

    key: StreamKey
    message_id: Id


class RunAction(Struct, frozen=True):
    """Execute an action of the transaction interface: one of `actions.ACTIONS`."""

    body: Any


class EndConnection(Struct, frozen=True):
    """Send a close frame."""

    code: int
    reason: str


Effect = (
    SendText | VerifyKey | OpenView | CloseView | FetchBook | ResendBook | RunAction | EndConnection
)
Effects = Iterable[Effect]


class CommandRefused(Exception):
    """A command cannot be served: becomes one error message."""

    def __init__(self, error: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.extra = extra
