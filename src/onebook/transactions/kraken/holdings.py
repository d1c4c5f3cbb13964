"""Mapping of the current balances of the spot and the futures account; pure.

- https://docs.kraken.com/api-reference/account-data/get-extended-balance
- https://docs.kraken.com/api-reference/account-information/get-wallets
"""

from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from onebook.core import canonicals, iso, show
from onebook.transactions.decimals import add, subtract, unsigned
from onebook.transactions.decimals import amount as number
from onebook.transactions.kraken.assets import asset_of, futures_asset
from onebook.transactions.kraken.futures import MARKET
from onebook.transactions.kraken.rows import BLANK, RowContext, make_id
from onebook.transactions.kraken.words import TITLES
from onebook.transactions.mapping import PATTERNS_MAX, Row, holder_of, require
from onebook.transactions.record import Balance, Description, Ids, Record, RecordView


def spot_holding(native: str, held: Any, context: RowContext, at_ms: int) -> Record:
    """Map the balance of an asset id of the spot account: an amount, or an object with holds."""
    row = held if isinstance(held, dict) else {"balance": held}
    found, locked, used = canonicals(row["balance"], row.get("hold_trade"), row.get("credit_used"))
    total = require(found, "balance")
    free = None
    if isinstance(held, dict):
        owned = add(number(total), number(row.get("credit")))
        free = show(subtract(subtract(owned, number(used)), number(locked)))
    return _holding(
        *asset_of(native),
        native,
        Balance(total=total, available=free, locked=locked, borrowed=used),
        context,
        at_ms,
    )


def futures_holdings(accounts: Row, context: RowContext, at_ms: int) -> list[Record]:
    """Map the balances of every wallet of the futures account.

    Raises:
        LookupError, TypeError, AttributeError: The answer does not have the documented form.
    """
    found: list[Record] = []
    for name, account in accounts.items():
        amounts: Row = account["currencies"] if "currencies" in account else account["balances"]
        for code, held in amounts.items():
            if MARKET.fullmatch(code.lower()):  # a position
                continue
            row = held if isinstance(held, dict) else {"quantity": held}
            total, free = canonicals(row["quantity"], row.get("available"))
            balance = Balance(total=require(total, "quantity"), available=free)
            currency, wallet = futures_asset(code, name)
            found.append(_holding(currency, wallet, f"{name}:{code}", balance, context, at_ms))
    return found


def _holding(
    currency: str, wallet: str, native: str, balance: Balance, context: RowContext, at_ms: int
) -> Record:
    total = balance.total or "0"
    return replace(
        _holding_pattern(context.environment, currency, wallet),
        transactionId=make_id(context, "balance", f"{wallet}:{currency}"),
        timestamp=at_ms,
        description=Description(TITLES["holdings"], f"{total} {currency} in {wallet}"),
        datetime=iso(at_ms),
        amount=unsigned(total),
        balance=balance,
        ids=Ids(native=native),
    )


@lru_cache(maxsize=PATTERNS_MAX)
def _holding_pattern(environment: str, currency: str, wallet: str) -> Record:
    return replace(
        BLANK,
        label="Balance",
        environment=environment,
        type="holdings",
        unified_type="balances",
        kind="balance",
        view=RecordView.SNAPSHOT,
        account=holder_of(wallet),
        asset=currency,
    )
