"""Mapping of deposits, withdrawals, transfers, leverage tokens and balances.


- https://bybit-exchange.github.io/docs/v5/asset/deposit/deposit-record
- https://bybit-exchange.github.io/docs/v5/asset/deposit/internal-deposit-record
- https://bybit-exchange.github.io/docs/v5/asset/withdraw/withdraw-record
- https://bybit-exchange.github.io/docs/v5/asset/transfer/inter-transfer-list
- https://bybit-exchange.github.io/docs/v5/asset/transfer/unitransfer-list
- https://bybit-exchange.github.io/docs/v5/account/wallet-balance

A withdrawal's `amount` is the amount that arrives: `withdrawFee` and `tax` are charged on top. A
record of a cancelled, refused or reversed event has no amounts and no fee, because nothing moved.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from onebook.core import canonical, canonicals, iso, texts
from onebook.transactions.bybit.rows import (
    BLANK,
    EXCHANGE,
    Context,
    make_id,
    ms,
    seconds,
)
from onebook.transactions.decimals import unsigned
from onebook.transactions.mapping import (
    PATTERNS_MAX,
    Row,
    as_money,
    digits,
    first_fee,
    nonzero,
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
    OnChain,
    Record,
    RecordView,
    Sender,
    Status,
    Transfer,
    money,
)

DEPOSIT_STATUSES: Final = {
    "0": Status.UNKNOWN,
    "1": Status.PENDING,  # awaiting confirmation
    "2": Status.PENDING,  # processing
    "3": Status.COMPLETED,
    "4": Status.FAILED,
    "7": Status.PENDING,  # rollback in progress
    "10011": Status.PENDING,  # on its way to the funding pool
    "10012": Status.COMPLETED,
    "70011": Status.REVERSED,  # the credit was reverted
    "70012": Status.COMPLETED,  # confirmed after review
    "70013": Status.PENDING,  # rollback failed; the exchange's staff resolve it
}
INTERNAL_DEPOSIT_STATUSES: Final = {
    "1": Status.PENDING,
    "2": Status.COMPLETED,
    "3": Status.FAILED,
}
WITHDRAWAL_STATUSES: Final = {
    "SecurityCheck": Status.PENDING,
    "Pending": Status.PENDING,
    "BlockchainConfirmed": Status.PENDING,
    "MoreInformationRequired": Status.PENDING,
    "success": Status.COMPLETED,
    "CancelByUser": Status.CANCELLED,
    "Reject": Status.FAILED,
    "Fail": Status.FAILED,
    "Unknown": Status.UNKNOWN,
}
TRANSFER_STATUSES: Final = {
    "SUCCESS": Status.COMPLETED,
    "PENDING": Status.PENDING,
    "FAILED": Status.FAILED,
}
BLOCKED: Final = "50"  # a `depositType`: arrived on chain, not credited
TOKEN_STATUSES: Final = {"1": Status.COMPLETED, "2": Status.PENDING, "3": Status.FAILED}
PURCHASE: Final = "1"
OFF_CHAIN: Final = "1"  # withdrawType
# Constants, because Python 3.11 resolves an enum member by a call.
SENT: Final = (Direction.OUT, Direction.BOTH)
RECEIVED: Final = (Direction.IN, Direction.BOTH)

# Our names of Bybit's chains; others keep Bybit's own name only.
NETWORKS: Final = {
    "APTOS": "aptos", "ARBI": "arbitrum", "BASE": "base", "BSC": "bsc", "BTC": "bitcoin",
    "CAVAX": "avalanche-c", "DOGE": "dogecoin", "DOT": "polkadot", "ETH": "ethereum",
    "KSM": "kusama", "LTC": "litecoin", "MANTLE": "mantle", "MATIC": "polygon", "OP": "optimism",
    "OP.E": "optimism", "SOL": "solana", "SUI": "sui", "TON": "ton", "TRX": "tron", "XRP": "xrp",
    "ZKV2": "zksync-era",
}  # fmt: skip


def deposit(row: Row, context: Context) -> Record:
    """A deposit from a blockchain.

    Until it is credited it has no time of its own: it gets the end of its window, and `incomplete`
    says so.
    """
    coin, credited_ms = require(row["coin"], "coin"), ms(row, "successAt")
    at_ms = credited_ms or context.fallback_time_ms
    found, charged = canonicals(row.get("amount"), row.get("depositFee"))
    amount = require_unsigned(found)
    native, native_type, status, chain, tx_hash, tx_index, block_hash, sender, to, tag = texts(
        row, "id", "depositType", "status", "chain", "txID", "txIndex", "blockHash", "fromAddress",
        "toAddress", "tag",
    )  # fmt: skip
    key = native or f"{require(tx_hash, 'txID')}:{tx_index or ''}:{coin}:{to or ''}"
    pattern = _chain_pattern("deposit", context.environment, coin, native_type, status, charged)
    return replace(
        pattern,
        transactionId=make_id(context, "deposit", key),
        timestamp=at_ms,
        receivedCurrency=money(coin, amount) if pattern.status.moves else UNSET,
        sender=Sender(walletId=sender) if sender else None,
        description=Description("Bybit Deposit", f"Deposit {amount} {coin}"),
        datetime=iso(at_ms),
        updated_at=credited_ms,
        amount=amount,
        chain=OnChain(
            network=NETWORKS.get(chain or ""),
            network_native=chain,
            tx_hash=tx_hash,
            tx_index=tx_index,
            block_hash=block_hash,
            confirmations=int(row.get("confirmations") or 0),
            from_address=sender,
            to_address=to,
            tag=tag,
        ),
        ids=Ids(native=native, tx_hash=tx_hash),
        incomplete=() if credited_ms else ("timestamp",),
    )


class _Way(NamedTuple):
    """Common fields of deposits or withdrawals on a chain."""

    label: str
    kind: str
    direction: Direction
    statuses: Mapping[str, Status]
    fee: str  # the name of its field


_WAYS: Final = {
    way.kind: way
    for way in (
        _Way("Deposit", "deposit", Direction.IN, DEPOSIT_STATUSES, "depositFee"),
        _Way("Withdrawal", "withdrawal", Direction.OUT, WITHDRAWAL_STATUSES, "withdrawFee"),
    )
}


@lru_cache(maxsize=PATTERNS_MAX)
def _chain_pattern(
    kind: str,
    environment: str,
    coin: str,
    native_type: str | None,
    native_status: str | None,
    charged: str | None,
) -> Record:
    """The pattern of a coin on a chain; its fee is the same for all events."""
    way = _WAYS[kind]
    status = way.statuses.get(native_status or "", Status.UNKNOWN)
    if kind == "deposit" and native_type == BLOCKED and status is Status.COMPLETED:
        status = Status.PENDING
    fees: tuple[Fee, ...] = ()
    if charged is not None and charged != "0" and status.moves:
        fees = (Fee(coin, charged, None, "network", way.fee),)
    return replace(
        BLANK,
        label=way.label,
        fee=first_fee(fees),
        environment=environment,
        type=f"{kind}s",
        unified_type=f"{kind}s",
        kind=kind,
        native_type=native_type,
        status=status,
        native_status=native_status,
        direction=way.direction if status.moves else Direction.NONE,
        asset=coin,
        fees=fees,
    )


def internal_deposit(row: Row, context: Context) -> Record:
    """A deposit from another Bybit user: never on chain; the sender's address is masked."""
    at_ms = seconds(row, "createdTime") or context.fallback_time_ms
    coin, amount = require(row["coin"], "coin"), require_unsigned(digits(row, "amount"))
    native = require(text(row, "id"), "id")
    uid, address = text(row, "fromMemberId"), text(row, "address")
    status = INTERNAL_DEPOSIT_STATUSES.get(text_or_empty(row, "status"), Status.UNKNOWN)
    return Record(
        transactionId=make_id(context, "deposit", f"i:{native}"),
        timestamp=at_ms,
        label="Deposit",
        receivedCurrency=money(coin, amount) if status.moves else UNSET,
        sender=Sender(name=uid, walletId=address) if uid or address else None,
        description=Description("Bybit Deposit", f"Deposit {amount} {coin} from a Bybit user"),
        datetime=iso(at_ms),
        exchange=EXCHANGE,
        environment=context.environment,
        type="deposits",
        unified_type="deposits",
        kind="deposit",
        native_type=text(row, "type"),
        status=status,
        native_status=text(row, "status"),
        direction=Direction.IN if status.moves else Direction.NONE,
        asset=coin,
        amount=amount,
        transfer=Transfer(None, None, from_uid=uid),
        ids=Ids(native=native, transfer_id=text(row, "txID")),
        incomplete=() if row.get("createdTime") else ("timestamp",),
    )


