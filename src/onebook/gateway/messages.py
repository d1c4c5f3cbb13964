"""Every message of `/api/v1/ws` (commands, replies and events), and their encoding.

`MESSAGES` is the source of the AsyncAPI document and of the tests of the documentation.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct

from onebook.clock import iso_us
from onebook.core import iso
from onebook.gateway import commands, replies
from onebook.gateway.codes import ACTION_ERRORS, ErrorType
from onebook.gateway.commands import CommandRefused, Id, unreadable
from onebook.logs import redact


class Described(Struct, frozen=True):
    """One row of the message list, from which the documentation is generated.

    The summary is the first line of the body's docstring, the fields are those of `body`
    (`msgspec.json.schema_components` reads their types, descriptions and examples). Every reply and
    error also has the `id` of the message it answers.
    """

    name: str
    direction: Literal["client", "server"]
    body: type[Struct]
    replies: tuple[str, ...] = ()


MESSAGES: Final = (
    Described("authenticate", "client", commands.Authenticate, ("welcome", "authentication_error")),
    Described(
        "subscribe_aggregated",
        "client",
        commands.SubscribeAggregated,
        ("aggregated_subscription_response", "subscription_error"),
    ),
    Described(
        "unsubscribe_aggregated",
        "client",
        commands.UnsubscribeAggregated,
        ("unsubscribe_response",),
    ),
    Described(
        "get_aggregated_orderbook",
        "client",
        commands.GetAggregatedOrderbook,
        ("aggregated_orderbook_data",),
    ),
    Described("get_subscriptions", "client", commands.GetSubscriptions, ("subscriptions_data",)),
    Described("get_exchanges", "client", commands.GetExchanges, ("exchanges_data",)),
    Described("get_pairs", "client", commands.GetPairs, ("pairs_data",)),
    Described("resync", "client", commands.Resync, ("aggregated_orderbook_update",)),
    Described("ping", "client", commands.Ping, ("pong",)),
    Described("welcome", "server", replies.Welcome),
    Described("welcome", "server", replies.WelcomeSession),
    Described("aggregated_subscription_response", "server", replies.SubscriptionResponse),
    Described("unsubscribe_response", "server", replies.UnsubscribeResponse),
    Described("aggregated_orderbook_update", "server", replies.OrderbookUpdate),
    Described("aggregated_orderbook_delta", "server", replies.OrderbookDelta),
    Described("best", "server", replies.BestUpdate),
    Described("crossing", "server", replies.CrossingUpdate),
    Described("aggregated_orderbook_data", "server", replies.OrderbookData),
    Described("exchange_status", "server", replies.ExchangeStatus),
    Described("history_end", "server", replies.HistoryEnd),
    Described("subscriptions_data", "server", replies.SubscriptionsData),
    Described("exchanges_data", "server", replies.ExchangesData),
    Described("pairs_data", "server", replies.PairsData),
    Described("pong", "server", replies.Pong),
    Described("rate_limit_warning", "server", replies.RateLimitWarning),
    Described("data_limit_warning", "server", replies.DataLimitWarning),
    Described("data_limit_exceeded", "server", replies.DataLimitExceeded),
    Described("server_shutdown", "server", replies.ServerShutdown),
    Described("error", "server", replies.Error),
    Described("subscription_error", "server", replies.Error),
    Described("authentication_error", "server", replies.Error),
    # The action family: a client sends `action` instead of `type`.
    Described("get_exchanges", "client", commands.GetExchangesAction, ("exchanges_response",)),
    Described(
        "validate_credentials",
        "client",
        commands.ValidateCredentialsAction,
        ("validation_response",),
    ),
    Described(
        "subscribe_transactions",
        "client",
        commands.SubscribeTransactionsAction,
        ("transaction_progress", "transaction_response", "transaction_complete"),
    ),
    Described(
        "unsubscribe_transactions",
        "client",
        commands.UnsubscribeTransactionsAction,
        ("transaction_unsubscribe_response",),
    ),
    Described("exchanges_response", "server", replies.ExchangesResponse),
    Described("validation_response", "server", replies.ValidationResponse),
    Described("transaction_progress", "server", replies.TransactionProgress),
    Described("transaction_response", "server", replies.TransactionResponse),
    Described("transaction_complete", "server", replies.TransactionComplete),
    Described("transaction", "server", replies.TransactionEvent),
    Described("transaction_status", "server", replies.TransactionStatus),
    Described(
        "transaction_unsubscribe_response",
        "server",
        replies.TransactionUnsubscribeResponse,
    ),
)


def _bodies(family: str) -> dict[str, type[Struct]]:
    """Client messages by their type or action."""
    return {
        each.name: each.body
        for each in MESSAGES
        if each.direction == "client" and each.body.__struct_config__.tag_field == family
    }


CLIENT_MESSAGES: Final = _bodies("type")
ACTIONS: Final = _bodies("action")

_decoders: Final = {
    body: msgspec.json.Decoder(body) for body in (*CLIENT_MESSAGES.values(), *ACTIONS.values())
}
_encoder: Final = msgspec.json.Encoder()


def decode(text: str, body: type[Struct]) -> Any:
    """Decode the fields of a client message.

    Raises:
        CommandRefused: A field is invalid, missing or unknown.
    """
    try:
        return _decoders[body].decode(text)
    except msgspec.ValidationError as error:
        raise unreadable(error, body) from None
    except (msgspec.DecodeError, RecursionError):
        raise CommandRefused("invalid_parameters", "A message must be a JSON object.") from None


def converted(fields: Mapping[str, Any], body: type[Struct]) -> Any:
    """Convert the query of a request, whose values are texts, to the fields of a message.

    Raises:
        CommandRefused: A field is invalid or unknown.
    """
    try:
        return msgspec.convert(fields, body, strict=False)
    except msgspec.ValidationError as error:
        raise unreadable(error, body) from None


def encode(message: Struct, message_id: Id = None) -> bytes:
    """Encode a server message with the id of the message it answers."""
    return with_id(_encoder.encode(message), message_id)


def encode_masked(message: Struct, message_id: Id, view: str | None = None) -> bytes:
    """Encode a message that quotes the client; keys and tokens in it are masked."""
    masked = redact(_encoder.encode(message).decode()).encode()
    return with_view(with_id(masked, message_id), view)


def encode_refusal(
    refusal: CommandRefused,
    message_id: Id,
    wall_us: int,
    *,
    kind: ErrorType = "error",
    view: str | None = None,
) -> bytes:
    """Encode the error message of a refused command."""
    return encode_masked(
        replies.Error(
            type=kind,
            error=refusal.error,
            message=refusal.message,
            timestamp=iso_us(wall_us),
            **refusal.extra,
        ),
        message_id,
        view,
    )


def encode_action_refusal(refusal: CommandRefused, message_id: Id, wall_us: int) -> bytes:
    """Encode the error message of a refused action, with its number and a time in milliseconds."""
    number, _ = ACTION_ERRORS.get(refusal.error, (UNSET, ""))
    return encode_masked(
        replies.ActionError(
            error=refusal.error,
            message=refusal.message,
            code=number,
            timestamp=iso(wall_us // 1_000),
            **refusal.extra,
        ),
        message_id,
    )


def with_id(payload: bytes, message_id: Id) -> bytes:
    """Add the id of the answered message to an encoded message."""
    if message_id is None:
        return payload
    return b'%b,"id":%b}' % (payload[:-1], _encoder.encode(message_id))


def with_view(payload: bytes, view: str | None) -> bytes:
    """Add the client's view name to an encoded message about the view."""
    if view is None:
        return payload
    return b'%b,"view":%b}' % (payload[:-1], _encoder.encode(view))


def with_skipped(payload: bytes, skipped: int) -> bytes:
    """Add the number of skipped states to an encoded update, unless it is 0."""
    return b'%b,"skipped":%d}' % (payload[:-1], skipped) if skipped else payload
