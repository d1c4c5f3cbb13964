"""Events of the WebSocket: book updates and statuses, described field by field.

Book updates are encoded by `onebook.core` from exact decimals; these Structs only describe them
for the documents.
"""

from binascii import crc32
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from onebook.gateway.commands import Symbol, about
from onebook.gateway.fields import SubscriptionId, Timestamp, UpdateNumber
from onebook.model import Reason
from onebook.streams.fill import AVERAGE_DIGITS, FILL_LEVELS_MAX

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


class MarketStats(Struct, frozen=True):
    """What the delivered levels say together; null where a side is empty."""

    best_bid: float | None
    best_ask: float | None
    spread: float | None
    spread_percent: Annotated[float | None, about("Of the mid price, 4 decimals.")]
    mid_price: float | None
    total_bid_volume: float | None
    total_ask_volume: float | None
    participating_exchanges: int
    crossed: Annotated[bool, about("best_bid >= best_ask across exchanges; shown unchanged.")]


_NUMBER: Final = {"type": "number"}
_PART: Final = {"type": "array", "prefixItems": [{"type": "string"}, _NUMBER]}
# A level as the options `levels` and `split` ask for it.
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

# The rule of the checksum, and a book small enough to follow it by hand.
CHECKSUM_BIDS: Final = (("100.5", "1.75"), ("100", "2"))
CHECKSUM_ASKS: Final = (("101", "3"),)
CHECKSUM_TEXT: Final = ":".join(map(":".join, CHECKSUM_BIDS + CHECKSUM_ASKS))
CHECKSUM_RULE: Final = (
    "CRC-32 (the one of zlib, unsigned) of a text: of the view after this delta the 25 best bids, "
    "best first, then the 25 best asks, best first, each as `price:amount`, all joined with `:`. "
    "Numbers are written as the messages write them: no exponent, no zeros at the end. Bids "
    "100.5 x 1.75 and 100 x 2 with the ask 101 x 3 give "
    f"`{CHECKSUM_TEXT}` and {crc32(CHECKSUM_TEXT.encode())}."
)


class Covered(Struct, frozen=True):
    """Where the known part of one exchange's book ends."""

    bids: Annotated[
        float | None,
        about("The lowest known bid price; null where all bids are known.", 99.5),
    ]
    asks: Annotated[
        float | None,
        about("The highest known ask price; null where all asks are known.", None),
    ]


class FilledPart(Struct, frozen=True):
    """What one exchange contributes to a fill."""

    exchange: str
    amount: float
    notional: Annotated[float, about("What that amount costs, exact.")]


class Filled(Struct, frozen=True):
    """The cost of one size, over whole books: neither `depth` nor `group` changes it. Without fees.

    A level that is only partly needed is taken from the exchange with the largest amount first.
    """

    by: Literal["amount", "notional"]
    size: Annotated[float, about("As it was asked for.", 0.5)]
    amount: Annotated[
        float,
        about("How much of the base currency; cut to 18 decimals with `by: notional`.", 0.5),
    ]
    notional: Annotated[float, about("What `amount` costs or brings, exact.", 48655.2)]
    average: Annotated[
        float | None,
        about(
            f"notional / amount, rounded to {AVERAGE_DIGITS} digits; null where nothing is filled.",
            97310.4,
        ),
    ]
    worst: Annotated[float | None, about("The last price that is needed.", 97312)]
    levels: Annotated[int, about(f"Prices that are needed; {FILL_LEVELS_MAX} are looked at.", 3)]
    complete: Annotated[
        bool, about("Whether these books hold the size; if not, the fill is all that they hold.")
    ]
    uncovered: Annotated[
        list[str],
        about(
            "Exchanges whose book is not known as far as `worst` (where it is not complete: to its "
            "end). They may have more, so that the real cost may be lower.",
            [],
        ),
    ]
    split: Annotated[list[FilledPart], about("By exchange, the largest amount first.")]


class Fills(Struct, frozen=True):
    """The cost of each size of the option `fill`: amounts, then notionals, smallest first."""

    buy: list[Filled]
    sell: list[Filled]


class BookData(Struct, frozen=True):
    """A merged book: only exchanges whose book is live, and of the same coin, are in it."""

    bids: Annotated[
        list[Any],
        about("Best first, in the form asked for.", [_BID], extra_json_schema=LEVEL_FORMS),
    ]
    asks: Annotated[
        list[Any],
        about("Best first, in the form asked for.", [_ASK], extra_json_schema=LEVEL_FORMS),
    ]
    market_stats: MarketStats
    stale_exchanges: Annotated[
        list[str],
        about(
            "Left out because their book is not live, of another coin (identity_conflict), or that"
            " of another exchange in this view (shared_book).",
            ["kraken"],
        ),
    ]
    ages: Annotated[
        dict[str, int] | UnsetType,
        about(
            "With ages: milliseconds since data last came from each live exchange, as of this "
            "update.",
            {"okx": 12},
        ),
    ] = UNSET
    coverage: Annotated[
        dict[str, Covered] | UnsetType,
        about(
            "With coverage: where the book of each live exchange ends, as of this update. Beyond "
            "that price the exchange may have levels that are not known, so that the merged "
            "amounts there are without it.",
            {"okx": {"bids": 99.5, "asks": None}},
        ),
    ] = UNSET
    fill: Annotated[
        Fills | UnsetType,
        about("With fill: what each size would cost to buy and to sell, as of this update."),
    ] = UNSET


class OrderbookUpdate(Struct, tag="aggregated_orderbook_update", frozen=True):
    """The whole view."""

    symbol: Symbol
    subscription_id: SubscriptionId
    update_number: UpdateNumber
    timestamp: Timestamp
    data: BookData


class OrderbookDelta(Struct, tag="aggregated_orderbook_delta", frozen=True):
    """What changed since the update before; a gap in the numbers calls for resync.

    Each level replaces the one of its price; amount 0: removed. A level that left the depth of
    the view is removed too.
    """

    symbol: Symbol
    subscription_id: SubscriptionId
    previous_update_number: UpdateNumber
    update_number: UpdateNumber
    timestamp: Timestamp
    data: BookData
    checksum: Annotated[int, about(CHECKSUM_RULE, crc32(CHECKSUM_TEXT.encode()))]


class OrderbookData(Struct, tag="aggregated_orderbook_data", frozen=True):
    """The book that `get_aggregated_orderbook` asked for."""

    symbol: Symbol
    timestamp: Timestamp
    data: BookData


class ExchangeStatus(Struct, tag="exchange_status", frozen=True):
    """An exchange of a subscription changed its state, or is not live for another reason."""

    symbol: Symbol
    exchange: str
    state: Literal["syncing", "live", "stale", "offline"]
    reason: Annotated[
        Literal[
            "",
            "subscribing",
            "gap",
            "checksum",
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
            "switched_off",
            "not_wanted",
            "identity_conflict",
            "unconfirmed_identity",
            "shared_book",
        ],
        about(
            "Code of why it is not live, or of the identity mark of a live one; otherwise empty. "
            + REASON_MEANINGS,
            "gap",
        ),
    ]
    detail: Annotated[str, about("Details of the case, for people; may be empty.", "5 follows 3")]
    timestamp: Timestamp
    via: Annotated[
        str | UnsetType,
        about("The library that its book comes through; absent for all others.", "ccxt"),
    ] = UNSET