def withdrawal(row: Row, context: Context) -> Record:
    """A withdrawal, on chain or to another Bybit user."""
    at_ms, coin, get = int(row["createTime"]), require(row["coin"], "coin"), row.get
    found, charged, tax = canonicals(get("amount"), get("withdrawFee"), get("tax"))
    named, native_type, status, chain, tx_hash, to, tag = texts(
        row, "withdrawId", "withdrawType", "status", "chain", "txID", "toAddress", "tag"
    )
    amount, native = require_unsigned(found), require(named, "withdrawId")
    off_chain = native_type == OFF_CHAIN
    pattern = _chain_pattern("withdrawal", context.environment, coin, native_type, status, charged)
    moves = pattern.status.moves
    if tax is not None and tax != "0" and moves:
        fees = (*pattern.fees, Fee(coin, tax, digits(row, "taxRate"), "tax", "tax"))
        pattern = replace(pattern, fee=first_fee(fees), fees=fees)
    return replace(
        pattern,
        transactionId=make_id(context, "withdrawal", native),
        timestamp=at_ms,
        sentCurrency=money(coin, amount) if moves else UNSET,
        description=Description(
            "Bybit Withdrawal",
            f"Withdraw {amount} {coin} to a Bybit user"
            if off_chain
            else f"Withdraw {amount} {coin}",
        ),
        datetime=iso(at_ms),
        updated_at=ms(row, "updateTime"),
        amount=amount,
        chain=None
        if off_chain
        else OnChain(
            network=NETWORKS.get(chain or ""),
            network_native=chain,
            tx_hash=tx_hash,
            to_address=to,
            tag=tag,
        ),
        transfer=Transfer(None, None, to_uid=to) if off_chain else None,
        ids=Ids(native=native, tx_hash=tx_hash),
    )


