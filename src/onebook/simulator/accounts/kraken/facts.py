"""Rows of the simulated Kraken account as facts: amounts in 10^-12, times in 10^-7 seconds."""

from typing import Any, Final, NamedTuple

from msgspec import Struct

from onebook.simulator.accounts.kraken.names import Contract, ListedPair, id_of, ticks_of

# Times when Kraken changed the behaviour of accounts or the form of their rows.
REFIDS_CHANGED: Final = ticks_of("2023-08-01")  # references of funding become FT...
STAKING_ENDED: Final = ticks_of("2024-01-15")  # staked funds move to Earn
SEVEN_DECIMALS: Final = ticks_of("2023-01-01")  # in times; trades also get the field `maker`
TRADESPOT: Final = ticks_of("2025-01-01")  # subtype of trades; ledger times lose a decimal
FLEX_OPENED: Final = ticks_of("2022-03-20")  # multi-collateral contracts


class KrakenHistory(Struct, frozen=True):
    """Size of the history to generate.

    Args:
        from_ms: Start of the history, in Unix milliseconds.
        to_ms: End of the history.
        rows: Approximate number of ledger rows, up to a million and more: memory does not grow with
            it, because rows are regenerated when they are read.
        seed: Random seed.
        futures: Whether the account uses Kraken Futures, whose log has a fifth as many rows.
        log_gaps: Whether ids of the futures log skip numbers.
    """

    from_ms: int
    to_ms: int
    rows: int = 3_000
    seed: int = 1
    futures: bool = True
    log_gaps: bool = False


class BookedRow(NamedTuple):
    """A row of the spot ledger; `balance` is the balance of its asset id after it."""

    time: int
    seq: int
    refid: str | tuple[str, int]  # a tuple is the kind and number of an id
    type: str
    subtype: str
    asset: str
    amount: int
    fee: int
    balance: int

    @property
    def reference(self) -> str:
        """Its `refid` as text."""
        return self.refid if isinstance(self.refid, str) else id_of(*self.refid)


class SpotTrade(NamedTuple):
    """A row of TradesHistory: one fill; the reference of its ledger rows is derived from its
    number."""

    time: int
    seq: int
    pair: ListedPair
    side: str
    ordertype: str
    price: int
    cost: int
    fee: int
    volume: int
    order: int
    maker: bool
    ledger: tuple[int, ...]
    margin: int = 0
    leverage: int = 0
    misc: str = ""
    opened: int = 0  # for a closing trade: the number of the trade that opened the position


class SpotOrder(NamedTuple):
    """A row of ClosedOrders, by the time it closed."""

    time: int
    seq: int
    pair: ListedPair
    side: str
    ordertype: str
    price: int
    volume: int
    executed: int
    cost: int
    fee: int
    opened: int
    trades: tuple[int, ...]
    oflags: str


class ClosedPosition(NamedTuple):
    """The end of a margin position, shown in the row of its opening trade."""

    trade: int
    price: int
    cost: int
    fee: int
    volume: int
    margin: int
    net: int


class Movement(NamedTuple):
    """A deposit or withdrawal, which determines DepositStatus and WithdrawStatus at any time."""

    seq: int
    incoming: bool
    refid: str
    asset: str
    method: str
    network: str
    amount: int  # net of the fee
    fee: int
    fee_shown: bool
    asked: int
    booked: int  # when a deposit is credited, a withdrawal sent; 0: never
    failed: int = 0  # when it fails, or is returned; 0: never
    prop: str = ""
    originator: str = ""


class LoggedRow(NamedTuple):
    """A row of the account log of Kraken Futures; `seq` is its id."""

    time: int
    seq: int
    account: str
    asset: str
    info: str
    old: int
    new: int
    contract: str = ""
    execution: str = ""
    trade_price: int | None = None
    mark_price: int | None = None
    old_entry: int | None = None
    new_entry: int | None = None
    fee: int | None = None
    pnl: int | None = None
    funding: int | None = None
    rate: int | None = None
    liquidation_fee: int | None = None
    spread: int | None = None
    exchange_rate: tuple[int, str] | None = None


class FuturesFill(NamedTuple):
    """An execution of a contract, and its effect on the position."""

    time: int
    seq: int
    contract: Contract
    side: str
    size: int
    price: int
    mark: int
    kind: str
    old: int
    new: int
    old_entry: int
    new_entry: int
    fee: int
    pnl: int
    funding: int


class Done(NamedTuple):
    """An event of the account: its rows, in one ledger or both."""

    kind: str
    reference: str | tuple[str, int]
    ledger: tuple[BookedRow, ...] = ()
    log: tuple[LoggedRow, ...] = ()


class AccountEvent(NamedTuple):
    """An event as plain data; all `changes` add up to the balances.

    `changes` are net of fees: (wallet, asset id, change), where the wallet is `spot` or a margin
    account of Kraken Futures; `fees` are the fees included in them, (wallet, asset id, fee).
    """

    time: int
    kind: str
    reference: str
    changes: tuple[tuple[str, str, int], ...]
    fees: tuple[tuple[str, str, int], ...]
    ledger: tuple[str, ...]  # ids of its rows
    log: tuple[int, ...]


SPOT: Final = "spot"


def event_of(done: Done) -> AccountEvent:
    """Return an event as plain data. Positions are not assets and appear in no change."""
    cash = [row for row in done.log if row.asset != row.contract]
    changes = [(SPOT, row.asset, row.amount - row.fee) for row in done.ledger]
    changes += [(row.account, row.asset, row.new - row.old) for row in cash]
    fees = [(SPOT, row.asset, row.fee) for row in done.ledger if row.fee]
    fees += [
        (row.account, row.asset, (row.fee or 0) + (row.liquidation_fee or 0))
        for row in cash
        if row.fee or row.liquidation_fee
    ]
    rows: tuple[Any, ...] = (*done.ledger, *done.log)
    reference = done.reference
    return AccountEvent(
        min(row.time for row in rows),
        done.kind,
        reference if isinstance(reference, str) else id_of(*reference),
        tuple(changes),
        tuple(fees),
        tuple(id_of("L", row.seq) for row in done.ledger),
        tuple(row.seq for row in done.log),
    )
