"""Error replies and the last messages before a close. Pure functions."""

from onebook.config import GatewaySettings
from onebook.gateway.codes import CloseCode, ErrorType
from onebook.gateway.commands import Id
from onebook.gateway.effects import CommandRefused, Effects, EndConnection, MessageTime, SendText
from onebook.gateway.messages import encode, with_id
from onebook.gateway.replies import Error
from onebook.logs import redact
from onebook.streams import iso_us


def ending(code: int, reason: str, *payloads: bytes) -> Effects:
    """Send the last messages, then the close frame."""
    return (*map(SendText, payloads), EndConnection(code, reason))


def key_refused(error: str, message: str, *, now: MessageTime, message_id: Id = None) -> Effects:
    """The key is unknown, suspended or expired."""
    refusal = CommandRefused(error, message, code=CloseCode.AUTHENTICATION_TIMEOUT)
    payload = error_payload(refusal, message_id, now, kind="authentication_error")
    return ending(CloseCode.INVALID_KEY, error, payload)


def connection_limit(connections_max: int, *, now: MessageTime, message_id: Id = None) -> Effects:
    """The key is valid, but has all the connections of its tier."""
    refusal = CommandRefused(
        "connection_limit_exceeded",
        f"This key may have {connections_max} connections at one time.",
        code=CloseCode.CONNECTION_LIMIT,
    )
    payload = error_payload(refusal, message_id, now)
    return ending(CloseCode.CONNECTION_LIMIT, refusal.error, payload)


def keys_unavailable(*, now: MessageTime, message_id: Id = None) -> Effects:
    """The key database does not answer."""
    refusal = CommandRefused(
        "service_unavailable", "Keys cannot be verified now; try again shortly."
    )
    payload = error_payload(refusal, message_id, now)
    return ending(CloseCode.NODE_FULL, refusal.error, payload)


def attempts_limit(
    message: str, retry_after_s: float, *, now: MessageTime, message_id: Id = None
) -> Effects:
    """Too many keys from this address were wrong."""
    refusal = CommandRefused(
        "rate_limit_exceeded", message, retry_after=whole_seconds(retry_after_s)
    )
    payload = error_payload(refusal, message_id, now)
    return ending(CloseCode.FLOOD, refusal.error, payload)


def authentication_timeout(settings: GatewaySettings, *, now: MessageTime) -> Effects:
    """No key came in time."""
    seconds = settings.authentication_timeout_s
    refusal = CommandRefused(
        "authentication_required",
        f"No authenticate message came within {seconds:g} seconds.",
        code=CloseCode.AUTHENTICATION_TIMEOUT,
    )
    payload = error_payload(refusal, None, now)
    return ending(CloseCode.AUTHENTICATION_TIMEOUT, "not authenticated in time", payload)


def error_payload(
    refusal: CommandRefused, message_id: Id, now: MessageTime, *, kind: ErrorType = "error"
) -> bytes:
    """The error message of a refusal."""
    error = Error(
        type=kind,
        error=refusal.error,
        message=refusal.message,
        timestamp=iso_us(now.wall_us),
        **refusal.extra,
    )
    return masked(encode(error), message_id)


def masked(payload: bytes, message_id: Id) -> bytes:
    """Add the request's id to a message, and mask keys and tokens that it quotes."""
    return with_id(redact(payload.decode()).encode(), message_id)


def whole_seconds(seconds: float) -> int:
    """Seconds rounded up."""
    return -int(-seconds // 1)
