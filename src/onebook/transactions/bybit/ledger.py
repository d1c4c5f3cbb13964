"""Mapping of ledger lines of the unified wallet and the funding wallet, and of their types.

- https://bybit-exchange.github.io/docs/v5/account/transaction-log
- https://bybit-exchange.github.io/docs/v5/account/contract-transaction-log (UTA 1.0, inverse)
- https://bybit-exchange.github.io/docs/v5/asset/fund-history
- types of the unified wallet: https://bybit-exchange.github.io/docs/v5/enum#typeuta-translog; for
  the funding wallet there is no enumeration, only English words: these are from recorded rows

In the unified ledger `change = cashFlow + funding - fee`, and per coin every balance follows from
the previous one, so a gap in the fetched rows can be proven. In the contract ledger of UTA 1.0
funding has the opposite sign, and so does its mapping.

A line about an event with its own record (a fill, a transfer, a deposit) is a second view of that
event; a line of an event that is only in the ledger (interest, an airdrop, a conversion, an option)
is its primary record. In both cases, `receivedCurrency` less `sentCurrency` less fees is the
change.

New types appear every month: the first matching prefix decides, and an unknown type is `other`.
"""

from decimal import Decimal
from functools import lru_cache
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from onebook.core import canonicals, iso, show, texts
from onebook.transactions.bybit.rows import (
    BLANK,
    EXCHANGE,
    Context,
    make_id,
    seconds,
)
from onebook.transactions.bybit.trades import (
    EXECUTION,
    SIDES,
    TYPES,
    UNIFIED_WALLET,
    extra_fees,
    unit_of,
)
from onebook.transactions.decimals import add, negated, subtract, unsigned
from onebook.transactions.mapping import (
    PATTERNS_MAX,
    Row,
    as_money,
    digits,
    direction_of,
    first_fee,
    nonzero,
    opposite,
    require,
    require_unsigned,
    text,
    text_or_empty,
)
from onebook.transactions.record import (
    Balance,
    Description,
    Direction,
    Fee,
    Holder,
    Ids,
    Position,
    Record,
    RecordView,
    TradedMarket,
)

Kind = tuple[str, str]  # kind and label

LEDGER_KINDS: Final[dict[str, Kind]] = {
    "TRANSFER_IN": ("transfer", "Transfer"),
    "TRANSFER_OUT": ("transfer", "Transfer"),
    "TRADE": ("trade", "Trade"),
    "SETTLEMENT": ("funding", "Funding"),
    "DELIVERY": ("delivery", "Delivery"),
    "LIQUIDATION": ("liquidation", "Liquidation"),
    "ADL": ("adl", "Auto-Deleveraging"),
    "AIRDROP": ("bonus", "Airdrop"),
    "TWAP_BUDGET_AIRDROP": ("bonus", "Airdrop"),
    "TWAP_BUDGET_RECALL": ("bonus", "Bonus"),
    "FEE_REFUND": ("fee_refund", "Fee Refund"),
    "SPREAD_FEE_OUT": ("fee", "Fee"),
    "BROKER_ABACCOUNT_FEE": ("fee", "Fee"),
    "CUSTODY_NETWORK_FEE": ("fee", "Fee"),
    "CUSTODY_SETTLE_FEE": ("fee", "Fee"),
    "INTEREST": ("interest", "Interest"),
    "BORROW": ("borrow", "Borrow"),
    "REPAY": ("repay", "Repay"),
    "FLOATING_TO_FIXED_BORROW": ("borrow", "Borrow"),
    "FLOATING_TO_FIXED_REPAY": ("repay", "Repay"),
    "TOKENS_SUBSCRIPTION": ("leverage_token", "Buy"),
    "TOKENS_REDEMPTION": ("leverage_token", "Sell"),
    "AUTO_DEDUCTION": ("adjustment", "Adjustment"),
    "ALPHA_SMALL_TOKEN_REFUND": ("adjustment", "Adjustment"),
}
LEDGER_PREFIXES: Final[tuple[tuple[str, Kind], ...]] = (
    ("BONUS", ("bonus", "Bonus")),
    ("CURRENCY_", ("convert", "Convert")),
    ("CONVERT", ("convert", "Convert")),
    ("IDN_CONVERT", ("convert", "Convert")),
    ("SPOT_REPAYMENT", ("repay", "Repay")),
    ("MANUAL_BORROW", ("borrow", "Borrow")),
    ("MANUAL_REPAY", ("repay", "Repay")),
    ("FLEXIBLE_STAKING", ("earn", "Other")),
    ("FIXED_STAKING", ("earn", "Other")),
    ("ONCHAINEARN", ("earn", "Other")),
    ("EARNING", ("earn", "Other")),
    ("LIQUIDITY_MINING", ("earn", "Other")),
    ("STRUCTURE_PRODUCT", ("earn", "Other")),
    ("DEFI_INVESTMENT", ("earn", "Other")),
    ("CLASSIC_WEALTH_MANAGEMENT", ("earn", "Other")),
    ("PREMIMUM_WEALTH_MANAGEMENT", ("earn", "Other")),  # Bybit's spelling
    ("PWM", ("earn", "Other")),
    ("PEF", ("earn", "Other")),  # a private fund: deposits, withdrawals and a profit share
    ("LOANS", ("loan", "Other")),
    ("INSTITUTION", ("loan", "Other")),
    ("PREMARKET", ("premarket", "Other")),
    ("CUSTODY", ("custody", "Other")),
    ("DBS_CASH", ("custody", "Other")),
    ("PLATFORM_TOKEN_MNT", ("adjustment", "Adjustment")),
)
INSTITUTION_LOAN: Final = "_INS_LOAN"
UNKNOWN_KIND: Final[Kind] = ("other", "Other")

