"""A year of an account, exported and imported by each reader's rules: the true balances.

The importers here know nothing of how files are written, only what the readers document:

- CSV, Parquet: `docs/explanation/transactions.md`: of completed primary rows, received less sent
  less fees.
- Koinly, articles 9489976, 9490022: what is received is added, what is sent and the fee taken off.
- CoinTracking, article 29000007202: amounts are what arrived and left; the fee informs.
- BittyTax 0.6, `t_row.py`: each type has a buy, a sell or both; a fee is a spend besides.
- rotki, `data_import/importers`: a trade and its fee are three events; two trades of one instant
  with equal amounts are one.
"""

import csv
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import httpx
import pytest

from client.place import place
from onebook.clock import iso_ms
from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit
from onebook.simulator.accounts.history import shown
from onebook.transactions.export import FORMS as WRITTEN
from onebook.transactions.export import writer
from onebook.transactions.record import Record
from onebook.transactions.request import TransactionsRequest
from steady import PATIENCE_S
from transactions.bybit_support import CALLER, KEY, NOW_MS, Served, World, run, simulated

YEAR_MS = 365 * DAY_MS
FROM_MS = NOW_MS - YEAR_MS
ACCOUNT = Account(History(FROM_MS - 30 * DAY_MS, NOW_MS, executions=4_500))
TYPES = (
    "deposits", "withdrawals", "spot_orders", "futures", "transfers", "leverage_token_trades",
    "ledger", "holdings",
)  # fmt: skip
Balances = dict[str, Decimal]
Cells = dict[str, Any]


def records_since(account: Account, from_ms: int) -> list[Record]:
    """Every record of the account, as the command line gets it."""

    async def collected() -> list[Record]:
        async with World(simulated(account)) as world:
            ask = TransactionsRequest(exchange="bybit", transaction_types=TYPES, start_time=from_ms)
            query = world.service.plan(ask, key_id=CALLER, streamed=True)
            async with world.service.run(query, key_id=CALLER) as found:
                batches = [batch async for batch in found.records(36_000.0)]
                assert all(entry.complete for entry in found.coverage())
        return [record for batch in batches for record in batch]

    return run(collected())


def quiet_ms(account: Account, from_ms: int) -> int:
    """A time after which no open order closes a position, because its P&L is one record."""
    spans = []
    for table in account.closed.values():
        spans += [(entry.facts.created_ms, entry.facts.updated_ms) for entry in table.entries]
    while any(start <= from_ms <= end for start, end in spans):
        from_ms += 60_000
    return from_ms


def held_before(account: Account, at_ms: int) -> Balances:
    """The holdings of all wallets, from the simulator's books."""
    held: Counter[str] = Counter()
    for table in (account.fund_ledger, *account.books.tables.values()):
        for entry in table.entries:
            if entry.at_ms < at_ms:
                held[entry.facts.coin] += entry.facts.change
    return {coin: Decimal(shown(units)) for coin, units in held.items()}


def held_now(account: Account) -> Balances:
    held = Counter(account.fund)
    for wallet in account.books.tables:
        held.update(account.books.held(wallet))
    return {coin: Decimal(shown(units)) for coin, units in held.items() if units}


def csv_rows(path: Path) -> Iterable[Cells]:
    with path.open(newline="") as lines:
        yield from csv.DictReader(lines)


def parquet_rows(path: Path) -> Iterable[Cells]:
    return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()  # type: ignore[no-any-return]


def xlsx_rows(path: Path) -> Iterable[Cells]:
    """Rows of a workbook; a number has the 15 digits that Excel shows."""
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("xlsxwriter")
    rows = iter(openpyxl.load_workbook(BytesIO(path.read_bytes()), read_only=True).active.values)
    names = next(rows)
    for row in rows:
        cells = [f"{cell:.15g}" if isinstance(cell, int | float) else cell for cell in row]
        yield dict(zip(names, cells, strict=True))


def add_columns(balances: Counter[str], row: Cells) -> None:
    if row["view"] != "primary" or row["status"] != "completed":
        return
    _move(balances, row["received_currency"], row["received_amount"], 1)
    _move(balances, row["sent_currency"], row["sent_amount"], -1)
    for fee in filter(None, (row["fees"] or "").split("; ")):
        amount, currency = fee.split(" ")
        _move(balances, currency, amount, -1)


def add_koinly(balances: Counter[str], row: Cells) -> None:
    assert row["Sent Amount"] or row["Received Amount"], "Koinly takes no row without an amount"
    if not row["Sent Amount"]:
        assert not row["Fee Amount"], "a deposit has no fee"
    _move(balances, row["Received Currency"], row["Received Amount"], 1)
    _move(balances, row["Sent Currency"], row["Sent Amount"], -1)
    _move(balances, row["Fee Currency"], row["Fee Amount"], -1)


