"""OKX US: the protocol of OKX on the addresses for the United States; spot, mostly against USD.

Page: https://app.okx.com/docs-v5/en/#overview-production-trading-services (not read but in
excerpts; limits, frames and the way to keep a book are those of `okx.py`). ccxt's `okxus` agrees:
it is its `okx` with these addresses. It has no derivatives; USD and USDT are different quotes here,
as at OKX.

Unconfirmed: whether a pair that both list has one book or two (one would be counted twice in a
merged view of okx and okxus); whether its checksum is 0 too (one that is not 0 is checked).
"""

from typing import Final

from msgspec.structs import replace

from onebook.exchanges import okx
from onebook.exchanges.contract import Exchange

EXCHANGE: Final[Exchange] = replace(
    okx.EXCHANGE,
    name="okxus",
    display="OKX US",
    ws_url="wss://wsus.okx.com:8443/ws/v5/public",
    rest_url="https://us.okx.com",
    parse_instruments=okx.INSTRUMENTS.of("okxus"),
    former_names=(),
)