# The funding wallet's English words, by prefix.
FUNDING_KINDS: Final[tuple[tuple[str, Kind], ...]] = (
    ("deposit", ("deposit", "Deposit")),
    ("withdraw", ("withdrawal", "Withdrawal")),
    ("transfer", ("transfer", "Transfer")),
    ("convert", ("convert", "Convert")),
    ("airdrop", ("bonus", "Airdrop")),
    ("bonus", ("bonus", "Bonus")),
    ("reward", ("bonus", "Bonus")),
    ("earn", ("earn", "Other")),
    ("fiat", ("fiat", "Other")),
    ("loan", ("loan", "Other")),
    ("crypto loan", ("loan", "Other")),
)
REWARD_WORDS: Final = ("interest", "reward", "yield", "distribution")

# Events with their own records: transfers, deposits, withdrawals, leverage tokens ...
COVERED_MOVES: Final = frozenset({"transfer", "deposit", "withdrawal", "leverage_token"})
# ... and, for spot and futures, fills, closed positions, deliveries and sessions.
COVERED_EVENTS: Final = frozenset(
    {"trade", "funding", "settlement", "delivery", "liquidation", "adl"}
)
FUND_WALLET: Final = "FUND"
FUND_ID: Final = "currcCursor"
CONTRACT_WALLET: Final = Holder("CONTRACT", None)
TITLE: Final = "Bybit Ledger Entry"
_WAYS: Final = {"I": Direction.IN, "O": Direction.OUT}


def ledger_kind(native: str) -> Kind:
    """Our kind and label of a ledger type."""
    found = LEDGER_KINDS.get(native)
    if found is not None:
        return found
    if native.endswith(INSTITUTION_LOAN):
        return "loan", "Other"
    return next((k for prefix, k in LEDGER_PREFIXES if native.startswith(prefix)), UNKNOWN_KIND)


def funding_kind(words: str, desc: str, *, incoming: bool) -> Kind:
    """Our kind and label of a funding wallet line, from Bybit's English."""
    lower = words.lower()
    kind, label = next((k for start, k in FUNDING_KINDS if lower.startswith(start)), UNKNOWN_KIND)
    if kind == "earn" and incoming and any(word in desc.lower() for word in REWARD_WORDS):
        label = "Staking Reward"
    return kind, label


def ledger(row: Row, context: Context) -> Record:
    """Map a line of the unified wallet's ledger."""
    return _line(row, context, funding=nonzero(row, "funding"), source="ledger")


