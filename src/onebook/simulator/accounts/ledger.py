"""What a simulated wallet holds: per coin, every balance is the one before plus the change."""

from collections import Counter


class WalletBalances:
    """The balances of a wallet; only booking a change moves them."""

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()

    def book(self, coin: str, change: int) -> int:
        """Book a change of a coin; the balance after it comes back."""
        self.held[coin] += change
        return self.held[coin]
