"""State of a generated account: event queue, positions, tables, wallet ledgers, account modes.

A classic account keeps spot, contracts and USDC contracts in separate wallets; UTA 1.0 keeps
inverse contracts separate; UTA 2.0 has one wallet for all. Trades of a former mode are listed under
other paths than later ones: https://bybit-exchange.github.io/docs/v5/acct-mode
"""

import hashlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from msgspec import Struct

from onebook.simulator.accounts.bybit.facts import (
    MARKETS,
    Closed,
    ExecutionRow,
    LedgerLine,
    SimulatedMarket,
)
from onebook.simulator.accounts.history import Entry, HistoryTable, WalletBalances

HOUR_MS: Final = 3_600_000
UNIFIED, CONTRACT, SPOT, USDC = "UNIFIED", "CONTRACT", "SPOT", "OPTION"
UTA_1, UTA_2 = 3, 5  # unifiedMarginStatus
UID: Final = "7654321"
WALLETS: Final = (UNIFIED, CONTRACT, SPOT, USDC)


class History(Struct, frozen=True):
    """Size of the history to generate.

    Args:
        from_ms: Start of the history; all times are in Unix milliseconds.
        to_ms: End of the history.
        executions: Approximate number of fills and funding payments.
        deposits: Number of deposits, on chain and from other users.
        withdrawals: Number of withdrawals.
        transfers: Number of transfers between wallets; a tenth as many go to other users.
        seed: Random seed.
        unified_ms: Time of the change to a unified account; 0 if it always was one.
        merged_ms: Time when inverse contracts joined the unified wallet (UTA 2.0); 0 for always.
    """

    from_ms: int
    to_ms: int
    executions: int = 2_000
    deposits: int = 60
    withdrawals: int = 60
    transfers: int = 60
    seed: int = 1
    unified_ms: int = 0
    merged_ms: int = 0


class Timeline:
    """Runs the events of an account in chronological order.

    Args:
        from_ms: The first time, in Unix milliseconds.
        to_ms: The last time; later events are dropped.
        seed: Random seed.
    """

    def __init__(self, from_ms: int, to_ms: int, seed: int) -> None:
        self.from_ms = from_ms
        self.to_ms = to_ms
        self.random = Random(seed)  # noqa: S311  # a simulation
        self.last = 1_000_000
        self._queue: list[tuple[int, int, Callable[[int], None]]] = []

    def number(self) -> int:
        """Return the next number; each row and each scheduled event gets one."""
        self.last += 1
        return self.last

    def somewhere(self) -> int:
        """Return a random time, at least an hour after the start."""
        return self.random.randrange(self.from_ms + HOUR_MS, self.to_ms)

    def at(self, at_ms: int, act: Callable[[int], None]) -> None:
        """Schedule an event; `act` is called with its time."""
        heapq.heappush(self._queue, (at_ms, self.number(), act))

    def advance(self, to_ms: int) -> None:
        """Run everything scheduled up to a later time, and keep the rest."""
        self.to_ms = max(self.to_ms, to_ms)
        while self._queue and self._queue[0][0] <= self.to_ms:
            at_ms, _, act = heapq.heappop(self._queue)
            act(at_ms)

    def run(self) -> None:
        """Run all scheduled events, including those that they schedule."""
        while self._queue:
            at_ms, _, act = heapq.heappop(self._queue)
            if at_ms <= self.to_ms:
                act(at_ms)


def uuid_of(seq: int) -> str:
    """Make an id in the form of a UUID from a number."""
    text = hashlib.md5(b"%d" % seq, usedforsecurity=False).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def hash_of(seq: int) -> str:
    """Make the hash of a blockchain transaction from a number."""
    return "0x" + hashlib.sha256(b"tx%d" % seq).hexdigest()


class Holding:
    """A position in one market."""

    __slots__ = ("entry_value", "open_fee", "size")

    def __init__(self) -> None:
        self.size = 0
        self.entry_value = 0
        self.open_fee = 0

    def add(self, size: int, value: int, fee: int) -> None:
        """Open or increase the position by a signed size."""
        self.entry_value += value
        self.open_fee += fee
        self.size += size

    def reduce(self, change: int) -> tuple[int, int]:
        """Close a part, by a signed size; returns its entry value and opening fee."""
        size, held = abs(change), abs(self.size)
        entry, opened = self.entry_value * size // held, self.open_fee * size // held
        self.entry_value -= entry
        self.open_fee -= opened
        self.size += change
        return entry, opened


class Positions:
    """The position in each market, and each market's last price."""

    def __init__(self) -> None:
        self.held: dict[SimulatedMarket, Holding] = defaultdict(Holding)
        self.prices = {market: market.price for market in MARKETS}

    def next_price(self, market: SimulatedMarket, random: Random) -> int:
        """Move a price by up to 0.2 %, kept between half and twice the first price."""
        moved = int(self.prices[market] * (1 + random.uniform(-0.002, 0.002)))
        low, high = market.price // 2, market.price * 2
        self.prices[market] = min(high, max(low, moved)) // market.price_step * market.price_step
        return self.prices[market]


