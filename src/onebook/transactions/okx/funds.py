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
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from onebook.core import canonicals, iso
from onebook.transactions.mapping import Row, first_fee, holder_of, require, require_unsigned, text
from onebook.transactions.okx.rows import (
    EXCHANGE,
    FUNDING,
    WALLET_CODES,
    BillContext,
    coin,
    make_id,
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
    amount, currency = require_unsigned(canonicals(row["amt"])[0]), coin(row["ccy"])
    at_ms, state = time_ms(row["ts"]), text(row, "state")
    status = DEPOSIT_STATES.get(state or "", Status.UNKNOWN)
    transaction, native = _transaction(row), text(row, "depId")
    key = native or f"{row.get('txId') or ''}:{at_ms}:{row['ccy']}:{amount}"
    sender = text(row, "from")
    return Record(
        transactionId=make_id(context, "deposit", key),
        timestamp=at_ms,
        label=DEPOSIT.label,
        receivedCurrency=money(currency, amount) if status.moves else UNSET,
        sender=_sender(sender, internal=transaction is None),
        description=Description(TITLES[DEPOSIT.type], f"Deposit {amount} {currency}"),
        datetime=iso(at_ms),
        exchange=EXCHANGE,
        environment=context.environment,
        type=DEPOSIT.type,
        unified_type=UNIFIED[DEPOSIT.type],
        kind=DEPOSIT.kind,
        native_type="deposit" if transaction else "internal_deposit",
        status=status,
        native_status=state,
        account=holder_of(WALLET_CODES.get(text(row, "to") or "", FUNDING)),
        direction=Direction.IN if status.moves else Direction.NONE,
        asset=currency,
        amount=amount,
        chain=_chain(row, transaction, confirmed="actualDepBlkConfirm") if transaction else None,
        ids=Ids(
            native=native,
            tx_hash=transaction,
            transfer_id=text(row, "fromWdId") or (None if transaction else text(row, "txId")),
        ),
    )


def withdrawal(row: Row, context: BillContext) -> Record:
    """A row of the list of withdrawals.

    Raises:
        ValueError, LookupError, TypeError, ArithmeticError: The row has no id, coin, amount or
            time.
    """
    amount, currency = require_unsigned(canonicals(row["amt"])[0]), coin(row["ccy"])
    at_ms, state = time_ms(row["ts"]), text(row, "state")
    status = WITHDRAWAL_STATES.get(state or "", Status.UNKNOWN)
    native, transaction = require(text(row, "wdId"), "wdId"), _transaction(row)
    fees = _fees(row, currency) if status.moves else ()
    target, note = text(row, "to"), text(row, "note")
    words = f"Withdraw {amount} {currency}" + (f" ({note})" if note else "")
    return Record(
        transactionId=make_id(context, "withdrawal", f"{native}:{row['ccy']}"),
        timestamp=at_ms,
        label=WITHDRAWAL.label,
        sentCurrency=money(currency, amount) if status.moves else UNSET,
        fee=first_fee(fees),
        description=Description(TITLES[WITHDRAWAL.type], words),
        datetime=iso(at_ms),
        exchange=EXCHANGE,
        environment=context.environment,
        type=WITHDRAWAL.type,
        unified_type=UNIFIED[WITHDRAWAL.type],
        kind=WITHDRAWAL.kind,
        native_type="withdrawal" if text(row, "chain") or transaction else "internal_withdrawal",
        status=status,
        native_status=state,
        account=holder_of(FUNDING),
        direction=Direction.OUT if status.moves else Direction.NONE,
        asset=currency,
        amount=amount,
        fees=fees,
        chain=_chain(row, transaction, target=target) if transaction or target else None,
        ids=Ids(native=native, tx_hash=transaction, client_order_id=text(row, "clientId")),
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
    amount, currency = require_unsigned(canonicals(row["amt"])[0]), coin(row["ccy"])
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
    return next((fee.amount for fee in _fees(row, currency) if fee.currency == currency), "0")


def _fees(row: Row, currency: str) -> tuple[Fee, ...]:
    """The fee, with its coin in a separate field or, in old rows, as a suffix.

    Raises:
        ValueError: The fee has neither form.
    """
    said = text(row, "fee")
    if said is None:
        return ()
    found = _GLUED.fullmatch(said)
    if found is None:
        raise ValueError("The fee of the row is not an amount.")
    amount = require_unsigned(canonicals(found["amount"])[0])
    named = text(row, "feeCcy") or (found["coin"] or "").upper()
    if amount == "0":
        return ()
    return (Fee(coin(named) if named else currency, amount, None, "network", "fee"),)


def _transaction(row: Row) -> str | None:
    """The hash of the transaction; None for a transfer between OKX users."""
    found = text(row, "txId")
    return None if found is None or found.endswith(INTERNAL) else found


def _sender(said: str | None, *, internal: bool) -> Sender | None:
    """The sender of a deposit: another user's account, or an address."""
    if said is None:
        return None
    return Sender(name=said) if internal else Sender(walletId=said)


def _chain(
    row: Row, transaction: str | None, *, target: str | None = None, confirmed: str = ""
) -> OnChain:
    """Network, transaction and addresses; the name of a chain contains the coin: `USDT-TRC20`."""
    native = text(row, "chain")
    network = (native or "").removeprefix(f"{row['ccy']}-")
    depth = text(row, confirmed) if confirmed else None
    return OnChain(
        network=NETWORKS.get(network.lower()),
        network_native=native,
        tx_hash=transaction,
        confirmations=int(depth) if depth and depth.isdigit() else None,
        to_address=target or text(row, "to"),
        tag=text(row, "tag") or text(row, "pmtId") or text(row, "memo"),
    )
