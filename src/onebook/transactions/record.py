"""The unified record: one form for every event of every exchange account.

The first block of fields is the documented core that existing clients read (camelCase, JSON
numbers); the rest is ours, always present, null when unknown. Every amount occurs twice: as a JSON
number and as text, both printed from the same decimal. Design and reasons:
`docs/reference/transactions.md`.
"""

from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgspec import UNSET, Raw, Struct, UnsetType, field, json


class RecordView(StrEnum):
    """Tells which records may be summed: completed `PRIMARY` records, each event once.

    Per currency, received less sent less all fees is the change of the account's balance. The lines
    of type `ledger`, whatever their view, add up to the same change on their own.
    """

    PRIMARY = "primary"
    SUMMARY = "summary"  # derived from primary records: the state of an order, a settled position
    LEDGER = "ledger"  # a ledger line about an event that has its own record
    SNAPSHOT = "snapshot"  # current holdings


class Status(StrEnum):
    """Status of an event."""

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REVERSED = "reversed"
    UNKNOWN = "unknown"

    def __init__(self, value: str) -> None:
        # Whether money moved, moves or may have moved. An attribute, because it is read for every
        # row.
        self.moves: Final = value not in ("failed", "cancelled", "reversed")


class Direction(StrEnum):
    """Direction in which the main asset moved."""

    IN = "in"
    OUT = "out"
    BOTH = "both"
    NONE = "none"


# Possible values of `Record.kind`; `docs/reference/transactions.md` has the same list.
KINDS: Final = {
    "deposit": "Funds that arrived from outside the exchange, or from another user.",
    "withdrawal": "Funds that left the exchange, or went to another user.",
    "trade": "A fill: an exchange of two spot assets, or a change of a contract position.",
    "order": "The state of an order; its fills are separate records.",
    "convert": "One asset exchanged for another outside a market: conversions, sweeps, purchases.",
    "funding": "A funding payment of a perpetual contract.",
    "settlement": "A contract or session was settled; the position continues or has ended.",
    "delivery": "A dated contract or option expired.",
    "liquidation": "A fill by which the exchange closed a position.",
    "adl": "A fill by which the exchange reduced a position against a liquidated one.",
    "closed_pnl": "Realised P&L of a closed position, or of a part of it.",
    "transfer": "Funds moved between wallets or accounts of one owner.",
    "custody": "Funds moved to or from a custodian or a copy-trading or bot account.",
    "balance": "The current balance of a wallet.",
    "interest": "Interest paid or received, rollover fees of margin positions included.",
    "borrow": "Funds borrowed.",
    "repay": "Borrowed funds returned.",
    "loan": "Funds or collateral moved for a loan product.",
    "earn": "A reward of staking or lending, or funds moved into or out of such a product.",
    "bonus": "Gifts: airdrops, forks, bonuses, dividends, referral rewards.",
    "fee": "A fee that belongs to no other record.",
    "fee_refund": "A fee returned, or a rebate.",
    "tax": "A tax withheld or returned by the exchange.",
    "leverage_token": "A leverage token was subscribed or redeemed.",
    "fiat": "Government-issued money: a bank payment or a card purchase.",
    "premarket": "A trade of a coin before its listing.",
    "adjustment": "A correction by the exchange: migrations, removals, clawbacks.",
    "other": "The exchange's type is unknown; `native_type` has its name.",
}


class Money(Struct, frozen=True, gc=False):
    """An amount of a currency."""

    currency: str
    amount: Raw
    amount_str: str


class Fee(Struct, frozen=True, gc=False):
    """One fee; a negative amount is a rebate."""

    currency: str | None
    amount: str
    rate: str | None
    kind: str
    native: str


class Sender(Struct, frozen=True, gc=False):
    """The sender of a deposit, if the exchange names it."""

    name: str | None = None
    public_name: str | None = None
    walletId: str | None = None  # noqa: N815  # the documented name


class Description(Struct, frozen=True, gc=False):
    """The event in words."""

    title: str
    desc: str


class Holder(Struct, frozen=True, gc=False):
    """The wallet's owner; `name` is the account's name, if there can be several."""

    wallet: str | None
    uid: str | None
    name: str | UnsetType = UNSET


