"""WebSocket replies, warnings and errors: their fields with meaning and example."""

from binascii import crc32
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from onebook.accounts.usage import DataUsage
from onebook.exchanges.kit.published import PUBLISHED_OLD_DAYS
from onebook.fees import PublishedFee
from onebook.fill import AVERAGE_DIGITS
from onebook.gateway.codes import ErrorType
from onebook.gateway.commands import Symbol
from onebook.model import Reason
from onebook.streams import ViewOptions, about
from onebook.streams.fill import FILL_LEVELS_MAX

Timestamp = Annotated[str, about("ISO 8601, UTC, microseconds.", "2026-11-20T10:00:00.000000Z")]
# For actions, whose bodies equal those of REST.
ActionTimestamp = Annotated[str, about("ISO 8601, UTC, milliseconds.", "2026-11-20T10:00:00.000Z")]
Text = Annotated[str, about("A human-readable sentence.")]
SubscriptionId = Annotated[
    str, about("Id of the view, identical for all its clients.", "sub_0123456789ab")
]
UpdateNumber = Annotated[int, about("Rises by one with each update of the view.", 1)]
# The last member, which `messages.with_view` adds to the encoded message.
View = Annotated[
    str | UnsetType,
    about("The client's name of the view; absent for the unnamed view.", "top"),
]

Number = Annotated[
    int | UnsetType,
    about(
        "With `encoding: protobuf`: the number of the subscription in its binary updates. The "
        "positions of `exchanges` stand for them there.",
        1,
    ),
]

Start = Annotated[
    str | UnsetType,
    about(
        "Of a subscription that plays the past: the moment at which it began; absent after "
        "`history_end`.",
        "2026-11-27T14:03:00.000000Z",
    ),
]

Speed = Annotated[
    float | UnsetType,
    about("Of such a subscription: recorded seconds per second; 0: as fast as you read.", 1.0),
]

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
    available_commands: Annotated[tuple[str, ...], about("Commands to start with.")] = (
        AVAILABLE_COMMANDS
    )


class Authentication(Struct, frozen=True):
    """The accepted key."""

    api_key: Annotated[str, about("The first 12 characters, then dots.", "ob_live_AbCd...")]
    status: Literal["authenticated"] = "authenticated"


class Limits(Struct, frozen=True):
    """Limits of this connection."""

    requests_per_minute: Annotated[int, about("Requests and messages of the key per minute.", 600)]
    connections_max: Annotated[int, about("Maximum open connections of the key.", 5)]
    subscriptions_max: Annotated[int, about("Maximum subscriptions of this connection.", 128)]
    message_bytes_max: Annotated[int, about("Maximum length of a client message.", 65_536)]


class WelcomeSession(Struct, tag="welcome", frozen=True):
    """The key was accepted; the session lasts as long as the connection."""

    message: Text
    session_id: Annotated[str, about("UUID of this session.")]
    user_id: Annotated[str, about("UUID of the account.")]
    user_tier: Annotated[str, about("basic, premium, developer or enterprise.", "premium")]
    authentication: Authentication
    limits: Limits


RejectedReason = Literal[
    "unknown_exchange",
    "symbol_not_traded",
    "exchange_unavailable",
    "unknown_fee",
]


class Rejected(Struct, frozen=True, omit_defaults=True):
    """An exchange of a subscription that cannot be served."""

    exchange: Annotated[str, about("The name as it was sent.", "mtgox")]
    reason: Annotated[
        RejectedReason,
        about(
            "Why it is not served; exchange_unavailable: its instruments are not known yet; "
            "unknown_fee: the option `fees` has no fee for it."
        ),
    ]
    detail: Annotated[
        str | UnsetType,
        about("For an unknown exchange: a sentence that suggests a replacement."),
    ] = UNSET


# Replies always have the first options, and later ones only if the client chose them, so that a new
# option does not change the replies to older clients.
OPTIONS_IN_EVERY_REPLY: Final = 9


def _option_fields() -> list[tuple[Any, ...]]:
    fields = [(each.name, each.type) for each in msgspec.structs.fields(ViewOptions)]
    later = ((name, kind | UnsetType, UNSET) for name, kind in fields[OPTIONS_IN_EVERY_REPLY:])
    return [*fields[:OPTIONS_IN_EVERY_REPLY], *later]


_Options: Any = msgspec.defstruct("_Options", _option_fields(), frozen=True)


class Options(_Options):  # type: ignore[misc]
    """The applied options of a subscription; those after `fill` only if the client chose them."""

    @classmethod
    def of(cls, options: ViewOptions) -> "Options":
        """Return the options of a reply."""
        values = enumerate(msgspec.structs.asdict(options).items())
        return cls(
            **{name: value for at, (name, value) in values if at < OPTIONS_IN_EVERY_REPLY or value}
        )


