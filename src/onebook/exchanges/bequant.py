"""Bequant spot: HitBTC's engine, protocol and limits at another address (`hitbtc`).

Page: https://api.bequant.io/#subscribe-to-full-order-book (not read but in its beginning, which has
these addresses)

Confirmed:

    channel, verbs, sequence, levels, depth, ping: 2026-10-23, third-party: ccxt 4.5.90, its HitBTC
    limits: never: those of HitBTC

ccxt describes it in the same way: its Bequant is its HitBTC with other addresses. Unconfirmed, as
no frame of this address is recorded: that its limits are those of HitBTC.

Doubted in 2026-11: whether the exchange still trades, which no source shows: a book that does not
change is judged by its silence, as everywhere.
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