def add_cointracking(balances: Counter[str], row: Cells) -> None:
    assert (row["Type"] == "Trade") == bool(row["Buy Amount"] and row["Sell Amount"])
    _move(balances, row["Buy Currency"], row["Buy Amount"], 1)
    _move(balances, row["Sell Currency"], row["Sell Amount"], -1)


def _move(balances: Counter[str], currency: str, amount: str, sign: int) -> None:
    if amount:
        assert Decimal(amount) > 0 or Decimal(amount).is_signed()
        balances[currency] += sign * Decimal(amount)  # type: ignore[assignment]


BITTYTAX_BUYS = {
    "Deposit", "Mining", "Staking", "Interest", "Dividend", "Income", "Gift-Received", "Fork",
    "Airdrop", "Referral", "Cashback", "Fee-Rebate", "Loan", "Margin-Gain", "Margin-Fee-Rebate",
}  # fmt: skip
BITTYTAX_SELLS = {
    "Withdrawal", "Spend", "Gift-Sent", "Gift-Spouse", "Charity-Sent", "Lost", "Loan-Repayment",
    "Loan-Interest", "Margin-Loss", "Margin-Fee",
}  # fmt: skip


def bittytax_rows(path: Path) -> Iterable[Cells]:
    """Rows by column position, ignoring the header."""
    names = (
        "Type", "Buy Quantity", "Buy Asset", "Buy Value", "Sell Quantity", "Sell Asset",
        "Sell Value", "Fee Quantity", "Fee Asset", "Fee Value", "Wallet", "Timestamp", "Note",
    )  # fmt: skip
    with path.open(newline="") as lines:
        for row in list(csv.reader(lines))[1:]:
            yield dict(zip(names, row, strict=True))


def add_bittytax(balances: Counter[str], row: Cells) -> None:
    buys, sells = row["Type"] in BITTYTAX_BUYS, row["Type"] in BITTYTAX_SELLS
    assert buys or sells or row["Type"] == "Trade", row["Type"]
    for side, takes in (("Buy", not sells), ("Sell", not buys)):
        assert bool(row[f"{side} Quantity"]) == bool(row[f"{side} Asset"]) == takes
    assert bool(row["Fee Quantity"]) == bool(row["Fee Asset"])
    assert not any(row[name].startswith("-") for name in row if name.endswith("Quantity"))
    assert datetime.fromisoformat(row["Timestamp"]).tzinfo is not None
    _move(balances, row["Buy Asset"], row["Buy Quantity"], 1)
    _move(balances, row["Sell Asset"], row["Sell Quantity"], -1)
    _move(balances, row["Fee Asset"], row["Fee Quantity"], -1)


ROTKI_SIGNS = {
    "Deposit": 1, "Income": 1, "Staking": 1, "Withdrawal": -1, "Loss": -1, "Spend": -1
}  # fmt: skip


def rotki_rows(path: Path) -> Iterable[Cells]:
    """Trades, deduplicated by rotki's id, then events."""
    with ZipFile(path) as archive:
        assert archive.namelist() == ["rotki-trades.csv", "rotki-events.csv"]
        trades, events = (
            list(csv.DictReader(archive.read(name).decode("utf-8-sig").splitlines()))
            for name in archive.namelist()
        )
    compared = (
        "Location", "Timestamp", "Spend Currency", "Spend Amount", "Receive Currency",
        "Receive Amount",
    )  # fmt: skip
    yield from {tuple(row[name] for name in compared): row for row in trades}.values()
    yield from events


def add_rotki(balances: Counter[str], row: Cells) -> None:
    assert row["Location"] in {"bybit", "kraken", "okx"}
    assert len(row["Timestamp"]) == 13
    assert int(row["Timestamp"]) > 0
    amounts = [row[name] for name in row if name.endswith("Amount") or name == "Fee"]
    assert not any(amount.startswith("-") for amount in amounts)
    if "Type" in row:
        assert row["Amount"]
        _move(balances, row["Currency"], row["Amount"], ROTKI_SIGNS[row["Type"]])
    else:
        assert row["Spend Amount"]
        assert row["Receive Amount"]
        _move(balances, row["Spend Currency"], row["Spend Amount"], -1)
        _move(balances, row["Receive Currency"], row["Receive Amount"], 1)
    _move(balances, row["Fee Currency"], row["Fee"], -1)


def jsonl_rows(path: Path) -> Iterable[Cells]:
    return map(json.loads, path.read_text().splitlines())