def transfer(row: Row, context: Context) -> Record:
    """A transfer between wallets of one user, or between a main account and its sub-accounts.

    Between users only our side moved; the key's user id tells which side is ours.
    """
    at_ms, coin = int(row["timestamp"]), require(row["coin"], "coin")
    amount = require_unsigned(canonical(row.get("amount")))
    moving = money(coin, amount)
    named, status, source, target, from_uid, to_uid = texts(
        row, "transferId", "status", "fromAccountType", "toAccountType", "fromMemberId",
        "toMemberId",
    )  # fmt: skip
    native = require(named, "transferId")
    pattern = _transfer_pattern(
        context.environment, coin, status, context.uid, source, target, from_uid, to_uid
    )
    direction = pattern.direction
    return replace(
        pattern,
        transactionId=make_id(context, "transfer", native),
        timestamp=at_ms,
        sentCurrency=moving if direction in SENT else UNSET,
        receivedCurrency=moving if direction in RECEIVED else UNSET,
        description=Description("Bybit Transfer", f"{amount} {coin} from {source} to {target}"),
        datetime=iso(at_ms),
        amount=amount,
        ids=Ids(native=native, transfer_id=native),
    )


@lru_cache(maxsize=PATTERNS_MAX)
def _transfer_pattern(
    environment: str, coin: str, native_status: str | None, uid: str | None, *parties: str | None
) -> Record:
    transfer = Transfer(*parties)
    status = TRANSFER_STATUSES.get(native_status or "", Status.UNKNOWN)
    between_users = transfer.from_uid is not None or transfer.to_uid is not None
    return replace(
        BLANK,
        label="Transfer",
        environment=environment,
        type="transfers",
        unified_type="transfers",
        kind="transfer",
        native_type="universal" if between_users else "internal",
        status=status,
        native_status=native_status,
        direction=_side_of(transfer, uid) if status.moves else Direction.NONE,
        asset=coin,
        account=None if uid is None else Holder(None, uid),  # as `pages.owned` would set it
        transfer=transfer,
        incomplete=("direction",) if between_users and uid is None else (),
    )


