"""Published taker fees: read from instrument lists or from dated pages, never assumed."""

import json
import os
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from contract.venue import START, list_body
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import FeeColumn, fee_pages
from onebook.exchanges.kit.published import PUBLISHED_OLD_DAYS, published_fee
from onebook.fees import fee_text
from onebook.model import Instrument
from onebook.simulator import DIALECTS
from onebook.simulator.kit import ExchangeBoard

TODAY = date(2026, 11, 27)
KRAKEN = {
    "wsname": "ETH/XBT", "altname": "ETHXBT", "base": "XETH", "quote": "XXBT", "status": "online",
}  # fmt: skip
MEXC = {
    "symbol": "OGNUSDT", "status": "1", "baseAsset": "OGN", "quoteAsset": "USDT",
    "isSpotTradingAllowed": True, "permissions": ["SPOT", "MARGIN"], "makerCommission": "0.002",
    "takerCommission": "0.002",
}  # fmt: skip
DERIBIT = {
    "kind": "spot", "instrument_name": "ETH_USDC", "base_currency": "ETH",
    "quote_currency": "USDC", "counter_currency": "USDC", "settlement_currency": "USDC",
    "taker_commission": 0.0003, "maker_commission": 0,
}  # fmt: skip
PHEMEX = {
    "symbol": "sBTCUSDT", "type": "Spot", "quoteCurrency": "USDT", "baseCurrency": "BTC",
    "priceScale": 8, "status": "Listed", "defaultTakerFee": "0.001", "defaultTakerFeeEr": 100000,
}  # fmt: skip
KUCOIN = {
    "symbol": "AVA-USDT", "baseCurrency": "AVA", "quoteCurrency": "USDT", "enableTrading": True,
    "feeCategory": 1, "takerFeeCoefficient": "1.00",
}  # fmt: skip
HITBTC = {
    "type": "spot", "base_currency": "MANA", "quote_currency": "USDT", "status": "working",
    "take_rate": "0.0025", "make_rate": "0.001", "fee_currency": "USDT",
}  # fmt: skip
GATE = {"id": "QTUM_ETH", "base": "QTUM", "quote": "ETH", "fee": "0.2", "type": "normal"}
WHITEBIT = {
    "name": "BTC_USDT", "stock": "BTC", "money": "USDT", "type": "spot", "tradesEnabled": True,
    "makerFee": "0.1", "takerFee": "0.1",
}  # fmt: skip


def listed(exchange: str, body: object) -> Instrument:
    (found,) = EXCHANGES[exchange].parse_instruments(json.dumps(body).encode())
    return found


