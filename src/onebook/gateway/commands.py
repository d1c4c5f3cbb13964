"""Client messages on `/api/v1/ws`: the Structs that validate and document them."""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from onebook.core.types import DEPTH_MAX
from onebook.gateway.plain import MUST_BE
from onebook.streams import FULL, OBJECT
from onebook.streams.fill import FILL_SIZES_MAX

Id = str | int | float | None

DEPTH_DEFAULT: Final = 20
INTERVAL_MS_DEFAULT: Final = 100
INTERVAL_MS_MIN: Final = 10
INTERVAL_MS_MAX: Final = 60_000
NAMES_MAX: Final = 256  # exchange names in one message
SYMBOL_CHARACTERS_MAX: Final = 64


def about(description: str, example: Any = UNSET, must_be: str = "", **limits: Any) -> Meta:
    """Describe a field: its meaning, one example, its limits, and its name in errors."""
    return Meta(
        description=description,
        examples=None if example is UNSET else [example],
        extra={MUST_BE: must_be} if must_be else None,
        **limits,
    )


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
Depth = Annotated[int, about("Levels a side.", 20, ge=1, le=DEPTH_MAX)]
IntervalMs = Annotated[
    int,
    about(
        "At most one update in each period of so many milliseconds; the last state always "
        "arrives. After a late one the next may come in half the time.",
        100,
        ge=INTERVAL_MS_MIN,
        le=INTERVAL_MS_MAX,
    ),
]
Mode = Annotated[
    Literal["full", "delta"],
    about("full: each update is the whole view; delta: changed levels after the first.", FULL),
]
Levels = Annotated[
    Literal["object", "array"], about("Levels as objects or as [price, amount].", OBJECT)
]
Split = Annotated[bool, about("Add the amount of each exchange at a level.", False)]
Group = Annotated[
    str | None,
    about(
        "Price step to bin to, bids down and asks up, as decimal text of at most 12 decimals. Bids "
        "below one step are left out.",
        "0.5",
        'a price step as decimal text, such as "0.5"',
    ),
]
Ages = Annotated[bool, about("Add how old the data of each exchange is, in milliseconds.", False)]
Coverage = Annotated[
    bool,
    about("Add the outermost price up to which the book of each exchange is known.", False),
]


class FillOption(Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes whose cost of buying and selling is in each update."""

    amounts: Annotated[
        tuple[str, ...], about("In the base currency, as decimal text.", ["0.5"])
    ] = ()
    notionals: Annotated[
        tuple[str, ...], about("In the quote currency, as decimal text.", ["10000"])
    ] = ()


Fill = Annotated[
    FillOption | None,
    about(
        "Add what buying and selling these sizes would cost: for each the average and the worst "
        f"price and the amount on each exchange. At most {FILL_SIZES_MAX} amounts and notionals.",
        {"amounts": ["0.5"], "notionals": ["10000"]},
        'an object with lists of decimal text in "amounts", "notionals" or both',
    ),
]


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


class Chosen(Struct, forbid_unknown_fields=True):
    """Which book of which symbol."""

    symbol: Symbol
    exchanges: Exchanges = "all"
    depth: Depth = DEPTH_DEFAULT
    interval_ms: IntervalMs = INTERVAL_MS_DEFAULT
    mode: Mode = "full"
    levels: Levels = "object"
    split: Split = False
    group: Group = None
    ages: Ages = False
    coverage: Coverage = False
    fill: Fill = None
    id: MessageId = None


class SubscribeAggregated(Chosen, tag="subscribe_aggregated"):
    """Subscribe to the aggregated order book of a symbol; repeating it replaces the options."""


class GetAggregatedOrderbook(Struct, forbid_unknown_fields=True, tag="get_aggregated_orderbook"):
    """Get the aggregated order book of a symbol once; absent options are the subscription's."""

    symbol: Symbol
    exchanges: Exchanges | UnsetType = UNSET
    depth: Depth | UnsetType = UNSET
    interval_ms: IntervalMs | UnsetType = UNSET
    mode: Mode | UnsetType = UNSET
    levels: Levels | UnsetType = UNSET
    split: Split | UnsetType = UNSET
    group: Group | UnsetType = UNSET
    ages: Ages | UnsetType = UNSET
    coverage: Coverage | UnsetType = UNSET
    fill: Fill | UnsetType = UNSET
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
