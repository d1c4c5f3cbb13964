"""A key as `query-api` describes it: its permissions and its expiry.

https://bybit-exchange.github.io/docs/v5/user/apikey-info. A key without bound addresses lives for
90 days; `deadlineDay` counts what is left of them, below zero it does not end.
"""

from collections.abc import Iterator
from typing import Final

from onebook.model import DAY_MS
from onebook.transactions.bybit.rows import Row

EXPIRY_WARNING_DAYS: Final = 14
TRADING: Final = frozenset(
    {"Order", "Position", "SpotTrade", "OptionsTrade", "DerivativesTrade", "CopyTrading",
     "BlockTrade"}
)  # fmt: skip
MOVING: Final = frozenset({"AccountTransfer", "SubMemberTransfer"})
WITHDRAWING: Final = "Withdraw"


def granted_of(key: Row) -> set[str]:
    """Every permission of a key."""
    return {name for group in key["permissions"].values() for name in group}


def days_left(key: Row) -> int | None:
    """In how many days a key ends; None where it does not."""
    days = key.get("deadlineDay")
    return days if isinstance(days, int) and days >= 0 else None


def expires_at(key: Row, now_ms: int) -> int | None:
    """When a key ends, to the day."""
    days = days_left(key)
    return None if days is None else now_ms + days * DAY_MS


def warnings_of(key: Row) -> Iterator[str]:
    """What a key may do that reading does not need, and that it ends soon."""
    granted = granted_of(key)
    if key["readOnly"] != 1:
        for able, names in (
            ("trade", granted & TRADING),
            ("withdraw", granted & {WITHDRAWING}),
            ("move funds between accounts", granted & MOVING),
        ):
            if names:
                yield (
                    f"The key can {able} ({', '.join(sorted(names))}); "
                    "reading needs none of it: use a read-only key."
                )
    days = days_left(key)
    if days is not None and days <= EXPIRY_WARNING_DAYS:
        yield f"The key ends in {days} day{'' if days == 1 else 's'}; renew it at Bybit."
