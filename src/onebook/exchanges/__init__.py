"""The exchanges we know: a registry that is written out, and nothing that happens on import."""

from typing import Final

from onebook.exchanges import binance, bybit, coinbase, kraken, okx, poloniex
from onebook.exchanges.contract import Exchange

EXCHANGES: Final[dict[str, Exchange]] = {
    "binance": binance.EXCHANGE,
    "okx": okx.EXCHANGE,
    "bybit": bybit.EXCHANGE,
    "coinbase": coinbase.EXCHANGE,
    "kraken": kraken.EXCHANGE,
    "poloniex": poloniex.EXCHANGE,
}

_FORMER: Final = {
    former: exchange.name for exchange in EXCHANGES.values() for former in exchange.former_names
}


def resolve(name: str) -> str | None:
    """Find the name we use for an exchange, from any name it goes or went by; None if unknown."""
    name = name.strip().lower()
    return name if name in EXCHANGES else _FORMER.get(name)
