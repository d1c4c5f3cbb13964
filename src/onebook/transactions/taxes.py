"""Import formats of tax tools, following the rules of their importers.

The tools get the completed primary records that change the holdings. A transfer between own wallets
changes nothing and is omitted; of a futures fill only the fee is exported, because the P&L of its
position is a separate row.

Koinly's universal form, https://support.koinly.io/en/articles/9489976:

- amounts are before fees; the fee of a row is deducted in addition;
- a deposit has no fee (article 9490022) and a row has at most one: every other fee becomes a
  withdrawal row;
- rows of realised P&L, gains and losses alike, are "realized gain" (article 9490027).

CoinTracking's CSV import, https://cointracking.freshdesk.com articles 29000007202, 29000042783:

- amounts are those that actually arrived and left: a fee in the bought coin is deducted, a fee in
  the sold coin is added; the fee column is informative and not summed;
- a fee in a third coin becomes a separate row, "Other Fee";
- funding is a cost of holding a position, not its P&L: "Other Fee" and "Other Income".

BittyTax's transaction records, https://github.com/BittyTax/BittyTax (`import_records.py`):

- amounts are before fees; the fee of a row is an additional spend, and never negative;
- each type has either a buy, a sell or both, and "Margin-Fee" has no fee column of its own.

rotki's generic imports of trades and of events, https://github.com/rotki/rotki
(`data_import/importers/rotki_trades.py`, `rotki_events.py`):

- a row with both sides is a trade, any other row an event; times are Unix ms;
- amounts are before fees; the fee of a row is an additional expense;
- two trades at the same time with equal amounts count once.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType

from onebook.core import show
from onebook.transactions.decimals import ZERO, add, subtract, unsigned
from onebook.transactions.record import Direction, Money, Record, RecordView, Status

KOINLY: Final = (
    "Date", "Sent Amount", "Sent Currency", "Received Amount", "Received Currency", "Fee Amount",
    "Fee Currency", "Net Worth Amount", "Net Worth Currency", "Label", "Description", "TxHash",
)  # fmt: skip
COINTRACKING: Final = (
    "Type", "Buy Amount", "Buy Currency", "Sell Amount", "Sell Currency", "Fee", "Fee Currency",
    "Exchange", "Trade-Group", "Comment", "Date", "Tx-ID",
)  # fmt: skip
BITTYTAX: Final = (
    "Type", "Buy Quantity", "Buy Asset", "Buy Value", "Sell Quantity", "Sell Asset", "Sell Value",
    "Fee Quantity", "Fee Asset", "Fee Value", "Wallet", "Timestamp", "Note",
)  # fmt: skip
ROTKI_TRADES: Final = (
    "Location", "Spend Currency", "Receive Currency", "Spend Amount", "Receive Amount", "Fee",
    "Fee Currency", "Description", "Timestamp",
)  # fmt: skip
ROTKI_EVENTS: Final = (
    "Type", "Location", "Currency", "Amount", "Fee", "Fee Currency", "Description", "Timestamp",
)  # fmt: skip

Row = tuple[str | int | None, ...]
Amount = tuple[str | None, str | None]  # currency and amount
NOTHING: Final[Amount] = (None, None)

GAINS: Final = frozenset({"funding", "closed_pnl", "settlement", "delivery"})


class Words(NamedTuple):
    """A tool's names for incoming and outgoing amounts."""

    incoming: str
    outgoing: str


class Vocabulary(NamedTuple):
    """A tool's row types: by the label or kind of a record, else by its amounts."""

    named: dict[str, Words]
    trade: str
    move: Words
    gain: Words  # of derivatives
    fee: Words
    futures_fee: Words

    def word(self, record: Record, found: "Taxed") -> str:
        """The row type of a record."""
        if found.sent[0] and found.received[0]:
            return self.trade
        words = self.named.get(record.label) or self.named.get(record.kind)
        if words is None:
            words = self.gain if _is_gain(record) else self.move
        return words.incoming if found.received[0] else words.outgoing


