"""Options of a view that a subscription may choose in addition to symbol and exchanges.

`ViewOptions` is the only list of them: commands, stream keys and replies include it. Each
field's `Meta` has its limits and its text in the protocol's documentation.
"""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct

from onebook.core.types import DEPTH_MAX, WITHIN_DECIMALS_MAX, WITHIN_MAX
from onebook.fees import FEES_MAX, KEY_TABLE, OTHERS, PUBLISHED
from onebook.streams.basket import QUOTES_MAX
from onebook.streams.fill import FILL_SIZES_MAX, FillSizes

MUST_BE: Final = "must_be"  # key in `Meta.extra`: what a field must be, for error messages

INTERVAL_MS_MIN: Final = 10  # or 0
INTERVAL_MS_MAX: Final = 60_000
INTERVAL_MUST_BE: Final = f"0, or a whole number from {INTERVAL_MS_MIN:,} to {INTERVAL_MS_MAX:,}"

BEST: Final = "best"
CROSSING: Final = "crossing"
FULL: Final = "full"
DELTA: Final = "delta"
PROTOBUF: Final = "protobuf"
OBJECT: Final = "object"
ARRAY: Final = "array"


def about(description: str, example: Any = UNSET, must_be: str = "", **limits: Any) -> Meta:
    """Describe a field: its meaning, one example, its limits, and its name in errors."""
    return Meta(
        description=description,
        examples=None if example is UNSET else [example],
        extra={MUST_BE: must_be} if must_be else None,
        **limits,
    )


class ViewOptions(Struct, frozen=True, kw_only=True):
    """Options of a view.

    In a stream key `depth`, `split`, `group`, `fill`, `within`, `fees` and `quotes` are canonical,
    so that equal views are one stream: `fees` has the fee of each of its exchanges, or of each of
    their pairs (`fees.fee_of`). A new option is
    added at the end with a false default, because ids of streams omit such options.
    """

    depth: Annotated[int, about("Levels a side.", 20, ge=1, le=DEPTH_MAX)] = 20
    interval_ms: Annotated[
        int,
        about(
            "Minimum milliseconds between two updates, from 10; the last state is always sent. "
            "After a late update, the next may follow after half this interval. 0: each change at "
            "once; changes that arrive together are one update.",
            100,
            INTERVAL_MUST_BE,
            ge=0,
            le=INTERVAL_MS_MAX,
        ),
    ] = 100
    mode: Annotated[
        Literal["full", "delta"],
        about("full: each update is the whole view; delta: changed levels after the first.", FULL),
    ] = FULL
    levels: Annotated[
        Literal["object", "array"], about("Levels as objects or as [price, amount].", OBJECT)
    ] = OBJECT
    split: Annotated[bool, about("Add the amount of each exchange at a level.", False)] = False
    group: Annotated[
        str | None,
        about(
            "Price step to bin to, bids down and asks up, as decimal text of at most 12 decimals. "
            "Bids below one step are left out.",
            "0.5",
            'a price step as decimal text, such as "0.5"',
        ),
    ] = None
    ages: Annotated[
        bool, about("Add the age of the data of each exchange, in milliseconds.", False)
    ] = False
    coverage: Annotated[
        bool,
        about("Add the outermost known price of the book of each exchange.", False),
    ] = False
    fill: Annotated[
        FillSizes | None,
        about(
            "Add the cost of buying and selling these sizes: the average and the worst price of "
            "each, and the amount on each exchange. At most "
            f"{FILL_SIZES_MAX} amounts and notionals.",
            {"amounts": ["0.5"], "notionals": ["10000"]},
            'an object with lists of decimal text in "amounts", "notionals" or both',
        ),
    ] = None
    within: Annotated[
        str | None,
        about(
            "Maximum distance of levels from the mid in basis points, as decimal text; at most "
            "`depth` levels a side. While a side of the view is empty, the best price of the other "
            "is the reference. At most "
            f"{WITHIN_MAX:,} and {WITHIN_DECIMALS_MAX} decimals.",
            "25",
            'basis points as decimal text, such as "25"',
        ),
    ] = None
    on: Annotated[
        Literal["best", "crossing"] | None,
        about(
            "best: an update only when the best price of a side or its amount changes, or an "
            "exchange joins or leaves; crossing: only when `crossings` change. With `mode: delta` "
            "the depth is 1, and after the first update each change is a short `best` or "
            "`crossing`.",
            BEST,
        ),
    ] = None
    times: Annotated[
        bool,
        about(
            "Add the times at which the prices of each exchange were sent and received, the "
            "offset of its clock, and the times at which the update was merged and sent.",
            False,
        ),
    ] = False
    fees: Annotated[
        Annotated[dict[str, str], Meta(max_length=FEES_MAX)] | Literal["key", "published"] | None,
        about(
            "Taker fees in percent by exchange as decimal text, negative for a rebate, "
            f'"{OTHERS}" for all others; or "{KEY_TABLE}", the table of the API key; or '
            f'"{PUBLISHED}", the base fees that the exchanges state themselves. Exchanges '
            "without a fee are not in the view. With `fill` the sizes are routed by prices after "
            "fees.",
            {"okx": "0.08", "*": "0.1"},
            f'an object of exchange names and percents as decimal text, "{KEY_TABLE}" or '
            f'"{PUBLISHED}"',
        ),
    ] = None
    net: Annotated[
        bool,
        about(
            "With `fees`: order levels by price after the fee. Implies `split`; each level also "
            "has the price of each exchange before its fee, unless it is a bin of `group`.",
            False,
        ),
    ] = False
    crossings: Annotated[
        str | None,
        about(
            "With `fees`: add the pairs of exchanges where one bids more than the other asks, "
            "after both fees. The value is the minimum profit of an order in percent, as decimal "
            "text; 0 accepts any profit.",
            "0.05",
            'a percentage as decimal text, such as "0.05"',
        ),
    ] = None
    quotes: Annotated[
        Annotated[tuple[str, ...], Meta(max_length=QUOTES_MAX)] | None,
        about(
            "Quote currencies whose books are pooled into the symbol's own quote: each price is "
            "converted through the live book of the two currencies, on the side and for the size "
            "that would be used, with `fees` after the fee of that step. The name of a converted "
            f"book in levels is exchange:quote. At most {QUOTES_MAX}.",
            ["USDC", "USD"],
            f'a list of at most {QUOTES_MAX} currencies, such as ["USDC", "USD"]',
        ),
    ] = None
    encoding: Annotated[
        Literal["json", "protobuf"] | None,
        about(
            "protobuf: updates are binary frames by the schema `/onebook.proto`, a fraction of the "
            "size; replies, statuses and errors stay JSON. Absent or json: JSON.",
            "protobuf",
        ),
    ] = None
