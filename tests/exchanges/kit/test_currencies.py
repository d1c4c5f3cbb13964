"""Currency codes that mean another coin, or name a coin differently, on one exchange."""

import pytest

from onebook.exchanges.kit.currencies import EVERYWHERE, TABLE, symbol_of
from onebook.exchanges.kit.listing import instrument_of, sound


@pytest.mark.parametrize(
    ("exchange", "codes", "symbol"),
    [
        ("kraken", "XBT/USD", "BTC/USD"),
        ("kraken", "XDG/XBT", "DOGE/BTC"),
        ("kraken", "LUNA/EUR", "LUNC/EUR"),
        ("kraken", "LUNA2/EUR", "LUNA/EUR"),
        ("kraken", "REP/EUR", "REPV1/EUR"),
        ("poloniex", "STR/BTC", "XLM/BTC"),
        ("poloniex", "MEME/USDT", "DEGENERATORMEME/USDT"),
        ("poloniex", "TRADE/USDT", "UNITRADE/USDT"),
        ("bitfinex", "BTC/UST", "BTC/USDT"),
        ("bitfinex", "TERRAUST/USD", "USTC/USD"),
        ("bitstamp", "UST/USD", "USTC/USD"),
        ("deribit", "XBT/USDC", "BTC/USDC"),  # no row of its own
        ("mexc", "XBT/USDT", "XBT/USDT"),  # another coin than Bitcoin
        ("mexc", "FLUX/FLUX1", "FLUX1/FLUX"),  # each once, not one after the other
        ("okx", "LUNA/USDT", "LUNA/USDT"),
        ("an exchange without rows", "ABC/DEF", "ABC/DEF"),
    ],
)
def test_an_exchange_s_codes_become_ours(exchange, codes, symbol):
    assert symbol_of(exchange, codes) == symbol


def test_the_operator_s_rows_come_before_ours():
    own = {"LUNA": "LUNA", "ABC": "XYZ"}
    assert symbol_of("kraken", "LUNA/XBT", own) == "LUNA/BTC"
    assert symbol_of("kraken", "ABC/USD", own) == "XYZ/USD"


def test_an_instrument_has_our_symbol_and_remembers_the_exchange_s_codes():
    instrument = instrument_of("bitfinex", "tIOTUST", base="iot", quote="ust", trading=True)
    assert instrument is not None
    assert (instrument.symbol, instrument.codes) == ("IOTA/USDT", "IOT/UST")
    assert instrument.native == "tIOTUST"


@pytest.mark.parametrize("exchange", TABLE)
def test_a_row_changes_its_code_into_a_sound_name(exchange):
    for code, ours in TABLE[exchange].items():
        assert code.upper() == code, "codes are compared in capitals"
        assert ours != code or code in EVERYWHERE, f"the row of {code} does nothing"
        instrument = instrument_of(exchange, "n", base=code, quote="USDT", trading=True)
        assert instrument is not None
        assert sound(instrument)
        assert instrument.symbol.partition("/")[0] == ours


@pytest.mark.parametrize("exchange", TABLE)
def test_no_two_codes_of_an_exchange_become_one(exchange):
    ours = [*TABLE[exchange].values()]
    assert len(set(ours)) == len(ours)
