"""Deposits, withdrawals, transfers, tokens and balances of Bybit as records."""

from typing import Any, Final

import pytest
from msgspec import UNSET

from onebook.transactions.bybit import funds
from onebook.transactions.bybit.instruments import guess, listed
from onebook.transactions.bybit.rows import Context
from onebook.transactions.markets import Markets
from onebook.transactions.record import Direction, RecordView, Status, money
from transactions.bybit.native import SPOT


def deposit_row(**fields: Any) -> dict[str, Any]:
    return {"id": "9", "coin": "BTC", "amount": "1", "status": 3, "successAt": "5"} | fields


class TestFunds:
    """Statuses, times, and the amounts that the account lost and received."""

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
        row = deposit_row(status=native, chain="BTC")
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
        row = deposit_row(depositType="50")
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
        record = funds.transfer(row, Context("mainnet", Markets(listed, guess), uid=uid))
        assert record.direction == direction
        assert (record.sentCurrency is not UNSET, record.receivedCurrency is not UNSET) == (
            sent, received,
        )  # fmt: skip
        unknown = funds.transfer(row, SPOT)
        assert unknown.incomplete == ("direction",)
        assert unknown.direction is Direction.NONE

    def test_a_deposit_with_a_fee(self) -> None:
        record = funds.deposit(deposit_row(depositFee="0.1"), SPOT)
        assert [(f.amount, f.kind) for f in record.fees] == [("0.1", "network")]

    def test_an_internal_deposit_without_a_time(self) -> None:
        record = funds.internal_deposit(
            {"id": "1", "coin": "BTC", "amount": "1", "status": 1}, SPOT
        )
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

    TOKENS: Final = {
        "ltCoin": "BTC3L", "valueCoin": "USDT", "amount": 5, "value": "10", "fee": "0.1",
        "ltOrderType": 2, "ltOrderStatus": 1, "orderId": 7, "orderTime": 9,
    }  # fmt: skip

    def test_a_leverage_token_redeemed(self) -> None:
        record = funds.leverage_token(self.TOKENS, SPOT)
        assert (record.label, record.status) == ("Sell", Status.COMPLETED)
        assert record.sentCurrency == money("BTC3L", "5")
        assert record.receivedCurrency == money("USDT", "10")
        assert record.fees[0].currency == "USDT"
        assert record.view is RecordView.SUMMARY  # the ledger's lines of it are the ones to sum

    @pytest.mark.parametrize("kind", [1, 2])
    def test_a_failed_order_of_a_leverage_token_moved_nothing(self, kind: int) -> None:
        row = self.TOKENS | {"ltOrderStatus": 3, "ltOrderType": kind}
        record = funds.leverage_token(row, SPOT)
        assert record.status is Status.FAILED
        assert record.sentCurrency is record.receivedCurrency is UNSET
        assert (record.fee, record.fees, record.direction) == (None, (), Direction.NONE)
        assert record.amount == "5"

    def test_a_balance_that_is_not_stated_says_so(self) -> None:
        record = funds.unified_balance({"coin": "BTC", "walletBalance": ""}, SPOT)
        assert (record.amount, record.incomplete) == (None, ("amount",))
        with pytest.raises(ValueError, match="no coin"):
            funds.unified_balance({"coin": "", "walletBalance": "1"}, SPOT)

    def test_a_balance_below_zero_keeps_its_sign_in_the_total(self) -> None:
        record = funds.unified_balance({"coin": "USDC", "walletBalance": "-5.50"}, SPOT)
        assert record.amount == "5.5"
        assert record.balance is not None
        assert record.balance.total == "-5.5"
