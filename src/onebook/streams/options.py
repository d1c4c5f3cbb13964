"""Options of a view that a subscription may choose in addition to symbol and exchanges.

`ViewOptions` is the only list of them: commands, stream keys and replies include it. Each
field's `Meta` has its limits and its text in the protocol's documentation.
"""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct

from onebook.core.types import DEPTH_MAX
from onebook.streams.fill import FILL_SIZES_MAX, FillSizes

MUST_BE: Final = "must_be"  # key in `Meta.extra`: what a field must be, for error messages

FULL: Final = "full"
DELTA: Final = "delta"
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

    In a stream key `group` and `fill` are canonical, so that equal views are one stream. A new
    option is added at the end with a false default, because ids of streams omit such options.
    """

    depth: Annotated[int, about("Levels a side.", 20, ge=1, le=DEPTH_MAX)] = 20
    interval_ms: Annotated[
        int,
        about(
            "Minimum milliseconds between two updates; the last state is always sent. After a late "
            "update the next may follow after half of it.",
            100,
            ge=10,
            le=60_000,
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