def add_json(balances: Counter[str], row: Cells) -> None:
    if row["view"] != "primary" or row["status"] != "completed":
        return
    for name, sign in (("receivedCurrency", 1), ("sentCurrency", -1)):
        money = row.get(name) or {"currency": "", "amount_str": ""}
        _move(balances, money["currency"], money["amount_str"], sign)
    for fee in row["fees"]:
        _move(balances, fee["currency"], fee["amount"], -1)


FORMS: dict[str, tuple[Callable[[Path], Iterable[Cells]], Callable[[Counter[str], Cells], None]]]
FORMS = {
    "jsonl": (jsonl_rows, add_json),
    "csv": (csv_rows, add_columns),
    "parquet": (parquet_rows, add_columns),
    "xlsx": (xlsx_rows, add_columns),
    "koinly": (csv_rows, add_koinly),
    "cointracking": (csv_rows, add_cointracking),
    "bittytax": (bittytax_rows, add_bittytax),
    "rotki": (rotki_rows, add_rotki),
}
TAX_TOOLS = ("koinly", "cointracking", "bittytax", "rotki")
# Each is written by a process of its own: one of each kind of writer.
BY_COMMAND = ("jsonl", "xlsx", "koinly", "rotki")
# A workbook of a year takes longer than all other forms together.
OF_A_YEAR = [pytest.param(form, marks=pytest.mark.soak if form == "xlsx" else ()) for form in FORMS]
OPTIONAL = {"parquet": "pyarrow", "xlsx": "xlsxwriter"}


def imported(form: str, records: list[Record], opening: Balances, folder: Path) -> Balances:
    path = folder / "export"
    file = writer(form, path, exchange="Bybit")
    file.write(records)
    file.close()
    return summed(form, path, opening)


def summed(form: str, path: Path, opening: Balances) -> Balances:
    read, count = FORMS[form]
    balances: Counter[str] = Counter(opening)  # type: ignore[arg-type]
    for row in read(path):
        count(balances, row)
    return {coin: Decimal(amount) for coin, amount in balances.items() if amount}


@pytest.fixture(scope="module")
def year() -> tuple[int, list[Record]]:
    from_ms = quiet_ms(ACCOUNT, FROM_MS)
    return from_ms, records_since(ACCOUNT, from_ms)


@pytest.mark.parametrize("form", OF_A_YEAR)
def test_an_import_yields_what_the_account_holds(
    form: str, year: tuple[int, list[Record]], tmp_path: Path
) -> None:
    from_ms, records = year
    assert imported(form, records, held_before(ACCOUNT, from_ms), tmp_path) == held_now(ACCOUNT)


def test_the_year_has_what_exports_used_to_lose(year: tuple[int, list[Record]]) -> None:
    _, records = year
    fills = [record for record in records if record.kind == "trade" and record.type != "ledger"]
    assert any(len(fill.fees) > 1 for fill in fills if fill.type == "spot_orders")
    assert any(len(fill.fees) > 1 for fill in fills if fill.type == "futures_linear")
    assert any(fill.native_type == "FutureSpread" for fill in fills)
    assert any(fee.amount[0] == "-" for fill in fills for fee in fill.fees)
    assert any(len(r.fees) > 1 for r in records if r.kind == "withdrawal")
    ways = {r.direction.value for r in records if r.native_type == "universal"}
    assert ways == {"in", "out", "none"}
    for kind in ("closed_pnl", "delivery", "settlement", "funding", "interest", "bonus", "convert"):
        assert any(r.kind == kind for r in records), kind


@pytest.mark.parametrize("form", OF_A_YEAR)
def test_without_the_ledger_only_what_it_alone_knows_is_missing(
    form: str, year: tuple[int, list[Record]], tmp_path: Path
) -> None:
    from_ms, records = year
    alone = [r for r in records if r.type == "ledger" and r.view == "primary"]
    rest = [r for r in records if r.type != "ledger"]
    opening = held_before(ACCOUNT, from_ms)
    left = imported(form, rest, opening, tmp_path)
    assert left != held_now(ACCOUNT)
    assert imported(form, alone, left, tmp_path) == held_now(ACCOUNT)


