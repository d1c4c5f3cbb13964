"""Mapping of the lists of deposits and withdrawals; pure.

- https://www.okx.com/docs-v5/en/#funding-account-rest-api-get-deposit-history
- https://www.okx.com/docs-v5/en/#funding-account-rest-api-get-withdrawal-history
- https://www.okx.com/docs-v5/en/#funding-account-rest-api-get-deposit-order-history: of banks

Their bills in the funding account contain neither these ids nor networks, so the records come from
these lists, and bills are compared with them by coin, amount and time. `amt` of a withdrawal
excludes its fee. Deposits from other OKX users have no transaction: `txId` is empty or ends in
`_asset`.
"""

import re
from functools import lru_cache
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from onebook.core import canonical, iso, texts
from onebook.transactions.mapping import (
    PATTERNS_MAX,
    Row,
    first_fee,
    holder_of,
    require,
    require_unsigned,
    text,
)
from onebook.transactions.okx.rows import (
    EXCHANGE,
    FUNDING,
    WALLET_CODES,
    BillContext,
    coin,
    make_id,
    pattern_of,
    time_ms,
)
from onebook.transactions.okx.words import DEPOSIT, TITLES, UNIFIED, WITHDRAWAL
from onebook.transactions.record import (
    Description,
    Direction,
    Fee,
    Ids,
    OnChain,
    Record,
    Sender,
    Status,
    money,
)

INTERNAL: Final = "_asset"
DEPOSIT_STATES: Final = {
    "0": Status.PENDING,  # awaiting confirmations
    "1": Status.COMPLETED,  # credited, not yet available
    "2": Status.COMPLETED,
    "8": Status.PENDING,  # deposits of the coin are suspended
    "11": Status.PENDING,  # held: address, account, rules of a country, identity, travel rule
    "12": Status.PENDING,
    "13": Status.PENDING,
    "14": Status.PENDING,
    "17": Status.PENDING,
}
WITHDRAWAL_STATES: Final = {
    "-3": Status.PENDING,  # is being cancelled
    "-2": Status.CANCELLED,
    "-1": Status.FAILED,
    "2": Status.COMPLETED,
} | dict.fromkeys(
    ("0", "1", "3", "4", "5", "6", "7", "8", "9", "10", "12", "15", "16", "17"), Status.PENDING
)
BANK_STATES: Final = {
    "completed": Status.COMPLETED,
    "failed": Status.FAILED,
    "canceled": Status.CANCELLED,
}
# Our names of OKX's networks; others keep OKX's own name only.
NETWORKS: Final = {
    "aptos": "aptos", "arbitrum one": "arbitrum", "avalanche c-chain": "avalanche-c",
    "avalanche c": "avalanche-c", "base": "base", "bep20": "bsc", "bitcoin": "bitcoin",
    "bsc": "bsc", "dogecoin": "dogecoin", "erc20": "ethereum", "ethereum": "ethereum",
    "kusama": "kusama", "litecoin": "litecoin", "optimism": "optimism", "polkadot": "polkadot",
    "polygon": "polygon", "ripple": "xrp", "solana": "solana", "sui": "sui", "ton": "ton",
    "trc20": "tron", "tron": "tron",
}  # fmt: skip
_GLUED = re.compile(r"(?P<amount>-?[0-9.]+)(?P<coin>[A-Za-z]\w*)?")  # "0.01000000eth", until 2022


