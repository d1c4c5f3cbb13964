"""Rows of the wallets' own books: the unified wallet's and the funding wallet's.

- https://bybit-exchange.github.io/docs/v5/account/transaction-log
- https://bybit-exchange.github.io/docs/v5/account/contract-transaction-log (UTA 1.0, inverse)
- https://bybit-exchange.github.io/docs/v5/asset/fund-history

In the unified book `change = cashFlow + funding - fee`, and per coin every balance follows from
the one before: that is how a hole in what was fetched can be proven. In the contract book of
UTA 1.0 funding has the opposite sign, and so does its mapping.
"""

from typing import Final

from msgspec import UNSET

from onebook.transactions.bybit.rows import (
    EXCHANGE,
    Context,
    Row,
    as_money,
    digits,
    direction_of,
    first_fee,
    make_id,
    nonzero,
    opposite,
    plain,
    seconds,
    text,
)
from onebook.transactions.bybit.trades import EXECUTION, SIDES, UNIFIED_WALLET, unit_of
from onebook.transactions.decimals import number, show, subtract, unsigned
from onebook.transactions.record import (
    Balance,
    Description,
    Fee,
    Holder,
    Ids,
    Position,
    Record,
    View,
    iso,
)

# kind and label of a ledger type; the first prefix that fits decides for those not listed.
LEDGER_KINDS: Final = {
    "TRANSFER_IN": ("transfer", "Transfer"),
    "TRANSFER_OUT": ("transfer", "Transfer"),
    "TRADE": ("trade", "Trade"),
    "SETTLEMENT": ("funding", "Funding"),
    "DELIVERY": ("delivery", "Delivery"),
    "LIQUIDATION": ("liquidation", "Liquidation"),
    "ADL": ("adl", "Liquidation"),
    "AIRDROP": ("bonus", "Airdrop"),
    "BONUS": ("bonus", "Bonus"),
    "BONUS_RECOLLECT": ("bonus", "Bonus"),
    "FEE_REFUND": ("fee_refund", "Fee Refund"),
    "INTEREST": ("interest", "Interest"),
    "CURRENCY_BUY": ("convert", "Convert"),
    "CURRENCY_SELL": ("convert", "Convert"),
    "CONVERT": ("convert", "Convert"),
    "BORROW": ("borrow", "Borrow"),
    "REPAY": ("repay", "Repay"),
    "TOKENS_SUBSCRIPTION": ("leverage_token", "Buy"),
    "TOKENS_REDEMPTION": ("leverage_token", "Sell"),
}
LEDGER_PREFIXES: Final = (
    ("SPOT_REPAYMENT", ("repay", "Repay")),
    ("MANUAL_BORROW", ("borrow", "Borrow")),
    ("MANUAL_REPAY", ("repay", "Repay")),
    ("BORROWED_AMOUNT", ("borrow", "Borrow")),
    ("FLEXIBLE_STAKING", ("earn", "Other")),
    ("FIXED_STAKING", ("earn", "Other")),
    ("ONCHAINEARN", ("earn", "Other")),
    ("LIQUIDITY_MINING", ("earn", "Other")),
    ("STRUCTURE_PRODUCT", ("earn", "Other")),
    ("DEFI_INVESTMENT", ("earn", "Other")),
    ("PWM", ("earn", "Other")),
    ("LOANS", ("loan", "Other")),
    ("INSTITUTION", ("loan", "Other")),
)
UNKNOWN_KIND: Final = ("other", "Other")

# The funding wallet's English words, by what they begin with.
FUNDING_KINDS: Final = (
    ("deposit", ("deposit", "Deposit")),
    ("withdraw", ("withdrawal", "Withdrawal")),
    ("transfer", ("transfer", "Transfer")),
    ("convert", ("convert", "Convert")),
    ("airdrop", ("bonus", "Airdrop")),
    ("bonus", ("bonus", "Bonus")),
    ("reward", ("bonus", "Bonus")),
    ("earn", ("earn", "Other")),
    ("loan", ("loan", "Other")),
    ("crypto loan", ("loan", "Other")),
)
REWARD_WORDS: Final = ("interest", "reward", "yield", "distribution")
FUND_WALLET: Final = "FUND"