class StatedFee(Struct, frozen=True, omit_defaults=True):
    """The base taker fee of a pair that the exchange states itself."""

    exchange: Annotated[str, about("Its name.", "kraken")]
    symbol: Symbol
    percent: Annotated[str, about("The fee in percent, as decimal text.", "0.4")]
    source: Annotated[
        Literal["instruments", "page"],
        about("instruments: the exchange's list of pairs, read hourly; page: a page of its site."),
    ]
    date: Annotated[str, about("The day of that reading, or the date of the page.", "2026-11-27")]
    page: Annotated[str | UnsetType, about("The address of the page.")] = UNSET
    old: Annotated[bool, about(f"Whether that is over {PUBLISHED_OLD_DAYS} days ago.")] = False

    @classmethod
    def of(cls, fee: PublishedFee) -> "StatedFee":
        """Return the description of a fee."""
        return cls(**fee._asdict() | {"date": fee.date.isoformat(), "page": fee.page or UNSET})


class SubscriptionResponse(Struct, tag="aggregated_subscription_response", frozen=True):
    """The subscription was accepted; updates follow."""

    symbol: Symbol
    exchanges: Annotated[
        tuple[str, ...],
        about("The exchanges that are merged; with quotes: the books, such as okx:USDC.", ["okx"]),
    ]
    requested: Annotated[list[str] | str, about("As it was sent.", "all")]
    success: bool
    message: Text
    subscription_id: SubscriptionId
    rejected: list[Rejected]
    options: Options
    expected_gb_per_30_days: ExpectedGb
    unknown_fee: Annotated[
        tuple[str, ...] | UnsetType,
        about("With fees: the exchanges without a fee, which are not in the view.", ["xt"]),
    ] = UNSET
    published_fees: Annotated[
        tuple[StatedFee, ...] | UnsetType,
        about('With fees "published": the fee of each book of the view, and where it is from.'),
    ] = UNSET
    number: Number = UNSET
    start: Start = UNSET
    speed: Speed = UNSET
    view: View = UNSET


class UnsubscribeResponse(Struct, tag="unsubscribe_response", frozen=True):
    """The subscription has ended."""

    symbol: Symbol
    success: bool
    message: Text
    view: View = UNSET


class Subscription(Struct, frozen=True):
    """One subscription of a connection."""

    symbol: Symbol
    exchanges: tuple[str, ...]
    subscription_id: SubscriptionId
    options: Options
    expected_gb_per_30_days: ExpectedGb
    number: Number = UNSET
    start: Start = UNSET
    speed: Speed = UNSET
    view: View = UNSET


class SubscriptionsList(Struct, frozen=True):
    """The subscriptions of a connection."""

    subscriptions: list[Subscription]
    total: int


class SubscriptionsData(Struct, tag="subscriptions_data", frozen=True):
    """The subscriptions of this connection."""

    data: SubscriptionsList
    timestamp: Timestamp


class ExchangesList(Struct, frozen=True):
    """The exchanges and the state of their feeds."""

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
            "Exchanges without a connector, each with the library that provides its books; these "
            "are only as exact as the library.",
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
    total_pairs: Annotated[int, about("Number of distinct pairs on all exchanges.")]
    common_pairs: Annotated[list[str], about("Pairs that several exchanges trade.")]


class ExchangePairs(Struct, frozen=True):
    """The pairs of one exchange."""

    exchange: str
    pairs: list[str]
    total_pairs: int
    categories: Annotated[
        dict[str, list[str]],
        about("Pairs by kind of base currency; a pair may have several kinds."),
    ]


class PairsData(Struct, tag="pairs_data", frozen=True):
    """The pairs of one exchange (with `data.exchange`) or of all."""

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
    """Usage of the allowance and the excess; one GB is 2^30 bytes."""

    exceeded_by_gb: Annotated[float, about("0 until the allowance is used up.", 0.0)]


class DataLimitWarning(Struct, tag="data_limit_warning", frozen=True):
    """80 % of the monthly allowance is used up."""

    message: Text
    data_usage: WarnedUsage
    action_required: Annotated[
        str,
        about(
            "What to do, as a human-readable sentence.", "Ask for fewer levels or longer intervals."
        ),
    ]
    reset_date: str
    timestamp: Timestamp


class HistoryEnd(Struct, tag="history_end", frozen=True):
    """A subscription with `start` has reached the present; its live updates follow.

    The next update is the whole live book of this moment of the history, with the numbers of the
    live stream; every later update follows.
    """

    symbol: str
    subscription_id: SubscriptionId
    recorded_until: Annotated[
        Timestamp,
        about(
            "The last moment that was played. If it is before the next update, the time between "
            "them was not recorded."
        ),
    ]
    timestamp: Timestamp
    view: View = UNSET


