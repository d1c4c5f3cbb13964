"""Closed positions, deliveries and sessions of Bybit as records."""

import pytest

from onebook.transactions.bybit import closings
from onebook.transactions.bybit.rows import Context
from onebook.transactions.record import Direction, RecordView
from transactions.bybit.native import INVERSE, LINEAR


class TestSummaries:
    """Closed positions, deliveries, sessions."""

    def test_closed_pnl_with_fees_and_nanoseconds(self) -> None:
        row = {
            "symbol": "BTCUSD", "orderId": "o", "side": "Sell", "closedPnl": "-0.3",
            "createdTime": "1672214887231423699", "openFee": "0.1", "closeFee": "0.2",
        }  # fmt: skip
        record = closings.closed_pnl(row, INVERSE)
        assert record.timestamp == 1_672_214_887_231
        assert record.position is not None
        assert (record.position.open_fee, record.position.close_fee) == ("0.1", "0.2")
        assert record.fees == ()  # they stand at the fills
        assert (record.amount, record.direction) == ("0", Direction.NONE)

    @pytest.mark.parametrize(
        ("context", "side", "received", "sent"),
        [
            (LINEAR, "Sell", "3", None), (LINEAR, "Buy", None, "3"),
            (INVERSE, "Sell", None, "3"), (INVERSE, "Buy", "3", None),
        ],
    )  # fmt: skip
    def test_gross_pnl_is_exit_less_entry_signed_by_the_side(
        self, context: Context, side: str, received: str | None, sent: str | None
    ) -> None:
        """`closedPnl` of old rows may hold funding, and fees that stand at the fills already."""
        row = {
            "symbol": "BTCUSDT" if context is LINEAR else "BTCUSD", "orderId": "o", "side": side,
            "closedPnl": "99", "updatedTime": "5", "cumEntryValue": "7", "cumExitValue": "10",
        }  # fmt: skip
        record = closings.closed_pnl(row, context)
        assert record.view is RecordView.PRIMARY
        found = [
            getattr(m, "amount_str", None) for m in (record.receivedCurrency, record.sentCurrency)
        ]
        assert found == [received, sent]

    def test_closed_pnl_that_does_not_state_its_gross_says_so(self) -> None:
        row = {"symbol": "BTCUSDT", "orderId": "o", "side": "Sell", "closedPnl": "9"}
        record = closings.closed_pnl(row, LINEAR)
        assert (record.amount, record.incomplete) == (None, ("amount",))

    @pytest.mark.parametrize("native", ["Settle", "SessionSettlePnL", "Delivery"])
    def test_what_was_settled_stands_in_a_list_of_its_own(self, native: str) -> None:
        row = {
            "symbol": "BTCPERP", "orderId": "o", "side": "Sell", "closedPnl": "9",
            "execType": native, "cumEntryValue": "7", "cumExitValue": "10",
        }  # fmt: skip
        assert closings.closed_pnl(row, LINEAR).view is RecordView.SUMMARY

    def test_a_delivery_with_a_loss_and_a_fee(self) -> None:
        row = {
            "symbol": "BTC-24MAR23", "deliveryTime": 5, "deliveryRpl": "-2", "fee": "0.1",
            "side": "Buy", "position": "1", "deliveryPrice": "10",
        }  # fmt: skip
        record = closings.delivery(row, LINEAR)
        assert record.sentCurrency.amount_str == "2"  # type: ignore[union-attr]
        assert record.view is RecordView.PRIMARY
        assert record.fees == ()  # the fill of the delivery pays it
        assert record.position is not None
        assert record.position.close_fee == "0.1"
        assert record.instrument is not None
        assert record.instrument.expiry == 1_679_644_800_000

    def test_a_session_of_a_short_position_has_an_unsigned_quantity(self) -> None:
        row = {"symbol": "BTCPERP", "createdTime": "5", "size": "-0.5", "realisedPnl": "2"}
        record = closings.settlement(row, LINEAR)
        assert record.position is not None
        assert (record.quantity, record.position.size_after) == ("0.5", "-0.5")
        assert (record.view, record.receivedCurrency.amount_str) == (RecordView.PRIMARY, "2")  # type: ignore[union-attr]

    def test_a_session_of_an_unknown_symbol(self) -> None:
        record = closings.settlement(
            {"symbol": "?", "createdTime": "5", "realisedPnl": "0"}, LINEAR
        )
        assert record.incomplete == ("instrument",)
        assert record.amount == "0"
