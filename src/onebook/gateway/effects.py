"""Effects of client commands, as values that the connection executes."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from onebook.accounts import Key
from onebook.gateway.codes import CloseCode
from onebook.gateway.commands import CommandRefused, Id
from onebook.gateway.limits import AUTHENTICATION_TIMEOUT_S
from onebook.gateway.messages import encode_refusal
from onebook.streams import StreamKey


class MessageTime(Struct, frozen=True):
    """Time of a message: monotonic seconds, and microseconds since 1970."""

    s: float
    wall_us: int


class SendText(Struct, frozen=True):
    """Send this text message."""

    payload: bytes


class VerifyKey(Struct, frozen=True):
    """Verify an API key; input waits until the verdict is applied."""

    api_key: str
    message_id: Id = None

    def __repr__(self) -> str:
        return "VerifyKey(...)"


class OpenView(Struct, frozen=True):
    """Subscribe to a stream in place of `previous`, the view's former stream.

    Here and below, `view` is the client's name of the view; None for the unnamed one. `number` is
    the subscription's number in binary updates, 0 if its updates are JSON; `previous_number` is
    the former one.
    """

    key: StreamKey
    previous: StreamKey | None
    view: str | None = None
    number: int = 0
    previous_number: int = 0


class PlayView(Struct, frozen=True):
    """Play a stream from a past moment on, in place of `previous`; then subscribe to it.

    `reply` is sent once the history was opened.
    """

    view: OpenView
    start_us: int
    speed: float
    reply: bytes
    message_id: Id = None


class CloseView(Struct, frozen=True):
    """Unsubscribe from a stream."""

    key: StreamKey
    view: str | None = None
    number: int = 0


class FetchBook(Struct, frozen=True):
    """Send the book of this stream once: the present one, or that of a moment."""

    key: StreamKey
    message_id: Id
    view: str | None = None
    as_of_us: int | None = None


class ResendBook(Struct, frozen=True):
    """Send the whole book of this subscription."""

    key: StreamKey
    message_id: Id
    view: str | None = None
    number: int = 0


class RunAction(Struct, frozen=True):
    """Execute an action of the transaction interface: one of `messages.ACTIONS`."""

    body: Any


class EndConnection(Struct, frozen=True):
    """Send a close frame."""

    code: int
    reason: str


Effect = (
    SendText
    | VerifyKey
    | OpenView
    | PlayView
    | CloseView
    | FetchBook
    | ResendBook
    | RunAction
    | EndConnection
)
Effects = Iterable[Effect]


class KeyVerdict(Struct, frozen=True):
    """Result of verifying a key: the key, or the error that closes the connection."""

    message_id: Id
    key: Key | None = None
    opened_by: bytes = b""
    refusal: Effects = ()


def ending(code: int, reason: str, *payloads: bytes) -> Effects:
    """Send the last messages and a close frame."""
    return (*map(SendText, payloads), EndConnection(code, reason))


def key_refused(error: str, message: str, *, now: MessageTime, message_id: Id = None) -> Effects:
    """Close: the key is unknown, suspended or expired."""
    refusal = CommandRefused(error, message, code=CloseCode.AUTHENTICATION_TIMEOUT)
    payload = encode_refusal(refusal, message_id, now.wall_us, kind="authentication_error")
    return ending(CloseCode.INVALID_KEY, error, payload)


def connection_limit(connections_max: int, *, now: MessageTime, message_id: Id = None) -> Effects:
    """Close: the key is valid, but at the connection limit of its tier."""
    refusal = CommandRefused(
        "connection_limit_exceeded",
        f"This key may have {connections_max} connections at one time.",
        code=CloseCode.CONNECTION_LIMIT,
    )
    payload = encode_refusal(refusal, message_id, now.wall_us)
    return ending(CloseCode.CONNECTION_LIMIT, refusal.error, payload)


def keys_unavailable(*, now: MessageTime, message_id: Id = None) -> Effects:
    """Close: the key database does not respond."""
    refusal = CommandRefused(
        "service_unavailable", "Keys cannot be verified now; try again shortly."
    )
    payload = encode_refusal(refusal, message_id, now.wall_us)
    return ending(CloseCode.NODE_FULL, refusal.error, payload)


def attempts_limit(
    message: str, retry_after_s: float, *, now: MessageTime, message_id: Id = None
) -> Effects:
    """Close: too many invalid keys from this address."""
    refusal = CommandRefused(
        "rate_limit_exceeded", message, retry_after=whole_seconds(retry_after_s)
    )
    payload = encode_refusal(refusal, message_id, now.wall_us)
    return ending(CloseCode.FLOOD, refusal.error, payload)


def authentication_timeout(*, now: MessageTime) -> Effects:
    """Close: no key arrived within the authentication timeout."""
    refusal = CommandRefused(
        "authentication_required",
        f"No authenticate message arrived within {AUTHENTICATION_TIMEOUT_S:g} seconds.",
        code=CloseCode.AUTHENTICATION_TIMEOUT,
    )
    payload = encode_refusal(refusal, None, now.wall_us)
    return ending(CloseCode.AUTHENTICATION_TIMEOUT, "not authenticated in time", payload)


def whole_seconds(seconds: float) -> int:
    """Round seconds up."""
    return -int(-seconds // 1)
