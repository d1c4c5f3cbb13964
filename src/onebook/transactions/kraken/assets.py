"""Kraken's asset ids, and the currency and wallet of each; pure.

- Suffixes: https://docs.kraken.com/api-reference/account-data/get-account-balance and
  https://support.kraken.com/hc/en-us/articles/360039879471
- Ids with a leading X or Z: https://docs.kraken.com/api-reference/market-data/get-asset-info

Every asset id has its own balance: a coin and the same coin staked have two ids. Here they are one
currency in two wallets: `DOT` is DOT in `SPOT`, `DOT28.S` is DOT in `SPOT.28.S`. The mapping is
reversible: no two ids share a currency and a wallet.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from onebook.exchanges.kit.currencies import currency_of

SPOT: Final = "SPOT"
FUTURES: Final = "FUTURES"
CREDITS: Final = "KFEE"  # fee credits: 100 are worth 1 USD; not a currency

# Ids from before 2017: X for a coin, Z for fiat. Later ids are plain, though some of them also
# begin with X or Z (XTZ, ZRX).
LEGACY: Final = {
    "XDAO": "DAO", "XETC": "ETC", "XETH": "ETH", "XICN": "ICN", "XLTC": "LTC", "XMLN": "MLN",
    "XNMC": "NMC", "XREP": "REP", "XXBT": "XBT", "XXDG": "XDG", "XXLM": "XLM", "XXMR": "XMR",
    "XXRP": "XRP", "XXVN": "VEN", "XZEC": "ZEC", "ZAUD": "AUD", "ZCAD": "CAD", "ZEUR": "EUR",
    "ZGBP": "GBP", "ZJPY": "JPY", "ZKRW": "KRW", "ZUSD": "USD", "FEE": CREDITS,
}  # fmt: skip
# Separate ids for locked coins.
LOCKED: Final = {"ETH2": "ETH", "FLOWH": "FLOW"}
BONDED: Final = re.compile(r"(.+?)(\d\d)")  # DOT28.S: staked, unlocks in 28 days
BONDED_DAYS: Final = frozenset({"03", "04", "07", "14", "21", "28"})
# Fiat: in a trade with a coin it is the quote, and its deposits are on no chain.
MONEY: Final = frozenset(
    {"AED", "AUD", "BRL", "CAD", "CHF", "EUR", "GBP", "JPY", "KRW", "MXN", "PLN", "USD"}
)


class WalletAsset(NamedTuple):
    """The currency and wallet of an asset id."""

    currency: str
    wallet: str


@lru_cache(maxsize=4_096)
def asset_of(native: str) -> WalletAsset:
    """The currency and wallet of an asset id of the spot account."""
    stem, _, suffix = native.partition(".")
    parts = [SPOT]
    if stem in LOCKED:
        parts.append(stem)
        stem = LOCKED[stem]
    elif suffix and (found := BONDED.fullmatch(stem)) and found[2] in BONDED_DAYS:
        stem = found[1]
        parts.append(found[2])
    if suffix:
        parts.append(suffix)
    return WalletAsset(currency_of("kraken", LEGACY.get(stem, stem)), ".".join(parts))


@lru_cache(maxsize=4_096)
def futures_asset(native: str, margin_account: str | None) -> WalletAsset:
    """The currency and wallet of a row of the futures account, whose codes are in lower case."""
    wallet = f"{FUTURES}.{margin_account.upper()}" if margin_account else FUTURES
    return WalletAsset(currency_of("kraken", native.upper()), wallet)
