"""Mapping of deposits and withdrawals: ledger rows, with details from Kraken's lists; pure.

- https://docs.kraken.com/api-reference/funding/get-status-of-recent-deposits
- https://docs.kraken.com/api-reference/funding/get-status-of-recent-withdrawals
- Settled is confirmed by the network, Success is credited:
  https://support.kraken.com/hc/en-us/articles/205893708

Amounts come from the ledger alone. The lists add the transaction, the network and both addresses,
and entries that the ledger does not have (yet): a deposit before it is credited, or a withdrawal
that was refused immediately. Row and entry share the `refid`.

A withdrawal that fails after it was booked is reversed by a second row with the same `refid` and
the opposite sign, which also refunds the fee, perhaps days later. Then nothing moved: the
withdrawal is `failed`, the reversing row is one of its lines, and neither is summed.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from onebook.core import canonicals, iso
from onebook.model import DAY_MS
from onebook.transactions.decimals import negated, unsigned
from onebook.transactions.kraken.assets import MONEY, asset_of
from onebook.transactions.kraken.rows import (
    EXCHANGE,
    LedgerRow,
    RowContext,
    fees_of,
    line_ids,
    make_id,
    time_ms,
)
from onebook.transactions.kraken.words import TITLES, UNIFIED, meaning_of
from onebook.transactions.mapping import Row, first_fee, holder_of, require, require_unsigned, text
from onebook.transactions.record import (
    Description,
    Direction,
    Fee,
    Ids,
    Money,
    OnChain,
    Record,
    Sender,
    Status,
    money,
)

DEPOSIT, WITHDRAWAL = "deposit", "withdrawal"
FUNDS: Final = frozenset({DEPOSIT, WITHDRAWAL})
RETURN_MS: Final = 30 * DAY_MS  # how much later a deposit or withdrawal may be reversed

STATUSES: Final = {
    "Initial": Status.PENDING,
    "Pending": Status.PENDING,
    "Settled": Status.PENDING,
    "Success": Status.COMPLETED,
    "Failure": Status.FAILED,
    "Partial": Status.PENDING,
}
# Our names of Kraken's networks; others keep Kraken's own name only.
NETWORKS: Final = {
    "aptos": "aptos", "arbitrum": "arbitrum", "arbitrum one": "arbitrum",
    "avalanche c-chain": "avalanche-c", "base": "base", "bitcoin": "bitcoin",
    "bnb smart chain": "bsc", "dogecoin": "dogecoin", "ether": "ethereum",
    "ether (hex)": "ethereum", "ethereum": "ethereum", "ethereum (erc20)": "ethereum",
    "kusama": "kusama", "litecoin": "litecoin", "optimism": "optimism", "polkadot": "polkadot",
    "polygon": "polygon", "ripple": "xrp", "ripple xrp": "xrp", "solana": "solana", "sui": "sui",
    "ton": "ton", "tron": "tron", "xrp": "xrp",
}  # fmt: skip


class FundDetails(Struct, frozen=True):
    """Details of a deposit or withdrawal in addition to its ledger rows.

    Args:
        listed: Its row in DepositStatus or WithdrawStatus.
        returned: The row that reversed it, perhaps after the range.
        returns: For a reversing row, the row that it reverses, perhaps before the range.
    """

    listed: Row | None = None
    returned: LedgerRow | None = None
    returns: LedgerRow | None = None


def is_return(entry: LedgerRow) -> bool:
    """Whether a row reverses a deposit or withdrawal: it has the opposite sign."""
    return entry.type in FUNDS and entry.incoming != (entry.type == DEPOSIT)


def takes_back(later: LedgerRow, earlier: LedgerRow) -> bool:
    """Whether a row reverses an earlier deposit or withdrawal completely, including its fee."""
    return (
        is_return(later)
        and later.type == earlier.type
        and later.refid == earlier.refid
        and later.native == earlier.native
        and later.change == negated(earlier.change)
        and 0 <= later.at_ms - earlier.at_ms <= RETURN_MS
    )


def fund_id(context: RowContext, kind: str, refid: str) -> str:
    """The id of a deposit or withdrawal; it exists before the ledger books it."""
    return make_id(context, kind, refid)


def funds(
    group: Sequence[LedgerRow], context: RowContext, details: FundDetails
) -> list[tuple[Record, tuple[LedgerRow, ...]]]:
    """The deposit or withdrawal of some ledger rows, and the rows that belong to it."""
    originals = [entry for entry in group if not is_return(entry)]
    returns = [entry for entry in group if is_return(entry)]
    found: list[tuple[Record, tuple[LedgerRow, ...]]] = []
    for number, entry in enumerate(originals):
        own = next((each for each in returns if takes_back(each, entry)), None)
        if own is not None:
            returns.remove(own)
        record = _booked(entry, context, replace(details, returned=own or details.returned))
        if number:  # booked in parts: each has its own id
            key = f"{entry.refid}:{entry.id}"
            record = replace(record, transactionId=fund_id(context, entry.type, key))
        found.append((record, (entry,) if own is None else (entry, own)))
    if details.returns is None:
        found += [(_given_back(entry, context), (entry,)) for entry in returns]
    return found


def _booked(entry: LedgerRow, context: RowContext, details: FundDetails) -> Record:
    """A deposit or withdrawal in the ledger."""
    listed, returned = details.listed, details.returned
    status = _status(entry, returned)
    meaning = meaning_of(entry.type, "", entry.incoming)
    fees = fees_of((entry,), meaning.fee) if status.moves else ()
    amount = unsigned(entry.amount)
    moved = money(entry.currency, amount) if status.moves and amount != "0" else UNSET
    lines = (entry,) if returned is None else (entry, returned)
    return _fund(
        entry.type,
        context,
        record_id=fund_id(context, entry.type, entry.refid or entry.id),
        at_ms=entry.at_ms,
        currency=entry.currency,
        wallet=entry.wallet,
        amount=amount,
        moved=moved,
        status=status,
        fees=fees,
        listed=listed,
        native=entry.refid or entry.id,
        words=_words(entry.type, amount, entry.currency, listed),
        updated_ms=returned.at_ms if returned else None,
        related=line_ids(context, lines),
    )


def _status(entry: LedgerRow, returned: LedgerRow | None) -> Status:
    """The status of a booked deposit or withdrawal: completed unless it was reversed.

    A withdrawal leaves the balance when it is requested; `native_status` has its progress.
    """
    if returned is None:
        return Status.COMPLETED
    return Status.REVERSED if entry.type == DEPOSIT else Status.FAILED


def _given_back(entry: LedgerRow, context: RowContext) -> Record:
    """A row that reverses an unknown deposit or withdrawal, or only a part of one.

    It is a separate event; both have Kraken's `refid` as their native id.
    """
    meaning = meaning_of(entry.type, "", entry.incoming)
    amount = unsigned(entry.amount)
    record = _fund(
        entry.type,
        context,
        record_id=fund_id(context, entry.type, f"{entry.refid}:{entry.id}"),
        at_ms=entry.at_ms,
        currency=entry.currency,
        wallet=entry.wallet,
        amount=amount,
        moved=money(entry.currency, amount),
        status=Status.COMPLETED,
        fees=fees_of((entry,), meaning.fee),
        listed=None,
        native=entry.refid or entry.id,
        words=f"{meaning.label} of {amount} {entry.currency} returned",
        updated_ms=None,
        related=line_ids(context, (entry,)),
    )
    # The opposite direction: a withdrawal that came back was received.
    return replace(
        record,
        sentCurrency=record.receivedCurrency,
        receivedCurrency=record.sentCurrency,
        direction=Direction.IN if entry.type == WITHDRAWAL else Direction.OUT,
        native_type=f"{entry.type}:returned",
    )


def listed_fund(row: Row, kind: str, context: RowContext) -> Record | None:
    """A deposit or withdrawal that is only in the list; None if the ledger must contain it.

    Args:
        kind: deposit or withdrawal.

    Raises:
        ValueError, LookupError, TypeError, ArithmeticError: The row has no refid, asset, time or
            amount.
    """
    native_status = text(row, "status") or ""
    status = STATUSES.get(native_status, Status.UNKNOWN)
    if status is Status.COMPLETED:
        return None
    found, charged = canonicals(row["amount"], row.get("fee"))
    amount, refid = require_unsigned(found), require(text(row, "refid"), "refid")
    currency, wallet = asset_of(require(row["asset"], "asset"))
    fees: tuple[Fee, ...] = ()
    if charged is not None and charged != "0" and status.moves:
        fees = (Fee(currency, charged, None, "network", "fee"),)
    return _fund(
        kind,
        context,
        record_id=fund_id(context, kind, refid),
        at_ms=time_ms(row["time"]),
        currency=currency,
        wallet=wallet,
        amount=amount,
        moved=money(currency, amount) if status.moves else UNSET,
        status=status,
        fees=fees,
        listed=row,
        native=refid,
        words=_words(kind, amount, currency, row),
        updated_ms=None,
        related=(),
    )


def _fund(
    kind: str,
    context: RowContext,
    *,
    record_id: str,
    at_ms: int,
    currency: str,
    wallet: str,
    amount: str,
    moved: Money | UnsetType,
    status: Status,
    fees: tuple[Fee, ...],
    listed: Row | None,
    native: str,
    words: str,
    updated_ms: int | None,
    related: tuple[str, ...],
) -> Record:
    deposit = kind == DEPOSIT
    way = Direction.IN if deposit else Direction.OUT
    meaning = meaning_of(kind, "", deposit)
    txid = text(listed, "txid") if listed else None
    bank = currency in MONEY
    return Record(
        transactionId=record_id,
        timestamp=at_ms,
        label=meaning.label,
        sentCurrency=UNSET if deposit else moved,
        receivedCurrency=moved if deposit else UNSET,
        fee=first_fee(fees),
        sender=_sender(listed) if listed and deposit else None,
        description=Description(TITLES[meaning.type], words),
        datetime=iso(at_ms),
        updated_at=updated_ms,
        exchange=EXCHANGE,
        environment=context.environment,
        type=meaning.type,
        unified_type=UNIFIED[meaning.type],
        kind=kind,
        native_type=kind,
        status=status,
        native_status=_native_status(listed) if listed else None,
        account=holder_of(wallet),
        direction=way if status.moves else Direction.NONE,
        asset=currency,
        amount=amount,
        fees=fees,
        chain=_chain(listed, deposit=deposit) if listed and not bank else None,
        ids=Ids(
            native=native,
            tx_hash=None if bank else txid,
            transfer_id=txid if bank else None,
        ),
        related=related,
        related_type="ledger" if related else None,
    )


def _words(kind: str, amount: str, currency: str, listed: Row | None) -> str:
    """The description: event, method, and for a withdrawal the owner's name for the address."""
    words = f"{'Deposit' if kind == DEPOSIT else 'Withdraw'} {amount} {currency}"
    if listed is None:
        return words
    method, name = text(listed, "method"), text(listed, "key")
    return words + (f" by {method}" if method else "") + (f" to {name}" if name else "")


def _native_status(row: Row) -> str | None:
    """Status and its property, such as `Success, on-hold`."""
    status, addition = text(row, "status"), text(row, "status-prop")
    return f"{status}, {addition}" if status and addition else status


def _chain(row: Row, *, deposit: bool) -> OnChain:
    """Network, transaction and addresses; `info` is our address or the recipient's."""
    native = text(row, "network") or text(row, "method")
    return OnChain(
        network=NETWORKS.get((native or "").lower()),
        network_native=native,
        tx_hash=text(row, "txid"),
        from_address=_originator(row) if deposit else None,
        to_address=text(row, "info"),
    )


def _sender(row: Row) -> Sender | None:
    address = _originator(row)
    return Sender(walletId=address) if address else None


def _originator(row: Row) -> str | None:
    """The first address that sent a deposit."""
    found = row.get("originators")
    return str(found[0]) if isinstance(found, list) and found else None
