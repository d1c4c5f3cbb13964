"""Replies, warnings and errors of the WebSocket: their fields, what they mean, one example each."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from onebook.accounts.usage import DataUsage
from onebook.gateway.codes import ErrorType
from onebook.gateway.commands import (
    Ages,
    Coverage,
    Depth,
    Fill,
    Group,
    IntervalMs,
    Levels,
    Mode,
    Split,
    Symbol,
    about,
)
from onebook.gateway.fields import SubscriptionId, Text, Timestamp

AVAILABLE_COMMANDS: Final = ("authenticate", "subscribe_aggregated", "get_exchanges", "get_pairs")
WINDOW: Final = "per_minute"

ExpectedGb = Annotated[
    float | None,
    about(
        "GiB that the view costs in 30 days at its rate so far, before compression; null while "
        "it is new. `get_subscriptions` lists it again.",
        4.2,
    ),
]


class Welcome(Struct, tag="welcome", frozen=True):
    """The connection is open: authenticate within ten seconds."""

    message: Text
    available_commands: Annotated[tuple[str, ...], about("What to start with.")] = (
        AVAILABLE_COMMANDS
    )


class Authentication(Struct, frozen=True):
    """Which key was accepted."""

    api_key: Annotated[str, about("The first 12 characters and dots.", "ob_live_AbCd...")]
    status: Literal["authenticated"] = "authenticated"


class Limits(Struct, frozen=True):
    """What this connection may do."""

    requests_per_minute: Annotated[int, about("Requests and messages of the key.", 600)]
    connections_max: Annotated[int, about("Connections of the key at one time.", 5)]
    subscriptions_max: Annotated[int, about("Subscriptions of this connection.", 128)]
    message_bytes_max: Annotated[int, about("The longest message you may send.", 65_536)]


class WelcomeSession(Struct, tag="welcome", frozen=True):
    """The key was accepted; the session lasts as long as the connection."""

    message: Text
    session_id: Annotated[str, about("UUID of this session.")]
    user_id: Annotated[str, about("UUID of the account.")]
    user_tier: Annotated[str, about("basic, premium, developer or enterprise.", "premium")]
    authentication: Authentication
    limits: Limits


RejectedReason = Literal["unknown_exchange", "symbol_not_traded", "exchange_unavailable"]


class Rejected(Struct, frozen=True, omit_defaults=True):
    """An exchange of a subscription that cannot be served."""

    exchange: Annotated[str, about("The name as it was sent.", "mtgox")]
    reason: Annotated[
        RejectedReason,
        about("Why it is not served; exchange_unavailable: its instruments are not known yet."),
    ]
    detail: Annotated[
        str | UnsetType,
        about("Of an unknown exchange: a sentence for people, with what to use instead."),
    ] = UNSET


class Options(Struct, frozen=True):
    """The options of a subscription as they are applied."""

    depth: Depth
    interval_ms: IntervalMs
    mode: Mode
    levels: Levels
    split: Split
    group: Group
    ages: Ages
    coverage: Coverage
    fill: Fill


class SubscriptionResponse(Struct, tag="aggregated_subscription_response", frozen=True):
    """The subscription stands; updates follow."""

    symbol: Symbol
    exchanges: Annotated[tuple[str, ...], about("The exchanges that are merged.", ["okx"])]
    requested: Annotated[list[str] | str, about("As it was sent.", "all")]
    success: bool
    message: Text
    subscription_id: SubscriptionId
    rejected: list[Rejected]
    options: Options
    expected_gb_per_30_days: ExpectedGb


class UnsubscribeResponse(Struct, tag="unsubscribe_response", frozen=True):
    """The subscription has ended."""

    symbol: Symbol
    success: bool
    message: Text


class Subscription(Struct, frozen=True):
    """One subscription of a connection."""

    symbol: Symbol
    exchanges: tuple[str, ...]
    subscription_id: SubscriptionId
    options: Options
    expected_gb_per_30_days: ExpectedGb


class SubscriptionsList(Struct, frozen=True):
    """The subscriptions of a connection."""

    subscriptions: list[Subscription]
    total: int


class SubscriptionsData(Struct, tag="subscriptions_data", frozen=True):
    """The subscriptions of this connection."""

    data: SubscriptionsList
    timestamp: Timestamp


class ExchangesList(Struct, frozen=True):
    """The exchanges, and the state of their feeds."""

    supported_exchanges: list[str]
    active_exchanges: list[str]
    total_supported: int
    total_active: int
    exchange_status: Annotated[
        dict[str, str], about("active, maintenance, offline or limited.", {"okx": "active"})
    ]
    via: Annotated[
        dict[str, str],
        about(
            "The exchanges that Onebook has no connector for, and the library that their books "
            "come through: these are only as exact as that library.",
            {"bitopro": "ccxt"},
        ),
    ]


class ExchangesData(Struct, tag="exchanges_data", frozen=True):
    """The exchanges and whether their feeds are live."""

    data: Annotated[Raw, ExchangesList]
    timestamp: Timestamp


class AllPairs(Struct, frozen=True):
    """The pairs of every exchange."""

    exchanges: dict[str, list[str]]
    total_exchanges: int
    total_pairs: Annotated[int, about("Different pairs over all exchanges.")]
    common_pairs: Annotated[list[str], about("Pairs that several exchanges trade.")]


class ExchangePairs(Struct, frozen=True):
    """The pairs of one exchange."""

    exchange: str
    pairs: list[str]
    total_pairs: int
    categories: Annotated[
        dict[str, list[str]], about("Pairs by kind of base currency; one may be in several.")
    ]


class PairsData(Struct, tag="pairs_data", frozen=True):
    """The pairs of one exchange (`data.exchange` is there) or of all."""

    data: Annotated[Raw, AllPairs | ExchangePairs]
    timestamp: Timestamp


class Pong(Struct, tag="pong", frozen=True, omit_defaults=True):
    """The answer to a ping."""

    timestamp: Timestamp
    server_time: Timestamp
    latency_ms: Annotated[
        float, about("Round trip of our last protocol ping; 0 before the first.", 2.5)
    ]
    client_time: Annotated[Raw | UnsetType, about("As it was sent.")] = UNSET


class DataLimitExceeded(Struct, tag="data_limit_exceeded", frozen=True):
    """The monthly allowance is used up; the connection is closed with 4003."""

    message: Text
    data_usage: DataUsage
    reset_date: Annotated[str, about("When the next period begins.", "2026-12-01T00:00:00.000Z")]
    timestamp: Timestamp


@dataclass(frozen=True)
class WarnedUsage(DataUsage):
    """How much of the allowance is used, and by how much it is exceeded; GB are GiB."""

    exceeded_by_gb: Annotated[float, about("0 until the allowance is used up.", 0.0)]


class DataLimitWarning(Struct, tag="data_limit_warning", frozen=True):
    """80 % of the monthly allowance is used up."""

    message: Text
    data_usage: WarnedUsage
    action_required: Annotated[
        str,
        about("What to do, a sentence for people.", "Ask for fewer levels or longer intervals."),
    ]
    reset_date: str
    timestamp: Timestamp


class RateLimitWarning(Struct, tag="rate_limit_warning", frozen=True):
    """90 % of a minute's messages are used up."""

    message: Text
    current_rate: int
    limit: int
    reset_time: Timestamp
    window: Literal["per_minute"] = "per_minute"


class ServerShutdown(Struct, tag="server_shutdown", frozen=True):
    """The node drains, or receives no books: it closes with 4200 at the time given, then return."""

    message: Text
    reconnect_in_ms: Annotated[int, about("When this connection ends and a new one may start.")]
    timestamp: Timestamp


class Error(Struct, frozen=True, omit_defaults=True):
    """Something was refused; `error` is for machines, `message` for people."""

    type: ErrorType
    error: Annotated[str, about("The code; see the list of errors.", "invalid_message")]
    message: Text
    timestamp: Timestamp
    code: Annotated[int | UnsetType, about("A number where older clients expect one.")] = UNSET
    symbol: str | UnsetType = UNSET
    suggested_symbols: list[str] | UnsetType = UNSET
    exchange: str | UnsetType = UNSET
    supported_exchanges: list[str] | UnsetType = UNSET
    retry_after: Annotated[int | UnsetType, about("Seconds.")] = UNSET
    current_limit: int | UnsetType = UNSET
    window: Literal["per_minute"] | UnsetType = UNSET