_KOINLY_FEE: Final = Words("fee refund", "cost")
KOINLY_WORDS: Final = Vocabulary(
    {
        "Airdrop": Words("airdrop", "cost"),
        "Staking Reward": Words("reward", ""),
        "bonus": Words("reward", "cost"),
        "interest": Words("income", "cost"),
        "fee": _KOINLY_FEE,
        "fee_refund": _KOINLY_FEE,
        "borrow": Words("loan", ""),
        "loan": Words("loan", ""),
    },
    trade="",
    move=Words("", ""),
    gain=Words("realized gain", "realized gain"),
    fee=_KOINLY_FEE,
    futures_fee=Words("realized gain", "margin fee"),
)
_COINTRACKING_FEE: Final = Words("Reward / Bonus", "Other Fee")
_COINTRACKING_LOAN: Final = Words("Receive Loan", "Repay Loan")
COINTRACKING_WORDS: Final = Vocabulary(
    {
        "Airdrop": Words("Airdrop", "Other Expense"),
        "Staking Reward": Words("Staking", "Withdrawal"),
        "bonus": Words("Reward / Bonus", "Other Expense"),
        "interest": Words("Interest Income", "Borrowing Fee"),
        "fee": _COINTRACKING_FEE,
        "fee_refund": _COINTRACKING_FEE,
        "funding": Words("Other Income", "Other Fee"),
        "borrow": _COINTRACKING_LOAN,
        "repay": _COINTRACKING_LOAN,
        "loan": _COINTRACKING_LOAN,
    },
    trade="Trade",
    move=Words("Deposit", "Withdrawal"),
    gain=Words("Derivatives / Futures Profit", "Derivatives / Futures Loss"),
    fee=_COINTRACKING_FEE,
    futures_fee=Words("Derivatives / Futures Profit", "Margin Fee"),
)
_BITTYTAX_FEE: Final = Words("Fee-Rebate", "Spend")
_BITTYTAX_LOAN: Final = Words("Loan", "Loan-Repayment")
BITTYTAX_WORDS: Final = Vocabulary(
    {
        "Airdrop": Words("Airdrop", "Spend"),
        "Staking Reward": Words("Staking", "Spend"),
        "bonus": Words("Income", "Spend"),
        "interest": Words("Interest", "Loan-Interest"),
        "fee": _BITTYTAX_FEE,
        "fee_refund": _BITTYTAX_FEE,
        "borrow": _BITTYTAX_LOAN,
        "repay": _BITTYTAX_LOAN,
        "loan": _BITTYTAX_LOAN,
    },
    trade="Trade",
    move=Words("Deposit", "Withdrawal"),
    gain=Words("Margin-Gain", "Margin-Loss"),
    fee=_BITTYTAX_FEE,
    futures_fee=Words("Margin-Fee-Rebate", "Margin-Fee"),
)
_ROTKI_INCOME: Final = Words("Income", "Spend")
ROTKI_WORDS: Final = Vocabulary(
    {
        "Airdrop": _ROTKI_INCOME,
        "Staking Reward": Words("Staking", "Spend"),
        "bonus": _ROTKI_INCOME,
        "interest": _ROTKI_INCOME,
        "fee": _ROTKI_INCOME,
        "fee_refund": _ROTKI_INCOME,
    },
    trade="",
    move=Words("Deposit", "Withdrawal"),
    gain=Words("Income", "Loss"),
    fee=_ROTKI_INCOME,
    futures_fee=Words("Income", "Spend"),
)


class Charge(NamedTuple):
    """One fee; negative if it was received."""

    currency: str
    amount: Decimal


class Taxed(NamedTuple):
    """Amounts sent and received, and the fee."""

    sent: Amount
    received: Amount
    charges: list[Charge]


def taxed(record: Record) -> Taxed | None:
    """The amounts of a record that are relevant for taxes; None if there are none."""
    if record.view is not RecordView.PRIMARY or record.status is not Status.COMPLETED:
        return None
    if record.kind == "transfer" and record.direction is Direction.BOTH:
        return None
    charges = [
        Charge(fee.currency, amount)
        for fee in record.fees
        if fee.currency and (amount := Decimal(fee.amount))
    ]
    found = Taxed(_money(record.sentCurrency), _money(record.receivedCurrency), charges)
    return found if found != (NOTHING, NOTHING, []) else None


MakeRow = Callable[[Amount, Amount, Amount, str, str], Row]  # sent, received, fee, word, id suffix


def koinly(record: Record) -> list[Row]:
    """Convert a record to rows of Koinly's universal format."""

    def row(sent: Amount, received: Amount, fee: Amount, word: str, suffix: str) -> Row:
        return (
            f"{_date(record)} UTC", sent[1], sent[0], received[1], received[0], fee[1], fee[0],
            None, None, word, record.description.desc, _tx_id(record) + suffix,
        )  # fmt: skip

    return _before_fees(record, KOINLY_WORDS, row)


def bittytax(record: Record, exchange: str) -> list[Row]:
    """Convert a record to BittyTax's transaction records; `exchange` is the wallet name."""

    def row(sent: Amount, received: Amount, fee: Amount, word: str, suffix: str) -> Row:
        return (
            word, received[1], received[0], None, sent[1], sent[0], None, fee[1], fee[0], None,
            exchange, record.datetime, f"{record.description.desc} {_tx_id(record)}{suffix}",
        )  # fmt: skip

    return _before_fees(record, BITTYTAX_WORDS, row)


