"""Fills, orders, closed positions, deliveries and sessions of Bybit as records."""

from typing import Any

import pytest
from msgspec import json

from onebook.transactions.bybit import trades
from onebook.transactions.bybit.instruments import guess, listed
from onebook.transactions.bybit.rows import Context
from onebook.transactions.markets import Markets
from onebook.transactions.record import Direction, RecordView, Status, encode
from transactions.bybit.native import INVERSE, LINEAR, SPOT, fill, order


class TestSpotFees:
    """Bybit's rule for an empty `feeCurrency`."""

    @pytest.mark.parametrize(
        ("side", "fee", "maker", "currency"),
        [
            ("Buy", "0.2", False, "BTC"),
            ("Sell", "0.2", False, "USDT"),
            ("Buy", "0.2", True, "BTC"),
            ("Buy", "-0.2", True, "USDT"),
            ("Sell", "-0.2", True, "BTC"),
            ("Sell", "-0.2", False, "USDT"),
        ],
    )
    def test_what_is_bought_pays_and_a_rebate_comes_in_the_other(
        self, side: str, fee: str, maker: bool, currency: str
    ) -> None:
        record = trades.execution(fill(side=side, execFee=fee, isMaker=maker), SPOT)
        assert record.fees[0].currency == currency
        assert record.fee is not None
        assert record.fee.amount_str == fee

    @pytest.mark.parametrize("side", ["", "None", "buy"])
    def test_without_a_known_side_nothing_is_guessed(self, side: str) -> None:
        for record in (
            trades.execution(fill(side=side), SPOT),
            trades.order(order(side=side), SPOT),
        ):
            found = json.decode(encode(record))
            assert not {"sentCurrency", "receivedCurrency"} & found.keys()
            assert (found["side"], found["direction"]) == (None, "none")
            assert found["incomplete"] == ["side"]
        future = trades.execution(fill(side=side), LINEAR)
        assert (future.incomplete, future.fees[0].currency) == ((), "USDT")
        assert trades.execution(fill(side=side), SPOT).fees[0].currency is None

    def test_the_currency_that_is_reported_wins(self) -> None:
        record = trades.execution(fill(feeCurrency="MNT"), SPOT)
        assert record.fees[0].currency == "MNT"

    @pytest.mark.parametrize(
        "extra",
        [
            '[{"feeCoin":"EUR","feeType":"TAX","subFeeType":"WHT","feeRate":"0.01","fee":"0.5"}]',
            [{"feeCoin": "EUR", "subFeeType": "WHT", "feeRate": "0.01", "fee": "0.5"}],
        ],
    )
    def test_taxes_are_fees_too(self, extra: Any) -> None:
        record = trades.execution(fill(extraFees=extra), SPOT)
        tax = record.fees[1]
        assert (tax.currency, tax.amount, tax.rate, tax.kind, tax.native) == (
            "EUR", "0.5", "0.01", "tax", "WHT",
        )  # fmt: skip

    def test_the_fee_of_a_spread_s_spot_leg_has_a_field_of_its_own(self) -> None:
        row = fill(execType="FutureSpread", execFee="-9", execFeeV2="0.3")
        assert trades.execution(row, SPOT).fees[0].amount == "0.3"
        assert trades.execution(row, LINEAR).fees[0].amount == "-9"
        assert trades.execution(fill(execFeeV2="0.3"), SPOT).fees[0].amount == "0.2"

    @pytest.mark.parametrize("extra", ["", "not json", "{}", [5], 5])
    def test_strange_extra_fees_are_none(self, extra: Any) -> None:
        assert len(trades.execution(fill(extraFees=extra), SPOT).fees) == 1


