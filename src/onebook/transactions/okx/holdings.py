"""Mapping of the current holdings in the trading and the funding account and in Earn; pure.

- https://www.okx.com/docs-v5/en/#trading-account-rest-api-get-balance: `cashBal` is the balance
  after the last bill; `eq` includes unrealised gains
- https://www.okx.com/docs-v5/en/#funding-account-rest-api-get-balance
- https://www.okx.com/docs-v5/en/#financial-product-simple-earn-flexible-get-saving-balance
- https://www.okx.com/docs-v5/en/#financial-product-on-chain-earn-get-active-orders
"""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from msgspec.structs import replace

from onebook.core import canonicals, iso, show
from onebook.transactions.decimals import ZERO, add
from onebook.transactions.mapping import Row, holder_of, require
from onebook.transactions.okx.rows import (
    BLANK,
    EARN_WALLET,
    FUNDING,
    TRADING,
    BillContext,
    coin,
    make_id,
)
from onebook.transactions.okx.words import HOLDINGS, TITLES
from onebook.transactions.record import Balance, Description, Ids, Record, RecordView


def trading_holdings(accounts: list[Any], context: BillContext, at_ms: int) -> list[Record]:
    """Every currency of the trading account.

    Raises:
        LookupError, TypeError, AttributeError, ValueError: The answer has another form.
    """
    return [_trading(row, context, at_ms) for account in accounts for row in account["details"]]


def _trading(row: Row, context: BillContext, at_ms: int) -> Record:
    total, free, locked, debt, accrued, upl, usd = canonicals(
        row["cashBal"], row.get("availBal"), row.get("frozenBal"), row.get("liab"),
        row.get("interest"), row.get("upl"), row.get("eqUsd"),
    )  # fmt: skip
    balance = Balance(
        total=require(total, "cashBal"),
        available=free,
        locked=locked,
        borrowed=debt,
        interest=accrued,
        unrealised_pnl=upl,
        usd_value=usd,
    )
    return _holding(coin(row["ccy"]), TRADING, balance, context, at_ms)


def funding_holdings(rows: list[Any], context: BillContext, at_ms: int) -> list[Record]:
    """Every currency of the funding account.

    Raises:
        LookupError, TypeError, AttributeError, ValueError: The answer has another form.
    """
    found = []
    for row in rows:
        total, free, locked = canonicals(row["bal"], row.get("availBal"), row.get("frozenBal"))
        balance = Balance(total=require(total, "bal"), available=free, locked=locked)
        found.append(_holding(coin(row["ccy"]), FUNDING, balance, context, at_ms))
    return found


def earn_holdings(
    savings: Iterable[Row], orders: Iterable[Row], context: BillContext, at_ms: int
) -> list[Record]:
    """Holdings in Simple Earn and in orders of On-chain Earn, one record per currency.

    Raises:
        LookupError, TypeError, AttributeError, ValueError: An answer has another form.
    """
    totals: dict[str, Decimal] = {}
    for currency, amount in (*_saved(savings), *_invested(orders)):
        totals[currency] = add(totals.get(currency, ZERO), Decimal(amount))
    return [
        _holding(currency, EARN_WALLET, Balance(total=show(total)), context, at_ms)
        for currency, total in totals.items()
    ]


def _saved(rows: Iterable[Row]) -> Iterator[tuple[str, str]]:
    for row in rows:
        yield coin(row["ccy"]), require(canonicals(row["amt"])[0], "amt")


def _invested(orders: Iterable[Row]) -> Iterator[tuple[str, str]]:
    for order in orders:
        for row in order["investData"]:
            yield coin(row["ccy"]), require(canonicals(row["amt"])[0], "amt")


def _holding(
    currency: str, wallet: str, balance: Balance, context: BillContext, at_ms: int
) -> Record:
    total = balance.total or "0"
    record = replace(
        BLANK,
        transactionId=make_id(context, "balance", f"{wallet}:{currency}"),
        timestamp=at_ms,
        label="Balance",
        description=Description(TITLES[HOLDINGS], f"{total} {currency} in {wallet}"),
        datetime=iso(at_ms),
        environment=context.environment,
        type=HOLDINGS,
        unified_type="balances",
        kind="balance",
        view=RecordView.SNAPSHOT,
    )
    return replace(
        record,
        account=holder_of(wallet),
        asset=currency,
        amount=total.removeprefix("-"),
        balance=balance,
        ids=Ids(native=f"{wallet}:{currency}"),
    )
