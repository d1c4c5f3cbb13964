"""Markets of Bybit, from its lists and from names."""

from typing import Any

import pytest

from onebook.transactions.bybit.instruments import guess, listed
from onebook.transactions.markets import Markets


class TestInstruments:
    """Found in the list, or derived from the name."""

    @pytest.mark.parametrize(
        ("category", "symbol", "expected"),
        [
            ("spot", "BTCUSDT", ("BTC", "USDT", None, None)),
            ("spot", "BTC3LUSDT", ("BTC3L", "USDT", None, None)),
            ("spot", "ETHBTC", ("ETH", "BTC", None, None)),
            ("spot", "USDCUSDT", ("USDC", "USDT", None, None)),
            ("spot", "USDT", (None, None, None, None)),
            ("linear", "1000PEPEUSDT", ("1000PEPE", "USDT", "USDT", None)),
            ("linear", "BTCPERP", ("BTC", "USDC", "USDC", None)),
            ("linear", "BTCUSDT-21FEB25", ("BTC", "USDT", "USDT", 1_740_124_800_000)),
            ("linear", "BTC-24MAR23", ("BTC", "USDC", "USDC", 1_679_644_800_000)),
            ("linear", "BTC-99XXX23", ("BTC", "USDC", "USDC", None)),
            ("linear", "STRANGE", (None, None, None, None)),
            ("inverse", "BTCUSD", ("BTC", "USD", "BTC", None)),
            ("inverse", "BTCUSDH23", ("BTC", "USD", "BTC", None)),
            ("inverse", "STRANGE", (None, None, None, None)),
            ("option", "BTC-29DEC22-16000-P", ("BTC", "USDC", "USDC", 1_672_300_800_000)),
            ("option", "BTC-27MAR26-70000-P-USDT", ("BTC", "USDT", "USDT", 1_774_598_400_000)),
            ("option", "STRANGE", (None, None, None, None)),
            ("", "BTCUSDT", (None, None, None, None)),
        ],
    )
    def test_names(self, category: str, symbol: str, expected: tuple[Any, ...]) -> None:
        found = guess(category, symbol)
        assert (found.base, found.quote, found.settle, found.expiry) == expected

    def test_the_list_wins_over_the_name(self) -> None:
        markets = Markets(listed, guess)
        markets.load("spot", [{"symbol": "ABTC", "baseCoin": "A", "quoteCoin": "BTC"}])
        assert markets.find("spot", "ABTC").base == "A"
        assert markets.find("linear", "ABTC").base is None

    def test_rows_of_every_category(self) -> None:
        future = listed("linear", {"symbol": "X", "contractType": "LinearFutures",
                                   "deliveryTime": "9", "settleCoin": "USDT"})  # fmt: skip
        assert (future.contract_type, future.expiry, future.settle) == ("LinearFutures", 9, "USDT")
        perpetual = listed("linear", {"symbol": "X", "contractType": "LinearPerpetual",
                                      "deliveryTime": "9"})  # fmt: skip
        assert perpetual.expiry is None
        assert listed("option", {"symbol": "X"}).contract_type == "Option"
