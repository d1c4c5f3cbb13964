"""Rows of the simulated OKX account as facts: amounts in 10^-16, times in milliseconds.

A row begins with its time and number, which are its place in its table and determine its id; `ts`
is the time that it shows, off by some milliseconds.
"""

from typing import Final, NamedTuple

from msgspec import Struct

from onebook.simulator.accounts.okx.names import OkxChain, OkxInstrument

TRADING, FUNDING = "trading", "funding"
ISOLATED: Final = "isolated"  # margin of single positions, separate from the trading account
SAVINGS, STAKING, FIXED, STRUCTURED, LOANS = "savings", "staking", "fixed", "structured", "loans"


class OkxHistory(Struct, frozen=True):
    """Size of the history to generate.

    Args:
        from_ms: Start of the history, in Unix milliseconds.
        to_ms: End of the history.
        rows: Approximate number of bills of both accounts, up to a million and more: memory does
            not grow with it, because rows are regenerated when they are read.
        seed: Random seed.
        derivatives: Whether the account borrows and trades contracts; if not, its mode is spot.
        direct: Whether deposits are credited to the trading account, as those of some entities are.
        custody: Whether it has bills of custodians, which are only shown if the custodian is named.
    """

    from_ms: int
    to_ms: int
    rows: int = 3_000
    seed: int = 1
    derivatives: bool = True
    direct: bool = False
    custody: bool = False


class TradingBill(NamedTuple):
    """A bill of the trading account; `balance` is the balance of its currency after it."""

    time: int
    seq: int
    ts: int
    ccy: str
    change: int
    balance: int
    type: str
    sub: str
    instrument: OkxInstrument | None = None
    kind: str = ""  # instType, if it is not that of the instrument
    mode: str = ""
    size: int | None = None
    price: int | None = None
    pnl: int = 0
    fee: int = 0  # negative is paid
    interest: int = 0
    liquidity: str = ""
    order: tuple[int, int] | None = None
    trade: int | None = None
    filled: int = 0
    way: tuple[str, str] = ("", "")
    notes: str = ""
    client: str = ""
    isolated: int = 0  # change of the margin of a position
    isolated_after: int = 0
    earned: int | None = None
    apr: int | None = None


class FundingBill(NamedTuple):
    """A bill of the funding account."""

    time: int
    seq: int
    ccy: str
    change: int
    balance: int
    type: str
    notes: str = ""
    client: str = ""
    custodian: int = 0  # whose bill it is: 1 Copper, 2 Komainu, 5 SCB


class ProductRow(NamedTuple):
    """A change of an earn product or loan that no bill shows."""

    time: int
    seq: int
    wallet: str
    ccy: str
    change: int
    balance: int


class OkxFill(NamedTuple):
    """A fill; its place is that of one of its bills."""

    time: int
    seq: int
    ts: int
    instrument: OkxInstrument
    kind: str
    side: str
    pos_side: str
    sub: str
    price: int
    size: int
    fee: int
    fee_ccy: str
    rate: int
    liquidity: str
    pnl: int
    order: tuple[int, int]
    trade: int
    client: str = ""


class OkxOrder(NamedTuple):
    """An order, by its creation time."""

    time: int
    seq: int
    updated: int
    instrument: OkxInstrument
    kind: str
    side: str
    pos_side: str
    type: str
    mode: str
    price: int  # limit; 0 for market orders
    size: int
    target: str  # for market orders of pairs: what the size counts
    filled: int
    average: int
    fee: int
    fee_ccy: str
    pnl: int
    state: str
    category: str
    last: tuple[int, int, int, int] = (0, 0, 0, 0)  # price, size, time and trade of the last fill
    client: str = ""


class OpenPosition(NamedTuple):
    """An open position in contracts, and its results since it was opened."""

    instrument: OkxInstrument
    side: str  # long or short
    size: int
    entry: int
    opened: int
    number: int
    largest: int
    closed: int = 0
    proceeds: int = 0  # size times price of the closed part
    pnl: int = 0
    fee: int = 0
    funding: int = 0
    penalty: int = 0