def _side_of(transfer: Transfer, uid: str | None) -> Direction:
    """The direction of a transfer; `NONE` between two other users."""
    if transfer.from_uid is None and transfer.to_uid is None:
        return Direction.BOTH
    if uid is None:
        return Direction.NONE
    ways = {
        (True, True): Direction.BOTH,
        (True, False): Direction.OUT,
        (False, True): Direction.IN,
        (False, False): Direction.NONE,
    }
    return ways[transfer.from_uid == uid, transfer.to_uid == uid]


def leverage_token(row: Row, context: Context) -> Record:
    """A purchase or redemption of a leverage token, from the endpoint that was closed on
    2025-07-04.

    Use the ledger lines for sums: they remain available longer.
    """
    at_ms, bought = int(row["orderTime"]), text_or_empty(row, "ltOrderType") == PURCHASE
    token, coin = require(row["ltCoin"], "ltCoin"), row["valueCoin"]
    order_id = require(text(row, "orderId"), "orderId")
    amount = require_unsigned(digits(row, "amount"))
    status = TOKEN_STATUSES.get(text_or_empty(row, "ltOrderStatus"), Status.UNKNOWN)
    tokens = money(token, amount) if status.moves else UNSET
    value = as_money(coin, digits(row, "value") if status.moves else None) or UNSET
    charged = nonzero(row, "fee") if status.moves else None
    fees = (Fee(coin, charged, None, "trading", "fee"),) if charged else ()
    way = Direction.IN if bought else Direction.OUT
    word = "Buy" if bought else "Sell"
    native_key = f"{text_or_empty(row, 'ltOrderType')}:{order_id}"
    return Record(
        transactionId=make_id(context, "leverage_token", native_key),
        timestamp=at_ms,
        label=word,
        sentCurrency=value if bought else tokens,
        receivedCurrency=tokens if bought else value,
        fee=first_fee(fees),
        description=Description("Bybit Leverage Token", f"{word} {amount} {token} for {coin}"),
        datetime=iso(at_ms),
        updated_at=ms(row, "updateTime"),
        exchange=EXCHANGE,
        environment=context.environment,
        type="leverage_token_trades",
        kind="leverage_token",
        native_type=text_or_empty(row, "ltOrderType"),
        status=status,
        native_status=text(row, "ltOrderStatus"),
        view=RecordView.SUMMARY,
        direction=way if status.moves else Direction.NONE,
        side=word.lower(),
        asset=token,
        amount=amount,
        quantity=amount,
        quantity_unit="base",
        value=digits(row, "value"),
        fees=fees,
        ids=Ids(native=order_id, order_id=order_id),
    )


def unified_balance(row: Row, context: Context) -> Record:
    """One coin of the unified wallet: its current balance."""
    return _balance(
        row,
        context,
        wallet="UNIFIED",
        balance=Balance(
            total=digits(row, "walletBalance"),
            available=digits(row, "availableToWithdraw"),
            locked=digits(row, "locked"),
            borrowed=digits(row, "borrowAmount"),
            interest=digits(row, "accruedInterest"),
            unrealised_pnl=digits(row, "unrealisedPnl"),
            usd_value=digits(row, "usdValue"),
        ),
    )


def funding_balance(row: Row, context: Context) -> Record:
    """One coin of the funding wallet: its current balance."""
    return _balance(
        row,
        context,
        wallet="FUND",
        balance=Balance(
            total=digits(row, "walletBalance"), available=digits(row, "transferBalance")
        ),
    )


def _balance(row: Row, context: Context, *, wallet: str, balance: Balance) -> Record:
    coin, at_ms = require(row["coin"], "coin"), context.fallback_time_ms
    return Record(
        transactionId=make_id(context, "balance", f"{wallet}:{coin}"),
        timestamp=at_ms,
        label="Balance",
        description=Description("Bybit Balance", f"{balance.total} {coin} in {wallet}"),
        datetime=iso(at_ms),
        exchange=EXCHANGE,
        environment=context.environment,
        type="holdings",
        unified_type="balances",
        kind="balance",
        view=RecordView.SNAPSHOT,
        account=Holder(wallet, None),
        asset=coin,
        amount=None if balance.total is None else unsigned(balance.total),
        balance=balance,
        ids=Ids(native=f"{wallet}:{coin}"),
        incomplete=("amount",) if balance.total is None else (),
    )
