"""OKX US: the protocol of OKX on the addresses for the United States; spot against USDC and USDT.

Page: https://app.okx.com/docs-v5/en/#overview-production-trading-services (not read except for
excerpts, which have these addresses; limits, frames and the rules for a local book are those of
`okx.py`, and a transcript of the page of OKX in Europe has the same). ccxt's `okxus` agrees: it is
its `okx` with these addresses, except that it uses port 8443, which has been closed since
2026-10-31. A client that read the list on 2026-10-04 found no BTC-USD or ETH-USD: the book is that
of USDC, whose row allows orders to settle in USD too (`tradeQuoteCcyList`). It has no derivatives.

A pair that OKX also lists probably has the same book there: that client received candles of
BTC-USDT here since 2019, years before OKX US opened (2025-04), and the steps and minimum sizes of
OKX. No source says so, and no two books were recorded side by side. For the consequences see
docs/explanation/identity.md.

Confirmed:

    channel, verbs, ping, levels, depth: 2026-10-23, third-party: ccxt 4.5.90, its okx on this host
    sequence: 2026-08-21, third-party: GoCryptoTrader, of OKX
    limits: never: those of OKX

Unconfirmed: whether a pair that both list has one book or two (equal books are found by their
levels, and merged once); whether its checksum is also 0 (one that is not 0 is checked).
"""

from typing import Final

from msgspec.structs import replace

from onebook.exchanges import okx
from onebook.exchanges.kit import Exchange

EXCHANGE: Final[Exchange] = replace(
    okx.EXCHANGE,
    name="okxus",
    display="OKX US",
    ws_url="wss://wsus.okx.com/ws/v5/public",
    rest_url="https://us.okx.com",
    parse_instruments=okx.INSTRUMENTS.of("okxus"),
    former_names=(),
)