class TradedMarket(Struct, frozen=True, gc=False):
    """The traded instrument."""

    symbol: str
    category: str
    contract_type: str | None
    base: str | None
    quote: str | None
    settle: str | None
    expiry: int | None


class Position(Struct, frozen=True, gc=False, kw_only=True):
    """The change of a position."""

    size_after: str | None = None
    closed_size: str | None = None
    entry_price: str | None = None
    exit_price: str | None = None
    leverage: str | None = None
    realised_pnl: str | None = None
    open_fee: str | None = None
    close_fee: str | None = None
    funding: str | None = None
    funding_rate: str | None = None
    mark_price: str | None = None
    session_price: str | None = None


class Balance(Struct, frozen=True, gc=False, kw_only=True):
    """A wallet's balance of the record's asset; `cash_flow` is the change before fees, funding."""

    before: str | None = None
    after: str | None = None
    change: str | None = None
    cash_flow: str | None = None
    total: str | None = None
    available: str | None = None
    locked: str | None = None
    borrowed: str | None = None
    interest: str | None = None
    unrealised_pnl: str | None = None
    usd_value: str | None = None


class OnChain(Struct, frozen=True, gc=False, kw_only=True):
    """Blockchain facts of a deposit or withdrawal."""

    network: str | None = None
    network_native: str | None = None
    tx_hash: str | None = None
    tx_index: str | None = None
    block_hash: str | None = None
    confirmations: int | None = None
    from_address: str | None = None
    to_address: str | None = None
    tag: str | None = None


class Transfer(Struct, frozen=True, gc=False):
    """The wallets or users of a transfer."""

    from_account: str | None
    to_account: str | None
    from_uid: str | None = None
    to_uid: str | None = None


class Ids(Struct, frozen=True, gc=False, kw_only=True):
    """The exchange's own ids of the event."""

    native: str | None = None
    order_id: str | None = None
    client_order_id: str | None = None
    trade_id: str | None = None
    tx_hash: str | None = None
    transfer_id: str | None = None
    sequence: str | None = None
    block_trade_id: str | None = None


class Record(Struct, frozen=True, gc=False, kw_only=True):
    """One event of an account. Field meanings: `docs/reference/transactions.md`."""

    transactionId: str  # noqa: N815
    timestamp: int
    label: str
    sentCurrency: Money | UnsetType = UNSET  # noqa: N815
    receivedCurrency: Money | UnsetType = UNSET  # noqa: N815
    fee: Money | None = None
    sender: Sender | None = None
    description: Description

    datetime: str
    updated_at: int | None = None
    exchange: str
    environment: str
    type: str
    unified_type: str | None = None
    kind: str
    native_type: str | None = None
    status: Status = Status.COMPLETED
    native_status: str | None = None
    view: RecordView = RecordView.PRIMARY
    account: Holder | None = None
    direction: Direction = Direction.NONE
    side: str | None = None
    asset: str | None = None
    amount: str | None = None
    instrument: TradedMarket | None = None
    price: str | None = None
    quantity: str | None = None
    quantity_unit: str | None = None
    value: str | None = None
    fees: tuple[Fee, ...] = ()
    position: Position | None = None
    balance: Balance | None = None
    chain: OnChain | None = None
    transfer: Transfer | None = None
    ids: Ids
    related: tuple[str, ...] = ()
    related_type: str | None = None
    incomplete: tuple[str, ...] = ()
    raw: dict[str, Any] | UnsetType = field(default=UNSET)


class RecordKey(NamedTuple):
    """Sort key of a record: newest first, ties by id. Smaller keys are first."""

    negative_ms: int
    record_id: str


FIRST: Final = RecordKey(-(1 << 62), "")


def key_of(record: Record) -> RecordKey:
    """The place of a record in an answer."""
    return RecordKey(-record.timestamp, record.transactionId)


def money(currency: str, text: str) -> Money:
    """An amount from its canonical text."""
    return Money(currency, Raw(text), text)


_encoder = json.Encoder(decimal_format="number")


def encode(record: Record) -> bytes:
    """A record as JSON; a number in `raw` keeps its digits."""
    return _encoder.encode(record)