class RateLimitWarning(Struct, tag="rate_limit_warning", frozen=True):
    """90 % of a minute's messages are used up."""

    message: Text
    current_rate: int
    limit: int
    reset_time: Timestamp
    window: Literal["per_minute"] = "per_minute"


class ServerShutdown(Struct, tag="server_shutdown", frozen=True):
    """The node drains or receives no books; reconnect when it closes with 4200."""

    message: Text
    reconnect_in_ms: Annotated[int, about("When this connection is closed and you may reconnect.")]
    timestamp: Timestamp


class Error(Struct, frozen=True, omit_defaults=True):
    """A message was refused; `error` is for programs, `message` for people."""

    type: ErrorType
    error: Annotated[str, about("The code; see the list of errors.", "invalid_message")]
    message: Text
    timestamp: Timestamp
    code: Annotated[int | UnsetType, about("A number, if older clients expect one.")] = UNSET
    symbol: str | UnsetType = UNSET
    suggested_symbols: list[str] | UnsetType = UNSET
    exchange: str | UnsetType = UNSET
    supported_exchanges: list[str] | UnsetType = UNSET
    retry_after: Annotated[int | UnsetType, about("Seconds.")] = UNSET
    current_limit: int | UnsetType = UNSET
    window: Literal["per_minute"] | UnsetType = UNSET
    view: View = UNSET


class ActionError(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="error"):
    """An action was refused; `code` is its number, if the error has one."""

    error: str
    message: Text
    code: int | UnsetType = UNSET
    supported_exchanges: list[str] | UnsetType = UNSET
    supported_types: list[str] | UnsetType = UNSET
    retry_after: int | UnsetType = UNSET
    current_limit: int | UnsetType = UNSET
    window: Literal["per_minute"] | UnsetType = UNSET
    timestamp: ActionTimestamp


REASON_MEANINGS: Final = " ".join(f"`{each}`: {each.meaning}" for each in Reason)


class Level(Struct, frozen=True):
    """One price of a merged book, with `levels: object`."""

    price: float
    amount: Annotated[float, about("Exact sum over the exchanges; 0 in a delta: gone.")]
    exchanges: list[str]
    exchange_count: int
    value: Annotated[float, about("price x amount, cut to 10 decimals.")]
    amounts: Annotated[
        list[float] | UnsetType, about("With split: the amount of each of `exchanges`.")
    ] = UNSET
    gross: Annotated[
        list[float] | UnsetType,
        about("With net: the price of each of `exchanges` before its fee; not with group."),
    ] = UNSET


class MarketStats(Struct, frozen=True):
    """Statistics of the delivered levels; null if a side is empty."""

    best_bid: float | None
    best_ask: float | None
    spread: float | None
    spread_percent: Annotated[float | None, about("Percentage of the mid price, 4 decimals.")]
    mid_price: float | None
    total_bid_volume: float | None
    total_ask_volume: float | None
    participating_exchanges: int
    crossed: Annotated[bool, about("best_bid >= best_ask across exchanges; shown unchanged.")]


_NUMBER: Final = {"type": "number"}
# With `net`, the third item is the price before the fee.
_PART: Final = {"type": "array", "prefixItems": [{"type": "string"}, _NUMBER, _NUMBER]}
# Forms of a level, by the options `levels` and `split`.
LEVEL_FORMS: Final = {
    "items": {
        "oneOf": [
            msgspec.json.schema_components([Level])[1]["Level"],
            {"title": "array", "type": "array", "prefixItems": [_NUMBER, _NUMBER]},
            {
                "title": "array with split",
                "type": "array",
                "prefixItems": [_NUMBER, _NUMBER, {"type": "array", "items": _PART}],
            },
        ]
    }
}
_BID: Final = {
    "price": 100.5,
    "amount": 1.75,
    "exchanges": ["kraken", "okx"],
    "exchange_count": 2,
    "value": 175.875,
}
_ASK: Final = {"price": 101, "amount": 3, "exchanges": ["okx"], "exchange_count": 1, "value": 303}

