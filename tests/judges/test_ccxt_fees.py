"""ccxt beside us on rows with a taker fee: the same fee, in the same unit.

A unit that connector and simulator both mistake would be a fee of a hundredth. The rows are in the
form that ccxt's own parser reads.
"""

import json
from decimal import Decimal
from typing import Any

import ccxt
import pytest

from exchanges.kit.test_published import ROWS, listed

# The method that reads the list, and the last word of the path that it asks for.
READ = {
    "kraken": ("fetch_markets", "AssetPairs"),
    "mexc": ("fetch_spot_markets", "exchangeInfo"),
    "deribit": ("fetch_markets", "get_instruments"),
    "phemex": ("fetch_markets", "products"),
    "hitbtc": ("fetch_markets", "symbol"),
    "bequant": ("fetch_markets", "symbol"),
    "gate": ("fetch_spot_markets", "currency_pairs"),
    "whitebit": ("fetch_markets", "markets"),
}


@pytest.mark.parametrize("name", READ)
def test_a_stated_fee_is_what_ccxt_reads(name: str) -> None:
    body, percent = ROWS[name]
    method, path = READ[name]
    client = getattr(ccxt, name)()

    def answered(asked: str, *_: Any, **__: Any) -> Any:
        return json.loads(json.dumps(body)) if asked.rpartition("/")[2] == path else {}

    client.request = answered
    (market, *_) = getattr(client, method)()
    assert Decimal(str(market["taker"])) * 100 == Decimal(percent)
    assert listed(name, body).taker_fee == percent
