"""Records of every kind, and what a form makes of them."""

import csv
from pathlib import Path

import pytest

from onebook.transactions.bybit import funds, ledger, trades
from onebook.transactions.export import writer
from onebook.transactions.record import Record
from transactions.bybit.native import LINEAR, SPOT, fill, line, order

BUY = trades.execution(fill(feeCurrency="BTC"), SPOT)


CONTRACT = trades.execution(fill(), LINEAR)


PAID = trades.execution(fill(execType="Funding", execFee="0.5"), LINEAR)


EARNED = trades.execution(fill(execType="Funding", execFee="-0.5"), LINEAR)


ORDER = trades.order(order(), SPOT)


LINE = ledger.ledger(line(), SPOT)


DEPOSIT = funds.deposit(
    {"coin": "BTC", "amount": "1", "status": 3, "successAt": "1700000000000", "txID": "0xabc"}, SPOT
)


PENDING = funds.deposit({"coin": "BTC", "amount": "1", "status": 1, "id": "1"}, SPOT)


WITHDRAWAL = funds.withdrawal(
    {"coin": "BTC", "amount": "1", "withdrawFee": "0.1", "createTime": "1700000000000",
     "withdrawId": "1", "status": "success", "withdrawType": 0}, SPOT
)  # fmt: skip


TRANSFER = funds.transfer(
    {"transferId": "t", "coin": "BTC", "amount": "1", "timestamp": "5", "status": "SUCCESS"}, SPOT
)


def needed(form: str) -> None:
    """Skip a test of a form whose package is not installed."""
    packages = {"parquet": "pyarrow", "xlsx": "xlsxwriter"}
    if form in packages:
        pytest.importorskip(packages[form])


def closed(pnl: str) -> Record:
    return trades.closed_pnl(
        {"symbol": "BTCUSDT", "orderId": "o", "updatedTime": "1700000000000", "closedPnl": pnl,
         "openFee": "1", "closeFee": "2", "side": "Sell"}, LINEAR
    )  # fmt: skip


REWARD = ledger.funding_line(
    {"currency": "BTC", "ioDirection": "I", "txnAmt": "1", "afterAmt": "2", "createTime": "9",
     "showBusiTypeEn": "Earn", "descriptionEn": "interest"}, SPOT
)  # fmt: skip


ALL = [BUY, CONTRACT, PAID, EARNED, ORDER, LINE, DEPOSIT, PENDING, WITHDRAWAL, TRANSFER]


def written(form: str, records: list[Record], folder: Path) -> list[dict[str, str]]:
    path = folder / "out"
    file = writer(form, path, exchange="Bybit")
    file.write(records)
    file.close()
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))
