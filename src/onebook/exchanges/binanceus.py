"""Binance US: the protocol of Binance with the older REST weights.

Pages: https://github.com/binance-us/binance-us-api-docs, web-socket-streams.md (2022-09-30) and
rest-api.md (2021-06-21). Frames, the REST body and the rules for a local book are those of
`binance.py`. According to these pages, the differences are: the addresses; a protocol ping every
3 min, which must be answered within 10 min; request numbers are unsigned integers; `/api/v3/depth`
weighs 1, 5, 10 or 50 for up to 100, 500, 1000 or 5000 levels, out of 1200 a minute; the list has no
option `showPermissionSets`; no event announces a shutdown. ccxt's `binanceus` agrees: it is its
`binance` with these addresses and weights.

Confirmed:

    channel, verbs, sequence, levels, depth: 2026-10-23, third-party: ccxt 4.5.90
    ping: 2022-09-30, page: web-socket-streams.md
    limits: 2021-06-21, page: rest-api.md

Books are thin: many have fewer levels than a REST body holds, and change only once in minutes.

Checked in 2026-11: ccxt and GoCryptoTrader use the same host, and nothing newer than these pages
was found.

Unconfirmed: that the numbers of `bookTicker` are those of the depth, as on Binance; the limit of
connection attempts, which the pages do not state (Binance's is used); the 1200, which is the
example that the page prints for `rateLimits` of the list.
"""

from functools import partial
from typing import Final

from msgspec.structs import replace

from onebook.exchanges import binance
from onebook.exchanges.kit import Exchange, Limit, Scope, SeededEngine, join_by_rest

SEED_WEIGHT: Final = 10  # for 1000 levels

BOOKS: Final = replace(
    binance.BOOKS,
    track=join_by_rest(binance.SEED_PATH, binance.SEED_LEVELS, weight=SEED_WEIGHT),
)

EXCHANGE: Final[Exchange] = replace(
    binance.EXCHANGE,
    name="binanceus",
    channels={},
    display="Binance US",
    ws_url="wss://stream.binance.us:9443/stream",
    rest_url="https://api.binance.us",
    instruments_path="/api/v3/exchangeInfo",
    parse_instruments=binance.INSTRUMENTS.of("binanceus"),
    connector=partial(SeededEngine, BOOKS),
    limits=replace(
        binance.EXCHANGE.limits,
        fetches=(Limit(1_000, 60.0, Scope.ADDRESS),),  # of 1200; the rest is for the list
    ),
    silence_max_s=30.0,  # the server answers our pings; its own are 3 min apart
)
