"""Bequant: HitBTC's conversations with its own name and addresses."""

import json

import pytest

from exchanges.test_hitbtc import ROW, UNKNOWN_FRAMES
from onebook.exchanges import hitbtc
from onebook.exchanges.bequant import EXCHANGE

__all__ = ["UNKNOWN_FRAMES"]


def test_it_is_hitbtc_at_another_address() -> None:
    assert EXCHANGE.connector is hitbtc.EXCHANGE.connector
    assert EXCHANGE.limits is hitbtc.EXCHANGE.limits
    assert EXCHANGE.instruments_path == hitbtc.EXCHANGE.instruments_path
    assert {EXCHANGE.ws_url, EXCHANGE.rest_url} == {
        "wss://api.bequant.io/api/3/ws/public",
        "https://api.bequant.io",
    }


@pytest.mark.derivatives
def test_its_symbols_are_its_own_and_have_the_codes_of_hitbtc() -> None:
    rows = {"BITUSDT": ROW | {"base_currency": "BIT"}, "BTCUSDT_PERP": ROW | {"type": "futures"}}
    (found,) = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert (found.exchange, found.symbol, found.native) == ("bequant", "BITREWARDS/USDT", "BITUSDT")
