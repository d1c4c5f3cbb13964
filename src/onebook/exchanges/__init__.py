"""The exchanges we know: one line each; what else belongs to one is found by its name.

`onebook.exchanges.<name>.EXCHANGE` are its facts, `onebook.simulator.<name>.DIALECT` is its side of
the protocol. Importing these modules does nothing but define them.

Not here, though other clients have it: Blockchain.com Exchange. Its help centre says that trading
was suspended on 2025-10-19 (article 22422379791516), and a wire probe of 2026-09-23
(nemanull/arbitrage-observatory) found that none of the 60 books of its `l2` channel changed in
45 s, twice, and that they are not those of its REST interface: old orders, shown as live.
"""

from importlib import import_module
from typing import Final

from onebook.errors import ConfigError
from onebook.exchanges.kit import Exchange

NAMES: Final = (
    "binance",
    "okx",
    "bybit",
    "coinbase",
    "kraken",
    "poloniex",
    "kucoin",
    "htx",
    "mexc",
    "bitfinex",
    "binanceus",
    "okxus",
    "hitbtc",
    "bequant",
    "gate",
    "gemini",
    "bitstamp",
    "upbit",
    "bithumb",
    "bitflyer",
    "bitvavo",
    "whitebit",
    "bitget",
    "cryptocom",
    "backpack",
    "bingx",
    "deribit",
    "independentreserve",
    "lbank",
    "cex",
    "xt",
    "woo",
    "phemex",
    "hyperliquid",
    "p2b",
)

EXCHANGES: Final[dict[str, Exchange]] = {
    name: import_module(f"onebook.exchanges.{name}").EXCHANGE for name in NAMES
}

_FORMER: Final = {
    former: exchange.name for exchange in EXCHANGES.values() for former in exchange.former_names
}


def resolve(name: str) -> str | None:
    """Find the name we use for an exchange, from any name it goes or went by; None if unknown."""
    name = name.strip().lower()
    return name if name in EXCHANGES else _FORMER.get(name)


def channel_of(exchange: Exchange, channel: str) -> Exchange:
    """Return the facts of one of an exchange's book channels; "" is its usual one.

    Raises:
        ConfigError: It has no channel of this name.
    """
    if not channel:
        return exchange
    if channel not in exchange.channels:
        known = ", ".join(exchange.channels) or "none but the usual one"
        raise ConfigError(
            f"feeds.overrides.{exchange.name}.channel: there is no channel {channel!r}; "
            f"known are {known}."
        )
    return exchange.channels[channel]