def contract_ledger(row: Row, context: Context) -> Record:
    """Map a line of the inverse ledger of UTA 1.0, whose `funding` is positive when paid."""
    funding = opposite(nonzero(row, "funding"))
    line = _line(row, context, funding=funding, source="contract_ledger")
    # A separate wallet: its balances chain separately from the unified wallet's.
    return replace(line, account=CONTRACT_WALLET)


def token_line(row: Row, context: Context) -> Record:
    """Map a ledger line of a purchase or redemption of a leverage token."""
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
        related_type="ledger",
    )


def ledger_key(row: Row) -> str:
    """The native key of a line.

    Bybit's own example has two lines with the same `id`, so the key includes the balance after the
    line.
    """
    native, kind, coin, trade, at = texts(
        row, "id", "type", "currency", "tradeId", "transactionTime"
    )
    after = digits(row, "cashBalance")
    return f"{native or ''}:{kind or ''}:{coin or ''}:{trade or ''}:{at or ''}:{after}"


def _line(row: Row, context: Context, *, funding: str | None, source: str) -> Record:
    native, coin, get = row["type"], require(row["currency"], "currency"), row.get
    category, side, native_id, order_id, client_order_id, trade_id = texts(
        row, "category", "side", "id", "orderId", "orderLinkId", "tradeId"
    )
    found, after, charged, rate, cash_flow = canonicals(
        get("change"), get("cashBalance"), get("fee"), get("feeRate"), get("cashFlow")
    )
    change, settled = require(found, "change"), native == "SETTLEMENT"
    fees = _line_fees(coin, charged, rate)
    if extra := get("extraFees"):
        gross = _sum(cash_flow, funding)
        # Bybit does not say whether `fee` includes them, but the change shows it.
        if gross != _sum(change, charged):
            fees += tuple(fee for fee in extra_fees(extra) if fee.currency == coin)
    pattern = _line_pattern(
        context.environment, native, coin, category, side,
        context.markets.find(category, row["symbol"]) if category and get("symbol") else None,
        direction_of(change),
        settled and funding is None and cash_flow not in (None, "0"),
    )  # fmt: skip
    line = _booked(
        pattern,
        record_id=make_id(context, source, ledger_key(row)),
        at_ms=int(row["transactionTime"]),
        change=change,
        before_fees=_before_fees(change, fees) if fees else change,
        cash_flow=cash_flow,
        after=after,
        desc=f"{pattern.description.desc} {change} {coin}",
        ids=Ids(
            native=native_id,
            order_id=order_id,
            client_order_id=client_order_id,
            trade_id=trade_id,
        ),
        fees=fees,
    )
    if category is None:
        return line
    related: tuple[str, ...] = ()
    kind = TYPES.get(category)
    if (
        trade_id is not None and kind is not None
    ):  # the execution that the line books: its id follows from the line
        key = f"{category}:{trade_id}:{order_id or ''}:{side or ''}"
        related = (make_id(context, EXECUTION, key),)
    price, quantity = canonicals(get("tradePrice"), get("qty"))
    return replace(
        line,
        price=None if price == "0" else price,
        quantity=None if quantity is None else unsigned(quantity),
        position=None
        if category == "spot"
        else Position(
            size_after=digits(row, "size"),
            realised_pnl=None if cash_flow == "0" else cash_flow,
            funding=funding,
            funding_rate=rate if settled else None,
        ),
        related=related,
        related_type=kind if related else None,
    )


@lru_cache(maxsize=PATTERNS_MAX)
def _line_pattern(
    environment: str,
    native: str,
    coin: str,
    category: str | None,
    native_side: str | None,
    market: TradedMarket | None,
    direction: Direction,
    session: bool,
) -> Record:
    kind, label = ledger_kind(native)
    side = SIDES.get(native_side or "")
    if session:  # of USDC contracts: a settlement without funding
        kind, label = "settlement", "Settlement"
    if kind == "trade" and category == "spot" and side:
        label = side.capitalize()
    return replace(
        _book_pattern(environment, native, coin, kind, label, direction),
        description=Description(TITLE, native.replace("_", " ").capitalize()),
        account=UNIFIED_WALLET,
        side=side,
        instrument=market,
        view=RecordView.LEDGER if _covered(kind, category) else RecordView.PRIMARY,
        quantity_unit=unit_of(category) if category else None,
    )


