"""The protocols that are spoken here, written out."""

from typing import Final

from onebook.simulator.binance import Binance
from onebook.simulator.board import Dialect
from onebook.simulator.bybit import Bybit
from onebook.simulator.coinbase import Coinbase
from onebook.simulator.kraken import Kraken
from onebook.simulator.okx import Okx
from onebook.simulator.poloniex import Poloniex

DIALECTS: Final[dict[str, type[Dialect]]] = {
    "binance": Binance,
    "okx": Okx,
    "bybit": Bybit,
    "coinbase": Coinbase,
    "kraken": Kraken,
    "poloniex": Poloniex,
}