# Rows as ccxt quotes them; `judges/test_ccxt_fees` compares the units.
ROWS: dict[str, tuple[Any, str]] = {
    "kraken": ({"error": [], "result": {"X": KRAKEN | {"fees": [[0, 0.26], [5e4, 0.24]]}}}, "0.26"),
    "mexc": ({"symbols": [MEXC]}, "0.2"),
    "deribit": ({"result": [DERIBIT]}, "0.03"),
    "phemex": (
        {"data": {"products": [PHEMEX], "currencies": [{"currency": "BTC", "valueScale": 8}]}},
        "0.1",
    ),
    "hitbtc": ({"MANAUSDT": HITBTC}, "0.25"),
    "bequant": ({"MANAUSDT": HITBTC}, "0.25"),
    "gate": ([GATE], "0.2"),
    "whitebit": ([WHITEBIT], "0.1"),
    "kucoin": ({"data": [KUCOIN]}, "0.1"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_list_states_the_fee_of_each_pair(name: str) -> None:
    body, percent = ROWS[name]
    assert listed(name, body).taker_fee == percent


@pytest.mark.recorded_fees("kraken")
def test_the_recorded_list_of_kraken_has_the_first_tier() -> None:
    root = Path(__file__).resolve().parents[3]
    folder = Path(os.environ.get("ONEBOOK_SAMPLES") or root.parent / "shared" / "samples")
    sample = folder / "kraken" / "0_public_AssetPairs.jkorf.json"
    if not sample.exists():
        pytest.skip(f"{sample} is absent")
    body = json.loads(sample.read_text())
    for row in body["result"].values():
        row["status"] = "online"  # newer than the recording
    found = EXCHANGES["kraken"].parse_instruments(json.dumps(body).encode())
    assert {each.symbol: each.taker_fee for each in found} == {"ETH/BTC": "0.26", "BTC/USD": "0.26"}


@pytest.mark.parametrize(
    ("category", "factor", "percent"),
    [(1, "1.00", "0.1"), (2, "1.00", "0.2"), (3, "0.5", "0.15"), (1, "0", "0"), (4, "1", ""),
     (None, "1", ""), (1, None, ""), (1, "x", "")],
)  # fmt: skip
def test_a_fee_of_kucoin_is_that_of_its_class(category: Any, factor: Any, percent: str) -> None:
    row = KUCOIN | {"feeCategory": category, "takerFeeCoefficient": factor}
    found = listed("kucoin", {"data": [row]})
    assert found.taker_fee == percent
    fee = published_fee(found, TODAY, TODAY)
    if not percent:
        assert fee is None
    else:
        assert fee is not None
        assert (fee.percent, fee.source) == (percent, "page")
        assert fee.page.startswith("https://www.kucoin.com/")


@pytest.mark.parametrize(
    ("value", "percent"),
    [("0.075", "0.075"), ("-0.01", "-0.01"), (0.1, "0.1"), (0, "0"), ([[0, 0.4], [1, 0.3]], "0.4"),
     (None, ""), ("", ""), ("x", ""), (True, ""), ("1e2", ""), (float("1e400"), ""), (11, ""),
     ("99999", ""), ([], ""), ([[]], ""), ([0, 1], ""), ({}, ""), ("0.1234567", "")],
)  # fmt: skip
def test_an_unusable_fee_is_unknown(value: object, percent: str) -> None:
    assert FeeColumn("fee").percent(value) == percent


def test_an_unusable_fee_costs_no_instrument() -> None:
    for value in (None, "x", [], {}, 1e300, "9" * 400):
        assert listed("gate", [GATE | {"fee": value}]).taker_fee == ""


def test_a_fee_of_a_list_has_the_day_of_its_reading() -> None:
    pair = Instrument("kraken", "BTC/USD", "BTC/USD", taker_fee="0.4")
    assert published_fee(pair, None, TODAY) is None
    fee = published_fee(pair, TODAY, TODAY)
    assert fee is not None
    assert (fee.percent, fee.source, fee.date, fee.page, fee.old) == (
        "0.4", "instruments", TODAY, "", False
    )  # fmt: skip


def test_an_exchange_that_states_nothing_has_no_published_fee() -> None:
    assert published_fee(Instrument("binance", "BTC/USDT", "BTCUSDT"), TODAY, TODAY) is None


def test_a_fee_is_old_after_180_days() -> None:
    pair = Instrument("kucoin", "AVA/USDT", "AVA-USDT", taker_fee="0.1")
    written = fee_pages()["kucoin"].date
    for days, old in ((PUBLISHED_OLD_DAYS, False), (PUBLISHED_OLD_DAYS + 1, True)):
        fee = published_fee(pair, None, written + timedelta(days))
        assert fee is not None
        assert (fee.percent, fee.date, fee.old) == ("0.1", written, old)


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_simulated_list_states_fees_if_the_exchange_does(name: str) -> None:
    dialect = DIALECTS[name]
    board = ExchangeBoard(dialect.listings, {}, rules=dialect.rules)
    body = list_body(EXCHANGES[name], dialect(board), START)
    found = EXCHANGES[name].parse_instruments(body)
    assert {bool(each.taker_fee) for each in found} == {EXCHANGES[name].lists_fees}


def test_pages_are_of_the_exchanges_and_their_fees_are_canonical() -> None:
    assert fee_pages()
    for name, page in fee_pages().items():
        assert name in EXCHANGES
        assert page.page.startswith("https://")
        assert page.date <= TODAY
        assert bool(page.taker) != bool(page.classes)
        for percent in filter(None, (page.taker, *page.classes.values())):
            assert fee_text(percent) == percent
