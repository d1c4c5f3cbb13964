"""Selects exchanges by a list: names, "all", and "-name" to leave one out.

`instead_of` suggests a replacement for a name that clients of the same interface know and Onebook
lacks. These names are from the public reference of such a service; closings and moves are of
November 2026, and what ccxt has is of its version 4.5.90.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

ALL: Final = "all"

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


class ExchangeSelection(NamedTuple):
    """A list of exchanges as it was asked for, each with the name we use: None where unknown."""

    everything: bool
    wanted: dict[str, str | None]
    unwanted: dict[str, str | None]

    @property
    def known(self) -> tuple[str, ...]:
        """The exchanges that are asked for by name, as we name them."""
        return tuple(dict.fromkeys(name for name in self.wanted.values() if name is not None))

    @property
    def unknown(self) -> list[str]:
        """Names that no exchange has, as they were asked for."""
        asked = (*self.wanted.items(), *self.unwanted.items())
        return [name for name, known in asked if known is None]

    def among(self, supported: Iterable[str]) -> tuple[str, ...]:
        """Return the selected exchanges, in the order of the list; those of "all" as supported.

        Raises:
            ValueError: The list leaves out all that it names.
        """
        named = supported if self.everything else self.known
        selected = tuple(name for name in named if name not in self.unwanted.values())
        if not selected:
            raise ValueError("exchanges: the list excludes every exchange that it names.")
        return selected


def select(asked: Iterable[str], resolve: Callable[[str], str | None]) -> ExchangeSelection:
    """Read a list of exchanges; `resolve` finds the name we use, None if there is none.

    Raises:
        ValueError: The list names none.
    """
    plain = {name: name.strip().lower() for name in asked}
    selection = ExchangeSelection(
        ALL in plain.values(),
        {
            name: resolve(spelled)
            for name, spelled in plain.items()
            if not spelled.startswith("-") and spelled != ALL
        },
        {name: resolve(spelled[1:]) for name, spelled in plain.items() if spelled.startswith("-")},
    )
    if not selection.everything and not selection.wanted:
        raise ValueError('exchanges: give at least one, or "all".')
    return selection


def instead_of(name: str) -> str:
    """Say in a sentence what to use instead of an exchange; "" where nothing is known of it."""
    return INSTEAD.get(name.strip().lower(), "")
