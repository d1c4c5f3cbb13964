"""The simulated OKX account: rows in any range, balances at any time, and the true events.

`newest` returns rows of a table, `lists` has the short lists, `happen` adds live events.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from functools import cache
from random import Random
from typing import Any, Final

from onebook.simulator.accounts.blocks import Acts, BlockHistory
from onebook.simulator.accounts.okx.contracts import ContractTrading
from onebook.simulator.accounts.okx.facts import (
    FUNDING,
    ISOLATED,
    TRADING,
    FundingBill,
    OkxHistory,
    TradingBill,
    WalletEvent,
)
from onebook.simulator.accounts.okx.funds import FundingFlows
from onebook.simulator.accounts.okx.generator import (
    ROWS_A_STEP,
    OkxBlock,
    OkxBooks,
    OkxState,
    planned,
    run_block,
)
from onebook.simulator.accounts.okx.trading import PairTrading

WALLETS: Final = {"bills": (TRADING, ISOLATED), "funding": (FUNDING,)}  # others: products


def all_acts(books: OkxBooks) -> Acts:
    """Return the possible events, by name."""
    return {
        **PairTrading(books).acts(), **ContractTrading(books).acts(), **FundingFlows(books).acts(),
    }  # fmt: skip


class OkxAccount(BlockHistory[OkxState, OkxBlock]):
    """A generated account.

    Args:
        history: What to generate; the same history produces the same account.
    """

    def __init__(self, history: OkxHistory) -> None:
        super().__init__(OkxBlock, OkxState(), max(1, round(history.rows / ROWS_A_STEP)))
        self.history = history
        self.until = history.to_ms  # the time of the newest event
        self.lists: dict[str, list[Any]] = defaultdict(list)
        self.happened = OkxBlock()  # the rows of the last live event
        self._plan = planned(history)
        self._generate_all()

    def _generate(self, state: OkxState, index: int) -> OkxBlock:
        return run_block(self.history, state, index, all_acts, self._plan, steps=self._steps)

    def _collect(self, block: OkxBlock) -> None:
        for name, row in block.kept:
            self.lists[name].append(row)

    def _label(self, table: str, row: Any) -> Hashable:
        return _pair(row.ccy, row.type) if table in ("bills", "funding") else ""

    def bills(self) -> Iterator[TradingBill]:
        """Iterate over the bills of the trading account, oldest first."""
        yield from self.rows("bills")

    def funding(self) -> Iterator[FundingBill]:
        """Iterate over the bills of the funding account, oldest first."""
        yield from self.rows("funding")

    # Truth ----------------------------------------------------------------------------------

    def balances(self, at_ms: int | None = None) -> dict[tuple[str, str], int]:
        """Return the balances by (wallet, currency), now or at a past time.

        Wallets are `trading`, `funding`, `isolated` and the earn products; amounts are in 10^-16.
        Zero balances are included. The times of trading bills are off by some milliseconds.
        """
        if at_ms is None:
            return dict(self.state.held)
        held: dict[tuple[str, str], int] = {}
        for table in ("bills", "funding", "products"):
            start, rows = self._until(table, (at_ms, float("inf")))
            if start is None:
                continue
            held |= {key: n for key, n in start.held.items() if _table_of(key[0]) == table}
            for row in rows:
                if isinstance(row, TradingBill):
                    held[TRADING, row.ccy] = row.balance
                    if row.isolated:
                        held[ISOLATED, row.ccy] = row.isolated_after
                else:
                    wallet = FUNDING if isinstance(row, FundingBill) else row.wallet
                    held[wallet, row.ccy] = row.balance
        return held

    def events(self) -> Iterator[WalletEvent]:
        """Iterate over all events in booking order."""
        return self._done()

    # Live -----------------------------------------------------------------------------------

    def happen(self, kind: str, at_ms: int) -> list[WalletEvent]:
        """Run an event now, after all due ones; returns the booked events.

        `kind` is a name in `generator.PLAN`, `order` or `position`; "" books only what is due, such
        as deposits that have been confirmed.
        """
        self._begin_live()
        block, at = OkxBlock(), max(self.until, at_ms)
        random = Random(f"okx live {self.history.seed} {self.state.number('live')}")  # noqa: S311
        acts = all_acts(OkxBooks(self.history, self.state, block, random))
        self.state.run_due(self._plan, acts, until=at)
        if kind:
            acts[kind](at)
        self.until = at
        self._append_live(block)
        self.happened = block
        return list(block.done)


@cache
def _pair(ccy: str, kind: str) -> tuple[str, str]:
    """Return one tuple for all rows of a currency and type, because the extents keep many of
    them."""
    return ccy, kind


def _table_of(wallet: str) -> str:
    return next((table for table, wallets in WALLETS.items() if wallet in wallets), "products")