class ClosedPart(NamedTuple):
    """A row of positions-history: one per partial close, with running totals."""

    time: int
    seq: int
    position: OpenPosition
    type: str  # 1 partially closed, 2 closed, 3 liquidated, 5 ADL


class InterestRow(NamedTuple):
    """Interest accrued in an hour; a bill deducts the sum of several."""

    time: int
    seq: int
    ccy: str
    interest: int
    rate: int
    debt: int
    kind: str  # 1 VIP loans, 2 market loans


class LendingRow(NamedTuple):
    """Earnings of savings in an hour, which stay in the savings."""

    time: int
    seq: int
    ccy: str
    amount: int
    earnings: int
    rate: int


# Lists of some hundred rows that stay in memory --------------------------------------------


class OkxDeposit(NamedTuple):
    """A deposit, which determines the row of deposit-history at any time."""

    time: int
    seq: int
    chain: OkxChain
    amount: int
    credited: int  # 0: never
    final: int = 2  # its final state
    internal: str = ""  # `id` or `empty`: what the list has as its transaction
    direct: bool = False  # to the trading account


class OkxWithdrawal(NamedTuple):
    """A withdrawal, which determines the row of withdrawal-history at any time."""

    time: int
    seq: int
    chain: OkxChain
    amount: int  # without the fee
    fee: int
    ended: int
    final: int = 2
    internal: bool = False


class FiatOrder(NamedTuple):
    """A deposit or withdrawal of fiat money, which has separate lists."""

    time: int
    seq: int
    incoming: bool
    ccy: str
    amount: int
    fee: int
    done: int
    state: str = "completed"


class OkxConversion(NamedTuple):
    """A conversion, in either account."""

    time: int
    seq: int
    base: str
    quote: str
    side: str
    size: int
    cost: int
    price: int
    state: str = "fullyFilled"


class DustConversion(NamedTuple):
    """A small balance that easy convert exchanged for another currency."""

    time: int
    seq: int
    spent: str
    amount: int
    got: str
    received: int


class DebtConversion(NamedTuple):
    """A debt that one-click repay paid with another currency."""

    time: int
    seq: int
    debt: str
    repaid: int
    paid: str
    cost: int


class SubTransfer(NamedTuple):
    """A transfer between the account and its sub-account."""

    time: int
    seq: int
    ccy: str
    amount: int
    incoming: bool


class WalletTransfer(NamedTuple):
    """A transfer between the funding and the trading account."""

    time: int
    seq: int
    ccy: str
    amount: int
    source: str
    target: str


class StakeOrder(NamedTuple):
    """An order of on-chain earn, and its payment times."""

    time: int
    seq: int
    ccy: str
    amount: int
    protocol: str
    apy: int
    earnings: tuple[tuple[int, int], ...]  # time and amount
    redeemed: int


class LiquidStake(NamedTuple):
    """A purchase or redemption of staked ETH or SOL."""

    time: int
    seq: int
    ccy: str
    amount: int
    purchase: bool
    completed: int


class LoanStep(NamedTuple):
    """A step of a flexible loan."""

    time: int
    seq: int
    ccy: str
    amount: int
    type: str


class BorrowStep(NamedTuple):
    """A borrowing or repayment in the trading account."""

    time: int
    seq: int
    ccy: str
    amount: int
    debt: int
    type: str


class WalletEvent(NamedTuple):
    """A true event as plain data; the sum of all `changes` is the holdings of the account.

    `changes` are net of fees: (wallet, currency, change), where the wallet is `trading`, `funding`,
    `isolated`, or an earn product; `fees` are the fees paid, (wallet, currency, fee).
    """

    time: int
    kind: str
    reference: str
    changes: tuple[tuple[str, str, int], ...]
    fees: tuple[tuple[str, str, int], ...]
    bills: tuple[str, ...]  # ids of its bills in the trading account
    funding: tuple[str, ...]  # ids of its bills in the funding account