def rotki(record: Record) -> list[Row]:
    """Convert a record to rows of rotki's imports: `ROTKI_TRADES` or events (fewer columns)."""

    def row(sent: Amount, received: Amount, fee: Amount, word: str, suffix: str) -> Row:
        noted = f"{record.description.desc} {_tx_id(record)}{suffix}", record.timestamp
        if sent[0] and received[0]:
            return (
                record.exchange, sent[0], received[0], sent[1], received[1], fee[1], fee[0], *noted
            )  # fmt: skip
        return word, record.exchange, *(sent if sent[0] else received), fee[1], fee[0], *noted

    return _before_fees(record, ROTKI_WORDS, row)


def _before_fees(record: Record, words: Vocabulary, row: MakeRow) -> list[Row]:
    """Rows with amounts before fees; a row that sends may have one fee, other fees get own rows."""
    found = taxed(record)
    if found is None:
        return []
    sent, received, charges = found
    if not _moves(found):
        return _fee_rows(charges, words.futures_fee, row)
    own = next((charge for charge in charges if charge.amount > 0), None) if sent[0] else None
    others = [charge for charge in charges if charge is not own]
    fee = NOTHING if own is None else (own.currency, show(own.amount))
    first = row(sent, received, fee, words.word(record, found), "")
    return [first, *_fee_rows(others, words.fee, row)]


def cointracking(record: Record, exchange: str) -> list[Row]:
    """Convert a record to rows of CoinTracking's CSV import; `exchange` is a display name."""

    def row(sent: Amount, received: Amount, fee: Amount, word: str, suffix: str) -> Row:
        return (
            word, received[1], received[0], sent[1], sent[0], fee[1], fee[0], exchange,
            record.type, record.description.desc, _date(record), _tx_id(record) + suffix,
        )  # fmt: skip

    words, found = COINTRACKING_WORDS, taxed(record)
    if found is None:
        return []
    if not _moves(found):
        return _fee_rows(found.charges, words.futures_fee, row)
    sent, received, held, others = net_of_fees(found)
    paid = [charge for charge in held if charge.amount > 0]
    fee = NOTHING
    if paid:
        same = [charge.amount for charge in paid if charge.currency == paid[0].currency]
        fee = (paid[0].currency, show(add(*same)))
    first = row(sent, received, fee, words.word(record, found), "")
    return [first, *_fee_rows(others, words.fee, row)]


def net_of_fees(found: Taxed) -> tuple[Amount, Amount, list[Charge], list[Charge]]:
    """The amounts that actually left and arrived, the fees in them, and fees in other coins."""
    (sold, sent), (bought, received) = found.sent, found.received
    given, taken = Decimal(sent or 0), Decimal(received or 0)
    held: list[Charge] = []
    others: list[Charge] = []
    for charge in found.charges:
        if charge.currency == bought and subtract(taken, charge.amount) > 0:
            taken = subtract(taken, charge.amount)
        elif charge.currency == sold and add(given, charge.amount) > 0:
            given = add(given, charge.amount)
        else:
            others.append(charge)
            continue
        held.append(charge)
    left = (sold, show(given)) if sold else NOTHING
    arrived = (bought, show(taken)) if bought else NOTHING
    return left, arrived, held, others


def _fee_rows(charges: list[Charge], words: Words, row: MakeRow) -> list[Row]:
    """One row per fee: a payment, or a receipt if it is a rebate."""
    rows = []
    for number, charge in enumerate(charges, 1):
        moved = (charge.currency, unsigned(show(charge.amount)))
        suffix = f"-fee{number}"
        if charge.amount > ZERO:
            rows.append(row(moved, NOTHING, NOTHING, words.outgoing, suffix))
        else:
            rows.append(row(NOTHING, moved, NOTHING, words.incoming, suffix))
    return rows


def _moves(found: Taxed) -> bool:
    return found.sent != NOTHING or found.received != NOTHING


def _is_gain(record: Record) -> bool:
    """Whether a record is P&L of a derivative; P&L of options is only in the ledger."""
    of_option = record.instrument is not None and record.instrument.category == "option"
    return record.kind in GAINS or of_option


def _date(record: Record) -> str:
    return f"{record.datetime[:10]} {record.datetime[11:19]}"


def _tx_id(record: Record) -> str:
    return record.ids.tx_hash or record.transactionId


def _money(money: Money | UnsetType | None) -> Amount:
    return NOTHING if money is None or money is UNSET else (money.currency, money.amount_str)