def ledger(row: Row, context: Context) -> Record:
    """A line of the unified wallet's book."""
    return _line(row, context, funding=nonzero(row, "funding"), source="ledger")


def contract_ledger(row: Row, context: Context) -> Record:
    """A line of the inverse book of UTA 1.0, whose `funding` is what was paid."""
    return _line(row, context, funding=opposite(nonzero(row, "funding")), source="contract_ledger")


def token_line(row: Row, context: Context) -> Record:
    """A purchase or redemption of a leverage token, seen through the ledger."""
    native_key = ledger_key(row)
    line = ledger(row, context)
    side = "buy" if row["type"] == "TOKENS_SUBSCRIPTION" else "sell"
    return Record(
        transactionId=make_id(context, "leverage_token", native_key),
        timestamp=line.timestamp,
        label=line.label,
        sentCurrency=line.sentCurrency,
        receivedCurrency=line.receivedCurrency,
        fee=line.fee,
        description=Description("Bybit Leverage Token", line.description.desc),
        datetime=line.datetime,
        exchange=EXCHANGE,
        environment=context.environment,
        type="leverage_token_trades",
        kind="leverage_token",
        native_type=row["type"],
        account=UNIFIED_WALLET,
        direction=line.direction,
        side=side,
        asset=line.asset,
        amount=line.amount,
        fees=line.fees,
        ids=line.ids,
        related=(line.transactionId,),
    )


def ledger_key(row: Row) -> str:
    """The native key of a line. Bybit's own example has two lines with one `id`; the balance
    after it tells apart what all else does not, and is the same whenever the line is read.
    """
    names = ("id", "type", "currency", "tradeId", "transactionTime")
    return ":".join([plain(row, name) for name in names]) + f":{digits(row, 'cashBalance')}"


def _line(row: Row, context: Context, *, funding: str | None, source: str) -> Record:
    native, coin, at_ms = row["type"], row["currency"], int(row["transactionTime"])
    kind, label = ledger_kind(native)
    change = digits(row, "change") or "0"
    spot, traded = row.get("category") == "spot", bool(row.get("category"))
    side = SIDES.get(plain(row, "side"))
    if kind == "funding" and funding is None and nonzero(row, "cashFlow"):
        kind, label = "settlement", "Settlement"  # a USDC session without funding
    if kind == "trade" and spot and side:
        label = side.capitalize()
    charged = nonzero(row, "fee")
    rate = digits(row, "feeRate")
    fees = (Fee(coin, charged, rate, "trading", "fee"),) if charged else ()
    return _booked(
        context,
        record_id=make_id(context, source, ledger_key(row)),
        at_ms=at_ms,
        label=label,
        kind=kind,
        native=native,
        coin=coin,
        change=change,
        after=digits(row, "cashBalance"),
        holder=UNIFIED_WALLET,
        desc=f"{native.replace('_', ' ').capitalize()} {change} {coin}",
        ids=Ids(
            native=text(row, "id"),
            order_id=text(row, "orderId"),
            client_order_id=text(row, "orderLinkId"),
            trade_id=text(row, "tradeId"),
        ),
        row=row if traded else None,
        side=side,
        fees=fees,
        position=None
        if spot or not traded
        else Position(
            size_after=digits(row, "size"),
            realised_pnl=nonzero(row, "cashFlow"),
            funding=funding,
            funding_rate=rate if native == "SETTLEMENT" else None,
        ),
        related=_fill_of(row, context),
    )


def _fill_of(row: Row, context: Context) -> tuple[str, ...]:
    """The execution that a line books: its id follows from what the line says."""
    category, trade_id = plain(row, "category"), plain(row, "tradeId")
    if not category or not trade_id:
        return ()
    key = f"{category}:{trade_id}:{plain(row, 'orderId')}:{plain(row, 'side')}"
    return (make_id(context, EXECUTION, key),)


