"""Every message of `/api/v1/ws`, commands, replies and events, and how they are encoded.

`MESSAGES` is the source of the AsyncAPI document and of the tests of the documentation.
"""

from typing import Final, Literal

import msgspec
from msgspec import Struct

from onebook.gateway import commands, replies
from onebook.gateway.commands import Id


class Described(Struct, frozen=True):
    """One row of the message list: the documents are generated from it.

    The summary is the first line of the body's docstring, the fields are those of `body`
    (`msgspec.json.schema_components` reads their types, descriptions and examples). Every reply
    and every error also has the `id` of the message it answers.
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
    Described("aggregated_orderbook_data", "server", replies.OrderbookData),
    Described("exchange_status", "server", replies.ExchangeStatus),
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
    Described(
        "transaction_unsubscribe_response",
        "server",
        replies.TransactionUnsubscribeResponse,
    ),
)

CLIENT_MESSAGES: Final[dict[str, type[Struct]]] = {
    each.name: each.body
    for each in MESSAGES
    if each.direction == "client" and each.body.__struct_config__.tag_field == "type"
}

_encoder = msgspec.json.Encoder()


def encode(message: Struct, message_id: Id = None) -> bytes:
    """Encode a server message, with the id of the message that it answers."""
    return with_id(_encoder.encode(message), message_id)


def with_id(payload: bytes, message_id: Id) -> bytes:
    """Add the id of the message that an encoded one answers."""
    if message_id is None:
        return payload
    return b'%b,"id":%b}' % (payload[:-1], _encoder.encode(message_id))
