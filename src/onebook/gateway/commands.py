"""Client messages on `/api/v1/ws`: the Structs that validate and document them."""

import re
import types
from functools import cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, ValidationError
from pydantic.fields import FieldInfo

from onebook.errors import CREDENTIALS_HELD
from onebook.streams import ViewOptions, about
from onebook.streams.options import MUST_BE
from onebook.streams.past import MUST_BE_MOMENT
from onebook.transactions.accounts import ACCOUNTS_MAX
from onebook.transactions.request import TransactionsRequest

NAME_SHOWN_MAX: Final = 64
NOT_NAMED: Final = (type(None), UnsetType)  # members of a union that represent an absent field
_MISSING = re.compile(r"Object missing required field `(.*?)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.\w+`)?\Z", re.DOTALL)
_FIELD = re.compile(r" - at `\$\.([A-Za-z_]+)")


class CommandRefused(Exception):
    """A command or action was refused; sent to the client as one error message."""

    def __init__(self, error: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.extra = extra


def unreadable(error: ValidationError, body: type[Struct]) -> CommandRefused:
    """Convert a validation error to the refusal of a command."""
    text = str(error)
    if body.__struct_config__.tag_field == "action":
        if text.startswith("Object contains unknown field `credentials`"):
            return CommandRefused("invalid_parameters", CREDENTIALS_HELD)
        if _MISSING.match(text):
            return CommandRefused("missing_parameters", sentence(error, body))
    return CommandRefused("invalid_parameters", sentence(error, body))


def sentence(error: ValidationError, body: type[Struct]) -> str:
    """Describe a validation error: the invalid field, and what it must be."""
    text = str(error)
    if found := _UNKNOWN.match(text):
        return f"Unknown field {shown(found[1])}."
    if found := _MISSING.match(text):
        return f"{found[1]}: is required; it must be {must_be(body, found[1])}."
    if found := _FIELD.search(text):
        return f"{found[1]}: must be {must_be(body, found[1])}."
    return "A message must be a JSON object."


def shown(text: str) -> str:
    """Quote a client's text in a message, truncated if it is long."""
    cut = text if len(text) <= NAME_SHOWN_MAX else text[:NAME_SHOWN_MAX] + "..."
    return f'"{cut}"'


@cache
def must_be(body: type[Struct], field: str) -> str:
    """Describe the values that a field accepts."""
    hints = get_type_hints(body, include_extras=True)
    if field not in hints:  # the message's type, sent twice
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
    if kind is float and {"ge", "le"} <= limits.keys():
        return f"a number from {limits['ge']:,g} to {limits['le']:,g}"
    if kind in (int, float):
        return "a number"
    if kind is str:
        longest = limits.get("max_length")
        return f"text of at most {longest} characters" if longest else "text"
    return "JSON"


Id = str | int | float | None

NAMES_MAX: Final = 256  # exchange names in one message
SYMBOL_CHARACTERS_MAX: Final = 64
# Shorter than a key or token, because each message of a view repeats its name.
VIEW_NAME_CHARACTERS_MAX: Final = 32


MessageId = Annotated[
    Id,
    about("Repeated in the reply or the error to this message.", "r1", "text or a number"),
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
ViewName = Annotated[
    Annotated[str, Meta(min_length=1, max_length=VIEW_NAME_CHARACTERS_MAX)] | None,
    about(
        "A name for this view, which allows several views of a symbol per connection; repeated "
        "in all messages about the view. Absent: the unnamed view.",
        "top",
        f"text of 1 to {VIEW_NAME_CHARACTERS_MAX} characters",
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
# Every option of a view; absent unless the client sends it.
ViewChanges: Any = msgspec.defstruct(
    "ViewChanges",
    [(each.name, each.type | UnsetType, UNSET) for each in msgspec.structs.fields(ViewOptions)],
    kw_only=True,
    forbid_unknown_fields=True,
    tag="get_aggregated_orderbook",
)


class Identified(Struct):
    """The id of a client message; all other fields are ignored."""

    id: MessageId = None


class Addressed(Struct):
    """The view that a client message is about; all other fields are ignored."""

    view: ViewName = None


class Head(Identified, kw_only=True):
    """Fields of every client message: its type or action, and an optional id."""

    type: Annotated[str | None, Meta(extra={MUST_BE: "text"})] = None
    action: Annotated[str | None, Meta(extra={MUST_BE: "text"})] = None  # instead of a type


class Authenticate(Struct, tag="authenticate"):
    """Verify an API key and start the session of this connection."""

    api_key: Annotated[str, about("Your API key.", "ob_live_...", max_length=512)]
    id: MessageId = None


SPEED_MAX: Final = 1_000.0


class SubscribeAggregated(
    ViewOptions, frozen=True, forbid_unknown_fields=True, tag="subscribe_aggregated"
):
    """Subscribe to the aggregated order book of a symbol; repeating it replaces the options."""

    symbol: Symbol
    exchanges: Exchanges = "all"
    view: ViewName = None
    id: MessageId = None
    start: Annotated[
        str | int | UnsetType,
        about(
            "Begin at this moment of the node's history (`history.dir`): ISO 8601, UTC if without "
            "a zone, or microseconds since 1970. The past is sent as it was live, with its times. "
            "When the present is reached, `history_end` is sent, and then the live updates.",
            "2026-11-27T14:03:00",
            MUST_BE_MOMENT.removeprefix("must be "),
        ),
    ] = UNSET
    speed: Annotated[
        Annotated[float, Meta(ge=0, le=SPEED_MAX)] | UnsetType,
        about(
            "With `start`: recorded seconds per second, 1 by default; 0: as fast as you read.", 1
        ),
    ] = UNSET


Moment = Annotated[
    str | int,
    about(
        "A moment of the node's history (`history.dir`): ISO 8601, UTC if without a zone, or "
        "microseconds since 1970. The answer has the states and the checksum of that moment, and "
        "is JSON, with `encoding: protobuf` in a binary frame.",
        "2026-11-27T14:03:00",
        MUST_BE_MOMENT.removeprefix("must be "),
    ),
]


class GetAggregatedOrderbook(ViewChanges):  # type: ignore[misc]
    """Get the aggregated order book of a symbol once; absent options are the subscription's."""

    symbol: Symbol
    exchanges: Exchanges | UnsetType = UNSET
    view: ViewName = None
    id: MessageId = None
    as_of: Moment | UnsetType = UNSET


class UnsubscribeAggregated(Struct, tag="unsubscribe_aggregated"):
    """End the subscription of a symbol."""

    symbol: Symbol
    view: ViewName = None
    id: MessageId = None


class Resync(Struct, tag="resync"):
    """Get the full book of a subscription.

    The book is not older than the interval of the subscription, and at most one second old.
    """

    symbol: Symbol
    view: ViewName = None
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

    # Raw: repeated byte by byte, so that no digit is lost and no nesting is too deep to encode.
    client_time: Annotated[
        Raw | UnsetType, about("Any value; repeated in the pong.", 1763676000000)
    ] = UNSET
    id: MessageId = None


NAME_CHARACTERS_MAX: Final = 64
TYPES_MAX: Final = 64

Name = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)]
_NAMES = f"text of at most {NAME_CHARACTERS_MAX} characters, or a list of such texts"
Accounts = Annotated[
    Name | Annotated[list[Name], Meta(max_length=ACCOUNTS_MAX)], Meta(extra={MUST_BE: _NAMES})
]


def _sent(name: str, field: FieldInfo) -> tuple[Any, ...]:
    """Convert a field of a pydantic model to one of a message, where null means absent."""
    kind = Accounts if name == "exchange" else field.annotation
    kind = Name if kind is str else kind
    described = Meta(description=" ".join((field.description or "").split()))
    if field.is_required():
        return name, Annotated[kind, described]
    return name, Annotated[kind | None, described], field.default  # type: ignore[operator]


class GetExchangesAction(Struct, tag_field="action", tag="get_exchanges"):
    """List the exchanges of the transaction interface."""

    id: Id = None


class ValidateCredentialsAction(
    Struct, tag_field="action", tag="validate_credentials", forbid_unknown_fields=True
):
    """Check the operator's credentials with an exchange."""

    exchange: Name
    testnet: bool | None = False
    demo: bool | None = False
    id: Id = None


# The fields of `TransactionsRequest` except `verify`, for which the reply has no field.
_TransactionsFields: Any = msgspec.defstruct(
    "_TransactionsFields",
    [
        _sent(name, field)
        for name, field in TransactionsRequest.model_fields.items()
        if name != "verify"
    ],
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="action",
    tag="subscribe_transactions",
)


class SubscribeTransactionsAction(_TransactionsFields):  # type: ignore[misc]
    """Get the transactions of an account: progress, records, completion; then new records."""

    live: Annotated[
        bool | None,
        Meta(
            description="Whether new records follow as they occur. Absent: yes, unless `end_time` "
            "or `cursor` is given; `live` excludes both."
        ),
    ] = None
    id: Id = None


class UnsubscribeTransactionsAction(
    Struct, tag_field="action", tag="unsubscribe_transactions", forbid_unknown_fields=True
):
    """Stop the transaction subscriptions of this connection."""

    exchange: Annotated[
        Accounts | None,
        Meta(description="Stop those that contain any of these accounts; absent: all."),
    ] = None
    id: Id = None