class Modes(NamedTuple):
    """The mode changes of the account.

    Args:
        unified_ms: Time of the change to a unified account, Unix ms; classic before.
        merged_ms: Time when inverse contracts joined the unified wallet.
    """

    unified_ms: int
    merged_ms: int

    def wallet(self, at_ms: int, market: SimulatedMarket | None) -> str:
        """Return the wallet that books an event; without a market it is a transfer or similar."""
        classic = at_ms < self.unified_ms
        if market is None or market.category == "spot":
            return SPOT if classic else UNIFIED
        if classic and market.settle == "USDC":
            return USDC
        return CONTRACT if at_ms < self._joined_ms(market.category) else UNIFIED

    def _joined_ms(self, category: str) -> int:
        return max(self.unified_ms, self.merged_ms) if category == "inverse" else self.unified_ms

    def keeps(self, wallet: str, coin: str, at_ms: int) -> bool:
        """Return whether a wallet still holds a coin in the mode of this time."""
        if wallet == UNIFIED or at_ms < self.unified_ms:
            return True
        # Inverse contracts are settled in their coin, all others in dollars.
        return wallet == CONTRACT and at_ms < self.merged_ms and not coin.startswith("USD")

    def status(self, now_ms: int) -> int:
        """Return the account's `unifiedMarginStatus`."""
        return UTA_1 if now_ms < self.merged_ms else UTA_2

    def shown_from_ms(self, category: str, now_ms: int) -> int:
        """Return the start time of the current paths; older rows are under the former paths."""
        return self._joined_ms(category) if now_ms >= self.merged_ms else self.unified_ms


def split(table: HistoryTable, below_ms: int) -> HistoryTable:
    """Move the rows before a time from a table to a new one."""
    former = HistoryTable()
    kept: list[Entry] = []
    for entry in table.entries:
        # A closed position belongs to the mode in which it closed, whenever it was ordered.
        at_ms = entry.facts.updated_ms if isinstance(entry.facts, Closed) else entry.at_ms
        (former.entries if at_ms < below_ms else kept).append(entry)
    table.entries = kept
    return former


class AccountTables:
    """The rows of all lists except the wallet ledgers; `former_*` are those of former modes."""

    def __init__(self) -> None:
        self.executions = {name: HistoryTable() for name in ("spot", "linear", "inverse")}
        self.orders = {name: HistoryTable() for name in ("spot", "linear", "inverse")}
        self.closed = {name: HistoryTable() for name in ("linear", "inverse")}
        self.deliveries = {name: HistoryTable() for name in ("linear", "inverse")}
        self.sessions = HistoryTable()
        self.former_executions: dict[str, HistoryTable] = {}
        self.former_orders: dict[str, HistoryTable] = {}
        self.former_closed: dict[str, HistoryTable] = {}
        self.former_sessions = HistoryTable()
        self.former_deliveries = HistoryTable()  # of options, which the account never traded
        self.fund_ledger = HistoryTable()
        self.deposits = HistoryTable()
        self.internal_deposits = HistoryTable()
        self.withdrawals = HistoryTable()
        self.transfers = HistoryTable()
        self.universal = HistoryTable()
        self.token_orders = HistoryTable()

    def split(self, modes: Modes, to_ms: int) -> None:
        """Move the rows of former modes to the tables of the former paths."""
        for tables, former in (
            (self.executions, self.former_executions),
            (self.orders, self.former_orders),
            (self.closed, self.former_closed),
        ):
            for category, table in tables.items():
                former[category] = split(table, modes.shown_from_ms(category, to_ms))
        self.former_sessions = split(self.sessions, modes.shown_from_ms("linear", to_ms))


class AccountBooks:
    """The ledger and balances of each trading wallet.

    By construction, each balance of a wallet and coin is the previous one plus the change.

    Args:
        modes: The mode changes of the account.
        number: Returns the next, rising number of a line.
    """

    def __init__(self, modes: Modes, number: Callable[[], int]) -> None:
        self.tables = {wallet: HistoryTable() for wallet in WALLETS}
        self._balances = {wallet: WalletBalances() for wallet in WALLETS}
        self._modes = modes
        self._number = number

    def held(self, wallet: str) -> Counter[str]:
        """Return the balances of a wallet."""
        return self._balances[wallet].held

    def add(
        self,
        at_ms: int,
        coin: str,
        cash: int,
        *,
        fee: int = 0,
        tax: int = 0,
        fill: ExecutionRow | None = None,
        size: int = 0,
        funding: int | None = None,
        kind: str = "",
        wallet: str = "",
    ) -> None:
        """Book one line in the wallet that the account mode determines."""
        seq = self._number()
        wallet = wallet or self._modes.wallet(at_ms, fill.market if fill else None)
        change = cash + (funding or 0) - fee - tax
        balance = self._balances[wallet].book(coin, change)
        if fill is None:
            line = LedgerLine(
                f"L-{seq}", "", "", "None", kind, 0, 0, coin, 0, 0, fee, cash, change,
                balance, "0", "", "", "",
            )  # fmt: skip
        else:
            spot = fill.market.category == "spot"
            line = LedgerLine(
                f"{UID}_{fill.market.symbol}_{seq}", fill.market.symbol, fill.market.category,
                fill.side, kind or ("SETTLEMENT" if funding is not None else "TRADE"),
                cash if spot else fill.quantity, size, coin, fill.price, funding, fee, cash,
                change, balance, fill.rate, fill.execution_id, fill.order_id, fill.link_id, tax,
            )  # fmt: skip
        self.tables[wallet].append(at_ms, seq, line)

    def held_apart(self, at_ms: int) -> list[tuple[str, str, int]]:
        """List wallet, coin and amount of the balances in wallets that end at this time."""
        return [
            (wallet, coin, amount)
            for wallet in WALLETS
            for coin, amount in self.held(wallet).items()
            if amount and not self._modes.keeps(wallet, coin, at_ms)
        ]


class HistoryParts(NamedTuple):
    """The state of the account under generation, shared by its generators."""

    history: History
    timeline: Timeline
    tables: AccountTables
    books: AccountBooks
    modes: Modes
    positions: Positions


class HistoryGenerator:
    """Schedules events of one kind and books them."""

    def __init__(self, parts: HistoryParts) -> None:
        self._history = parts.history
        self._timeline = parts.timeline
        self._tables = parts.tables
        self._books = parts.books
        self._modes = parts.modes
        self._positions = parts.positions
