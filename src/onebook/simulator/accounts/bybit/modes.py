"""The modes that the simulated account was in, and what belongs to which.

A classic account keeps spot, contracts and contracts in USDC in wallets of their own; UTA 1.0
keeps inverse contracts apart; UTA 2.0 has one wallet for all. What was traded in a mode that the
account has left is shown on other paths than what came after:
https://bybit-exchange.github.io/docs/v5/acct-mode
"""

from typing import Final, NamedTuple

from onebook.simulator.accounts.bybit.facts import Closed, SimulatedMarket
from onebook.simulator.accounts.tables import Entry, HistoryTable

UNIFIED, CONTRACT, SPOT, USDC = "UNIFIED", "CONTRACT", "SPOT", "OPTION"
UTA_1, UTA_2 = 3, 5  # unifiedMarginStatus


class Modes(NamedTuple):
    """When the account changed its mode.

    Args:
        unified_ms: When it became a unified account, Unix ms; classic before.
        merged_ms: When inverse contracts joined the unified wallet.
    """

    unified_ms: int
    merged_ms: int

    def wallet(self, at_ms: int, market: SimulatedMarket | None) -> str:
        """Whose book an event is in; without a market it is a transfer or the like."""
        classic = at_ms < self.unified_ms
        if market is None or market.category == "spot":
            return SPOT if classic else UNIFIED
        if classic and market.settle == "USDC":
            return USDC
        return CONTRACT if at_ms < self._joined_ms(market.category) else UNIFIED

    def _joined_ms(self, category: str) -> int:
        return max(self.unified_ms, self.merged_ms) if category == "inverse" else self.unified_ms

    def keeps(self, wallet: str, coin: str, at_ms: int) -> bool:
        """Whether a wallet still has a coin in the mode of this time."""
        if wallet == UNIFIED or at_ms < self.unified_ms:
            return True
        # Inverse contracts are settled in their coin, the others in dollars.
        return wallet == CONTRACT and at_ms < self.merged_ms and not coin.startswith("USD")

    def status(self, now_ms: int) -> int:
        """The account's `unifiedMarginStatus`."""
        return UTA_1 if now_ms < self.merged_ms else UTA_2

    def shown_from_ms(self, category: str, now_ms: int) -> int:
        """Where what the usual paths show begins; what is older is on the former ones."""
        return self._joined_ms(category) if now_ms >= self.merged_ms else self.unified_ms


NEVER_CHANGED: Final = Modes(0, 0)


def split(table: HistoryTable, below_ms: int) -> HistoryTable:
    """Take the rows of before a time out of a table, into one of their own."""
    former = HistoryTable()
    kept: list[Entry] = []
    for entry in table.entries:
        # A closed position belongs to the mode in which it closed, whenever its order came.
        at_ms = entry.facts.updated_ms if isinstance(entry.facts, Closed) else entry.at_ms
        (former.entries if at_ms < below_ms else kept).append(entry)
    table.entries = kept
    return former