# The checksum rule, with an example that can be computed by hand.
CHECKSUM_BIDS: Final = (("100.5", "1.75"), ("100", "2"))
CHECKSUM_ASKS: Final = (("101", "3"),)
CHECKSUM_TEXT: Final = ":".join(map(":".join, CHECKSUM_BIDS + CHECKSUM_ASKS))
CHECKSUM_RULE: Final = (
    "CRC-32 (as in zlib, unsigned) of a text: of the view after this delta, the 25 best bids, "
    "best first, then the 25 best asks, best first, each as `price:amount`, all joined with `:`. "
    "Numbers are written as in the messages: without exponent or trailing zeros. Bids "
    "100.5 x 1.75 and 100 x 2 with the ask 101 x 3 give "
    f"`{CHECKSUM_TEXT}` and {crc32(CHECKSUM_TEXT.encode())}."
)


class Covered(Struct, frozen=True):
    """The prices at which the known part of an exchange's book ends."""

    bids: Annotated[
        float | None,
        about("The lowest known bid price; null if all bids are known.", 99.5),
    ]
    asks: Annotated[
        float | None,
        about("The highest known ask price; null if all asks are known.", None),
    ]


class FilledPart(Struct, frozen=True):
    """The part of a fill on one exchange."""

    exchange: str
    amount: float
    notional: Annotated[float, about("The exact cost of that amount, before fees.")]
    fee: Annotated[
        float | UnsetType, about("With fees: in the quote currency, negative for a rebate.")
    ] = UNSET
    limit: Annotated[
        float | UnsetType, about("With fees: the worst price of this part, before the fee.")
    ] = UNSET


class Filled(Struct, frozen=True):
    """The cost of one size over the whole books, whatever `depth` and `group` are.

    The last level, if not used up, is filled from the exchange with the largest amount first. With
    the option `fees`, the fill is a route: the best split after fees, for as much of the size as
    known lots and minimums allow.
    """

    by: Literal["amount", "notional"]
    size: Annotated[float, about("As requested.", 0.5)]
    amount: Annotated[
        float,
        about("Amount of the base currency; cut to 18 decimals with `by: notional`.", 0.5),
    ]
    notional: Annotated[float, about("The exact cost or proceeds of `amount`.", 48655.2)]
    average: Annotated[
        float | None,
        about(
            f"notional / amount, rounded to {AVERAGE_DIGITS} digits; null if nothing is filled.",
            97310.4,
        ),
    ]
    worst: Annotated[
        float | None, about("The worst price in the fill; with fees: after the fee.", 97312)
    ]
    complete: Annotated[
        bool,
        about("Whether these books hold the whole size; if not, the fill takes all their levels."),
    ]
    uncovered: Annotated[
        list[str],
        about(
            "Exchanges whose book is not known as far as `worst` (or, if the fill is incomplete, "
            "to its end). They may have more, so the real cost may be lower.",
            [],
        ),
    ]
    split: Annotated[list[FilledPart], about("By exchange, the largest amount first.")]
    levels: Annotated[
        int | UnsetType,
        about(f"Without fees: number of prices in the fill, at most {FILL_LEVELS_MAX}.", 3),
    ] = UNSET
    fees: Annotated[float | UnsetType, about("With fees: their sum in the quote currency.")] = UNSET
    net: Annotated[
        float | UnsetType,
        about("With fees: paid (notional + fees) or received (notional - fees)."),
    ] = UNSET
    net_average: Annotated[
        float | UnsetType | None, about(f"With fees: net / amount, {AVERAGE_DIGITS} digits.")
    ] = UNSET
    extra: Annotated[
        float | UnsetType,
        about("With fees: the part of the cost caused by lots, minimums and max_exchanges."),
    ] = UNSET
    unplaced: Annotated[
        float | UnsetType,
        about("With fees: amount that is in the books but not allowed by lots or minimums."),
    ] = UNSET
    exact: Annotated[
        bool | UnsetType, about("With fees: whether it is the best split within the rules.")
    ] = UNSET
    oldest_ms: Annotated[
        int | UnsetType | None,
        about("With fees: age of the oldest data among the exchanges of the split."),
    ] = UNSET
    unknown_rules: Annotated[
        list[str] | UnsetType,
        about(
            "With fees: exchanges of the split whose lot, minimum amount or minimum notional is "
            "unknown; they may refuse the order."
        ),
    ] = UNSET


class Fills(Struct, frozen=True):
    """The cost of each size of the option `fill`: amounts, then notionals, smallest first."""

    buy: list[Filled]
    sell: list[Filled]


class SentReceived(Struct, frozen=True):
    """Times of one channel of an exchange, in microseconds since 1970."""

    exchange: Annotated[
        int | None,
        about("When it was sent, by the exchange's clock; null if unknown."),
    ]
    received: Annotated[int, about("When it arrived, by our clock.", 1_763_632_800_012_345)]


