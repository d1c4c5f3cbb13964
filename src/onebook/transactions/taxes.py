"""The forms that tax tools read, written by their readers' rules.

Tools get what may be summed: completed primary records, and of them only what changes what is
held. A transfer between own wallets changes nothing and is left out; a fill of a future appears by
its fee, and what its position gained on its own.

Koinly's universal form, https://support.koinly.io/en/articles/9489976:

- amounts are before fees; the fee of a row is taken off besides;
- a deposit has no fee (article 9490022) and a row has one at most: every other fee is a row that
  sends it;
- rows of realised P&L, gains and losses alike, are "realized gain" (article 9490027).

CoinTracking's CSV import, https://cointracking.freshdesk.com articles 29000007202, 29000042783:

- amounts are what really arrived and left: a fee in the coin that is bought is taken off it, one in
  the coin that is sold is added; the column of the fee informs and is not summed;
- a fee in a third coin is a row of its own, "Other Fee";
- funding is a cost of holding a position, not its P&L: "Other Fee" and "Other Income".
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

Row = tuple[str | int | None, ...]
Amount = tuple[str | None, str | None]  # currency and amount
NOTHING: Final[Amount] = (None, None)

GAINS: Final = frozenset({"funding", "closed_pnl", "settlement", "delivery"})


class Words(NamedTuple):
    """A tool's names for incoming and outgoing amounts."""

    incoming: str
    outgoing: str


KOINLY_GAIN: Final = Words("realized gain", "realized gain")
KOINLY_FEE: Final = Words("fee refund", "cost")
KOINLY_FUTURES_FEE: Final = Words("realized gain", "margin fee")
KOINLY_WORDS: Final = {
    "Airdrop": Words("airdrop", "cost"),
    "Staking Reward": Words("reward", ""),
    "bonus": Words("reward", "cost"),
    "interest": Words("income", "cost"),
    "fee": KOINLY_FEE,
    "fee_refund": KOINLY_FEE,
    "borrow": Words("loan", ""),
    "loan": Words("loan", ""),
}
COINTRACKING_GAIN: Final = Words("Derivatives / Futures Profit", "Derivatives / Futures Loss")
COINTRACKING_FEE: Final = Words("Reward / Bonus", "Other Fee")
COINTRACKING_FUTURES_FEE: Final = Words("Derivatives / Futures Profit", "Margin Fee")
COINTRACKING_MOVE: Final = Words("Deposit", "Withdrawal")
COINTRACKING_WORDS: Final = {
    "Airdrop": Words("Airdrop", "Other Expense"),
    "Staking Reward": Words("Staking", "Withdrawal"),
    "bonus": Words("Reward / Bonus", "Other Expense"),
    "interest": Words("Interest Income", "Borrowing Fee"),
    "fee": COINTRACKING_FEE,
    "fee_refund": COINTRACKING_FEE,
    "funding": Words("Other Income", "Other Fee"),
    "borrow": Words("Receive Loan", "Repay Loan"),
    "repay": Words("Receive Loan", "Repay Loan"),
    "loan": Words("Receive Loan", "Repay Loan"),
}


class Charge(NamedTuple):
    """One fee: above zero it was paid, below zero received."""

    currency: str
    amount: Decimal


class Taxed(NamedTuple):
    """Amounts sent and received, and the fee."""

    sent: Amount
    received: Amount
    charges: list[Charge]


def taxed(record: Record) -> Taxed | None:
    """The part of a record that a tool must count; None for nothing."""
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


def koinly(record: Record) -> list[Row]:
    """A record as rows of Koinly's universal form."""
    found = taxed(record)
    if found is None:
        return []
    sent, received, charges = found
    if not _moves(found):
        return _koinly_fees(record, charges, KOINLY_FUTURES_FEE)
    own = next((charge for charge in charges if charge.amount > 0), None) if sent[0] else None
    others = [charge for charge in charges if charge is not own]
    fee = NOTHING if own is None else (own.currency, show(own.amount))
    row = _koinly_row(record, sent, received, fee, _koinly_label(record, found))
    return [row, *_koinly_fees(record, others, KOINLY_FEE)]


