"""Deposits and withdrawals of a coin on an exchange, and whether a coin can be moved between two.

Everything that is not known is None: a missing state never counts as open or closed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class NetworkTransfer:
    """The state of one network of a coin.

    `withdraw_fee` is in the coin. The name of the network is that of the library that read it.
    """

    network: str
    deposit: bool | None = None
    withdraw: bool | None = None
    withdraw_fee: Decimal | None = None


@dataclass(frozen=True, slots=True)
class CoinTransfer:
    """The state of a coin's deposits and withdrawals on one exchange.

    `via` is the library that read it, `read_at_ms` when (Unix milliseconds).
    """

    via: str
    read_at_ms: int
    deposit: bool | None = None
    withdraw: bool | None = None
    networks: tuple[NetworkTransfer, ...] = ()


@dataclass(frozen=True, slots=True)
class Transferable:
    """Whether a coin can be moved from the exchange where it is bought to that where it is sold.

    `possible` is False if one of them does not allow it, True if a network of the same name is open
    on both, else None. An exchange whose state is unknown is None.
    """

    coin: str
    possible: bool | None
    buy: CoinTransfer | None
    sell: CoinTransfer | None


Transfers = Callable[[str, str], CoinTransfer | None]  # by exchange and coin


def no_transfers(exchange: str, coin: str) -> CoinTransfer | None:
    """Know nothing of any exchange."""


def transferable(
    coin: str, buy: CoinTransfer | None, sell: CoinTransfer | None
) -> Transferable | None:
    """Return whether a coin can be moved; None if nothing is known of both exchanges."""
    if buy is None and sell is None:
        return None
    return Transferable(coin, _possible(buy, sell), buy, sell)


def _possible(buy: CoinTransfer | None, sell: CoinTransfer | None) -> bool | None:
    if (buy is not None and buy.withdraw is False) or (sell is not None and sell.deposit is False):
        return False
    if buy is None or sell is None:
        return None
    leaving = {each.network for each in buy.networks if each.withdraw}
    arriving = {each.network for each in sell.networks if each.deposit}
    return True if leaving & arriving else None
