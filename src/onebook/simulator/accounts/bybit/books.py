"""The books of the simulated account's trading wallets, and what each of them holds.

Per wallet and coin every balance is the one before plus the change, by construction.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from onebook.simulator.accounts.bybit.facts import ExecutionRow, LedgerLine
from onebook.simulator.accounts.bybit.modes import CONTRACT, SPOT, UNIFIED, USDC, Modes
from onebook.simulator.accounts.ledger import WalletBalances
from onebook.simulator.accounts.tables import HistoryTable

UID: Final = "7654321"
WALLETS: Final = (UNIFIED, CONTRACT, SPOT, USDC)


class AccountBooks:
    """A table of lines and what is held, for each wallet.

    Args:
        modes: Which wallets the account has, and when.
        number: Returns the next number of a line; it grows.
    """

    def __init__(self, modes: Modes, number: Callable[[], int]) -> None:
        self.tables = {wallet: HistoryTable() for wallet in WALLETS}
        self._balances = {wallet: WalletBalances() for wallet in WALLETS}
        self._modes = modes
        self._number = number

    def held(self, wallet: str) -> Counter[str]:
        """What a wallet holds of each coin."""
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
        """Book one line, in the wallet that the account's mode has for it."""
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
        """Wallet, coin and amount of all that is held where nothing is booked from now on."""
        return [
            (wallet, coin, amount)
            for wallet in WALLETS
            for coin, amount in self.held(wallet).items()
            if amount and not self._modes.keeps(wallet, coin, at_ms)
        ]