def _koinly_label(record: Record, found: Taxed) -> str:
    if found.sent[0] and found.received[0]:
        return ""
    if _is_gain(record):
        return KOINLY_GAIN.incoming
    words = KOINLY_WORDS.get(record.label) or KOINLY_WORDS.get(record.kind)
    return "" if words is None else words[0 if found.received[0] else 1]


def _koinly_fees(record: Record, charges: list[Charge], words: Words) -> list[Row]:
    def row(sent: Amount, received: Amount, word: str, suffix: str) -> Row:
        return _koinly_row(record, sent, received, NOTHING, word, suffix)

    return _fee_rows(charges, words, row)


def _koinly_row(
    record: Record, sent: Amount, received: Amount, fee: Amount, label: str, suffix: str = ""
) -> Row:
    return (
        f"{_date(record)} UTC", sent[1], sent[0], received[1], received[0], fee[1], fee[0], None,
        None, label, record.description.desc, _tx_id(record) + suffix,
    )  # fmt: skip


def cointracking(record: Record, exchange: str) -> list[Row]:
    """A record as rows of CoinTracking's CSV import; `exchange` is the name of its exchange."""
    found = taxed(record)
    if found is None:
        return []
    if not _moves(found):
        return _cointracking_fees(record, exchange, found.charges, COINTRACKING_FUTURES_FEE)
    sent, received, held, others = net_of_fees(found)
    paid = [charge for charge in held if charge.amount > 0]
    fee = NOTHING
    if paid:
        same = [charge.amount for charge in paid if charge.currency == paid[0].currency]
        fee = (paid[0].currency, show(add(*same)))
    row = _cointracking_row(
        record, exchange, sent, received, fee, _cointracking_type(record, found)
    )
    return [row, *_cointracking_fees(record, exchange, others, COINTRACKING_FEE)]


def net_of_fees(found: Taxed) -> tuple[Amount, Amount, list[Charge], list[Charge]]:
    """What really left and arrived, the fees that are in it, and those in other coins."""
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


def _cointracking_type(record: Record, found: Taxed) -> str:
    if found.sent[0] and found.received[0]:
        return "Trade"
    words = COINTRACKING_WORDS.get(record.label) or COINTRACKING_WORDS.get(record.kind)
    if words is None:
        words = COINTRACKING_GAIN if _is_gain(record) else COINTRACKING_MOVE
    return words[0 if found.received[0] else 1]


def _cointracking_fees(
    record: Record, exchange: str, charges: list[Charge], words: Words
) -> list[Row]:
    def row(sent: Amount, received: Amount, word: str, suffix: str) -> Row:
        return _cointracking_row(record, exchange, sent, received, NOTHING, word, suffix)

    return _fee_rows(charges, words, row)


def _cointracking_row(
    record: Record,
    exchange: str,
    sent: Amount,
    received: Amount,
    fee: Amount,
    word: str,
    suffix: str = "",
) -> Row:
    return (
        word, received[1], received[0], sent[1], sent[0], fee[1], fee[0], exchange, record.type,
        record.description.desc, _date(record), _tx_id(record) + suffix,
    )  # fmt: skip


def _fee_rows(
    charges: list[Charge], words: Words, row: Callable[[Amount, Amount, str, str], Row]
) -> list[Row]:
    """Each fee on a row of its own: a payment of it, or a rebate as received."""
    rows = []
    for number, charge in enumerate(charges, 1):
        moved = (charge.currency, unsigned(show(charge.amount)))
        suffix = f"-fee{number}"
        if charge.amount > ZERO:
            rows.append(row(moved, NOTHING, words.outgoing, suffix))
        else:
            rows.append(row(NOTHING, moved, words.incoming, suffix))
    return rows


def _moves(found: Taxed) -> bool:
    return found.sent != NOTHING or found.received != NOTHING


def _is_gain(record: Record) -> bool:
    """Whether it is P&L of a derivative; of options only the ledger shows it."""
    of_option = record.instrument is not None and record.instrument.category == "option"
    return record.kind in GAINS or of_option


def _date(record: Record) -> str:
    return f"{record.datetime[:10]} {record.datetime[11:19]}"


def _tx_id(record: Record) -> str:
    return record.ids.tx_hash or record.transactionId


def _money(money: Money | UnsetType | None) -> Amount:
    return NOTHING if money is None or money is UNSET else (money.currency, money.amount_str)
