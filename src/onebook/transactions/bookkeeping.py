"""How an exchange names and books the events of an account, as the proof needs it."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct


class EventType(StrEnum):
    """Types of events as the proof names them; see `Bookkeeping.types_of`."""

    # The same at every exchange.
    LEDGER = "ledger"
    HOLDINGS = "holdings"
    DEPOSITS = "deposits"
    WITHDRAWALS = "withdrawals"
    TRANSFERS = "transfers"
    # Exchanges have their own names for these.
    TRADES = "trades"
    FUTURES = "futures"
    TOKENS = "leverage_tokens"


class Unproven(Struct, frozen=True):
    """What no answer of the exchange can prove, and why."""

    what: str
    why: str


class Bookkeeping(Struct, frozen=True, kw_only=True):
    """What an exchange's books hold, and what they are called.

    Args:
        trades: Its type of spot fills and orders; "" where it has none.
        spot: Its category of spot markets.
        contracts: Its type of each category of contracts.
        tokens: Its type of leverage tokens; "" where it has none.
        trading_wallet: The wallet to which a deposit can be credited, and from which a withdrawal
            can go, by a line that its book calls a transfer; "" where there is none.
        funding_wallet: The wallet of which every transfer is listed; "" where there is none.
        held: The wallets whose holdings are read.
        unheld: What to say where there are others.
        unproven: What cannot be proven of a type (or `TRADES`, `FUTURES`, `TOKENS`).
        reasons: By check, why something can be left over that is not lost.
    """

    trades: str = ""
    spot: str = "spot"
    contracts: Mapping[str, str] = {}
    tokens: str = ""
    trading_wallet: str = ""
    funding_wallet: str = ""
    held: frozenset[str] = frozenset()
    unheld: Unproven | None = None
    unproven: tuple[tuple[str, Unproven], ...] = ()
    reasons: Mapping[str, str] = {}

    def types_of(self, name: str) -> frozenset[str]:
        """The types of the exchange behind a name of this module; any of them serves."""
        own = {
            EventType.TRADES: frozenset({self.trades} - {""}),
            EventType.FUTURES: frozenset(self.contracts.values()),
            EventType.TOKENS: frozenset({self.tokens} - {""}),
        }
        return own.get(name, frozenset({name}))

    def word(self, name: str) -> str:
        """What a client calls it in a request."""
        return {EventType.TRADES: self.trades, EventType.TOKENS: self.tokens}.get(name, name)

    def type_of(self, category: str) -> str:
        """The type of what happens in a category of markets; "" where it has none."""
        return self.trades if category == self.spot else self.contracts.get(category, "")