def deposit(row: Row, context: BillContext) -> Record:
    """A row of the list of deposits.

    Raises:
        ValueError, LookupError, TypeError, ArithmeticError: The row has no coin, amount or time.
    """
    amount, currency = require_unsigned(canonical(row["amt"])), coin(row["ccy"])
    native, txid, state, sender, target, origin, chain, tag, payment, memo, depth = texts(
        row, "depId", "txId", "state", "from", "to", "fromWdId", "chain", "tag", "pmtId", "memo",
        "actualDepBlkConfirm",
    )  # fmt: skip
    at_ms, transaction = time_ms(row["ts"]), _transaction(txid)
    wallet = WALLET_CODES.get(target or "", FUNDING)
    pattern = _deposit_pattern(context.environment, currency, state, wallet, transaction is None)
    on_chain = None
    if transaction is not None:
        on_chain = OnChain(
            network=_network(chain, row["ccy"]),
            network_native=chain,
            tx_hash=transaction,
            confirmations=int(depth) if depth and depth.isdigit() else None,
            to_address=target,
            tag=tag or payment or memo,
        )
    key = native or f"{txid or ''}:{at_ms}:{row['ccy']}:{amount}"
    return replace(
        pattern,
        transactionId=make_id(context, "deposit", key),
        timestamp=at_ms,
        receivedCurrency=money(currency, amount) if pattern.status.moves else UNSET,
        sender=_sender(sender, internal=transaction is None) if sender else None,
        description=Description(pattern.description.title, f"Deposit {amount} {currency}"),
        datetime=iso(at_ms),
        amount=amount,
        chain=on_chain,
        ids=Ids(
            native=native,
            tx_hash=transaction,
            transfer_id=origin or (None if transaction else txid),
        ),
    )


@lru_cache(maxsize=PATTERNS_MAX)
def _deposit_pattern(
    environment: str, currency: str, state: str | None, wallet: str, internal: bool
) -> Record:
    status = DEPOSIT_STATES.get(state or "", Status.UNKNOWN)
    return replace(
        pattern_of(environment, DEPOSIT, "internal_deposit" if internal else "deposit"),
        status=status,
        native_status=state,
        account=holder_of(wallet),
        direction=Direction.IN if status.moves else Direction.NONE,
        asset=currency,
        related_type=None,
    )


def withdrawal(row: Row, context: BillContext) -> Record:
    """A row of the list of withdrawals.

    Raises:
        ValueError, LookupError, TypeError, ArithmeticError: The row has no id, coin, amount or
            time.
    """
    amount, currency = require_unsigned(canonical(row["amt"])), coin(row["ccy"])
    native, txid, state, target, note, client, chain, tag, payment, memo, fee, fee_coin = texts(
        row, "wdId", "txId", "state", "to", "note", "clientId", "chain", "tag", "pmtId", "memo",
        "fee", "feeCcy",
    )  # fmt: skip
    at_ms, transaction = time_ms(row["ts"]), _transaction(txid)
    native = require(native, "wdId")
    internal = chain is None and transaction is None
    pattern = _withdrawal_pattern(context.environment, currency, state, internal)
    moves, on_chain = pattern.status.moves, None
    fees = _fees(fee, fee_coin, currency) if fee and moves else ()
    if transaction or target:
        on_chain = OnChain(
            network=_network(chain, row["ccy"]),
            network_native=chain,
            tx_hash=transaction,
            to_address=target,
            tag=tag or payment or memo,
        )
    words = f"Withdraw {amount} {currency}" + (f" ({note})" if note else "")
    return replace(
        pattern,
        transactionId=make_id(context, "withdrawal", f"{native}:{row['ccy']}"),
        timestamp=at_ms,
        sentCurrency=money(currency, amount) if moves else UNSET,
        fee=first_fee(fees) if fees else None,
        description=Description(pattern.description.title, words),
        datetime=iso(at_ms),
        amount=amount,
        fees=fees,
        chain=on_chain,
        ids=Ids(native=native, tx_hash=transaction, client_order_id=client),
    )


@lru_cache(maxsize=PATTERNS_MAX)
def _withdrawal_pattern(
    environment: str, currency: str, state: str | None, internal: bool
) -> Record:
    status = WITHDRAWAL_STATES.get(state or "", Status.UNKNOWN)
    return replace(
        pattern_of(environment, WITHDRAWAL, "internal_withdrawal" if internal else "withdrawal"),
        status=status,
        native_status=state,
        account=holder_of(FUNDING),
        direction=Direction.OUT if status.moves else Direction.NONE,
        asset=currency,
        related_type=None,
    )