class TestExecutions:
    """Kinds, signs, units."""

    @pytest.mark.parametrize(
        ("native", "kind", "label"),
        [
            ("Trade", "trade", "Trade"),
            ("BlockTrade", "trade", "Trade"),
            ("BustTrade", "liquidation", "Liquidation"),
            ("AdlTrade", "adl", "Auto-Deleveraging"),
            ("Delivery", "delivery", "Delivery"),
            ("Settle", "delivery", "Delivery"),
            ("CorporateAction", "adjustment", "Other"),
            ("SomethingFromTheFuture", "other", "Other"),
        ],
    )
    def test_kinds(self, native: str, kind: str, label: str) -> None:
        record = trades.execution(fill(execType=native), LINEAR)
        assert (record.kind, record.label, record.native_type) == (kind, label, native)

    def test_a_contract_exchanges_nothing(self) -> None:
        record = trades.execution(fill(), LINEAR)
        assert not hasattr(record.sentCurrency, "currency")
        assert record.direction is Direction.NONE
        assert record.fees[0].currency == "USDT"

    def test_an_inverse_contract_counts_dollars_and_is_worth_coins(self) -> None:
        row = fill(symbol="BTCUSD", execQty="1000", execValue="0.02")
        record = trades.execution(row, INVERSE)
        assert (record.quantity, record.quantity_unit) == ("1000", "contracts")
        assert (record.amount, record.asset, record.fees[0].currency) == ("0.02", "BTC", "BTC")
        assert record.description.desc == "Buy 1000 USD at 100 USD"

    @pytest.mark.parametrize(
        ("fee", "funding", "direction"), [("0.5", "-0.5", "out"), ("-0.5", "0.5", "in")]
    )
    def test_funding_is_reported_from_the_accounts_side(
        self, fee: str, funding: str, direction: str
    ) -> None:
        record = trades.execution(fill(execType="Funding", execFee=fee), LINEAR)
        assert record.position is not None
        assert record.position.funding == funding
        assert record.direction == direction
        moved = record.receivedCurrency if direction == "in" else record.sentCurrency
        assert moved.amount_str == "0.5"  # type: ignore[union-attr]
        assert record.fees == ()

    def test_a_symbol_that_no_one_knows_is_shown_and_flagged(self) -> None:
        record = trades.execution(fill(symbol="???"), SPOT)
        assert record.incomplete == ("instrument",)
        assert record.quantity == "2"
        assert trades.execution(fill(symbol="?", execType="Funding"), LINEAR).incomplete

    def test_ids_distinguish_category_side_and_environment(self) -> None:
        ids = {
            trades.execution(fill(), SPOT).transactionId,
            trades.execution(fill(), LINEAR).transactionId,
            trades.execution(fill(side="Sell"), SPOT).transactionId,
            trades.execution(
                fill(), Context("testnet", Markets(listed, guess), "spot")
            ).transactionId,
        }
        assert len(ids) == 4

    def test_a_spot_fill_names_its_order(self) -> None:
        record = trades.execution(fill(), SPOT)
        assert record.related == (trades.order(order(), SPOT).transactionId,)
        assert record.related_type == "spot_orders"

    def test_a_futures_fill_and_its_closed_position_share_the_order_s_native_id(self) -> None:
        """Orders of futures are not read: an id of theirs would have no order."""
        row = {"symbol": "BTCUSDT", "orderId": "o1", "updatedTime": "5", "closedPnl": "1"}
        closed, record = trades.closed_pnl(row, LINEAR), trades.execution(fill(), LINEAR)
        assert closed.ids.order_id == record.ids.order_id == "o1"
        assert (closed.related, record.related) == ((), ())

    def test_a_row_without_value_price_or_fee(self) -> None:
        record = trades.execution(fill(execValue="", execPrice="", execFee="", orderId=""), SPOT)
        assert (record.value, record.fee, record.related) == (None, None, ())


