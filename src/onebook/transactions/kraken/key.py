"""The API key of the spot account: permissions, visible dates, expiry; pure.

https://docs.kraken.com/api-reference/account-data/get-api-key-info

Names are in snake case in the only recorded answer and in camel case on the page; both are read.
Times are Unix seconds as text, "0" for none.
"""

from typing import Any, Final

from msgspec import Struct

from onebook.core import iso
from onebook.model import DAY_MS, SECOND_MS
from onebook.transactions.kraken.endpoints import (
    HARMFUL,
    NEEDED,
    QUERY_TRADES,
    TRADING,
    TYPES,
    WITHDRAWING,
)
from onebook.transactions.mapping import Row

EXPIRES_SOON_MS: Final = 30 * DAY_MS


class KeyInfo(Struct, frozen=True):
    """Properties of a key.

    Args:
        permissions: Its permissions; empty if unknown.
        from_ms: Oldest time that it can see; None without a bound.
        to_ms: Newest time that it can see; None without a bound.
        valid_until_ms: Its expiry; None if it does not expire.
        account: The id of the account, which Kraken calls `iban`; "" if unknown.
    """

    permissions: frozenset[str] = frozenset()
    from_ms: int | None = None
    to_ms: int | None = None
    valid_until_ms: int | None = None
    account: str = ""

    @property
    def harmful(self) -> tuple[str, ...]:
        """Permissions other than reading, in words."""
        return tuple(words for name, words in HARMFUL.items() if name in self.permissions)

    @property
    def may_withdraw(self) -> bool:
        """Whether it may withdraw funds, or prepare a withdrawal."""
        return not self.permissions.isdisjoint(WITHDRAWING)

    @property
    def may_trade(self) -> bool:
        """Whether it may place or cancel orders."""
        return not self.permissions.isdisjoint(TRADING)

    @property
    def unavailable(self) -> tuple[str, ...]:
        """Types that it may not read."""
        missing = {
            kind
            for permission, kinds in NEEDED.items()
            if self.permissions and permission not in self.permissions
            for kind in kinds
        }
        return tuple(kind for kind in TYPES if kind in missing)

    def warnings(self, now_ms: int) -> tuple[str, ...]:
        """Warnings for its owner."""
        found = []
        if self.harmful:
            found.append(
                f"The key can do more than read: {', '.join(self.harmful)}. "
                "Make one that may only query."
            )
        if self.permissions and QUERY_TRADES not in self.permissions:
            found.append(
                "The key may not query closed orders and trades: trades lack their price and order."
            )
        if self.from_ms is not None or self.to_ms is not None:
            since = f" from {iso(self.from_ms)[:10]}" if self.from_ms is not None else ""
            until = f" until {iso(self.to_ms)[:10]}" if self.to_ms is not None else ""
            found.append(
                f"The key shows events only{since}{until}; remove the date limits from the key."
            )
        if self.valid_until_ms is not None and self.valid_until_ms - now_ms < EXPIRES_SOON_MS:
            found.append(f"The key expires on {iso(self.valid_until_ms)[:10]}.")
        return tuple(found)


UNKNOWN_KEY: Final = KeyInfo()


def key_info(answer: Any) -> KeyInfo:
    """Read the description of a key.

    Raises:
        TypeError, ValueError: It does not have the documented form.
    """
    if not isinstance(answer, dict):
        raise TypeError("The description of the key is not an object.")
    permissions = _field(answer, "permissions")
    if not isinstance(permissions, list):
        raise TypeError("The description of the key has no permissions.")
    return KeyInfo(
        frozenset(str(each) for each in permissions),
        _time(answer, "query_from"),
        _time(answer, "query_to"),
        _time(answer, "valid_until"),
        str(_field(answer, "iban") or ""),
    )


def _time(answer: Row, name: str) -> int | None:
    seconds = int(_field(answer, name) or 0)
    return seconds * SECOND_MS if seconds > 0 else None


def _field(answer: Row, name: str) -> Any:
    """A field, by its name in snake or camel case."""
    first, *others = name.split("_")
    return answer.get(name, answer.get(first + "".join(each.capitalize() for each in others)))