class MemberTimes(Struct, frozen=True):
    """Times of one exchange in a view."""

    top: Annotated[SentReceived, about("Of the best bid and ask.")]
    depth: Annotated[SentReceived, about("Of the other levels.")]
    offset: Annotated[
        int | None,
        about(
            "Our clock minus the exchange's in microseconds; the latency of a price is "
            "`received` - `offset` - `exchange`. Null before it was measured.",
            1_200,
        ),
    ]
    error: Annotated[
        int | None,
        about(
            "Error of `offset` in microseconds; null: unknown, and `offset` includes the minimum "
            "latency of a message.",
            800,
        ),
    ]


class NetworkState(Struct, frozen=True):
    """A network of a coin on one exchange; null is unknown."""

    network: Annotated[str, about("Its name in the library that read it.", "TRC20")]
    deposit: Annotated[bool | None, about("Whether deposits are open.", True)]
    withdraw: Annotated[bool | None, about("Whether withdrawals are open.", True)]
    withdraw_fee: Annotated[float | None, about("The fee of a withdrawal, in the coin.", 1.5)]


class CoinState(Struct, frozen=True):
    """Deposits and withdrawals of a coin on one exchange; null is unknown."""

    via: Annotated[str, about("The library that read them.", "ccxt")]
    read_at_ms: Annotated[int, about("When, in Unix milliseconds; hourly.", 1_763_632_800_000)]
    deposit: Annotated[bool | None, about("Whether any deposit is open.", True)]
    withdraw: Annotated[bool | None, about("Whether any withdrawal is open.", True)]
    networks: tuple[NetworkState, ...]


class TransferEntry(Struct, frozen=True):
    """Whether the coin of a crossing can be moved from `buy` to `sell`."""

    coin: Annotated[str, about("The base currency.", "BTC")]
    possible: Annotated[
        bool | None,
        about(
            "false: an exchange does not allow it; true: a network of the same name is open on "
            "both; null: unknown, also if both name their networks differently.",
            True,
        ),
    ]
    buy: Annotated[CoinState | None, about("Of the exchange where it is bought.")]
    sell: Annotated[CoinState | None, about("Of the exchange where it is sold.")]


class CrossingEntry(Struct, frozen=True, kw_only=True):
    """A pair of exchanges where one bids more, after both fees, than the other asks.

    Both are the same exchange if its rebates exceed its spread. An entry that `ended` has only the
    two exchanges and the duration.
    """

    phase: Annotated[
        Literal["began", "changed", "lasts", "ended"],
        about("What happened since the previous update of the view.", "began"),
    ]
    buy: Annotated[str, about("Where to buy.", "okx")]
    sell: Annotated[str, about("Where to sell.", "kraken")]
    lasted_ms: Annotated[int, about("Milliseconds since the update in which it began.", 240)]
    amount: Annotated[
        float | UnsetType,
        about("The amount that can be traded at the minimum profit or better.", 0.35),
    ] = UNSET
    buy_limit: Annotated[
        float | UnsetType, about("The highest price to pay, before the fee.", 97312)
    ] = UNSET
    sell_limit: Annotated[
        float | UnsetType, about("The lowest price to receive, before the fee.", 97541.5)
    ] = UNSET
    gross: Annotated[
        float | UnsetType, about("The profit before fees, in the quote currency.", 80.325)
    ] = UNSET
    profit: Annotated[
        float | UnsetType, about("The profit after both fees, in the quote currency.", 19.28)
    ] = UNSET
    percent: Annotated[
        float | UnsetType,
        about("The profit in percent of what is paid, rounded down to 6 decimals.", 0.0566),
    ] = UNSET
    buy_age_ms: Annotated[
        int | UnsetType, about("Milliseconds since the last data of `buy`.", 12)
    ] = UNSET
    sell_age_ms: Annotated[
        int | UnsetType, about("Milliseconds since the last data of `sell`.", 40)
    ] = UNSET
    transferable: Annotated[
        TransferEntry | UnsetType,
        about("Absent while it is unknown for both exchanges (`feeds.ccxt.transfers`)."),
    ] = UNSET


class UpdateTimes(Struct, frozen=True):
    """Times of an update, in microseconds since 1970."""

    merged: Annotated[int, about("When the books were merged.", 1_763_632_800_013_000)]
    exchanges: dict[str, MemberTimes]
    sent: Annotated[int, about("When the message was written.", 1_763_632_800_013_040)]