def bank_deposit(row: Row, context: BillContext) -> Record:
    """A row of the list of bank deposits, which only adds details to its bill.

    Raises:
        ValueError, LookupError, TypeError, ArithmeticError: It has no id, coin, amount or time.
    """
    return _bank_order(row, context, DEPOSIT.type)


def bank_withdrawal(row: Row, context: BillContext) -> Record:
    """A row of the list of withdrawals to a bank; see `bank_deposit`."""
    return _bank_order(row, context, WITHDRAWAL.type)


def _bank_order(row: Row, context: BillContext, kind: str) -> Record:
    amount, currency = require_unsigned(canonical(row["amt"])), coin(row["ccy"])
    at_ms, native, state = time_ms(row["cTime"]), require(text(row, "ordId"), "ordId"), row["state"]
    method = text(row, "paymentMethod") or "bank"
    return Record(
        transactionId=make_id(context, "fiat", native),
        timestamp=at_ms,
        label=DEPOSIT.label if kind == DEPOSIT.type else WITHDRAWAL.label,
        description=Description(TITLES[kind], f"{amount} {currency} ({method})"),
        datetime=iso(at_ms),
        exchange=EXCHANGE,
        environment=context.environment,
        type=kind,
        unified_type=UNIFIED[kind],
        kind=DEPOSIT.kind if kind == DEPOSIT.type else WITHDRAWAL.kind,
        native_type="fiat",
        status=BANK_STATES.get(str(state), Status.PENDING),
        native_status=str(state),
        account=holder_of(FUNDING),
        direction=Direction.NONE,
        asset=currency,
        amount=amount,
        ids=Ids(native=native, client_order_id=text(row, "clientId")),
    )


def decorated(record: Record, order: Record) -> Record:
    """A deposit or withdrawal known only from its bill, with details of the bank order."""
    method = order.description.desc.rpartition(" ")[2]
    return replace(
        record,
        description=replace(record.description, desc=f"{record.description.desc} {method}"),
        ids=replace(
            record.ids,
            transfer_id=order.ids.native,
            client_order_id=order.ids.client_order_id,
        ),
    )


def charged(row: Row) -> str:
    """The fee of a row in its own coin, whatever the outcome; "0" if there is none."""
    currency = coin(row["ccy"])
    said, named = texts(row, "fee", "feeCcy")
    fees = _fees(said, named, currency) if said else ()
    return next((fee.amount for fee in fees if fee.currency == currency), "0")


@lru_cache(maxsize=PATTERNS_MAX)
def _fees(said: str, named: str | None, currency: str) -> tuple[Fee, ...]:
    """The fee, with its coin in a separate field or, in old rows, as a suffix.

    Cached because the fees of a coin and network are few.

    Raises:
        ValueError: The fee has neither form.
    """
    found = _GLUED.fullmatch(said)
    if found is None:
        raise ValueError("The fee of the row is not an amount.")
    amount = require_unsigned(canonical(found["amount"]))
    named = named or (found["coin"] or "").upper()
    if amount == "0":
        return ()
    return (Fee(coin(named) if named else currency, amount, None, "network", "fee"),)


def _transaction(txid: str | None) -> str | None:
    """The hash of the transaction; None for a transfer between OKX users."""
    return None if txid is None or txid.endswith(INTERNAL) else txid


def _sender(said: str, *, internal: bool) -> Sender:
    """The sender of a deposit: another user's account, or an address."""
    return Sender(name=said) if internal else Sender(walletId=said)


@lru_cache(maxsize=PATTERNS_MAX, typed=True)
def _network(chain: str | None, native_coin: Any) -> str | None:
    """Our name of a network; the name of a chain contains the coin: `USDT-TRC20`."""
    return NETWORKS.get((chain or "").removeprefix(f"{native_coin}-").lower())
