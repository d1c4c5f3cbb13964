"""Client messages on `/api/v1/ws`: the Structs that validate and document them."""

import re
import types
from functools import cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, ValidationError, json

from onebook.core import iso
from onebook.errors import CREDENTIALS_HELD
from onebook.logs import redact
from onebook.streams import ViewOptions, about
from onebook.streams.options import MUST_BE

NAME_SHOWN_MAX: Final = 64
NOT_NAMED: Final = (type(None), UnsetType)  # of a union: both are a field that is left out
_MISSING = re.compile(r"Object missing required field `(.*?)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.\w+`)?\Z", re.DOTALL)
_FIELD = re.compile(r" - at `\$\.([A-Za-z_]+)")


def sentence(error: ValidationError, body: type[Struct]) -> str:
    """Name the invalid field of a message and what it must be."""
    text = str(error)
    if found := _UNKNOWN.match(text):
        return f"Unknown field {shown(found[1])}."
    if found := _MISSING.match(text):
        return f"{found[1]}: is required; it must be {must_be(body, found[1])}."
    if found := _FIELD.search(text):
        return f"{found[1]}: must be {must_be(body, found[1])}."
    return "A message must be a JSON object."


def shown(text: str) -> str:
    """A client's text as messages quote it, truncated where it is long."""
    cut = text if len(text) <= NAME_SHOWN_MAX else text[:NAME_SHOWN_MAX] + "..."
    return f'"{cut}"'


@cache
def must_be(body: type[Struct], field: str) -> str:
    """What a field must be, in words."""
    hints = get_type_hints(body, include_extras=True)
    if field not in hints:  # the type of the message, which is there twice
        return f'"{body.__struct_config__.tag}", and only once'
    return _words(hints[field])


def _words(hint: Any) -> str:
    kind, limits = hint, dict[str, int]()
    while get_origin(kind) is Annotated:
        kind, *metas = get_args(kind)
        for meta in (each for each in metas if isinstance(each, Meta)):
            if meta.extra and MUST_BE in meta.extra:
                return str(meta.extra[MUST_BE])
            found = {name: getattr(meta, name) for name in ("ge", "le", "max_length")}
            limits |= {name: value for name, value in found.items() if value is not None}
    if get_origin(kind) is Literal:
        return " or ".join(f'"{value}"' for value in get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        parts = [_words(each) for each in get_args(kind) if each not in NOT_NAMED]
        return " or ".join(dict.fromkeys(parts))
    return _plain(kind, limits)


def _plain(kind: Any, limits: dict[str, int]) -> str:
    if kind is bool:
        return "true or false"
    if kind is int and {"ge", "le"} <= limits.keys():
        return f"a whole number from {limits['ge']:,} to {limits['le']:,}"
    if kind in (int, float):
        return "a number"
    if kind is str:
        longest = limits.get("max_length")
        return f"text of at most {longest} characters" if longest else "text"
    return "JSON"


Id = str | int | float | None

NAMES_MAX: Final = 256  # exchange names in one message
SYMBOL_CHARACTERS_MAX: Final = 64


MessageId = Annotated[
    Id,
    about("Comes back in the reply or the error to this message.", "r1", "text or a number"),
]
Symbol = Annotated[
    str,
    about(
        "Pair of the form BASE/QUOTE.",
        "BTC/USDT",
        f'a pair such as "BTC/USDT", of at most {SYMBOL_CHARACTERS_MAX} characters',
        max_length=SYMBOL_CHARACTERS_MAX,
    ),
]
ExchangeNames = Annotated[list[str], Meta(max_length=NAMES_MAX)] | Literal["all"]
Exchanges = Annotated[
    ExchangeNames,
    about(
        'Exchange names in any case, "all", or a list with "all" and "-name" for all but some.',
        ["okx"],
        f'a list of names or "all", with at most {NAMES_MAX} names',
    ),
]
# Every option of a view, absent unless the client sends it.
ViewChanges: Any = msgspec.defstruct(
    "ViewChanges",
    [(each.name, each.type | UnsetType, UNSET) for each in msgspec.structs.fields(ViewOptions)],
    kw_only=True,
    forbid_unknown_fields=True,
    tag="get_aggregated_orderbook",
)


class Identified(Struct):
    """The id of a client message, whatever else is in it."""

    id: MessageId = None


class Head(Identified, kw_only=True):
    """What every client message has: its type and an optional id."""

    type: Annotated[str | None, Meta(extra={MUST_BE: "text"})] = None
    action: Annotated[str | None, Meta(extra={MUST_BE: "text"})] = None  # see `actions`


class Authenticate(Struct, tag="authenticate"):
    """Verify an API key and start the session of this connection."""

    api_key: Annotated[str, about("Your API key.", "ob_live_...", max_length=512)]
    id: MessageId = None


class SubscribeAggregated(
    ViewOptions, frozen=True, forbid_unknown_fields=True, tag="subscribe_aggregated"
):
    """Subscribe to the aggregated order book of a symbol; repeating it replaces the options."""

    symbol: Symbol
    exchanges: Exchanges = "all"
    id: MessageId = None


class GetAggregatedOrderbook(ViewChanges):  # type: ignore[misc]
    """Get the aggregated order book of a symbol once; absent options are the subscription's."""

    symbol: Symbol
    exchanges: Exchanges | UnsetType = UNSET
    id: MessageId = None


class UnsubscribeAggregated(Struct, tag="unsubscribe_aggregated"):
    """End the subscription of a symbol."""

    symbol: Symbol
    id: MessageId = None


class Resync(Struct, tag="resync"):
    """Ask for a full book on the subscription of a symbol.

    It is at most as old as the interval of the subscription, and at most a second.
    """

    symbol: Symbol
    id: MessageId = None


class GetSubscriptions(Struct, tag="get_subscriptions"):
    """List the subscriptions of this connection."""

    id: MessageId = None


class GetExchanges(Struct, tag="get_exchanges"):
    """List the exchanges and whether their feeds are live."""

    id: MessageId = None


class GetPairs(Struct, tag="get_pairs"):
    """List the pairs of one exchange, or of all."""

    exchange: Annotated[
        str | None, about("An exchange name in any case; absent for all.", "kraken")
    ] = None
    id: MessageId = None


class Ping(Struct, tag="ping"):
    """Check the connection; allowed before authenticating."""

    # Raw: it comes back byte by byte; no digit is lost, and no nesting is too deep to encode.
    client_time: Annotated[
        Raw | UnsetType, about("Anything; comes back in the pong.", 1763676000000)
    ] = UNSET
    id: MessageId = None


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