class ConversionEntry(Struct, frozen=True):
    """How some books of a view with `quotes` are converted."""

    symbol: Annotated[str, about("The pair that is used.", "USDC/USDT")]
    members: Annotated[list[str], about("The books that are converted.", ["kraken:USDC"])]
    exchanges: Annotated[
        list[str],
        about(
            "Whose books of the pair are used: the book's own exchange if it lists the pair, else "
            "all exchanges of the view that list it and are live, merged.",
            ["kraken"],
        ),
    ]
    stale_exchanges: Annotated[
        list[str], about("Exchanges whose books of the pair are not live, and not used.", [])
    ]
    bid: Annotated[
        tuple[float, float] | None,
        about("Best bid of the pair, with fees after the fee, and its amount.", [0.9998, 51000]),
    ]
    ask: Annotated[
        tuple[float, float] | None,
        about("Best ask of the pair, with fees after the fee, and its amount.", [0.9999, 42000]),
    ]
    age_ms: Annotated[int | None, about("Age of the oldest of these books, in milliseconds.", 12)]
    reason: Annotated[
        str | None,
        about(
            "Why the conversion is not live, a code as in exchange_status; its members are in "
            "`stale_exchanges` of the update. null while it is live.",
            None,
        ),
    ]


class BookData(Struct, frozen=True):
    """The merged book of all exchanges whose book is live and of the same coin."""

    bids: Annotated[
        list[Any],
        about("Best first, in the requested form.", [_BID], extra_json_schema=LEVEL_FORMS),
    ]
    asks: Annotated[
        list[Any],
        about("Best first, in the requested form.", [_ASK], extra_json_schema=LEVEL_FORMS),
    ]
    market_stats: MarketStats
    stale_exchanges: Annotated[
        list[str],
        about(
            "Exchanges left out, because their book is not live, belongs to another coin "
            "(identity_conflict), or is also the book of another exchange in this view "
            "(shared_book).",
            ["kraken"],
        ),
    ]
    ages: Annotated[
        dict[str, int] | UnsetType,
        about(
            "With ages: milliseconds since data last arrived from each live exchange, as of this "
            "update.",
            {"okx": 12},
        ),
    ] = UNSET
    coverage: Annotated[
        dict[str, Covered] | UnsetType,
        about(
            "With coverage: the price at which the book of each live exchange ends, as of this "
            "update. Beyond it the exchange may have unknown levels, which are missing from the "
            "merged amounts.",
            {"okx": {"bids": 99.5, "asks": None}},
        ),
    ] = UNSET
    fill: Annotated[
        Fills | UnsetType,
        about("With fill: the cost of buying and selling each size, as of this update."),
    ] = UNSET
    crossings: Annotated[
        list[CrossingEntry] | UnsetType,
        about(
            "With crossings: at most 32 pairs of exchanges that cross after fees. Pairs that have "
            "just ended come first, once; then the most profitable."
        ),
    ] = UNSET
    times: Annotated[
        UpdateTimes | UnsetType, about("With times: when the prices were sent and received.")
    ] = UNSET
    conversions: Annotated[
        list[ConversionEntry] | UnsetType,
        about("With quotes: how the books in other quotes are converted, as of this update."),
    ] = UNSET


class PastState(Struct, frozen=True):
    """State of an exchange at a past moment."""

    state: Literal["syncing", "live", "stale", "offline"]
    reason: Annotated[str, about("As in `exchange_status`; empty if live.", "gap")]
    detail: Annotated[str, about("Human-readable details; may be empty.", "5 follows 3")]
    age_ms: Annotated[
        int | None,
        about("Milliseconds since its last data; null if none was recorded.", 12),
    ]


class RequestedData(BookData, frozen=True):
    """The merged book, and with `as_of` the state of each exchange at that moment."""

    states: Annotated[
        dict[str, PastState] | UnsetType,
        about("With as_of: the state of each exchange at that moment."),
    ] = UNSET


Skipped = Annotated[
    int | UnsetType,
    about(
        "After a slow read: the number of states of the view between this update and the previous "
        "one that you received. Absent if there were none.",
        3,
    ),
]


class OrderbookUpdate(Struct, tag="aggregated_orderbook_update", frozen=True):
    """The whole view."""

    symbol: Symbol
    subscription_id: SubscriptionId
    update_number: UpdateNumber
    timestamp: Timestamp
    data: BookData
    skipped: Skipped = UNSET
    view: View = UNSET


class OrderbookDelta(Struct, tag="aggregated_orderbook_delta", frozen=True):
    """Changes since the previous update; a gap in the update numbers requires a resync.

    Each level replaces the level at its price; amount 0 removes it. Levels that left the depth of
    the view are removed too.
    """

    symbol: Symbol
    subscription_id: SubscriptionId
    previous_update_number: UpdateNumber
    update_number: UpdateNumber
    timestamp: Timestamp
    data: BookData
    checksum: Annotated[int, about(CHECKSUM_RULE, crc32(CHECKSUM_TEXT.encode()))]
    view: View = UNSET


