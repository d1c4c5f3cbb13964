"""Lines of Bybit's ledgers, and their types, as records."""

import pytest

from onebook.transactions.bybit import ledger, trades
from onebook.transactions.bybit.ledger import funding_kind, ledger_kind
from onebook.transactions.record import Holder, RecordView
from transactions.bybit.native import LEDGER_TYPES, LINEAR, SPOT, fill, fund_row, line


@pytest.mark.parametrize(
    ("native", "expected"),
    [
        ("TRADE", ("trade", "Trade")),
        ("SETTLEMENT", ("funding", "Funding")),
        ("BONUS_RECOLLECT", ("bonus", "Bonus")),
        ("TRANSFER_IN_INS_LOAN", ("loan", "Other")),
        ("SOMETHING_NEW", ("other", "Other")),
    ],
)
def test_types_of_the_ledger(native: str, expected: tuple[str, str]) -> None:
    assert ledger_kind(native) == expected


@pytest.mark.parametrize(
    ("words", "desc", "incoming", "expected"),
    [
        ("Earn", "Flexible Interest Distribution", True, ("earn", "Staking Reward")),
        ("Earn", "Flexible Interest Distribution", False, ("earn", "Other")),
        ("Transfer in", "", True, ("transfer", "Transfer")),
        ("Crypto Loan", "", True, ("loan", "Other")),
        ("Anything", "", True, ("other", "Other")),
    ],
)
def test_words_of_the_funding_wallet(
    words: str, desc: str, incoming: bool, expected: tuple[str, str]
) -> None:
    assert funding_kind(words, desc, incoming=incoming) == expected


class TestLedger:
    """Lines of the wallets' ledgers."""

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
            ("TRADE", "spot", RecordView.LEDGER), ("SETTLEMENT", "linear", RecordView.LEDGER),
            ("DELIVERY", "inverse", RecordView.LEDGER), ("TRANSFER_IN", "", RecordView.LEDGER),
            ("TOKENS_REDEMPTION", "", RecordView.LEDGER), ("TRADE", "option", RecordView.PRIMARY),
            ("DELIVERY", "option", RecordView.PRIMARY), ("INTEREST", "", RecordView.PRIMARY),
            ("AIRDROP", "", RecordView.PRIMARY), ("CONVERT", "", RecordView.PRIMARY),
            ("TYPE_OF_NEXT_YEAR", "", RecordView.PRIMARY),
        ],
    )  # fmt: skip
    def test_a_line_is_primary_where_no_other_list_has_its_event(
        self, native: str, category: str, view: RecordView
    ) -> None:
        assert ledger.ledger(line(type=native, category=category), SPOT).view is view

    @pytest.mark.parametrize(
        ("words", "view"),
        [
            ("Deposit", RecordView.LEDGER),
            ("Withdraw", RecordView.LEDGER),
            ("Transfer in", RecordView.LEDGER),
            ("Earn", RecordView.PRIMARY),
            ("Fiat", RecordView.PRIMARY),
            ("Convert", RecordView.PRIMARY),
        ],
    )
    def test_so_is_a_line_of_the_funding_wallet(self, words: str, view: RecordView) -> None:
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
        """Bybit's own example has them; the balance distinguishes them."""
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
            "leverage_token_trades", "sell", RecordView.PRIMARY,
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
