"""The forms that tax tools read."""

from decimal import Decimal
from pathlib import Path

import pytest

from onebook.transactions import taxes
from onebook.transactions.bybit import ledger, trades
from onebook.transactions.taxes import COINTRACKING, KOINLY
from transactions.bybit.native import LINEAR, SPOT, fill, line
from transactions.exporting import ALL, CONTRACT, LINE, REWARD, closed, written


def test_koinly_gets_what_may_be_summed_once(tmp_path: Path) -> None:
    rows = written("koinly", [*ALL, closed("7"), closed("-9"), closed("-3")], tmp_path)
    assert tuple(rows[0]) == KOINLY
    found = [
        (row["Sent Amount"], row["Sent Currency"], row["Received Amount"],
         row["Received Currency"], row["Fee Amount"], row["Label"])
        for row in rows
    ]  # fmt: skip
    assert found == [
        ("200", "USDT", "2", "BTC", "0.2", ""),
        ("0.2", "USDT", "", "", "", "margin fee"),
        ("0.5", "USDT", "", "", "", "realized gain"),
        ("", "", "0.5", "USDT", "", "realized gain"),
        ("", "", "1", "BTC", "", ""),
        ("1", "BTC", "", "", "0.1", ""),
        ("", "", "10", "USDT", "", "realized gain"),  # net 7, fees 3 stand at the fills
        ("6", "USDT", "", "", "", "realized gain"),
    ]
    assert rows[0]["Date"] == "2023-11-14 22:13:20 UTC"
    assert rows[4]["TxHash"] == "0xabc"


def test_cointracking_types(tmp_path: Path) -> None:
    rows = written("cointracking", [*ALL, closed("7"), closed("-9")], tmp_path)
    assert tuple(rows[0]) == COINTRACKING
    assert [row["Type"] for row in rows] == [
        "Trade", "Margin Fee", "Other Fee", "Other Income",
        "Deposit", "Withdrawal", "Derivatives / Futures Profit", "Derivatives / Futures Loss",
    ]  # fmt: skip
    assert (rows[1]["Sell Amount"], rows[1]["Sell Currency"], rows[1]["Fee"]) == ("0.2", "USDT", "")
    # Amounts contain the fee: 2 BTC less 0.2 arrived, 1 BTC and 0.1 left.
    assert (rows[0]["Buy Amount"], rows[0]["Fee"], rows[0]["Fee Currency"]) == ("1.8", "0.2", "BTC")
    assert (rows[5]["Sell Amount"], rows[5]["Fee"]) == ("1.1", "0.1")


def test_every_fee_reaches_every_form(tmp_path: Path) -> None:
    extra = [{"feeCoin": "EUR", "subFeeType": "ARE_VAT", "fee": "0.5"},
             {"feeCoin": "BTC", "subFeeType": "IND_GST", "fee": "0.1"}]  # fmt: skip
    record = trades.execution(fill(feeCurrency="BTC", extraFees=extra), SPOT)
    (row,) = written("csv", [record], tmp_path)
    assert row["fees"] == "0.2 BTC; 0.5 EUR; 0.1 BTC"
    trade, vat, gst = written("koinly", [record], tmp_path)
    assert trade["Fee Amount"] == "0.2"
    assert [(r["Sent Amount"], r["Sent Currency"], r["Label"]) for r in (vat, gst)] == [
        ("0.5", "EUR", "cost"), ("0.1", "BTC", "cost"),
    ]  # fmt: skip
    trade, vat = written("cointracking", [record], tmp_path)
    assert (trade["Buy Amount"], trade["Fee"], trade["Sell Amount"]) == ("1.7", "0.3", "200")
    assert (vat["Type"], vat["Sell Amount"], vat["Sell Currency"]) == ("Other Fee", "0.5", "EUR")


def test_a_rebate_is_received(tmp_path: Path) -> None:
    spot = trades.execution(fill(execFee="-0.2", isMaker=True), SPOT)  # in the coin that is sold
    contract = trades.execution(fill(execFee="-0.2"), LINEAR)
    rows = written("koinly", [spot, contract], tmp_path)
    assert [(r["Received Amount"], r["Received Currency"], r["Label"]) for r in rows[1:]] == [
        ("0.2", "USDT", "fee refund"), ("0.2", "USDT", "realized gain"),
    ]  # fmt: skip
    assert not any(row["Fee Amount"] for row in rows)
    rows = written("cointracking", [spot, contract], tmp_path)
    assert (rows[0]["Sell Amount"], rows[0]["Fee"]) == ("199.8", "")
    assert rows[1]["Type"] == "Derivatives / Futures Profit"


@pytest.mark.parametrize("form", ["koinly", "cointracking"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_no_digit_of_a_fee_is_lost(form: str, sign: str, tmp_path: Path) -> None:
    """More than the 28 digits of Python's default context."""
    charged = "12345678901234.123456789012345678"
    record = trades.execution(fill(execFee=sign + charged), LINEAR)
    (row,) = written(form, [record], tmp_path)
    assert charged in row.values()


def test_a_fee_larger_than_what_arrived_has_its_own_row(tmp_path: Path) -> None:
    record = trades.execution(fill(feeCurrency="BTC", execFee="3"), SPOT)
    trade, fee = written("cointracking", [record], tmp_path)
    assert (trade["Buy Amount"], fee["Type"], fee["Sell Amount"]) == ("2", "Other Fee", "3")


@pytest.mark.parametrize(
    ("native", "change", "koinly", "cointracking"),
    [
        ("INTEREST", "-1", "cost", "Borrowing Fee"), ("AIRDROP", "1", "airdrop", "Airdrop"),
        ("BONUS", "1", "reward", "Reward / Bonus"), ("CURRENCY_SELL", "-1", "", "Withdrawal"),
        ("CURRENCY_BUY", "1", "", "Deposit"), ("BORROW", "1", "loan", "Receive Loan"),
        ("FEE_REFUND", "1", "fee refund", "Reward / Bonus"),
        ("FLEXIBLE_STAKING_REDEMPTION", "1", "", "Deposit"),
    ],
)  # fmt: skip
def test_what_only_the_ledger_knows_reaches_the_tax_tools(
    native: str, change: str, koinly: str, cointracking: str, tmp_path: Path
) -> None:
    record = ledger.ledger(line(type=native, change=change, fee="0", category=""), SPOT)
    for form, name, word in (("koinly", "Label", koinly), ("cointracking", "Type", cointracking)):
        (row,) = written(form, [record, LINE], tmp_path)  # the line of a fill is not written
        assert row[name] == word


def test_a_premium_of_an_option_is_a_gain_or_loss(tmp_path: Path) -> None:
    record = ledger.ledger(
        line(symbol="BTC-29DEC22-16000-P", category="option", change="-5", fee="0"), SPOT
    )
    (row,) = written("koinly", [record], tmp_path)
    assert (row["Sent Amount"], row["Label"]) == ("5", "realized gain")


def test_what_an_account_gained_is_the_same_in_both_tax_forms(tmp_path: Path) -> None:
    """Gross P&L less fees is the exchange's own net figure."""
    records = [closed("7"), CONTRACT]
    koinly = written("koinly", records, tmp_path)
    gained = sum(Decimal(row["Received Amount"] or 0) for row in koinly)
    assert gained == Decimal(7) + 1 + 2


def test_rewards_have_their_own_word() -> None:
    assert taxes.koinly(REWARD)[0][9] == "reward"
    assert taxes.cointracking(REWARD, "Bybit")[0][0] == "Staking"
