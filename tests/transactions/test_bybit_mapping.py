"""The corners of the mapping that no recorded row shows, and the identities of those that do."""

from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from msgspec import UNSET

from onebook.transactions.bybit import closings, funds, ledger, trades
from onebook.transactions.bybit.endpoints import ENDPOINTS, ENTRY, SOURCES, WORDS
from onebook.transactions.bybit.instruments import guess, listed, new_markets
from onebook.transactions.bybit.kinds import ledger_kind
from onebook.transactions.bybit.pages import read_row, rows_of
from onebook.transactions.bybit.reader import unavailable_types
from onebook.transactions.bybit.rows import Context, ms
from onebook.transactions.failures import SourceFailed
from onebook.transactions.markets import GUESSES_MAX
from onebook.transactions.record import Direction, Holder, Status, View
from transactions.bybit_support import samples_dir
from transactions.test_samples import names
from transactions.test_samples import rows_of as sample_rows

SPOT = Context("mainnet", new_markets(), "spot", 7)
LINEAR = Context("mainnet", new_markets(), "linear", 7)
INVERSE = Context("testnet", new_markets(), "inverse", 7)


def fill(**fields: Any) -> dict[str, Any]:
    base = {
        "symbol": "BTCUSDT", "side": "Buy", "execId": "e1", "orderId": "o1", "execPrice": "100",
        "execQty": "2", "execValue": "200", "execFee": "0.2", "feeRate": "0.001",
        "execTime": "1700000000000", "execType": "Trade", "isMaker": False, "feeCurrency": "",
    }  # fmt: skip
    return base | fields