def _covered(kind: str, category: str | None) -> bool:
    """Whether the event of a line has its own record; events of options have none."""
    return kind in COVERED_MOVES or (kind in COVERED_EVENTS and category in TYPES)


def _line_fees(coin: str, charged: str | None, rate: str | None) -> tuple[Fee, ...]:
    if charged is None or charged == "0":
        return ()
    return (Fee(coin, charged, rate, "trading", "fee"),)


def _before_fees(change: str, fees: tuple[Fee, ...]) -> str:
    total = Decimal(change)
    for fee in fees:
        total = add(total, Decimal(fee.amount))
    return show(total)


def _sum(*texts: str | None) -> Decimal:
    """The sum of canonical numbers; None counts as zero."""
    return add(*[Decimal(text) for text in texts if text is not None])


@lru_cache(maxsize=PATTERNS_MAX)
def _book_pattern(
    environment: str, native: str, coin: str, kind: str, label: str, direction: Direction
) -> Record:
    """The pattern of lines of either ledger."""
    return replace(
        BLANK,
        label=label,
        description=Description(TITLE, ""),
        environment=environment,
        type="ledger",
        kind=kind,
        native_type=native or None,
        view=RecordView.LEDGER if kind in COVERED_MOVES else RecordView.PRIMARY,
        direction=direction,
        asset=coin,
    )


def funding_line(row: Row, context: Context) -> Record:
    """Map a line of the funding wallet's ledger; `currcCursor` is its id."""
    at_ms = seconds(row, "createTime")
    if at_ms is None:  # equal rows could not be counted
        raise ValueError("The row has no createTime.")
    coin, amount = require(row["currency"], "currency"), require_unsigned(digits(row, "txnAmt"))
    change = amount if _WAYS[row["ioDirection"]] is Direction.IN else negated(amount)
    words, desc = text_or_empty(row, "showBusiTypeEn"), text_or_empty(row, "descriptionEn")
    kind, label = funding_kind(words, desc, incoming=change[0] != "-")
    uid, native = text(row, "memberId"), text(row, FUND_ID)
    # A row without an id is identified by what it moved, because its English wording changes.
    native_key = native or ":".join(
        (text_or_empty(row, "memberId"), coin, row["ioDirection"], amount,
         digits(row, "afterAmt") or "", str(at_ms))
    )  # fmt: skip
    line = _booked(
        _book_pattern(
            context.environment,
            text(row, "showBusiTypeEn") or text_or_empty(row, "showBusiType"),
            coin, kind, label, direction_of(change),
        ),
        record_id=make_id(context, "funding_wallet", native_key),
        at_ms=at_ms,
        change=change,
        before_fees=change,
        cash_flow=None,
        after=digits(row, "afterAmt"),
        desc=desc or words,
        ids=Ids(native=native),
    )  # fmt: skip
    return replace(line, account=Holder(FUND_WALLET, uid))


def _booked(
    pattern: Record,
    *,
    record_id: str,
    at_ms: int,
    change: str,
    before_fees: str,
    cash_flow: str | None,
    after: str | None,
    desc: str,
    ids: Ids,
    fees: tuple[Fee, ...] = (),
) -> Record:
    """A line of either ledger: the change before fees, and the balances before and after."""
    money = (as_money(pattern.asset, before_fees) or UNSET) if before_fees != "0" else UNSET
    outgoing = before_fees[0] == "-"
    return replace(
        pattern,
        transactionId=record_id,
        timestamp=at_ms,
        sentCurrency=money if outgoing else UNSET,
        receivedCurrency=UNSET if outgoing else money,
        fee=first_fee(fees),
        description=Description(TITLE, desc),
        datetime=iso(at_ms),
        amount=unsigned(change),
        balance=Balance(
            before=_before(after, change), after=after, change=change, cash_flow=cash_flow
        ),
        fees=fees,
        ids=ids,
        incomplete=() if after is not None else ("balance",),
    )


def _before(after: str | None, change: str) -> str | None:
    return None if after is None else show(subtract(Decimal(after), Decimal(change)))