BestLevel = Annotated[
    tuple[float, float] | None,
    about("Price and amount, summed over the exchanges; null for an empty side.", [97310.4, 1.5]),
]


class BestUpdate(Struct, tag="best", frozen=True):
    """The best levels, with `on: best` and `mode: delta`; complete, so a lost one is no gap.

    It has the requested members of `data`: ages, coverage, fill, crossings, times, conversions.
    """

    symbol: Symbol
    bid: BestLevel
    ask: BestLevel
    ages: dict[str, int] | UnsetType = UNSET
    coverage: dict[str, Covered] | UnsetType = UNSET
    fill: Fills | UnsetType = UNSET
    crossings: list[CrossingEntry] | UnsetType = UNSET
    times: UpdateTimes | UnsetType = UNSET
    conversions: list[ConversionEntry] | UnsetType = UNSET
    view: View = UNSET


class CrossingUpdate(BestUpdate, tag="crossing", frozen=True):
    """The crossings and the best levels, with `on: crossing` and `mode: delta`; complete."""


class OrderbookData(Struct, tag="aggregated_orderbook_data", frozen=True):
    """The book requested by `get_aggregated_orderbook`."""

    symbol: Symbol
    timestamp: Timestamp
    data: RequestedData
    view: View = UNSET
    checksum: Annotated[
        int | UnsetType,
        about("With as_of: " + CHECKSUM_RULE, crc32(CHECKSUM_TEXT.encode())),
    ] = UNSET


class ExchangeStatus(Struct, tag="exchange_status", frozen=True):
    """An exchange of a subscription changed its state, or the reason why it is not live."""

    symbol: Symbol
    exchange: str
    state: Literal["syncing", "live", "stale", "offline"]
    reason: Annotated[
        Literal[
            "",
            "subscribing",
            "gap",
            "checksum",
            "audit",
            "crossed",
            "absurd_price",
            "levels",
            "protocol_error",
            "internal_error",
            "silent",
            "quiet",
            "dead_stream",
            "no_snapshot",
            "snapshot_failed",
            "refused",
            "rate_limited",
            "unavailable",
            "maintenance",
            "closing",
            "disconnected",
            "renewing",
            "unreachable",
            "flood",
            "halted",
            "not_listed",
            "unknown_fee",
            "no_conversion",
            "switched_off",
            "not_wanted",
            "not_recorded",
            "identity_conflict",
            "unconfirmed_identity",
            "shared_book",
        ],
        about(
            "Code of why it is not live, or of a live one's identity mark; otherwise empty. "
            + REASON_MEANINGS,
            "gap",
        ),
    ]
    detail: Annotated[str, about("Human-readable details; may be empty.", "5 follows 3")]
    timestamp: Timestamp
    via: Annotated[
        str | UnsetType,
        about("The library that provides its book; absent for native connectors.", "ccxt"),
    ] = UNSET
    view: View = UNSET


Exchange = Annotated[str, about("The exchange of the action.", "bybit")]
Exchanges = Annotated[
    str | list[str], about("The exchange, the account, their list or `all`, as requested.", "bybit")
]
Total = Annotated[int, about("Number of records.", 250)]
StartTime = Annotated[int, about("Start of the range, Unix ms.", 1_700_000_000_000)]
EndTime = Annotated[int, about("End of the range, Unix ms.", 1_700_600_000_000)]
Cursor = Annotated[str | None, about("Send it to get the next page; null at the end.")]
Partial = Annotated[bool, about("Whether records are missing; `coverage` says which.")]


class ExchangesResponse(Struct, tag="exchanges_response", forbid_unknown_fields=True):
    """The exchanges of the transaction interface."""

    exchanges: Annotated[
        list[dict[str, Any]], about("Name, transaction types, testnet; as in endpoint 4.")
    ]
    timestamp: ActionTimestamp


class ValidationResponse(
    Struct, kw_only=True, tag="validation_response", forbid_unknown_fields=True
):
    """Whether the exchange accepts the operator's credentials: the body of endpoint 6."""

    success: Annotated[bool, about("Whether the credentials are accepted.")]
    message: Text
    exchange: Exchange
    error: Annotated[str | UnsetType, about("`authentication_failed` if not accepted.")] = UNSET
    credentials_source: Annotated[str | UnsetType, about("Always `internal`.")] = UNSET
    account_info: Annotated[
        dict[str, Any] | UnsetType, about("Account type, status, and unreadable parts.")
    ] = UNSET
    timestamp: ActionTimestamp


class AwaitedExport(Struct, forbid_unknown_fields=True):
    """An export that the exchange has not finished yet."""

    exchange: Exchange
    name: Annotated[str, about("Name of the export.", "2024 Q1")]
    requested_at: Annotated[
        int | None, about("When it was requested, Unix ms; null: not yet.", 1_700_299_000_000)
    ]