class TestSpotFees:
    """Bybit's rule where `feeCurrency` is empty."""

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

    def test_the_currency_that_is_told_wins(self) -> None:
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
    def test_funding_is_told_from_the_accounts_side(
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

    def test_ids_tell_category_side_and_environment_apart(self) -> None:
        ids = {
            trades.execution(fill(), SPOT).transactionId,
            trades.execution(fill(), LINEAR).transactionId,
            trades.execution(fill(side="Sell"), SPOT).transactionId,
            trades.execution(fill(), Context("testnet", new_markets(), "spot")).transactionId,
        }
        assert len(ids) == 4

    def test_a_spot_fill_names_its_order(self) -> None:
        record = trades.execution(fill(), SPOT)
        assert record.related == (trades.order(order(), SPOT).transactionId,)
        assert record.related_type == "spot_orders"

    def test_a_futures_fill_and_its_closed_position_share_the_order_s_native_id(self) -> None:
        """Orders of futures are not read: an id of theirs would lead nowhere."""
        row = {"symbol": "BTCUSDT", "orderId": "o1", "updatedTime": "5", "closedPnl": "1"}
        closed, record = closings.closed_pnl(row, LINEAR), trades.execution(fill(), LINEAR)
        assert closed.ids.order_id == record.ids.order_id == "o1"
        assert (closed.related, record.related) == ((), ())

    def test_a_row_without_value_price_or_fee(self) -> None:
        record = trades.execution(fill(execValue="", execPrice="", execFee="", orderId=""), SPOT)
        assert (record.value, record.fee, record.related) == (None, None, ())


def order(**fields: Any) -> dict[str, Any]:
    base = {
        "symbol": "BTCUSDT", "side": "Buy", "orderId": "o1", "createdTime": "10",
        "updatedTime": "20", "cumExecQty": "2", "cumExecValue": "200", "avgPrice": "100",
        "orderStatus": "Filled", "qty": "999",
    }  # fmt: skip
    return base | fields


class TestOrders:
    """Executed figures only."""

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
        assert record.view is View.SUMMARY

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
        assert record.view is View.PRIMARY
        found = [
            getattr(m, "amount_str", None) for m in (record.receivedCurrency, record.sentCurrency)
        ]
        assert found == [received, sent]

    def test_closed_pnl_that_does_not_tell_its_gross_says_so(self) -> None:
        row = {"symbol": "BTCUSDT", "orderId": "o", "side": "Sell", "closedPnl": "9"}
        record = closings.closed_pnl(row, LINEAR)
        assert (record.amount, record.incomplete) == (None, ("amount",))

    @pytest.mark.parametrize("native", ["Settle", "SessionSettlePnL", "Delivery"])
    def test_what_was_settled_stands_in_a_list_of_its_own(self, native: str) -> None:
        row = {
            "symbol": "BTCPERP", "orderId": "o", "side": "Sell", "closedPnl": "9",
            "execType": native, "cumEntryValue": "7", "cumExitValue": "10",
        }  # fmt: skip
        assert closings.closed_pnl(row, LINEAR).view is View.SUMMARY

    def test_a_delivery_with_a_loss_and_a_fee(self) -> None:
        row = {
            "symbol": "BTC-24MAR23", "deliveryTime": 5, "deliveryRpl": "-2", "fee": "0.1",
            "side": "Buy", "position": "1", "deliveryPrice": "10",
        }  # fmt: skip
        record = closings.delivery(row, LINEAR)
        assert record.sentCurrency.amount_str == "2"  # type: ignore[union-attr]
        assert record.view is View.PRIMARY
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
        assert (record.view, record.receivedCurrency.amount_str) == (View.PRIMARY, "2")  # type: ignore[union-attr]

    def test_a_session_of_an_unknown_symbol(self) -> None:
        record = closings.settlement({"symbol": "?", "createdTime": "5"}, LINEAR)
        assert record.incomplete == ("instrument",)
        assert record.amount == "0"


class TestFunds:
    """Statuses, times, what the account lost and got."""

    @pytest.mark.parametrize(
        ("native", "status"),
        [
            (0, Status.UNKNOWN), (1, Status.PENDING), (2, Status.PENDING), (3, Status.COMPLETED),
            (4, Status.FAILED), (7, Status.PENDING), (10011, Status.PENDING),
            (10012, Status.COMPLETED), (70011, Status.REVERSED), (70012, Status.COMPLETED),
            (70013, Status.PENDING), (99999, Status.UNKNOWN),
        ],
    )  # fmt: skip
    def test_deposit_states(self, native: int, status: Status) -> None:
        row = {"coin": "BTC", "chain": "BTC", "amount": "1", "status": native, "successAt": "5"}
        record = funds.deposit(row, SPOT)
        assert (record.status, record.native_status) == (status, str(native))
        assert record.incomplete == ()

    def test_a_deposit_without_a_time_counts_at_the_end_of_its_window(self) -> None:
        record = funds.deposit({"coin": "BTC", "amount": "1", "status": 1, "id": "9"}, SPOT)
        assert (record.timestamp, record.incomplete) == (7, ("timestamp",))
        later = funds.deposit(
            {"coin": "BTC", "amount": "1", "status": 3, "id": "9", "successAt": "99"}, SPOT
        )
        assert later.transactionId == record.transactionId

    def test_a_blocked_deposit_is_not_credited(self) -> None:
        row = {"coin": "BTC", "amount": "1", "status": 3, "successAt": "5", "depositType": "50"}
        assert funds.deposit(row, SPOT).status is Status.PENDING
        assert funds.deposit(row | {"depositType": "0"}, SPOT).status is Status.COMPLETED

    @pytest.mark.parametrize("native", ["CancelByUser", "Reject", "Fail"])
    def test_a_withdrawal_that_did_not_happen_moved_nothing(self, native: str) -> None:
        row = {
            "coin": "BTC", "amount": "1", "createTime": "5", "withdrawId": "1", "status": native,
            "withdrawFee": "0.1", "tax": "0.02",
        }  # fmt: skip
        record = funds.withdrawal(row, SPOT)
        assert record.sentCurrency is UNSET
        assert (record.fee, record.fees, record.direction) == (None, (), Direction.NONE)
        assert record.amount == "1"

    @pytest.mark.parametrize(
        ("uid", "direction", "sent", "received"),
        [("1", "out", True, False), ("2", "in", False, True), ("3", "none", False, False)],
    )
    def test_a_transfer_between_users_moved_one_side(
        self, uid: str, direction: str, sent: bool, received: bool
    ) -> None:
        row = {
            "transferId": "t", "coin": "BTC", "amount": "1", "timestamp": "5",
            "status": "SUCCESS", "fromMemberId": "1", "toMemberId": "2",
        }  # fmt: skip
        record = funds.transfer(row, Context("mainnet", new_markets(), uid=uid))
        assert record.direction == direction
        assert (record.sentCurrency is not UNSET, record.receivedCurrency is not UNSET) == (
            sent, received,
        )  # fmt: skip
        unknown = funds.transfer(row, SPOT)
        assert unknown.incomplete == ("direction",)
        assert unknown.direction is Direction.NONE

    def test_a_deposit_with_a_fee(self) -> None:
        row = {"coin": "BTC", "amount": "1", "status": 3, "successAt": "5", "depositFee": "0.1"}
        record = funds.deposit(row, SPOT)
        assert [(f.amount, f.kind) for f in record.fees] == [("0.1", "network")]

    def test_an_internal_deposit_without_a_time(self) -> None:
        record = funds.internal_deposit({"id": "1", "coin": "BTC", "status": 1}, SPOT)
        assert (record.status, record.incomplete, record.sender) == (
            Status.PENDING, ("timestamp",), None,
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("native", "status"),
        [
            ("SecurityCheck", Status.PENDING), ("BlockchainConfirmed", Status.PENDING),
            ("MoreInformationRequired", Status.PENDING), ("success", Status.COMPLETED),
            ("CancelByUser", Status.CANCELLED), ("Reject", Status.FAILED), ("Fail", Status.FAILED),
            ("Unknown", Status.UNKNOWN), ("New in 2027", Status.UNKNOWN),
        ],
    )  # fmt: skip
    def test_withdrawal_states(self, native: str, status: Status) -> None:
        row = {"coin": "BTC", "amount": "1", "createTime": "5", "withdrawId": "1", "status": native}
        assert funds.withdrawal(row, SPOT).status is status

    def test_a_withdrawal_costs_its_fee_and_tax_on_top(self) -> None:
        row = {
            "coin": "BTC", "amount": "1", "createTime": "5", "withdrawId": "1",
            "status": "success", "withdrawFee": "0.1", "tax": "0.02", "taxRate": "0.02",
        }  # fmt: skip
        record = funds.withdrawal(row, SPOT)
        assert record.sentCurrency.amount_str == "1"  # type: ignore[union-attr]
        assert [(f.amount, f.kind, f.rate) for f in record.fees] == [
            ("0.1", "network", None),
            ("0.02", "tax", "0.02"),
        ]

    @pytest.mark.parametrize(
        ("native", "status"),
        [("PENDING", Status.PENDING), ("FAILED", Status.FAILED), ("?", Status.UNKNOWN)],
    )
    def test_transfer_states(self, native: str, status: Status) -> None:
        row = {"transferId": "t", "coin": "BTC", "amount": "1", "timestamp": "5", "status": native}
        assert funds.transfer(row, SPOT).status is status

    def test_a_leverage_token_redeemed(self) -> None:
        row = {
            "ltCoin": "BTC3L", "valueCoin": "USDT", "amount": 5, "value": "10", "fee": "0.1",
            "ltOrderType": 2, "ltOrderStatus": 3, "orderId": 7, "orderTime": 9,
        }  # fmt: skip
        record = funds.leverage_token(row, SPOT)
        assert (record.label, record.status) == ("Sell", Status.FAILED)
        assert record.sentCurrency.currency == "BTC3L"  # type: ignore[union-attr]
        assert record.fees[0].currency == "USDT"
        assert record.view is View.SUMMARY  # the ledger's lines of it are the ones to sum

    def test_a_balance_below_zero_keeps_its_sign_in_the_total(self) -> None:
        record = funds.unified_balance({"coin": "USDC", "walletBalance": "-5.50"}, SPOT)
        assert record.amount == "5.5"
        assert record.balance is not None
        assert record.balance.total == "-5.5"


def line(**fields: Any) -> dict[str, Any]:
    base = {
        "id": "l1", "type": "TRADE", "currency": "USDT", "transactionTime": "5", "change": "-1",
        "cashBalance": "9", "category": "linear", "symbol": "BTCUSDT", "side": "Buy",
        "tradeId": "e1", "orderId": "o1", "fee": "1", "cashFlow": "0", "funding": "",
    }  # fmt: skip
    return base | fields


def fund_row(**fields: Any) -> dict[str, Any]:
    base = {
        "memberId": "1", "currency": "USDT", "ioDirection": "I", "txnAmt": "1", "afterAmt": "2",
        "createTime": "9", "showBusiTypeEn": "Deposit", "descriptionEn": "Deposit",
        "currcCursor": "NTg2",
    }  # fmt: skip
    return base | fields


LEDGER_TYPES = (
    "ADL", "AIRDROP", "ALPHA_SMALL_TOKEN_REFUND", "AUTO_BUY_LIABILITY_INS_LOAN", "AUTO_DEDUCTION",
    "AUTO_INTEREST_REPAYMENT_INS_LOAN", "AUTO_PRINCIPLE_REPAYMENT_INS_LOAN",
    "AUTO_SOLD_COLLATERAL_INS_LOAN", "BONUS", "BONUS_RECOLLECT", "BONUS_TRANSFER_IN",
    "BONUS_TRANSFER_OUT", "BORROW", "BORROWED_AMOUNT_INS_LOAN", "BROKER_ABACCOUNT_FEE",
    "CLASSIC_WEALTH_MANAGEMENT_SUBSCRIPTION", "CONVERT", "CURRENCY_BUY", "CURRENCY_SELL",
    "CUSTODY_CASH_RECOVER_TR", "CUSTODY_LOCK", "CUSTODY_NETWORK_FEE", "CUSTODY_SETTLE_FEE",
    "CUSTODY_UNLOCK", "CUSTODY_UNLOCK_REFUND", "DBS_CASH_IN", "DBS_CASH_IN_TR", "DBS_CASH_OUT",
    "DBS_CASH_OUT_TR", "DEFI_INVESTMENT_REDEMPTION", "DEFI_INVESTMENT_REFUND",
    "DEFI_INVESTMENT_SUBSCRIPTION", "DELIVERY", "EARNING_REDEMPTION_BUY",
    "EARNING_REDEMPTION_SELL", "FEE_REFUND", "FIXED_STAKING_REFUND", "FIXED_STAKING_SUBSCRIPTION",
    "FLEXIBLE_STAKING_REDEMPTION", "FLEXIBLE_STAKING_REFUND", "FLEXIBLE_STAKING_SUBSCRIPTION",
    "FLOATING_TO_FIXED_BORROW", "FLOATING_TO_FIXED_REPAY", "IDN_CONVERT_IN", "IDN_CONVERT_OUT",
    "INSTITUTION_EXCHANGE_BUY", "INSTITUTION_EXCHANGE_SELL", "INSTITUTION_LIQ_INTEREST_OUT",
    "INSTITUTION_LIQ_PRINCIPAL_OUT", "INSTITUTION_LOAN_IN", "INSTITUTION_LOAN_RESERVE_IN",
    "INSTITUTION_LOAN_RESERVE_OUT", "INSTITUTION_LOAN_TRANSFER_IN",
    "INSTITUTION_LOAN_TRANSFER_OUT", "INSTITUTION_LOAN_WITHOUT_WITHDRAW",
    "INSTITUTION_PAYBACK_INTEREST_OUT", "INSTITUTION_PAYBACK_PRINCIPAL_OUT", "INTEREST",
    "INTEREST_REPAYMENT_INS_LOAN", "LIQUIDATION", "LIQUIDITY_MINING_REFUND",
    "LIQUIDITY_MINING_SUBSCRIPTION", "LOANS_BORROW_FUNDS", "LOANS_PLEDGE_ASSET",
    "ONCHAINEARN_REDEMPTION", "ONCHAINEARN_REFUND", "ONCHAINEARN_SUBSCRIPTION",
    "PEF_PROFIT_SHARE", "PEF_TRANSFER_IN", "PEF_TRANSFER_OUT",
    "PLATFORM_TOKEN_MNT_LIQRECALLEDMMNT", "PLATFORM_TOKEN_MNT_LIQRETURNEDMNT",
    "PREMARKET_DELIVERY_BUY_NEW_COIN", "PREMARKET_DELIVERY_PLEDGE_BACK",
    "PREMARKET_DELIVERY_PLEDGE_PAY_SELLER", "PREMARKET_DELIVERY_SELL_NEW_COIN",
    "PREMARKET_ROLLBACK_PLEDGE_BACK", "PREMARKET_ROLLBACK_PLEDGE_PENALTY_TO_BUYER",
    "PREMARKET_TRANSFER_OUT", "PREMIMUM_WEALTH_MANAGEMENT_REFUND",
    "PREMIMUM_WEALTH_MANAGEMENT_SUBSCRIPTION", "PRINCIPLE_REPAYMENT_INS_LOAN", "PWM_REFUND",
    "PWM_SUBSCRIPTION", "REPAY", "SETTLEMENT", "SPOT_REPAYMENT_BUY", "SPOT_REPAYMENT_SELL",
    "SPREAD_FEE_OUT", "STRUCTURE_PRODUCT_REFUND", "STRUCTURE_PRODUCT_SUBSCRIPTION",
    "TOKENS_REDEMPTION", "TOKENS_SUBSCRIPTION", "TRADE", "TRANSFER_IN", "TRANSFER_IN_INS_LOAN",
    "TRANSFER_OUT", "TRANSFER_OUT_INS_LOAN", "TWAP_BUDGET_AIRDROP", "TWAP_BUDGET_RECALL",
)  # fmt: skip


class TestLedger:
    """Lines of the wallets' own books."""

    @pytest.mark.parametrize(
        ("native", "kind", "label"),
        [
            ("TRANSFER_IN", "transfer", "Transfer"),
            ("LIQUIDATION", "liquidation", "Liquidation"),
            ("AIRDROP", "bonus", "Airdrop"),
            ("INTEREST", "interest", "Interest"),
            ("CURRENCY_BUY", "convert", "Convert"),
            ("SPOT_REPAYMENT_SELL", "repay", "Repay"),
            ("MANUAL_BORROW", "borrow", "Borrow"),
            ("FLEXIBLE_STAKING_SUBSCRIPTION", "earn", "Other"),
            ("LOANS_PLEDGE_ASSET", "loan", "Other"),
            ("USDT_INS_LOAN", "loan", "Other"),
            ("TYPE_OF_NEXT_YEAR", "other", "Other"),
        ],
    )
    def test_types(self, native: str, kind: str, label: str) -> None:
        record = ledger.ledger(line(type=native, category="", tradeId=""), SPOT)
        assert (record.kind, record.label, record.native_type) == (kind, label, native)

    @pytest.mark.parametrize(
        ("native", "category", "view"),
        [
            ("TRADE", "spot", View.LEDGER), ("SETTLEMENT", "linear", View.LEDGER),
            ("DELIVERY", "inverse", View.LEDGER), ("TRANSFER_IN", "", View.LEDGER),
            ("TOKENS_REDEMPTION", "", View.LEDGER), ("TRADE", "option", View.PRIMARY),
            ("DELIVERY", "option", View.PRIMARY), ("INTEREST", "", View.PRIMARY),
            ("AIRDROP", "", View.PRIMARY), ("CONVERT", "", View.PRIMARY),
            ("TYPE_OF_NEXT_YEAR", "", View.PRIMARY),
        ],
    )  # fmt: skip
    def test_a_line_is_primary_where_no_other_list_has_its_event(
        self, native: str, category: str, view: View
    ) -> None:
        assert ledger.ledger(line(type=native, category=category), SPOT).view is view

    @pytest.mark.parametrize(
        ("words", "view"),
        [("Deposit", View.LEDGER), ("Withdraw", View.LEDGER), ("Transfer in", View.LEDGER),
         ("Earn", View.PRIMARY), ("Fiat", View.PRIMARY), ("Convert", View.PRIMARY)],
    )  # fmt: skip
    def test_so_is_a_line_of_the_funding_wallet(self, words: str, view: View) -> None:
        assert ledger.funding_line(fund_row(showBusiTypeEn=words), SPOT).view is view

    def test_money_is_before_fees_and_taxes(self) -> None:
        taxes = [{"feeCoin": "USDT", "subFeeType": "IND_GST", "fee": "0.18"}]
        record = ledger.ledger(line(cashFlow="10", change="8.82", fee="1", extraFees=taxes), SPOT)
        assert record.receivedCurrency.amount_str == "10"  # type: ignore[union-attr]
        assert [fee.amount for fee in record.fees] == ["1", "0.18"]

    def test_taxes_that_the_fee_holds_already_are_not_taken_twice(self) -> None:
        taxes = [{"feeCoin": "USDT", "subFeeType": "IND_GST", "fee": "0.18"}]
        record = ledger.ledger(line(cashFlow="10", change="9", fee="1", extraFees=taxes), SPOT)
        assert record.receivedCurrency.amount_str == "10"  # type: ignore[union-attr]
        assert [fee.amount for fee in record.fees] == ["1"]

    def test_every_type_of_bybits_enumeration_has_its_kind(self) -> None:
        """https://bybit-exchange.github.io/docs/v5/enum#typeuta-translog, as of 2026-09."""
        assert len(LEDGER_TYPES) > 90
        found = {ledger_kind(native)[0] for native in LEDGER_TYPES}
        assert "other" not in found
        assert ledger_kind("Others") == ("other", "Other")

    def test_a_line_names_the_fill_that_it_books(self) -> None:
        assert ledger.ledger(line(), SPOT).related == (
            trades.execution(fill(), LINEAR).transactionId,
        )

    @pytest.mark.parametrize(
        ("category", "kind"),
        [("spot", "spot_orders"), ("linear", "futures_linear"), ("option", None), ("", None)],
    )
    def test_what_a_line_names_is_marked_with_its_type(
        self, category: str, kind: str | None
    ) -> None:
        record = ledger.ledger(line(category=category), SPOT)
        assert (record.related_type, bool(record.related)) == (kind, kind is not None)

    def test_the_id_of_a_funding_wallet_line_is_its_cursor(self) -> None:
        """Bybit rewords its English: the same row is the same record in any words."""
        reworded = fund_row(showBusiTypeEn="Deposits", descriptionEn="On-chain deposit")
        one, other = (ledger.funding_line(row, SPOT) for row in (fund_row(), reworded))
        assert one.transactionId == other.transactionId
        assert one.ids.native == "NTg2"
        twin = ledger.funding_line(fund_row(currcCursor="NTg3"), SPOT)
        assert twin.transactionId != one.transactionId

    def test_a_funding_wallet_line_without_a_cursor_is_known_by_what_it_moved(self) -> None:
        rows = [fund_row(currcCursor=""), fund_row(currcCursor="", descriptionEn="other words"),
                fund_row(currcCursor="", afterAmt="3")]  # fmt: skip
        one, reworded, other = (ledger.funding_line(row, SPOT).transactionId for row in rows)
        assert one == reworded != other

    def test_before_is_after_less_change_for_outflows_too(self) -> None:
        record = ledger.ledger(line(change="-0.003676", cashBalance="5086.55825002"), SPOT)
        assert record.balance is not None
        assert record.balance.before == "5086.56192602"

    def test_a_session_without_funding_is_a_settlement(self) -> None:
        record = ledger.ledger(line(type="SETTLEMENT", cashFlow="5", funding=""), SPOT)
        assert (record.kind, record.label) == ("settlement", "Settlement")

    def test_a_spot_line_is_bought_or_sold(self) -> None:
        record = ledger.ledger(line(category="spot", side="Sell", qty="-2"), SPOT)
        assert (record.label, record.position, record.quantity) == ("Sell", None, "2")

    def test_two_rows_of_one_id_are_two_events(self) -> None:
        """Bybit's own example has them; the balance tells them apart."""
        ids = {ledger.ledger(line(cashBalance=b), SPOT).transactionId for b in ("9", "8", "9.0")}
        assert len(ids) == 2

    def test_a_line_without_a_balance_says_so(self) -> None:
        record = ledger.ledger(line(cashBalance=""), SPOT)
        assert record.incomplete == ("balance",)
        assert record.balance is not None
        assert record.balance.before is None

    def test_the_contract_book_has_the_other_sign(self) -> None:
        row = line(type="SETTLEMENT", funding="-0.5", change="0.5", category="inverse")
        record = ledger.contract_ledger(row, SPOT)
        assert record.position is not None
        assert record.position.funding == "0.5"
        assert record.account == Holder("CONTRACT", None)  # its balances chain apart

    def test_a_leverage_token_line_is_of_its_own_type_and_names_its_line(self) -> None:
        row = line(type="TOKENS_REDEMPTION", currency="BTC3L", change="-4", category="")
        record, booked = ledger.token_line(row, SPOT), ledger.ledger(row, SPOT)
        assert (record.type, record.side, record.view) == (
            "leverage_token_trades", "sell", View.PRIMARY,
        )  # fmt: skip
        assert record.related == (booked.transactionId,)
        assert record.transactionId != booked.transactionId

    @pytest.mark.parametrize(
        ("words", "text", "way", "kind", "label"),
        [
            ("Deposit", "", "I", "deposit", "Deposit"),
            ("Withdraw", "", "O", "withdrawal", "Withdrawal"),
            ("Transfer in", "", "I", "transfer", "Transfer"),
            ("Earn", "Flexible interest", "I", "earn", "Staking Reward"),
            ("Earn", "Subscription", "O", "earn", "Other"),
            ("Something", "", "I", "other", "Other"),
        ],
    )
    def test_lines_of_the_funding_wallet(
        self, words: str, text: str, way: str, kind: str, label: str
    ) -> None:
        row = {
            "currency": "BTC", "ioDirection": way, "txnAmt": "0.50", "afterAmt": "2",
            "createTime": "9", "showBusiTypeEn": words, "descriptionEn": text,
        }  # fmt: skip
        record = ledger.funding_line(row, SPOT)
        assert (record.kind, record.label, record.timestamp) == (kind, label, 9_000)
        assert record.balance is not None
        assert record.balance.before == ("1.5" if way == "I" else "2.5")


class TestPatterns:
    """What rows of one kind have in common is kept, and is never another's."""

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
        contexts = [Context(name, new_markets(), "spot", 7) for name in ("mainnet", "testnet")]
        kept = [(trades, "_fill_pattern"), (trades, "_funding_pattern"), (trades, "_order_pattern"),
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
        markets = new_markets()
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


class TestInstruments:
    """From the list, or from the name."""

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
        markets = new_markets()
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

    def test_guesses_are_kept_up_to_a_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert GUESSES_MAX > 3_000
        monkeypatch.setattr("onebook.transactions.markets.GUESSES_MAX", 1)
        markets = new_markets()
        assert markets.find("spot", "AUSDT") is markets.find("spot", "AUSDT")
        assert markets.find("spot", "BUSDT") is not markets.find("spot", "BUSDT")


class TestTables:
    """The registry of words and the rows of an answer."""

    def test_every_word_of_the_documentation_is_accepted(self) -> None:
        unified = {"deposits", "withdrawals", "trades", "spot_trades", "futures", "derivatives",
                   "transfers", "holdings", "balances"}  # fmt: skip
        assert unified | set(ENTRY.types) == set(WORDS)
        assert len(ENTRY.types) == 9

    def test_trades_are_fills_and_orders_only_by_name(self) -> None:
        assert WORDS["trades"] == ("spot_fills", "former_spot_fills")
        assert WORDS["spot_orders"] == (
            "spot_fills", "spot_orders", "former_spot_fills", "former_spot_orders",
        )  # fmt: skip

    def test_the_default_is_every_source_of_every_type_but_two(self) -> None:
        """Contract 4: every type except ledger and holdings."""
        found = {name for word in ENTRY.default for name in WORDS[word]}
        others = {"ledger", "holdings"}
        assert found == {name for name, source in SOURCES.items() if source.type not in others}

    def test_a_row_that_cannot_be_read_is_shown_as_other(self) -> None:
        endpoint = ENDPOINTS["spot_fills"]
        for row in ({}, {"symbol": "BTCUSDT"}, fill(execQty="much"), fill(execTime="x")):
            record, read = read_row(row, endpoint, SPOT)
            assert not read
            assert (record.kind, record.status) == ("other", Status.UNKNOWN)
            assert record.incomplete
        assert read_row(fill(), endpoint, SPOT)[1]

    @pytest.mark.parametrize(
        ("name", "result"),
        [
            ("spot_fills", None),
            ("spot_fills", {}),
            ("spot_fills", {"list": 5}),
            ("spot_fills", {"list": [], "nextPageCursor": 5}),
            ("unified_wallet", {"list": 5}),
            ("funding_wallet", {"balance": ["x"]}),
            ("funding_wallet", {"balance": [{"walletBalance": "x"}]}),
        ],
    )
    def test_an_answer_of_another_shape_is_refused(self, name: str, result: Any) -> None:
        with pytest.raises(SourceFailed, match="documented form"):
            rows_of(ENDPOINTS[name], result)

    def test_an_account_without_coins(self) -> None:
        assert rows_of(ENDPOINTS["unified_wallet"], {"list": []}) == ([], "")
        assert rows_of(ENDPOINTS["spot_fills"], {"list": None}) == ([], "")

    def test_missing_permissions_name_the_types(self) -> None:
        assert unavailable_types(set()) == (
            "holdings", "deposits", "withdrawals", "spot_orders", "futures_linear",
            "futures_inverse", "ledger", "transfers",
        )  # fmt: skip
        assert "spot_orders" not in unavailable_types({"SpotTrade"})
        assert unavailable_types({"SpotTrade", "AccountTransfer", "Order"}) == ()

    def test_a_time_in_any_unit(self) -> None:
        assert ms({"t": "1672214887231423699"}, "t") == 1_672_214_887_231
        assert ms({"t": "0"}, "t") is None
        assert ms({}, "t") is None


class TestIdentities:
    """What must hold on every recorded row."""

    pytestmark = pytest.mark.skipif(samples_dir() is None, reason="no samples here")

    def test_change_is_cash_flow_plus_funding_less_fee(self) -> None:
        checked = 0
        for name in names():
            if not name.startswith(("account_transaction-log", "account_contract")):
                continue
            sign = -1 if "contract" in name else 1
            for row in sample_rows(name, "list"):
                cash, funding, fee, change = (
                    Decimal(row[key] or 0) for key in ("cashFlow", "funding", "fee", "change")
                )
                assert change == cash + sign * funding - fee
                checked += 1
        assert checked >= 10

    def test_the_documented_rows_chain(self) -> None:
        rows = sample_rows("account_transaction-log.docs.json", "list")
        records = [ledger.ledger(row, LINEAR) for row in rows]
        for newer, older in pairwise(records):
            assert newer.balance is not None
            assert older.balance is not None
            assert newer.balance.before == older.balance.after

    def test_the_value_of_a_fill_is_price_times_quantity(self) -> None:
        checked = 0
        for name in names():
            if not name.startswith(("execution_list", "pre-upgrade_execution")):
                continue
            for row in sample_rows(name, "list"):
                if row["execValue"]:
                    product = Decimal(row["execPrice"]) * Decimal(row["execQty"])
                    assert product == Decimal(row["execValue"])
                    checked += 1
        assert checked >= 8

    def test_closed_pnl_of_a_real_position(self) -> None:
        (row,) = sample_rows("position_closed-pnl.hirokisan.json", "list")
        rate = Decimal("0.0006")
        entry, leave = Decimal(row["cumEntryValue"]), Decimal(row["cumExitValue"])
        assert Decimal(row["closedPnl"]) == leave - entry - rate * entry - rate * leave
        (line,) = sample_rows("account_transaction-log.hirokisan.json", "list")
        assert Decimal(line["cashFlow"]) == leave - entry
