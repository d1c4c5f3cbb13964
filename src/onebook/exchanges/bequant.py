"""Bequant spot: HitBTC's engine, protocol and limits at another address (`hitbtc`).

Page: https://api.bequant.io/#subscribe-to-full-order-book (not read except for its beginning, which
states these addresses)

Confirmed:

    channel, verbs, sequence, levels, depth, ping: 2026-10-23, third-party: ccxt 4.5.90, its HitBTC
    limits: never: those of HitBTC

ccxt describes it in the same way: its Bequant class is its HitBTC class with other addresses.
Unconfirmed, because no frame of this address was recorded: that its limits are those of HitBTC.

As of 2026-11 no source shows whether the exchange still trades. As everywhere, a book that is
silent for too long becomes stale.
"""

from typing import Final

from msgspec.structs import replace

from onebook.exchanges import hitbtc
from onebook.exchanges.kit import Exchange

EXCHANGE: Final[Exchange] = replace(
    hitbtc.EXCHANGE,
    name="bequant",
    display="Bequant",
    ws_url="wss://api.bequant.io/api/3/ws/public",
    rest_url="https://api.bequant.io",
    parse_instruments=hitbtc.INSTRUMENTS.of("bequant"),
)
