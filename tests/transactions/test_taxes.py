"""The file formats of tax tools."""

import csv
from decimal import Decimal
from io import StringIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from msgspec.structs import replace

from onebook.transactions import taxes
from onebook.transactions.bybit import ledger, trades
from onebook.transactions.export import writer
from onebook.transactions.record import Record
from onebook.transactions.taxes import (
    BITTYTAX,
    COINTRACKING,
    KOINLY,
    ROTKI_EVENTS,
    ROTKI_TRADES,
)
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


def test_bittytax_types(tmp_path: Path) -> None:
    rows = written("bittytax", [*ALL, closed("7"), closed("-9")], tmp_path)
    assert tuple(rows[0]) == BITTYTAX
    found = [
        (row["Type"], row["Buy Quantity"], row["Sell Quantity"], row["Fee Quantity"])
        for row in rows
    ]  # fmt: skip
    assert found == [
        ("Trade", "2", "200", "0.2"), ("Margin-Fee", "", "0.2", ""), ("Margin-Loss", "", "0.5", ""),
        ("Margin-Gain", "0.5", "", ""), ("Deposit", "1", "", ""), ("Withdrawal", "", "1", "0.1"),
        ("Margin-Gain", "10", "", ""), ("Margin-Loss", "", "6", ""),
    ]  # fmt: skip
    assert (rows[0]["Wallet"], rows[0]["Timestamp"]) == ("Bybit", "2023-11-14T22:13:20.000Z")
    assert rows[4]["Note"].endswith("0xabc")


def unpacked(records: list[Record], folder: Path) -> tuple[list[dict[str, str]], ...]:
    """The trades and events in rotki's archive."""
    file = writer("rotki", folder / "out.zip", exchange="Bybit")
    file.write(records)
    file.close()
    with ZipFile(folder / "out.zip") as archive:
        texts = [archive.read(f"rotki-{name}.csv").decode() for name in ("trades", "events")]
    return tuple(list(csv.DictReader(StringIO(text, newline=""))) for text in texts)


def test_rotki_gets_trades_and_events(tmp_path: Path) -> None:
    traded, events = unpacked([*ALL, closed("7"), closed("-9"), REWARD], tmp_path)
    (trade,) = traded
    assert tuple(trade) == ROTKI_TRADES
    assert [*trade.values()][:7] == ["bybit", "USDT", "BTC", "200", "2", "0.2", "BTC"]
    assert trade["Timestamp"] == "1700000000000"
    assert tuple(events[0]) == ROTKI_EVENTS
    assert [(row["Type"], row["Amount"], row["Fee"]) for row in events] == [
        ("Spend", "0.2", ""), ("Loss", "0.5", ""), ("Income", "0.5", ""), ("Deposit", "1", ""),
        ("Withdrawal", "1", "0.1"), ("Income", "10", ""), ("Loss", "6", ""), ("Staking", "1", ""),
    ]  # fmt: skip


def test_equal_trades_of_one_instant_are_apart_for_rotki(tmp_path: Path) -> None:
    """The tool would merge them; a difference of 1 ms keeps them apart."""
    at_ms = 1_700_000_000_000
    fills = [
        trades.execution(fill(execId=str(n), execTime=str(at_ms - n // 4), feeCurrency="BTC"), SPOT)
        for n in range(12)
    ]
    rows, _ = unpacked(fills, tmp_path)
    times = [int(row["Timestamp"]) for row in rows]
    assert len(set(times)) == 12
    assert all(0 <= time - record.timestamp < 12 for time, record in zip(times, fills, strict=True))
    later, _ = unpacked([*fills, *(replace(each, timestamp=5) for each in fills[:2])], tmp_path)
    assert [int(row["Timestamp"]) for row in later[12:]] == [5, 6]


def test_an_archive_is_the_same_for_the_same_records(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        unpacked(ALL, tmp_path / name)
        made.append((tmp_path / name / "out.zip").read_bytes())
        assert [each.name for each in (tmp_path / name).iterdir()] == ["out.zip"]
    assert made[0] == made[1]


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
    rows = written("bittytax", [spot, contract], tmp_path)
    assert [(row["Type"], row["Buy Quantity"]) for row in rows[1:]] == [
        ("Fee-Rebate", "0.2"), ("Margin-Fee-Rebate", "0.2"),
    ]  # fmt: skip
    _, events = unpacked([spot, contract], tmp_path)
    assert [(row["Type"], row["Amount"]) for row in events] == [("Income", "0.2")] * 2
    rows = written("cointracking", [spot, contract], tmp_path)
    assert (rows[0]["Sell Amount"], rows[0]["Fee"]) == ("199.8", "")
    assert rows[1]["Type"] == "Derivatives / Futures Profit"


@pytest.mark.parametrize("form", ["koinly", "cointracking", "bittytax"])
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
    ("native", "change", "koinly", "cointracking", "bittytax", "rotki"),
    [
        ("INTEREST", "-1", "cost", "Borrowing Fee", "Loan-Interest", "Spend"),
        ("AIRDROP", "1", "airdrop", "Airdrop", "Airdrop", "Income"),
        ("BONUS", "1", "reward", "Reward / Bonus", "Income", "Income"),
        ("CURRENCY_SELL", "-1", "", "Withdrawal", "Withdrawal", "Withdrawal"),
        ("CURRENCY_BUY", "1", "", "Deposit", "Deposit", "Deposit"),
        ("BORROW", "1", "loan", "Receive Loan", "Loan", "Deposit"),
        ("REPAY", "-1", "", "Repay Loan", "Loan-Repayment", "Withdrawal"),
        ("FEE_REFUND", "1", "fee refund", "Reward / Bonus", "Fee-Rebate", "Income"),
        ("FLEXIBLE_STAKING_REDEMPTION", "1", "", "Deposit", "Deposit", "Deposit"),
    ],
)
def test_what_only_the_ledger_knows_reaches_the_tax_tools(
    native: str,
    change: str,
    koinly: str,
    cointracking: str,
    bittytax: str,
    rotki: str,
    tmp_path: Path,
) -> None:
    record = ledger.ledger(line(type=native, change=change, fee="0", category=""), SPOT)
    for form, name, word in (
        ("koinly", "Label", koinly),
        ("cointracking", "Type", cointracking),
        ("bittytax", "Type", bittytax),
    ):
        (row,) = written(form, [record, LINE], tmp_path)  # the line of a fill is not written
        assert row[name] == word
    _, (event,) = unpacked([record, LINE], tmp_path)
    assert event["Type"] == rotki


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
    assert taxes.bittytax(REWARD, "Bybit")[0][0] == "Staking"
