"""Deposits, withdrawals, transfers, and ledger lines that no other list has."""

from functools import partial
from typing import Final

from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit.facts import (
    MARKETS,
    MILLI,
    Deposit,
    FundLine,
    Moved,
    Withdrawal,
)
from onebook.simulator.accounts.bybit.generator import (
    HOUR_MS,
    UID,
    UNIFIED,
    HistoryGenerator,
    HistoryParts,
    hash_of,
    uuid_of,
)
from onebook.simulator.accounts.history import UNIT, WalletBalances

FUND_TEXTS: Final = {
    "Earn": "Easy Earn | Flexible Interest Distribution",
    "Convert": "Convert",
    "Airdrop": "Airdrop Bonus",
}
COINS: Final = ("USDT", "BTC", "ETH", "USDC")


class FundHistory(HistoryGenerator):
    """Generates movements between wallets, users and the chain, and books them.

    Attributes:
        held: The balance of each coin in the funding wallet.
    """

    def __init__(self, parts: HistoryParts) -> None:
        super().__init__(parts)
        self._fund = WalletBalances()
        self.held = self._fund.held

    def schedule_funds(self) -> None:
        """Schedule deposits, withdrawals and transfers."""
        start = self._history.from_ms
        for coin, amount in (
            ("USDT", 50_000_000),
            ("BTC", 500),
            ("ETH", 5_000),
            ("USDC", 5_000_000),
        ):
            self._timeline.at(start, partial(self._deposit, coin=coin, amount=2 * amount * UNIT))
            self._timeline.at(
                start + 1_000, partial(self._transfer, coin=coin, amount=amount * UNIT, sign=1)
            )
        for index in range(self._history.deposits - len(COINS)):
            self._timeline.at(self._timeline.somewhere(), partial(self.some_deposit, index=index))
        for index in range(self._history.withdrawals):
            self._timeline.at(self._timeline.somewhere(), partial(self.withdraw, index=index))
        for index in range(self._history.transfers - len(COINS)):
            self._timeline.at(self._timeline.somewhere(), partial(self.some_transfer, index=index))
        for index in range(self._history.transfers // 10):
            self._timeline.at(self._timeline.somewhere(), partial(self._give, index=index))

    def schedule_modes(self) -> None:
        """Schedule the changes of the account mode."""
        changes = {self._modes.unified_ms, self._modes.merged_ms} - {0}
        if changes:
            self._timeline.at(self._history.from_ms + 2_000, self._fund_contracts)
        for at_ms in sorted(changes):
            self._timeline.at(at_ms, self._change_mode)

    def schedule_odds(self) -> None:
        """Schedule other lines: interest, airdrops, leverage tokens, an unknown type."""
        kinds = ("INTEREST", "AIRDROP", "FEE_REFUND", "FLEXIBLE_STAKING_REDEMPTION",
                 "SOMETHING_NEW", "TOKENS_SUBSCRIPTION", "TOKENS_REDEMPTION", "CURRENCY_SELL",
                 "Earn", "Convert", "Airdrop")  # fmt: skip
        first = self._history.from_ms + DAY_MS + 17
        for index, at_ms in enumerate(range(first, self._history.to_ms, 3 * DAY_MS)):
            self._timeline.at(at_ms, partial(self._odd, kind=kinds[index % len(kinds)]))

    def _fund_contracts(self, at_ms: int) -> None:
        """Transfer margin to the contract wallets, in modes that have separate ones."""
        for market in {market.settle: market for market in MARKETS if market.settle}.values():
            source, target = (self._modes.wallet(at_ms, of) for of in (None, market))
            if target == source:
                continue
            seq, amount = self._timeline.number(), 100 * UNIT
            moved = Moved(
                f"selfTransfer_{uuid_of(seq)}", market.settle, amount, source, target, "", ""
            )
            self._tables.transfers.append(at_ms, seq, moved)
            self._move(at_ms, market.settle, amount, source, target)

    def _move(self, at_ms: int, coin: str, amount: int, source: str, target: str) -> None:
        self._books.add(at_ms, coin, -amount, kind="TRANSFER_OUT", wallet=source)
        self._books.add(at_ms, coin, amount, kind="TRANSFER_IN", wallet=target)

    def _change_mode(self, at_ms: int) -> None:
        """Move the balances of wallets that the new mode lacks to the unified wallet."""
        for wallet, coin, amount in self._books.held_apart(at_ms):
            self._move(at_ms, coin, amount, wallet, UNIFIED)

    def _book_fund(self, at_ms: int, coin: str, change: int, kind: str, text: str) -> None:
        at_ms = at_ms // 1_000 * 1_000
        line = FundLine(coin, change, self._fund.book(coin, change), kind, text)
        self._tables.fund_ledger.append(at_ms, self._timeline.number(), line)

    def _odd(self, at_ms: int, kind: str) -> None:
        """Book an event that appears in no list except the wallet's ledger."""
        amount = self._timeline.random.randrange(1, 10_000) * MILLI
        if kind.startswith("TOKENS"):
            return self._odd_token(at_ms, kind, amount)
        if kind in FUND_TEXTS:
            self._book_fund(at_ms, "USDT", amount, kind, FUND_TEXTS[kind])
            if kind == "Convert":
                self._book_fund(at_ms, "USDC", -amount, kind, FUND_TEXTS[kind])
            return None
        if kind == "CURRENCY_SELL":
            self._books.add(at_ms, "USDC", amount, kind="CURRENCY_BUY")
        paid = kind in ("INTEREST", "CURRENCY_SELL")
        self._books.add(at_ms, "USDT", -amount if paid else amount, kind=kind)
        return None

    def _odd_token(self, at_ms: int, kind: str, amount: int) -> None:
        bought = kind == "TOKENS_SUBSCRIPTION"
        held = self._books.held(self._modes.wallet(at_ms, None))["BTC3L"]
        amount = amount if bought else min(amount, held)
        if amount:
            sign = 1 if bought else -1
            self._books.add(at_ms, "USDT", -sign * amount, kind=kind)
            self._books.add(at_ms, "BTC3L", sign * amount, kind=kind)

    def some_deposit(self, at_ms: int, index: int) -> None:
        """Book an arriving deposit; `index` determines its coin and its kind."""
        coin = COINS[index % len(COINS)]
        amount = self._timeline.random.randrange(1, 100_000) * MILLI
        wait_ms = self._timeline.random.choice((0, 90_000, 20 * 60_000, 2 * HOUR_MS, 30 * HOUR_MS))
        internal, blocked = index % 7 == 3, index % 17 == 5
        self._deposit(
            at_ms, coin=coin, amount=amount, wait_ms=wait_ms, internal=internal, blocked=blocked
        )

    def _deposit(
        self,
        at_ms: int,
        *,
        coin: str,
        amount: int,
        wait_ms: int = 0,
        internal: bool = False,
        blocked: bool = False,
    ) -> None:
        seq = self._timeline.number()
        deposit = Deposit(coin, amount, at_ms, hash_of(seq), internal=internal, blocked=blocked)
        if internal:
            deposit.status, deposit.credited_ms = 2, at_ms
            self._tables.internal_deposits.append(at_ms // 1_000 * 1_000, seq, deposit)
            return self._book_fund(at_ms, coin, amount, "Deposit", "Off-chain deposit")
        self._tables.deposits.append(at_ms, seq, deposit)
        if not wait_ms:
            return self._credit(at_ms, deposit)
        self._timeline.at(at_ms + wait_ms, partial(self._credit, deposit=deposit))

    def _credit(self, at_ms: int, deposit: Deposit) -> None:
        deposit.credited_ms = at_ms // 1_000 * 1_000
        deposit.status = 3 if self._timeline.random.random() > 0.02 else 70012
        if deposit.blocked:
            deposit.status = 3
            return
        self._book_fund(at_ms, deposit.coin, deposit.amount, "Deposit", "On-chain deposit")

    def withdraw(self, at_ms: int, index: int) -> None:
        """Withdraw funds, unless the withdrawal is cancelled."""
        coin, internal = COINS[index % len(COINS)], index % 6 == 1
        amount = self._timeline.random.randrange(1, 5_000) * MILLI
        fee = 0 if internal else MILLI
        withdrawal = Withdrawal(
            coin, amount, fee, at_ms, hash_of(self._timeline.last), internal=internal
        )
        withdrawal.status = "success" if index % 9 else "CancelByUser"
        withdrawal.updated_ms = at_ms + 60_000
        withdrawal.tax = MILLI if index % 11 == 5 else 0
        self._tables.withdrawals.append(at_ms, self._timeline.number(), withdrawal)
        if withdrawal.status == "success":
            left = amount + fee + withdrawal.tax
            self._book_fund(at_ms, coin, -left, "Withdraw", "Withdrawal")

    def some_transfer(self, at_ms: int, index: int) -> None:
        """Move funds between the funding and the unified wallet."""
        amount = self._timeline.random.randrange(1, 1_000) * MILLI
        self._transfer(
            at_ms, coin=COINS[index % len(COINS)], amount=amount, sign=1 if index % 3 else -1
        )

    def _transfer(self, at_ms: int, *, coin: str, amount: int, sign: int) -> None:
        """Transfer between the funding and the unified wallet: a line in both ledgers."""
        wallet = self._modes.wallet(at_ms, None)
        names = ("FUND", wallet) if sign > 0 else (wallet, "FUND")
        seq = self._timeline.number()
        moved = Moved(f"selfTransfer_{uuid_of(seq)}", coin, amount, *names, "", "")
        self._tables.transfers.append(at_ms, seq, moved)
        self._book_fund(at_ms, coin, -sign * amount, "Transfer", "Transfer")
        self._books.add(
            at_ms, coin, sign * amount, kind="TRANSFER_IN" if sign > 0 else "TRANSFER_OUT"
        )

    def _give(self, at_ms: int, index: int) -> None:
        """Transfer between related users: from this one, to it, or between others."""
        seq, coin = self._timeline.number(), COINS[index % len(COINS)]
        amount = self._timeline.random.randrange(1, 100) * MILLI
        source, target = ((UID, "7654399"), ("7654399", UID), ("7654398", "7654399"))[index % 3]
        moved = Moved(
            f"universalTransfer_{uuid_of(seq)}", coin, amount, "UNIFIED", "UNIFIED", source, target
        )
        self._tables.universal.append(at_ms, seq, moved)
        if UID in (source, target):
            kind, sign = ("TRANSFER_OUT", -1) if source == UID else ("TRANSFER_IN", 1)
            self._books.add(at_ms, coin, sign * amount, kind=kind)