def test_the_lines_of_the_ledger_sum_to_the_same_by_themselves(
    year: tuple[int, list[Record]],
) -> None:
    from_ms, records = year
    balances: Counter[str] = Counter(held_before(ACCOUNT, from_ms))  # type: ignore[arg-type]
    for line in (record for record in records if record.type == "ledger"):
        row = {
            "Received Currency": getattr(line.receivedCurrency, "currency", ""),
            "Received Amount": getattr(line.receivedCurrency, "amount_str", ""),
            "Sent Currency": getattr(line.sentCurrency, "currency", ""),
            "Sent Amount": getattr(line.sentCurrency, "amount_str", ""),
        }
        _move(balances, row["Received Currency"], row["Received Amount"], 1)
        _move(balances, row["Sent Currency"], row["Sent Amount"], -1)
        for fee in line.fees:
            _move(balances, fee.currency or "", fee.amount, -1)
    assert {coin: amount for coin, amount in balances.items() if amount} == held_now(ACCOUNT)


class FortyDays(NamedTuple):
    """An account behind a simulated exchange, and a range inside its history."""

    account: Account
    environment: dict[str, str]
    from_ms: int
    to_ms: int

    def fetch(self, folder: Path, *words: str) -> str:
        """Run the command as a user does; return its output."""
        words = ("--from", iso_ms(self.from_ms), "--to", iso_ms(self.to_ms), *words)
        return onebook(self.environment, "transactions", "fetch", *words, cwd=folder)


def onebook(environment: dict[str, str], *words: str, cwd: Path, typed: str = "") -> str:
    """Run a command that must succeed; return its output."""
    done = started(environment, *words, cwd=cwd, typed=typed)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def started(
    environment: dict[str, str], *words: str, cwd: Path, typed: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "onebook", *words],
        cwd=cwd,
        env={**os.environ, **environment},
        input=typed,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.fixture(scope="module")
def forty_days(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FortyDays]:
    now_ms = time.time_ns() // 1_000_000
    account = Account(History(now_ms - 60 * DAY_MS, now_ms - 1_000, executions=300))
    folder = tmp_path_factory.mktemp("operator")
    with Served(SimulatedBybit(account, [KEY])) as url:
        environment = {
            "ONEBOOK_STORE__URL": f"sqlite+aiosqlite:///{folder}/onebook.db",
            "ONEBOOK_STORE__PEPPER_FILE": str(folder / "pepper"),
            "ONEBOOK_TRANSACTIONS__MASTER_KEY_FILE": str(folder / "master_key"),
            "ONEBOOK_TRANSACTIONS__OVERRIDES__BYBIT__MAINNET_URL": url,
        }
        typed = f"{KEY.api_key}\n{KEY.secret}\n"
        onebook(environment, "credentials", "set", "bybit", cwd=folder, typed=typed)
        from_ms, to_ms = (quiet_ms(account, now_ms - days * DAY_MS) for days in (42, 2))
        yield FortyDays(account, environment, from_ms, to_ms)


def test_every_form_is_read_here_by_its_readers_rules() -> None:
    assert set(FORMS) == set(WRITTEN)


@pytest.mark.parametrize(
    "form",
    [
        *BY_COMMAND,
        *(pytest.param(each, marks=pytest.mark.soak) for each in FORMS if each not in BY_COMMAND),
    ],
)
def test_what_the_command_writes_by_default_adds_up(
    form: str, forty_days: FortyDays, tmp_path: Path
) -> None:
    if form in OPTIONAL:
        pytest.importorskip(OPTIONAL[form])
    said = forty_days.fetch(tmp_path, "--format", form, "-o", "file")
    assert "Left out" not in said
    before = held_before(forty_days.account, forty_days.from_ms)
    after = held_before(forty_days.account, forty_days.to_ms + 1)
    assert before != after
    assert summed(form, tmp_path / "file", before) == {c: held for c, held in after.items() if held}


@pytest.mark.parametrize(
    "form",
    [pytest.param(each, marks=() if each == "rotki" else pytest.mark.soak) for each in TAX_TOOLS],
)
async def test_what_a_service_gives_by_default_adds_up(form: str, tmp_path: Path) -> None:
    """Interest, airdrops and conversions are in a file of a request that names no types."""
    async with (
        place(tmp_path, rate_hz=0) as rig,
        httpx.AsyncClient(base_url=rig.url, timeout=PATIENCE_S) as client,
    ):
        answer = await client.post("/api/v1/authenticate", json={"api_key": rig.key})
        client.headers["authorization"] = f"Bearer {answer.json()['session_token']}"
        account = rig.bybit.account
        before_ms = account.history.from_ms - DAY_MS  # it opens with a deposit, booked in seconds
        body = {"exchange": "bybit", "format": form, "start_time": before_ms}
        answer = await client.post("/api/v1/transactions", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["onebook-complete"] == "true"
        (tmp_path / form).write_bytes(answer.content)
        held = held_now(account)
        assert len(held) > 4
        assert summed(form, tmp_path / form, {}) == held