def ledger_kind(native: str) -> tuple[str, str]:
    """Our kind and label of a ledger type; new types pass as `other`."""
    found = LEDGER_KINDS.get(native)
    if found is not None:
        return found
    if native.endswith("_INS_LOAN"):
        return "loan", "Other"
    return next((k for prefix, k in LEDGER_PREFIXES if native.startswith(prefix)), UNKNOWN_KIND)


def funding_line(row: Row, context: Context) -> Record:
    """A line of the funding wallet's book: it has no id, so all that it says is its key."""
    at_ms = seconds(row, "createTime") or context.asked_at_ms
    coin, amount = row["currency"], digits(row, "txnAmt") or "0"
    change = amount if row["ioDirection"] == "I" else opposite(amount) or "0"
    words, desc = plain(row, "showBusiTypeEn"), plain(row, "descriptionEn")
    kind, label = funding_kind(words, desc, incoming=change[0] != "-")
    uid = text(row, "memberId")
    native_key = ":".join(
        (plain(row, "memberId"), coin, row["ioDirection"], amount,
         digits(row, "afterAmt") or "", str(at_ms), words, desc)
    )  # fmt: skip
    return _booked(
        context,
        record_id=make_id(context, "funding_wallet", native_key),
        at_ms=at_ms,
        label=label,
        kind=kind,
        native=text(row, "showBusiTypeEn") or plain(row, "showBusiType"),
        coin=coin,
        change=change,
        after=digits(row, "afterAmt"),
        holder=Holder(FUND_WALLET, uid),
        desc=desc or words,
        ids=Ids(),
    )


def funding_kind(words: str, desc: str, *, incoming: bool) -> tuple[str, str]:
    """Our kind and label of a funding wallet line, from Bybit's English."""
    lower = words.lower()
    kind, label = next((k for start, k in FUNDING_KINDS if lower.startswith(start)), UNKNOWN_KIND)
    if kind == "earn" and incoming and any(word in desc.lower() for word in REWARD_WORDS):
        label = "Staking Reward"
    return kind, label


def _booked(
    context: Context,
    *,
    record_id: str,
    at_ms: int,
    label: str,
    kind: str,
    native: str,
    coin: str,
    change: str,
    after: str | None,
    holder: Holder,
    desc: str,
    ids: Ids,
    row: Row | None = None,
    side: str | None = None,
    fees: tuple[Fee, ...] = (),
    position: Position | None = None,
    related: tuple[str, ...] = (),
) -> Record:
    """A line of either book: what moved, and the balance around it."""
    moved = (as_money(coin, change) or UNSET) if change != "0" else UNSET
    outgoing = change[0] == "-"
    category = "" if row is None else plain(row, "category")
    return Record(
        transactionId=record_id,
        timestamp=at_ms,
        label=label,
        sentCurrency=moved if outgoing else UNSET,
        receivedCurrency=UNSET if outgoing else moved,
        fee=first_fee(fees),
        description=Description("Bybit Ledger Entry", desc),
        datetime=iso(at_ms),
        exchange=EXCHANGE,
        environment=context.environment,
        type="ledger",
        kind=kind,
        native_type=native or None,
        view=View.LEDGER,
        account=holder,
        direction=direction_of(change),
        side=side,
        asset=coin,
        amount=unsigned(change),
        instrument=None
        if row is None or not row.get("symbol")
        else context.markets.find(category, row["symbol"]),
        price=None if row is None else nonzero(row, "tradePrice"),
        quantity=None if row is None else _size(row, "qty"),
        quantity_unit=None if row is None else unit_of(category),
        fees=fees,
        position=position,
        balance=Balance(before=_before(after, change), after=after, change=change),
        ids=ids,
        related=related,
        incomplete=() if after is not None else ("balance",),
    )


def _before(after: str | None, change: str) -> str | None:
    left, right = number(after), number(change)
    return None if left is None or right is None else show(subtract(left, right))


def _size(row: Row, name: str) -> str | None:
    found = digits(row, name)
    return None if found is None else unsigned(found)
