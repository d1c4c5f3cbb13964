"""Helpers shared by all mappings of Bybit rows."""

import pytest

from onebook.transactions.bybit import ledger, trades
from onebook.transactions.bybit.endpoints import ENDPOINTS
from onebook.transactions.bybit.instruments import guess, listed
from onebook.transactions.bybit.pages import read_row
from onebook.transactions.bybit.rows import Context
from onebook.transactions.markets import Markets
from transactions.bybit.native import SPOT, fill, line, order


class TestPatterns:
    """Values shared by rows of one kind are cached, and never mixed up."""

    ROWS = (
        [
            (trades.execution, fill(side=side, execType=kind, symbol=symbol, execFee=fee))
            for side in ("Buy", "Sell", "")
            for kind in ("Trade", "BustTrade", "Funding", "New")
            for symbol in ("BTCUSDT", "ETHUSDC", "XX")
            for fee in ("0.1", "-0.1")
        ]
        + [
            (trades.order, order(side=side, orderStatus=status, cumExecQty=quantity))
            for side in ("Buy", "Sell")
            for status in ("Filled", "Cancelled", "New", "")
            for quantity in ("0", "1")
        ]
        + [
            (ledger.ledger, line(type=kind, category=category, side=side, change=change))
            for kind in ("TRADE", "SETTLEMENT", "TRANSFER_IN")
            for category in ("", "spot", "linear")
            for side in ("Buy", "Sell", "None")
            for change in ("0", "1", "-1")
        ]
    )

    def test_a_record_is_the_same_whatever_was_mapped_before(self) -> None:
        contexts = [
            Context(name, Markets(listed, guess), "spot", 7) for name in ("mainnet", "testnet")
        ]
        kept = [(trades, "_fill_pattern"), (trades, "_funding_pattern"),
                (ledger, "_line_pattern"), (ledger, "_book_pattern")]  # fmt: skip
        after_others = [mapper(row, each) for each in contexts for mapper, row in self.ROWS]
        alone = []
        for each in contexts:
            for mapper, row in self.ROWS:
                for module, name in kept:
                    getattr(module, name).cache_clear()
                alone.append(mapper(row, each))
        assert after_others == alone

    def test_markets_that_were_loaded_anew_are_the_ones_that_rows_get(self) -> None:
        markets = Markets(listed, guess)
        context = Context("mainnet", markets, "linear", 7)
        before = trades.execution(fill(symbol="NEWUSDT"), context)
        assert before.instrument is not None
        assert before.instrument.settle == "USDT"
        row = {"symbol": "NEWUSDT", "baseCoin": "NEW", "quoteCoin": "USDT", "settleCoin": "USDC",
               "contractType": "LinearPerpetual"}  # fmt: skip
        markets.load("linear", [row])
        after = trades.execution(fill(symbol="NEWUSDT"), context)
        assert after.instrument is not None
        assert after.instrument.settle == "USDC"
        assert after.fees[0].currency == "USDC"

    @pytest.mark.parametrize("at", ["99999999999999999999", "253402300800000", "-99999999999999"])
    def test_a_time_that_no_calendar_has_makes_one_row_unreadable(self, at: str) -> None:
        record, read = read_row(fill(execTime=at), ENDPOINTS["spot_fills"], SPOT)
        assert not read
        assert record.incomplete == ("timestamp", "amount")

    def test_a_coin_that_is_no_text_makes_one_row_unreadable(self) -> None:
        row = {"coin": [], "transferId": "1", "amount": "1", "timestamp": "1700000000000"}
        assert not read_row(row, ENDPOINTS["internal_transfers"], SPOT)[1]
