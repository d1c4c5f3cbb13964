"""`onebook credentials` and `onebook transactions` as the operator runs them."""

import asyncio
import calendar
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC
from pathlib import Path

import pytest
from click.testing import Result
from msgspec.structs import replace

from databases import migrated
from disks import filled, small_disk
from onebook.cli import fetching
from onebook.cli import transactions as command
from onebook.cli.common import console
from onebook.clock import iso_ms
from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AddressBans
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit
from onebook.simulator.accounts.bybit.endpoints import IP_BAN_S, IP_LIMIT
from onebook.transactions.adapter import Coverage, ErrorEntry, PendingExport
from onebook.transactions.bybit import BYBIT
from onebook.transactions.collector import Step
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.export import FORMS
from onebook.transactions.reconciliation import (
    Break,
    CheckState,
    OrderReport,
    ProofCheck,
    Unproven,
    Verification,
)
from steady import PATIENCE_S
from transactions.bybit_support import KEY, Served
from transactions.operating import Command, operator_command


@pytest.fixture(scope="module")
def exchange() -> Iterator[tuple[str, SimulatedBybit]]:
    now_ms = time.time_ns() // 1_000_000
    account = Account(History(now_ms - 12 * DAY_MS, now_ms - 1_000, executions=300))
    simulated = SimulatedBybit(account, [KEY])
    with Served(simulated) as url:
        yield url, simulated


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: tuple[str, SimulatedBybit]
) -> Command:
    url, simulated = exchange
    # Each test is a machine with files of its own, which counts its requests from zero.
    simulated.bans = AddressBans(*IP_LIMIT, ban_s=IP_BAN_S)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "_width", 200)
    hosts = {"BYBIT__MAINNET_URL": url, "BYBIT__TESTNET_URL": url}
    return operator_command(tmp_path, monkeypatch, hosts)


@pytest.fixture
def ready(run: Command, tmp_path: Path) -> Command:
    asyncio.run(migrated(tmp_path))  # migrating costs more than most of these tests
    assert run("credentials", "set", "bybit", typed=typed_key()).exit_code == 0
    return run


def typed_key(api_key: str = KEY.api_key, secret: str = KEY.secret) -> str:
    return f"{api_key}\n{secret}\n"


def listed(run: Command) -> str:
    return run("credentials", "list", "--json").stdout


