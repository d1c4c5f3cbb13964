"""Messages of the transaction interface over the WebSocket: `action` instead of `type`.

Null means absent, as over REST. Pure: a message in, its fields or an error message out.
`action_runner` executes actions.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, json

from onebook.core import iso
from onebook.errors import CREDENTIALS_HELD
from onebook.gateway.commands import Id
from onebook.gateway.plain import sentence, shown
from onebook.logs import redact

AUTHENTICATION_FAILED: Final = 4001
INVALID_ACTION: Final = 4002
MISSING_PARAMETERS: Final = 4003
EXCHANGE_ERROR: Final = 4004
RATE_LIMIT: Final = 4005
NAME_CHARACTERS_MAX: Final = 64
TYPES_MAX: Final = 64

# Errors of the action family: code, number, and when.
ACTION_ERRORS: Final = {
    "authentication_failed": (AUTHENTICATION_FAILED, "Action before authentication."),
    "invalid_action": (INVALID_ACTION, "Unknown action."),
    "missing_parameters": (MISSING_PARAMETERS, "A required field is missing."),
    "exchange_error": (EXCHANGE_ERROR, "The exchange is unreachable."),
    "rate_limit_exceeded": (RATE_LIMIT, "Too many concurrent actions, or too many per minute."),
}

Name = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)]


class GetExchangesAction(Struct, tag_field="action", tag="get_exchanges"):
    """List the exchanges of the transaction interface."""

    id: Id = None


class ValidateCredentialsAction(
    Struct, tag_field="action", tag="validate_credentials", forbid_unknown_fields=True
):
    """Ask an exchange whether it accepts the operator's credentials."""

    exchange: Name
    testnet: bool | None = False
    id: Id = None


class SubscribeTransactionsAction(
    Struct, tag_field="action", tag="subscribe_transactions", forbid_unknown_fields=True
):
    """Get the transactions of an account: progress, the records, completion."""

    exchange: Name
    testnet: bool | None = False
    transaction_types: Annotated[list[Name], Meta(max_length=TYPES_MAX)] | None = []
    start_time: int | None = None
    end_time: int | None = None
    limit: int | None = None
    cursor: str | None = None
    include_raw: bool | None = False
    id: Id = None


class UnsubscribeTransactionsAction(
    Struct, tag_field="action", tag="unsubscribe_transactions", forbid_unknown_fields=True
):
    """Stop the transaction subscriptions of this connection, or that of one exchange."""

    exchange: Name | None = None
    id: Id = None


ACTIONS: Final[dict[str, type[Struct]]] = {
    "get_exchanges": GetExchangesAction,
    "validate_credentials": ValidateCredentialsAction,
    "subscribe_transactions": SubscribeTransactionsAction,
    "unsubscribe_transactions": UnsubscribeTransactionsAction,
}
_DECODERS: Final = {name: json.Decoder(body) for name, body in ACTIONS.items()}


class ActionRefused(Exception):
    """An action cannot be served: becomes one error message."""

    def __init__(self, error: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.extra = extra


def parse(text: str, action: str) -> Any:
    """Read the fields of an action.

    Raises:
        ActionRefused: There is no such action, or a field is wrong.
    """
    if action not in _DECODERS:
        raise ActionRefused("invalid_action", f"Unknown action {shown(action)}.")
    try:
        return _DECODERS[action].decode(text)
    except msgspec.ValidationError as error:
        missing = "missing required field" in str(error)
        code = "missing_parameters" if missing else "invalid_parameters"
        held = str(error).startswith("Object contains unknown field `credentials`")
        message = CREDENTIALS_HELD if held else sentence(error, ACTIONS[action])
        raise ActionRefused(code, message) from None
    except (msgspec.DecodeError, RecursionError):
        raise ActionRefused("invalid_parameters", "A message must be a JSON object.") from None


def refused(error: ActionRefused, message_id: Id, now_ms: int) -> bytes:
    """The error message of a refusal."""
    number = ACTION_ERRORS.get(error.error, (None, ""))[0]
    body: dict[str, Any] = {"type": "error", "error": error.error, "message": error.message}
    if number is not None:
        body["code"] = number
    return message_of(body | error.extra, message_id, now_ms)


def message_of(body: dict[str, Any], message_id: Id, now_ms: int) -> bytes:
    """Encode a reply; keys and tokens in words of the client are masked."""
    timed = body | {"timestamp": iso(now_ms)}
    masked = redact(json.encode(timed).decode()).encode()
    return _identified(masked, message_id)


def typed(answer: bytes, kind: str, message_id: Id) -> bytes:
    """Make a message of an encoded answer."""
    return _identified(b'{"type":"%b",%b' % (kind.encode(), answer[1:]), message_id)


def _identified(payload: bytes, message_id: Id) -> bytes:
    if message_id is None:
        return payload
    return b'%b,"id":%b}' % (payload[:-1], json.encode(message_id))
