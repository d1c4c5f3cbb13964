"""The API key: its permissions, and the kind of its account; pure.

https://www.okx.com/docs-v5/en/#trading-account-rest-api-get-account-configuration
"""

from typing import Any, Final

from msgspec import Struct

from onebook.transactions.mapping import text_or_empty

READ, TRADE, WITHDRAW = "read_only", "trade", "withdraw"
MODES: Final = {"1": "SPOT", "2": "FUTURES", "3": "MULTI_CURRENCY", "4": "PORTFOLIO"}


class OkxKeyInfo(Struct, frozen=True):
    """Properties of a key.

    Args:
        permissions: Its permissions.
        bound: Whether it is bound to addresses.
        mode: The mode of the account.
        main: Whether it belongs to a main account.
        user: The id of the account.
    """

    permissions: frozenset[str]
    bound: bool
    mode: str
    main: bool
    user: str

    def warnings(self) -> tuple[str, ...]:
        """Warnings for its owner."""
        found = []
        harmful = [each for each in (TRADE, WITHDRAW) if each in self.permissions]
        if harmful:
            words = " and ".join("place orders" if each == TRADE else each for each in harmful)
            found.append(f"The key can {words}. Create one with only the permission Read.")
            if not self.bound:
                found.append(
                    "The key is not bound to an address: OKX deletes it after 14 days without use."
                )
        if READ not in self.permissions:
            found.append("The key cannot read.")
        if not self.main:
            found.append("The key belongs to a sub-account: only this account is read.")
        return tuple(found)


def key_info(data: list[Any]) -> OkxKeyInfo:
    """Read the configuration of an account.

    Raises:
        LookupError, TypeError, AttributeError: It does not have the documented form.
    """
    row = data[0]
    permissions = frozenset(each.strip() for each in row["perm"].split(","))
    main, user = text_or_empty(row, "mainUid"), text_or_empty(row, "uid")
    return OkxKeyInfo(
        permissions,
        bool(text_or_empty(row, "ip")),
        MODES.get(text_or_empty(row, "acctLv"), "UNKNOWN"),
        not main or main == user,
        user,
    )