def on_terminal(*words: str, typed: list[tuple[str, str]]) -> str:
    """Run a command in a pseudo-terminal: wait for each prompt, and type."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "onebook", *words],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    said, prompts = "", iter([*typed, ("", "")])
    prompt, keys = next(prompts)
    with running, suppress(OSError):  # EIO: the command has ended
        while text := os.read(ours, 4_096):
            said += text.decode()
            if prompt and said.endswith(prompt):
                os.write(ours, keys.encode())
                prompt, keys = next(prompts)
    os.close(ours)
    return said


def refused(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    for word in words:
        assert word in result.stderr


class TestCredentials:
    """Prompted for, encrypted, never shown."""

    def test_a_life(self, run: Command, tmp_path: Path) -> None:
        result = run("credentials", "set", "bybit", typed=typed_key())
        assert result.exit_code == 0, result.output
        assert KEY.secret not in result.output
        assert KEY.api_key not in result.output
        assert KEY.secret.encode() not in (tmp_path / "onebook.db").read_bytes()
        assert (tmp_path / "master_key").stat().st_mode & 0o777 == 0o600
        listed = run("credentials", "list").stdout
        assert "bybit" in listed
        assert "mainnet" in listed
        assert KEY.api_key not in listed
        said = run("credentials", "check", "bybit").stdout.splitlines()
        assert said[0] == "The internal credentials are valid."
        assert said[1] == "The key can only read."
        assert said[2].startswith("The key expires on 20")
        assert len(said) == 3
        before = (tmp_path / "master_key").read_text()
        assert "Re-encrypted 1 credential " in run("credentials", "rotate").stdout
        assert (tmp_path / "master_key").read_text() != before
        assert run("credentials", "check", "bybit").exit_code == 0
        assert run("credentials", "remove", "bybit").exit_code == 0  # not a terminal
        refused(run("credentials", "remove", "bybit"), "No bybit mainnet")

    def test_removal_is_confirmed_on_a_terminal(self, run: Command) -> None:
        assert run("credentials", "set", "bybit", typed=typed_key()).exit_code == 0
        prompt = "Delete the bybit mainnet credentials? [y/N]: "
        remove = "credentials", "remove", "bybit"
        assert "Aborted" in on_terminal(*remove, typed=[(prompt, "n\n")])
        assert "bybit" in listed(run)
        said = on_terminal(*remove, typed=[(prompt, "y\n")])
        assert said.endswith("The bybit mainnet credentials are deleted.\r\n")
        assert run("credentials", "set", "bybit", typed=typed_key()).exit_code == 0
        assert "[y/N]" not in on_terminal(*remove, "--yes", typed=[])
        assert "bybit" not in listed(run)

    def test_a_key_that_the_exchange_refuses_replaces_nothing(
        self, run: Command, tmp_path: Path
    ) -> None:
        set_bybit, other = ("credentials", "set", "bybit"), typed_key("nobody00000000000000")
        refused(run(*set_bybit, typed=other), "not recognise the API key", "Nothing was changed")
        assert not (tmp_path / "onebook.db").exists()
        assert run(*set_bybit, typed=typed_key()).exit_code == 0
        refused(run(*set_bybit, typed=other), "not recognise the API key", "Nothing was changed")
        refused(run(*set_bybit, typed=typed_key(secret="x" * 32)), "Nothing was changed")
        assert run("credentials", "check", "bybit").exit_code == 0

    def test_an_exchange_that_cannot_be_asked_replaces_nothing(
        self, ready: Command, monkeypatch: pytest.MonkeyPatch, exchange: tuple[str, SimulatedBybit]
    ) -> None:
        url, _ = exchange
        set_bybit, other = ("credentials", "set", "bybit"), typed_key("nobody00000000000000")
        with socket.socket() as unserved:
            unserved.bind(("127.0.0.1", 0))
            gone = f"http://127.0.0.1:{unserved.getsockname()[1]}"
            monkeypatch.setenv("ONEBOOK_TRANSACTIONS__OVERRIDES__BYBIT__MAINNET_URL", gone)
            refused(ready(*set_bybit, typed=other), "--no-check")
            monkeypatch.setenv("ONEBOOK_TRANSACTIONS__OVERRIDES__BYBIT__MAINNET_URL", url)
            assert ready("credentials", "check", "bybit").exit_code == 0
            monkeypatch.setenv("ONEBOOK_TRANSACTIONS__OVERRIDES__BYBIT__MAINNET_URL", gone)
            assert ready(*set_bybit, "--no-check", typed=other).exit_code == 0
            monkeypatch.setenv("ONEBOOK_TRANSACTIONS__OVERRIDES__BYBIT__MAINNET_URL", url)
            assert ready("credentials", "check", "bybit").exit_code == 1

    def test_what_the_exchange_refuses(self, run: Command) -> None:
        run("credentials", "set", "bybit", "--no-check", typed=typed_key("nobody00000000000000"))
        result = run("credentials", "check", "bybit")
        assert result.exit_code == 1
        assert "not recognise the API key" in result.stdout
        result = run("credentials", "check", "bybit", "--testnet")
        assert result.exit_code == 1
        assert "no Bybit testnet credentials" in result.stdout

    @pytest.mark.parametrize(
        ("words", "answer", "replaced"), [((), "n\n", 0), ((), "y\n", 1), (("--yes",), "", 1)]
    )
    def test_a_person_is_asked_before_a_key_is_replaced(
        self, ready: Command, words: tuple[str, ...], answer: str, replaced: int
    ) -> None:
        before = listed(ready)
        said = on_terminal(
            "credentials", "set", "bybit", *words,
            typed=[("API key: ", KEY.api_key + "\n"), ("secret: ", KEY.secret + "\n")]
            + [("Replace the bybit mainnet credentials? [y/N]: ", answer)] * bool(answer),
        )  # fmt: skip
        assert ("Replace" in said) == bool(answer)
        assert ("are set" in said) == replaced
        assert (listed(ready) != before) == replaced

    def test_a_key_that_can_do_more_or_less_than_needed(
        self, ready: Command, exchange: tuple[str, SimulatedBybit]
    ) -> None:
        from dataclasses import replace

        _, simulated = exchange
        keys = simulated._keys
        other = replace(KEY, read_only=False, permissions={"Spot": ("SpotTrade",)})
        keys[KEY.api_key] = other
        try:
            said = ready("credentials", "check", "bybit").stdout
        finally:
            keys[KEY.api_key] = KEY
        assert "The key can trade (SpotTrade)" in said
        assert "The key does not have the permissions to read holdings, deposits, " in said

    def test_a_key_that_can_move_or_trade_is_stored_only_if_told(
        self, run: Command, exchange: tuple[str, SimulatedBybit]
    ) -> None:
        from dataclasses import replace

        _, simulated = exchange
        keys = simulated._keys
        powers = {"Wallet": ("AccountTransfer", "Withdraw"), "Spot": ("SpotTrade",)}
        keys[KEY.api_key] = replace(KEY, read_only=False, permissions=powers)
        set_bybit = ("credentials", "set", "bybit")
        try:
            refused(
                run(*set_bybit, typed=typed_key()),
                "The key can withdraw funds and place or cancel orders, which is not needed",
                "--may-withdraw --may-trade stores it anyway",
            )
            refused(run(*set_bybit, "--may-withdraw", typed=typed_key()), "--may-trade stores it")
            told = run(*set_bybit, "--may-withdraw", "--may-trade", typed=typed_key())
            assert told.exit_code == 0
        finally:
            keys[KEY.api_key] = KEY

    @pytest.mark.parametrize("typed", ["\t\nsecret\n", f"key\n{'x' * 9_000}\n"])
    def test_nonsense_is_refused(self, run: Command, typed: str) -> None:
        refused(run("credentials", "set", "bybit", typed=typed), "Invalid API")

    def test_a_full_disk_names_the_file_of_the_master_key(
        self, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with small_disk(tmp_path / "disk") as disk:
            file = disk / "master_key"
            monkeypatch.setenv("ONEBOOK_TRANSACTIONS__MASTER_KEY_FILE", str(file))
            with filled(disk):
                got = run("credentials", "set", "bybit", typed=typed_key())
            assert got.exit_code == 2
            assert got.stderr.endswith(f"error: Cannot use {file}: No space left on device.\n")
            assert run("credentials", "set", "bybit", typed=typed_key()).exit_code == 0

    def test_an_unknown_exchange(self, run: Command) -> None:
        refused(run("credentials", "set", "mtgox"), "mtgox")

    def test_a_self_generated_key_comes_from_a_file(self, run: Command, tmp_path: Path) -> None:
        pem = tmp_path / "key.pem"
        pem.write_text("-----BEGIN PRIVATE KEY-----\n")
        words = "credentials", "set", "bybit", "--testnet", "--rsa-key-file", str(pem)
        refused(run(*words, typed="key\n"), "not an unencrypted RSA private key")
        result = run(*words, "--no-check", typed="key\n")
        assert result.exit_code == 0, result.output

    def test_a_key_file_that_cannot_be_read(self, run: Command, tmp_path: Path) -> None:
        (tmp_path / "bytes.pem").write_bytes(b"\xff\xfe")
        for name, reason in (("none.pem", "No such file"), ("bytes.pem", "not text")):
            words = ("credentials", "set", "bybit", "--rsa-key-file", str(tmp_path / name))
            refused(run(*words, typed="key\n"), name, reason)

    def test_a_script_is_not_prompted(self, run: Command) -> None:
        result = run("credentials", "set", "bybit", typed=typed_key())
        assert result.stdout.splitlines()[1:] == ["The bybit mainnet credentials are set."]
        assert result.stdout.startswith("The key expires on 20")
        assert "API" not in result.stderr


class TestFetch:
    """A history in a file, and a message about missing parts."""

    @pytest.mark.parametrize("form", [*FORMS])
    def test_every_format(self, ready: Command, tmp_path: Path, form: str) -> None:
        if form == "parquet":
            pytest.importorskip("pyarrow")
        if form == "xlsx":
            pytest.importorskip("xlsxwriter")
        output = tmp_path / "history"
        result = ready(
            "transactions", "fetch", "--types", "trades, withdrawals", "--from", "11d",
            "--format", form, "-o", str(output),
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        assert output.stat().st_size > 100
        assert "spot_orders" in result.stdout
        assert " in " in result.stdout.splitlines()[-1]
        assert sorted(path.name for path in tmp_path.glob("history*")) == ["history"]

    def test_the_ending_of_the_file_says_the_format(self, ready: Command, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        words = "transactions", "fetch", "--types", "deposits", "--from", "12d", "-o"
        begins = {"a.csv": b"transaction_id,", "a.parquet": b"PAR1", "a.jsonl": b"{"}
        for name, begin in begins.items():
            assert ready(*words, str(tmp_path / name)).exit_code == 0
            assert (tmp_path / name).read_bytes().startswith(begin)
        for name in ("year.xls", "year.json", "year.csv.gz", "year"):
            refused(ready(*words, str(tmp_path / name)), name, ".jsonl", ".csv", ".parquet")
            assert not (tmp_path / name).exists()
        refused(ready(*words, str(tmp_path / "b.csv"), "--format", "jsonl"), "ends in .jsonl")
        assert not (tmp_path / "b.csv").exists()
        assert ready(*words, str(tmp_path / "b"), "--format", "jsonl").exit_code == 0
        assert (tmp_path / "b").read_bytes().startswith(b"{")

    def test_what_a_tax_form_leaves_out_is_said(self, ready: Command, tmp_path: Path) -> None:
        output = tmp_path / "tax.csv"
        result = ready(
            "transactions", "fetch", "--types", "deposits,transfers", "--from", "12d",
            "--format", "koinly", "-o", str(output),
        )  # fmt: skip
        rows = len(output.read_text().splitlines()) - 1
        left_out, said = result.stdout.splitlines()[-2:]
        assert left_out == (
            "Left out by --types: withdrawals, spot_orders, futures_linear, futures_inverse, "
            "ledger, leverage_token_trades. Only with all types do the rows add up to the "
            "balance changes."
        )
        assert re.match(rf"{rows:,} rows of \d+ records? in {re.escape(str(output))}\. Not", said)
        assert "that would count an event twice or changed no balance" in said

    def test_all_begins_where_the_exchange_does(self, ready: Command, tmp_path: Path) -> None:
        result = ready(
            "transactions", "fetch", "--types", "trades", "--from", "all", "-o",
            str(tmp_path / "all.jsonl"),
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        (line,) = [line for line in result.stdout.splitlines() if line.startswith("spot_orders")]
        two_years_ago = time.gmtime(time.time() - 730 * 86_400 + 600)
        assert line.split()[1] == time.strftime("%Y-%m-%d", two_years_ago)

    def test_a_date_is_its_whole_day(
        self, ready: Command, tmp_path: Path, exchange: tuple[str, SimulatedBybit]
    ) -> None:
        _, simulated = exchange
        day_ms = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS - 2 * DAY_MS
        day, output = iso_ms(day_ms)[:10], tmp_path / "day.jsonl"
        words = "transactions", "fetch", "--types", "ledger", "-o", str(output)
        assert ready(*words, "--from", day, "--to", day).exit_code == 0
        tables = (simulated.account.fund_ledger, *simulated.account.books.tables.values())
        booked = [entry.at_ms for table in tables for entry in table.entries]
        of_day = sorted(at_ms for at_ms in booked if day_ms <= at_ms < day_ms + DAY_MS)
        lines = map(json.loads, output.read_text().splitlines())
        assert sorted(line["timestamp"] for line in lines) == of_day
        assert of_day[-1] >= day_ms + DAY_MS // 2
        assert ready(*words, "--from", day, "--to", f"{day}T12:00").exit_code == 0
        lines = map(json.loads, output.read_text().splitlines())
        assert sorted(line["timestamp"] for line in lines) == [
            at_ms for at_ms in of_day if at_ms <= day_ms + DAY_MS // 2
        ]

    def test_a_year_is_that_of_its_time_zone(
        self, ready: Command, tmp_path: Path, exchange: tuple[str, SimulatedBybit]
    ) -> None:
        _, simulated = exchange
        output, zone = tmp_path / "year.jsonl", "+02:30"
        year = time.gmtime().tm_year
        words = "transactions", "fetch", "--types", "ledger", "-o", str(output)
        got = ready(*words, "--year", str(year), "--time-zone", zone)
        assert got.exit_code == 0, got.output
        assert f"{year}-01-01 00:00" in got.stdout
        assert "Times in this table are in UTC+02:30; the file uses UTC." in got.stdout
        start_ms = calendar.timegm((year, 1, 1, 0, 0, 0)) * 1_000 - 150 * 60_000
        tables = (simulated.account.fund_ledger, *simulated.account.books.tables.values())
        booked = [entry.at_ms for table in tables for entry in table.entries]
        lines = map(json.loads, output.read_text().splitlines())
        assert sorted(line["timestamp"] for line in lines) == sorted(
            at_ms for at_ms in booked if at_ms >= start_ms
        )

    def test_a_line_of_the_table_fits_a_narrow_terminal(
        self, ready: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(console, "_width", 80)
        result = ready("transactions", "fetch", "-o", str(tmp_path / "out.csv"))
        assert "leverage_token_trades " in result.stdout
        assert "…" not in result.stdout
        lines = [line.split() for line in result.stdout.splitlines()]
        assert ["transaction_type", "from", "to", "complete", "reason"] in lines

    def test_it_proves_that_nothing_is_missing(
        self, ready: Command, tmp_path: Path, exchange: tuple[str, SimulatedBybit]
    ) -> None:
        output = tmp_path / "history.jsonl"
        result = ready(
            "transactions", "fetch", "--types", "ledger,spot_orders", "--from", "20d", "--verify",
            "-o", str(output),
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        assert "ledger chain: holds, " in result.stdout
        assert "holdings: not checked" in result.stdout
        _, simulated = exchange
        kinds = [json.loads(line)["type"] for line in output.read_text().splitlines()]
        expected = len(simulated.account.ledger) + len(simulated.account.fund_ledger)
        assert kinds.count("ledger") == expected

    def test_what_is_missing_is_said_and_the_status_is_1(
        self, ready: Command, tmp_path: Path, exchange: tuple[str, SimulatedBybit]
    ) -> None:
        _, simulated = exchange
        from dataclasses import replace

        simulated._keys[KEY.api_key] = replace(KEY, permissions={"Spot": ("SpotTrade",)})
        try:
            words = "--types", "trades,deposits", "-o", str(tmp_path / "out.csv")
            result = ready("transactions", "fetch", *words)
        finally:
            simulated._keys[KEY.api_key] = KEY
        assert result.exit_code == 1
        assert "permission_denied" in result.stdout
        assert "deposits: The API key has no permission" in result.stdout
        assert (tmp_path / "out.csv").exists()

    def test_without_credentials_there_is_no_file(self, run: Command, tmp_path: Path) -> None:
        run("credentials", "set", "bybit", "--testnet", typed=typed_key())
        refused(run("transactions", "fetch", "-o", str(tmp_path / "out.csv")), "no Bybit mainnet")
        assert list(tmp_path.glob("out*")) == []

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("--types", "nfts"), "nfts"),
            (("--exchange", "mtgox"), "mtgox"),
            (("--format", "ods"), "ods"),
            (("--from", "yesterday"), "yesterday"),
            (("--from", "now", "--to", "30d"), "--from now is after --to 30d"),
            (("--from", "2199-01-01"), "--from 2199-01-01 is in the future"),
            (("--year", "2199"), "The year 2199 has not begun"),
            (("--from", "2001-01-01", "--to", "2002-01-01"), "end_time is earlier"),
            (("--year", "25"), "25 is not a year"),
            (("--year", "2025", "--to", "now"), "--year"),
            (("--year", "2025", "--time-zone", "Berlin"), "Did you mean Europe/Berlin"),
            (("--types", "holdings,balances", "--format", "koinly"), "holdings have no rows"),
            (("-o", "."), "is a directory"),
            (("-o", "nowhere/out.csv"), "No such file or directory"),
        ],
    )
    def test_bad_input_is_one_clear_line(
        self, ready: Command, tmp_path: Path, words: tuple[str, ...], says: str
    ) -> None:
        refused(ready("transactions", "fetch", "-o", str(tmp_path / "out.csv"), *words), says)
        assert list(tmp_path.glob("out*")) == []


def test_an_interrupted_fetch_says_that_there_is_no_file(ready: Command, tmp_path: Path) -> None:
    words = "transactions", "fetch", "--from", "1800d", "-o", "out.csv"
    running = subprocess.Popen(
        [sys.executable, "-m", "onebook", *words], stderr=subprocess.PIPE, text=True
    )
    with running:
        while not (tmp_path / "out.csv.part").exists():
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=PATIENCE_S)
    assert said == (
        "Interrupted; out.csv was not written, because records would be missing. onebook "
        "transactions collect keeps what it has read.\n"
    )
    assert running.returncode in (130, -signal.SIGINT)
    assert list(tmp_path.glob("out*")) == []


def test_a_bar_that_only_waits_says_so() -> None:
    assert fetching.doing("Bybit", 0.0) == fetching.doing("Bybit", 1.0) == "fetching"
    assert fetching.doing("Bybit", 41.2) == "waiting for Bybit's rate limit, 42 s"


def test_the_bar_of_a_collection_shows_what_it_reads_or_waits_for() -> None:
    adapter, bar = ExchangeAdapter(BYBIT), fetching.progress_bar()
    shown = command.ShownCollection(bar, "bybit:treasury", adapter)
    (task,) = bar.tasks
    assert task.description == "bybit:treasury"
    shown.progressed(Step("bybit:treasury", "ledger", 0.2, 70))
    assert task.description == "bybit:treasury ledger"
    shown.progressed(Step("bybit:treasury", "ledger", 0.2, 70, reached_ms=1_763_000_000_000))
    assert task.description == "bybit:treasury ledger back to 2025-11-13"
    assert (task.completed, task.fields["count"]) == (0.2, 70)
    with adapter._client.waits.waiting(7.0):
        shown.show()
        assert task.description == "bybit:treasury: waiting for Bybit's rate limit, 7 s"
    shown.show()
    assert task.description == "bybit:treasury ledger back to 2025-11-13"


def test_a_bar_that_waits_for_an_export_says_for_which() -> None:
    made = PendingExport("okx", "OKX", "2024 Q1", 1_000)
    said = "waiting for OKX's export of 2024 Q1, requested 3 min ago"
    assert fetching.doing("OKX", 41.2, [made], now_ms=181_000) == said
    new = PendingExport("okx", "OKX", "2023 Q4", None)
    assert fetching.doing("OKX", 0.0, [new]) == "waiting for OKX's export of 2023 Q4"
    assert fetching.doing("OKX", 0.0, [made, new, new], now_ms=181_000) == f"{said} (2 more)"


def test_the_coverage_of_several_accounts_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    alone = Coverage("deposits", 0, 60_000, complete=True, reason=None, floor=None)
    bybit = replace(alone, account="bybit")
    okx = replace(alone, account="okx:treasury", omitted="Orders of banks are omitted.")
    error = ErrorEntry("earn", "rate_limited", "Later.", None, retryable=True)

    def shown(coverage: list[Coverage], errors: list[ErrorEntry]) -> list[list[str]]:
        outcome = fetching.FetchOutcome(
            count=0, rows=0, skipped=0, left_out=(), coverage=coverage, errors=errors,
            verification=None,
        )  # fmt: skip
        command._show(outcome, None, UTC)
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    lines = shown([bybit, okx], [replace(error, account="bybit")])
    assert lines[0] == ["account", "transaction_type", "from", "to", "complete", "reason"]
    assert [line[:2] for line in lines[1:]] == [
        ["bybit", "deposits"], ["okx:treasury", "deposits"], ["bybit", "earn:"],
        ["okx:treasury", "deposits:"], ["0", "records"],
    ]  # fmt: skip
    lines = shown([alone], [error])
    assert lines[0] == ["transaction_type", "from", "to", "complete", "reason"]
    assert [line[0] for line in lines[1:]] == ["deposits", "earn:", "0"]


def test_a_proof_is_put_in_words() -> None:
    broken = Break("0x1", "1", "2", "-1", "its price differs from the ledger")
    checks = (
        ProofCheck("ledger_chain", CheckState.HOLDS, 1_500, 0, 0, ()),
        ProofCheck("spot_fills", CheckState.BROKEN, 9, 2, 1, (broken,), "Bybit also books others."),
        ProofCheck(
            "holdings", CheckState.NOT_CHECKED, 0, 0, 0, (), "The range does not reach the present."
        ),
    )
    orders = OrderReport(3, holds=True, breaks=(), fills_without_order=0)
    unproven = (Unproven("the opening balances", "Bybit never says."),)
    said = command._proof(Verification(None, checks, unproven, (), orders))
    assert said == [
        "ledger chain: holds, 1,500 compared.",
        "spot fills: 2 broken, 1 open of 9 compared. 0x1: its price differs from the ledger, 1 / 2."
        " Bybit also books others.",
        "holdings: not checked. The range does not reach the present.",
        "Not proven: no contradiction was found, but not everything could be checked.",
        "Not provable from the exchange's data:",
        "  the opening balances. Bybit never says.",
    ]
    assert command._proof(None) == []
