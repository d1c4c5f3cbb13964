"""What to use instead of exchanges that clients of the same interface name and Onebook lacks.

The names are those of the public reference of such a service; closings and moves are of November
2026, and what ccxt has is of its version 4.5.90.
"""

from typing import Final

DERIVATIVES: Final = "It lists derivatives, and Onebook has spot books"
BY_CCXT: Final = (
    "Onebook has no connector for it; the operator of a service can add it through ccxt"
    " (feeds.ccxt.exchanges)."
)
DROPPED: Final = "Neither Onebook nor ccxt connects to it any more."

INSTEAD: Final[dict[str, str]] = {
    "binancecoinm": f"{DERIVATIVES}: use binance.",
    "binanceusdm": f"{DERIVATIVES}: use binance.",
    "krakenfutures": f"{DERIVATIVES}: use kraken.",
    "kucoinfutures": f"{DERIVATIVES}: use kucoin.",
    "coinbaseinternational": "Its derivatives moved to Deribit in October 2026: use coinbase.",
    "okcoin": "Its business in the United States is OKX US: use okxus.",
    **dict.fromkeys(("apex", "blofin", "modetrade", "paradex", "woofipro"), f"{DERIVATIVES}."),
    **dict.fromkeys(
        (
            *("alpaca", "bitopro", "bitrue", "bittrade", "coincheck", "coinone", "derive"),
            *("hashkey", "hollaex", "ndax", "onetrading"),
        ),
        BY_CCXT,
    ),
    "luno": "Its books need an API key of the exchange, so Onebook has no connector for it.",
    "bitmart": "It closed in July 2026.",
    "exmo": "It closed in July 2026.",
    "coinex": "It ended trading on 2026-09-29.",
    "blockchaincom": "It suspended trading in October 2025.",
    **dict.fromkeys(
        ("ascendex", "bitmex", "coincatch", "defx", "oxfun", "probit", "tradeogre", "vertex"),
        DROPPED,
    ),
}


def instead_of(name: str) -> str:
    """Say in a sentence what to use instead of an exchange; "" where nothing is known of it."""
    return INSTEAD.get(name.strip().lower(), "")