class TestOrders:
    """Only executed figures."""

    @pytest.mark.parametrize(
        ("native", "quantity", "status"),
        [
            ("Filled", "2", Status.COMPLETED),
            ("PartiallyFilledCanceled", "2", Status.COMPLETED),
            ("Cancelled", "2", Status.COMPLETED),
            ("Cancelled", "0", Status.CANCELLED),
            ("Rejected", "0", Status.FAILED),
            ("Rejected", "1", Status.COMPLETED),
            ("New", "0", Status.PENDING),
            ("Unheard", "0", Status.UNKNOWN),
        ],
    )
    def test_states(self, native: str, quantity: str, status: Status) -> None:
        record = trades.order(order(orderStatus=native, cumExecQty=quantity), SPOT)
        assert record.status is status
        assert record.native_status == native
        assert record.view is RecordView.SUMMARY

    def test_the_quantity_is_what_was_filled(self) -> None:
        assert trades.order(order(), SPOT).quantity == "2"

    def test_fees_by_coin_come_from_the_detail(self) -> None:
        detail = {"MNT": "0.5", "BTC": ""}
        record = trades.order(order(cumFeeDetail=detail, cumExecFee="9"), SPOT)
        assert [(f.currency, f.amount) for f in record.fees] == [("MNT", "0.5"), ("BTC", "0")]

    def test_the_deprecated_fee_stands_in(self) -> None:
        record = trades.order(order(cumExecFee="0.002"), SPOT)
        assert [(f.currency, f.amount) for f in record.fees] == [("BTC", "0.002")]
        assert trades.order(order(cumExecFee="0.1"), LINEAR).fees[0].currency == "USDT"

    def test_an_order_of_an_unknown_symbol(self) -> None:
        assert trades.order(order(symbol="?"), SPOT).incomplete == ("instrument",)


class TestSummaries:
    """Closed positions, deliveries, sessions."""

    def test_closed_pnl_with_fees_and_nanoseconds(self) -> None:
        row = {
            "symbol": "BTCUSD", "orderId": "o", "side": "Sell", "closedPnl": "-0.3",
            "createdTime": "1672214887231423699", "openFee": "0.1", "closeFee": "0.2",
        }  # fmt: skip
        record = trades.closed_pnl(row, INVERSE)
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
        record = trades.closed_pnl(row, context)
        assert record.view is RecordView.PRIMARY
        found = [
            getattr(m, "amount_str", None) for m in (record.receivedCurrency, record.sentCurrency)
        ]
        assert found == [received, sent]

    def test_closed_pnl_that_does_not_state_its_gross_says_so(self) -> None:
        row = {"symbol": "BTCUSDT", "orderId": "o", "side": "Sell", "closedPnl": "9"}
        record = trades.closed_pnl(row, LINEAR)
        assert (record.amount, record.incomplete) == (None, ("amount",))

    @pytest.mark.parametrize("native", ["Settle", "SessionSettlePnL", "Delivery"])
    def test_what_was_settled_stands_in_a_list_of_its_own(self, native: str) -> None:
        row = {
            "symbol": "BTCPERP", "orderId": "o", "side": "Sell", "closedPnl": "9",
            "execType": native, "cumEntryValue": "7", "cumExitValue": "10",
        }  # fmt: skip
        assert trades.closed_pnl(row, LINEAR).view is RecordView.SUMMARY

    def test_a_delivery_with_a_loss_and_a_fee(self) -> None:
        row = {
            "symbol": "BTC-24MAR23", "deliveryTime": 5, "deliveryRpl": "-2", "fee": "0.1",
            "side": "Buy", "position": "1", "deliveryPrice": "10",
        }  # fmt: skip
        record = trades.delivery(row, LINEAR)
        assert record.sentCurrency.amount_str == "2"  # type: ignore[union-attr]
        assert record.view is RecordView.PRIMARY
        assert record.fees == ()  # the fill of the delivery pays it
        assert record.position is not None
        assert record.position.close_fee == "0.1"
        assert record.instrument is not None
        assert record.instrument.expiry == 1_679_644_800_000

    def test_a_session_of_a_short_position_has_an_unsigned_quantity(self) -> None:
        row = {"symbol": "BTCPERP", "createdTime": "5", "size": "-0.5", "realisedPnl": "2"}
        record = trades.settlement(row, LINEAR)
        assert record.position is not None
        assert (record.quantity, record.position.size_after) == ("0.5", "-0.5")
        assert (record.view, record.receivedCurrency.amount_str) == (RecordView.PRIMARY, "2")  # type: ignore[union-attr]

    def test_a_session_of_an_unknown_symbol(self) -> None:
        record = trades.settlement({"symbol": "?", "createdTime": "5", "realisedPnl": "0"}, LINEAR)
        assert record.incomplete == ("instrument",)
        assert record.amount == "0"