class TransactionProgress(Struct, tag="transaction_progress", forbid_unknown_fields=True):
    """Progress of a transaction subscription."""

    exchange: Exchanges
    total_transactions: Annotated[int, about("Records so far.", 120)]
    came_to: Annotated[
        int, about("Time since which all records have been read, Unix ms.", 1_700_300_000_000)
    ]
    start_time: StartTime
    end_time: EndTime
    waiting_s: Annotated[float, about("Seconds waited for the exchange's rate limit.", 0.0)]
    timestamp: ActionTimestamp
    exports: Annotated[
        list[AwaitedExport] | UnsetType,
        about("Exports that the exchange is still preparing; the answer lacks their records."),
    ] = UNSET


class TransactionResponse(Struct, tag="transaction_response", forbid_unknown_fields=True):
    """The records, newest first: the body of endpoint 10."""

    success: bool
    message: Text
    exchange: Exchanges
    total_transactions: Total
    processing_time: Annotated[float, about("Seconds.", 0.8)]
    transactions: Annotated[list[dict[str, Any]], about("The records, as in endpoint 10.")]
    summary: Annotated[dict[str, Any], about("Counts by type, and the range of dates.")]
    filters_applied: Annotated[dict[str, Any], about("The effective range, types and limit.")]
    partial: Partial
    errors: Annotated[list[dict[str, Any]], about("Why a type is incomplete.")]
    coverage: Annotated[list[dict[str, Any]], about("The range read for each type.")]
    next_cursor: Cursor
    accounts: Annotated[list[str] | UnsetType, about("The accounts, if several.")] = UNSET
    own_transfers: Annotated[
        dict[str, Any] | UnsetType,
        about("The transfers between the accounts, if several, as in endpoint 10."),
    ] = UNSET


class LiveType(Struct, forbid_unknown_fields=True):
    """How new records of one type are found."""

    transaction_type: Annotated[str, about("The exchange's type.", "spot_orders")]
    source: Annotated[
        str, about("`stream`: the exchange announces them; `polling`: its list is read.", "stream")
    ]
    delay_s: Annotated[
        float,
        about("Maximum seconds from a record's listing to its event, unless interrupted.", 10),
    ]
    account: Annotated[str | UnsetType, about("The account, if there are several.")] = UNSET


LiveTypes = Annotated[list[LiveType], about("The followed types.")]


class TransactionComplete(Struct, tag="transaction_complete", forbid_unknown_fields=True):
    """The history of a transaction subscription was sent; without `live`, this ends it."""

    exchange: Exchanges
    success: bool
    total_transactions: Total
    partial: Partial
    next_cursor: Cursor
    live: Annotated[
        list[LiveType] | None,
        about("The types that are followed from now on; null: no `transaction` events follow."),
    ]
    timestamp: ActionTimestamp


class TransactionEvent(Struct, tag="transaction", forbid_unknown_fields=True):
    """A new or changed record of a live subscription."""

    exchange: Annotated[str, about("The account.", "bybit")]
    change: Annotated[
        str, about("`new`: an id not sent before; `updated`: its record has changed.", "new")
    ]
    number: Annotated[int, about("Rises by one with each event of the subscription.", 1)]
    transaction: Annotated[dict[str, Any], about("The record, as in endpoint 10.")]
    timestamp: ActionTimestamp


class TransactionStatus(Struct, tag="transaction_status", forbid_unknown_fields=True):
    """A changed state of a live subscription; the first one follows `transaction_complete`."""

    exchange: Annotated[str, about("The account.", "bybit")]
    state: Annotated[
        str,
        about(
            "`live`; `interrupted` while the exchange is unreachable; records from that time are "
            "sent before it is `live` again; or `ended`, because the operator's credentials now "
            "belong to another account: subscribe again.",
            "live",
        ),
    ]
    reason: Annotated[
        str | None,
        about(
            "Why it is interrupted or ended, why there is no stream, or, once, that the operator's "
            "API key was replaced."
        ),
    ]
    complete_to: Annotated[
        int, about("All records up to here have been sent, Unix ms.", 1_700_600_000_000)
    ]
    types: LiveTypes
    errors: Annotated[list[dict[str, Any]], about("Types that cannot be followed, and why.")]
    timestamp: ActionTimestamp


class TransactionUnsubscribeResponse(
    Struct, tag="transaction_unsubscribe_response", forbid_unknown_fields=True
):
    """The number of transaction subscriptions that were stopped."""

    success: Annotated[bool, about("Whether any was stopped.")]
    message: Text
    timestamp: ActionTimestamp
