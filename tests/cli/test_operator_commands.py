"""The operator's commands as run in a shell: input and output."""

import asyncio
import csv
import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import typer
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from databases import migrated
from onebook.accounts.billing import period_at
from onebook.accounts.keys import well_formed
from onebook.cli import common, operator
from onebook.cli.accounts import accounts_app
from onebook.cli.audit import audit_command
from onebook.cli.billing import billing_command
from onebook.cli.db import db_app
from onebook.cli.keys import keys_app
from onebook.cli.usage import usage
from onebook.clock import iso_ms, ms_of_iso
from onebook.exchanges import EXCHANGES
from onebook.model import DAY_MS
from onebook.store import Store, UsageCell

Run = Callable[..., Result]

app = typer.Typer()
app.add_typer(accounts_app, name="accounts")
app.add_typer(keys_app, name="keys")
app.add_typer(db_app, name="db")
app.command("usage")(usage)
app.command("billing")(billing_command)
app.command("audit")(audit_command)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `onebook ...` in an empty folder with its own database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONEBOOK_STORE__URL", f"sqlite:///{tmp_path}/onebook.db")
    monkeypatch.setenv("ONEBOOK_STORE__PEPPER_FILE", str(tmp_path / "pepper"))

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(app, words)

    return invoke


@pytest.fixture
def key(run: Run, tmp_path: Path) -> dict[str, str]:
    """One account, alice, with one key."""
    asyncio.run(migrated(tmp_path))
    run("accounts", "create", "alice")
    return json.loads(run("keys", "create", "alice", "--json").stdout)


def refused(result: Result, *words: str) -> None:
    """One clear line on standard error, status 2, nothing on standard output, no traceback."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def test_a_new_key_is_printed_once_and_alone_on_standard_output(run: Run) -> None:
    run("accounts", "create", "alice")
    made = run("keys", "create", "alice", "--tier", "premium")
    assert made.exit_code == 0
    text = made.stdout.removesuffix("\n")
    assert well_formed(text)
    assert "of alice, tier premium" in made.stderr
    assert text not in made.stderr
    for words in (("keys", "list"), ("keys", "list", "--json"), ("accounts", "show", "alice")):
        shown = run(*words).output
        assert text[:12] in shown
        assert text[:16] not in shown


def test_accounts_are_listed_shown_suspended_and_resumed(run: Run) -> None:
    created = json.loads(run("accounts", "create", "alice", "--reason", "trial", "--json").stdout)
    assert (created["username"], created["account_status"], created["reason"]) == (
        "alice",
        "active",
        "trial",
    )
    assert json.loads(run("accounts", "list", "--json").stdout) == [created]
    assert "alice" in run("accounts", "list").stdout
    assert "suspended" in run("accounts", "suspend", "alice", "--reason", "unpaid").stdout
    shown = json.loads(run("accounts", "show", "alice", "--json").stdout)
    assert (shown["account"]["account_status"], shown["account"]["reason"]) == (
        "suspended",
        "unpaid",
    )
    assert shown["keys"] == []
    resumed = json.loads(run("accounts", "resume", created["user_id"], "--json").stdout)
    assert resumed["account_status"] == "active"
    refused(run("accounts", "resume", "alice"), "User alice is active; resume does not apply.")


def test_a_key_is_suspended_resumed_and_expired(run: Run, key: dict[str, str]) -> None:
    for action, status in (("suspend", "suspended"), ("resume", "active"), ("expire", "expired")):
        moved = json.loads(run("keys", action, key["key_id"], "--reason", "why", "--json").stdout)
        assert (moved["api_key_status"], moved["reason"]) == (status, "why")
    assert "expired" in run("keys", "show", key["key_id"]).stdout
    words = f"Key {key['key_id']} is expired; resume does not apply."
    refused(run("keys", "resume", key["key_id"]), words)


def test_who_changed_a_key_is_kept(run: Run, key: dict[str, str]) -> None:
    shown = json.loads(run("keys", "show", key["api_key"], "--json").stdout)
    assert shown["changed_by"]
    assert "api_key" not in shown


def test_a_key_is_rotated_with_an_overlap(run: Run, key: dict[str, str]) -> None:
    rotated = json.loads(run("keys", "rotate", key["key_id"], "--overlap", "7d", "--json").stdout)
    assert rotated["key_id"] == key["key_id"]
    assert rotated["api_key"] != key["api_key"]
    for text in (key["api_key"], rotated["api_key"]):
        assert run("keys", "show", text).exit_code == 0
    assert well_formed(run("keys", "rotate", key["key_id"]).stdout.strip())
    refused(run("keys", "rotate", key["key_id"], "--overlap", "31d"), "0 to 30 days")
    refused(run("keys", "rotate", key["key_id"], "--overlap", "soon"), "'soon'", "24h")


@pytest.mark.parametrize(
    "words", [("keys", "list"), ("accounts", "list"), ("audit",), ("billing",)], ids="-".join
)
def test_json_and_tables_have_the_same_names(
    run: Run, key: dict[str, str], words: tuple[str, ...]
) -> None:
    heads = run(*words).stdout.splitlines()[0].split()
    as_json = ("--format", "json") if words == ("billing",) else ("--json",)
    (row, *_) = json.loads(run(*words, *as_json).stdout)
    assert set(heads) <= row.keys()
    assert not [name for name in row if name.endswith("_ms")]
    times = [name for name in row if name.endswith(("_at", "_start")) and row[name]]
    assert times
    assert all(re.fullmatch(r"[-\d]{10}T[:\d]{8}\.\d{3}Z", row[name]) for name in times)


def test_a_key_has_a_date_of_expiry(run: Run, key: dict[str, str]) -> None:
    made = json.loads(run("keys", "create", "alice", "--expires", "2099-01-31", "--json").stdout)
    assert made["expires_at"] == "2099-01-31T23:59:59.999Z"  # it works on that day
    assert "2099-01-31" in run("keys", "list", "--account", "alice").stdout
    made = json.loads(run("keys", "create", "alice", "--expires", "90d", "--json").stdout)
    lasts_ms = ms_of_iso(made["expires_at"]) - ms_of_iso(made["created_at"])
    assert lasts_ms == 90 * 86_400_000
    refused(run("keys", "create", "alice", "--expires", "2001-01-01"), "past")


def test_a_key_gets_a_table_of_fees(run: Run, key: dict[str, str]) -> None:
    name = key["key_id"]
    assert json.loads(run("keys", "fees", name, "--json").stdout) == {}
    words = ("okex=0.080", "*=0.1", "--reason", "contract 7", "--json")
    assert json.loads(run("keys", "fees", name, *words).stdout) == {"*": "0.1", "okx": "0.08"}
    shown = run("keys", "fees", name).stdout.split()
    assert shown == ["exchange", "percent", "*", "0.1", "okx", "0.08"]
    assert json.loads(run("keys", "show", name, "--json").stdout)["fees"]["okx"] == "0.08"
    refused(run("keys", "fees", name, "okx"), "EXCHANGE=PERCENT")
    refused(run("keys", "fees", name, "okx=0.1", "okx=0.2"), "at most once per exchange")
    refused(run("keys", "fees", name, "binanse=0.1"), "Unknown exchange 'binanse'")
    refused(run("keys", "fees", name, "okx=much"), "decimal number of percent")
    refused(run("keys", "fees", name, "okx=0.1", "--clear"), "either")
    assert json.loads(run("keys", "fees", name, "--clear", "--json").stdout) == {}
    assert run("audit").stdout.count("change_fees") == 2


def test_published_fees_are_shown_with_their_source(run: Run) -> None:
    found = json.loads(run("keys", "fees", "published", "--json").stdout)
    fees = {each["exchange"]: each for each in found["fees"]}
    assert fees["kucoin"]["date"] == "2026-03-26"
    assert fees["kraken"]["source"] == fees["gate"]["source"] == "instrument list, read hourly"
    assert fees["whitebit"]["source"] == "instrument list, read hourly; unconfirmed"
    assert "binance" in found["unknown_fee"]
    assert {*fees, *found["unknown_fee"]} == {*EXCHANGES}
    shown = run("keys", "fees", "published")
    assert "https://www.kucoin.com/" in shown.stdout
    assert "Without a published fee: " in shown.stderr
    refused(run("keys", "fees", "published", "okx=0.1"), "cannot be changed")


def test_a_key_gets_another_tier_and_its_own_allowance(run: Run, key: dict[str, str]) -> None:
    name = key["key_id"]
    words = ("--tier", "premium", "--allowance", "200GiB", "--reason", "contract 7")
    changed = json.loads(run("keys", "change", name, *words, "--json").stdout)
    assert (changed["billing_tier"], changed["allowance_bytes"]) == ("premium", 200 << 30)
    assert str(200 << 30) in run("keys", "list").stdout
    report = json.loads(run("usage", name, "--json").stdout)
    assert report["data_usage"]["bytes_limit"] == 200 << 30
    changed = json.loads(run("keys", "change", name, "--allowance", "default", "--json").stdout)
    assert (changed["billing_tier"], changed["allowance_bytes"]) == ("premium", None)
    refused(run("keys", "change", name), "--tier or --allowance")
    refused(run("keys", "change", name, "--allowance", "much"), "'much' is not a size")
    refused(run("keys", "change", name, "--allowance", "0"), "1 to")
    run("keys", "expire", name)
    refused(run("keys", "change", name, "--tier", "basic"), "expired")


def test_the_audit_trail_says_who_changed_what(run: Run, key: dict[str, str]) -> None:
    name = key["key_id"]
    run("keys", "change", name, "--tier", "premium", "--allowance", "1GiB", "--reason", "more")
    run("keys", "change", name, "--tier", "premium")  # changes nothing
    run("keys", "suspend", name, "--reason", "leaked")
    run("keys", "resume", name)
    rotated = json.loads(run("keys", "rotate", name, "--json").stdout)
    run("accounts", "suspend", "alice", "--reason", "unpaid")
    run("accounts", "create", "bob")
    trail = json.loads(run("audit", "alice", "--json").stdout)
    assert [(row["action"], row["before"], row["after"], row["reason"]) for row in trail] == [
        ("move_account", "active", "suspended", "unpaid"),
        ("rotate_key", "", rotated["prefix"], ""),
        ("move_key", "suspended", "active", ""),
        ("move_key", "active", "suspended", "leaked"),
        ("change_allowance", "", str(1 << 30), "more"),
        ("change_tier", "basic", "premium", "more"),
        ("create_key", "", "basic", ""),
        ("create_account", "", "alice", ""),
    ]
    assert {row["changed_by"] for row in trail} == {key["changed_by"]}
    assert len(json.loads(run("audit", name, "--json").stdout)) == 6
    assert json.loads(run("audit", "--limit", "1", "--json").stdout)[0]["after"] == "bob"
    shown = run("audit").stdout
    assert name in shown
    assert key["api_key"] not in shown
    assert rotated["api_key"] not in shown
    assert run("audit", "bybit/mainnet").stdout == "No changes in this period.\n"
    refused(run("audit", "carol"), "Unknown account 'carol'.")


def test_billing_is_reported_as_table_csv_and_json(run: Run, key: dict[str, str]) -> None:
    lines = json.loads(run("billing", "--format", "json").stdout)
    assert json.loads(run("billing", "--json").stdout) == lines
    assert [line["key_id"] for line in lines] == [key["key_id"]]
    columns = list(lines[0])
    table = run("billing").stdout.splitlines()
    assert table[0].split() == [name for name in columns if name != "user_id"]
    assert key["key_id"] in table[1]
    rows = list(csv.reader(StringIO(run("billing", "--format", "csv").stdout)))
    assert rows == [columns, [str(value) for value in lines[0].values()]]
    past = ("--from", "2020-01-01", "--to", "2020-02-01")
    assert json.loads(run("billing", *past, "--format", "json").stdout) == []
    refused(run("billing", "--to", "2020-02-01"), "--to needs --from")
    refused(run("billing", "--from", "2020-02-01", "--to", "2020-01-01"), "not be after --to")
    refused(run("billing", "--from", "30d"), "'30d' is not a date; use for example 2027-01-31.")


@pytest.mark.parametrize(
    ("used_bytes", "percentage", "shown"),
    [
        (13_421_772_800, 25.0, "12.50 GiB of 50.00 GiB (25.00 %)"),
        (33_741, 0.0, "32.95 KiB of 50.00 GiB (under 0.01 %)"),
        (1, 0.0, "1 B of 50.00 GiB (under 0.01 %)"),
        (0, 0.0, "0 B of 50.00 GiB (0.00 %)"),
    ],
)
def test_usage_is_reported_for_a_key_and_for_its_id(
    run: Run, key: dict[str, str], tmp_path: Path, used_bytes: int, percentage: float, shown: str
) -> None:
    async def use() -> None:
        async with Store(f"sqlite:///{tmp_path}/onebook.db") as store:
            created_at_ms = ms_of_iso(key["created_at"])
            cell = UsageCell(key["key_id"], period_at(created_at_ms, created_at_ms).start_ms)
            await store.usage.apply(("node", 1), {cell: used_bytes}, 0)

    asyncio.run(use())
    for name in (key["key_id"], key["api_key"]):
        report = json.loads(run("usage", name, "--json").stdout)
        assert report["data_usage"]["usage_percentage"] == percentage
        assert report["data_usage"]["bytes_used"] == used_bytes
        assert report["username"] == "alice"
    printed = run("usage", key["key_id"])
    assert f"data_usage      {shown}\n" in printed.stdout
    assert printed.exit_code == 0


def test_the_database_is_upgraded(run: Run, tmp_path: Path) -> None:
    for _ in range(2):
        assert run("db", "upgrade").stdout == "The database schema is up to date.\n"
    assert (tmp_path / "onebook.db").exists()


def test_bad_input_is_one_clear_line_and_status_2(run: Run, key: dict[str, str]) -> None:
    refused(run("accounts", "create", "alice"), "'alice' already")
    refused(run("accounts", "show", "bob"), "Unknown account 'bob'")
    refused(run("keys", "create", "bob"), "Unknown account 'bob'")
    refused(run("keys", "list", "--account", "bob"), "Unknown account 'bob'")
    refused(run("keys", "show", "key_0"), "Unknown key 'key_0'")
    refused(run("keys", "suspend", key["api_key"][:-1]), "checksum")
    refused(run("usage", "key_0"), "Unknown key 'key_0'")
    refused(run("keys", "list", "--config", "absent.toml"), "absent.toml")


def test_an_unknown_tier_is_refused_with_the_known_ones(run: Run, key: dict[str, str]) -> None:
    result = run("keys", "create", "alice", "--tier", "gold")
    assert result.exit_code == 2
    assert "premium" in result.stderr


def test_a_database_that_does_not_answer_is_one_clear_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEBOOK_STORE__URL", "postgresql://nobody@127.0.0.1:1/none")
    refused(run("keys", "list"), "PostgreSQL at 127.0.0.1:1 refuses connections")


def test_the_settings_file_may_be_named_by_a_variable(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEBOOK_CONFIG", str(tmp_path / "none.toml"))
    refused(run("keys", "list"), f"Settings file {tmp_path}/none.toml not found")
    (tmp_path / "none.toml").touch()
    assert run("accounts", "create", "alice").exit_code == 0


def test_a_change_names_who_logged_in_also_behind_sudo(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getlogin", lambda: "carol")
    assert json.loads(run("accounts", "create", "alice", "--json").stdout)["changed_by"] == "carol"

    def no_login() -> str:
        raise OSError(6, "No such device or address")

    monkeypatch.setattr("os.getlogin", no_login)
    made = json.loads(run("accounts", "create", "bob", "--json").stdout)
    assert made["changed_by"] not in ("carol", "")


def test_a_file_that_cannot_be_looked_up_is_one_clear_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a folder of another account, which does not stop root.
    monkeypatch.setenv("ONEBOOK_STORE__PEPPER_FILE", str(tmp_path / ("x" * 300)))
    refused(run("accounts", "create", "alice"), str(tmp_path), "File name too long")


def test_only_a_first_account_makes_a_database(run: Run, tmp_path: Path) -> None:
    for words in (("accounts", "list"), ("keys", "create", "alice"), ("billing",), ("audit",)):
        refused(run(*words), f"{tmp_path}/onebook.db not found", "`onebook accounts create`")
    assert list(tmp_path.iterdir()) == []
    made = run("accounts", "create", "alice")
    assert made.exit_code == 0
    assert made.stderr == f"Created the database {tmp_path}/onebook.db.\n"
    assert run("accounts", "create", "bob").stderr == ""
    (tmp_path / "onebook.db").unlink()
    refused(run("accounts", "create", "carol"), "not found, although its pepper", "onebook restore")


def test_a_foreign_pepper_is_refused_before_a_key_is_made(
    run: Run, key: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "pepper").unlink()
    refused(run("keys", "create", "alice"), "does not belong to this database")


def test_a_pepper_is_rotated_and_the_older_one_retired(
    run: Run, key: dict[str, str], tmp_path: Path
) -> None:
    first = (tmp_path / "pepper").read_text()
    refused(run("keys", "rotate-pepper", "--prepare", "--retire"), "not both")
    prepared = json.loads(run("keys", "rotate-pepper", "--prepare", "--json").stdout)
    made = json.loads(run("keys", "rotate-pepper", "--json", "--reason", "leaked").stdout)
    assert made["pepper_id"] == prepared["pepper_id"]
    assert [each["key_id"] for each in made["keys"]] == [key["key_id"]]
    unused = run("keys", "create", "alice")
    assert run("keys", "show", key["api_key"]).exit_code == 0
    ended = run("keys", "rotate-pepper", "--retire")
    assert "Keys revoked: 1." in ended.stdout
    assert key["key_id"] in ended.stdout
    refused(run("keys", "show", key["api_key"]), "Unknown key")
    assert run("keys", "show", unused.stdout.strip()).exit_code == 0
    (line,) = (tmp_path / "pepper").read_text().splitlines()
    assert line not in (first.strip(), ended.stdout)
    trail = run("audit", "--json").stdout
    assert {"rotate_pepper", "retire_pepper", "revoke_key_text"} <= {
        each["action"] for each in json.loads(trail)
    }
    for secret in (line, first.strip()):
        assert secret not in trail + ended.output


COMMANDS = [
    *(("accounts", name) for name in ("create", "list", "show", "suspend", "resume")),
    *(
        ("keys", name)
        for name in (
            "create",
            "list",
            "show",
            "suspend",
            "resume",
            "expire",
            "rotate",
            "rotate-pepper",
        )
    ),
    ("keys", "rotate-pepper"),
    ("usage",),
    ("db", "upgrade"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(run: Run, command: tuple[str, ...]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert f"Example: onebook {' '.join(command)}" in re.sub(r"\s+", " ", result.stdout)


def days_from(at: str) -> tuple[str, str]:
    """The day of a time, and the one after."""
    at_ms = ms_of_iso(at)
    return iso_ms(at_ms)[:10], iso_ms(at_ms + DAY_MS)[:10]


def test_the_last_day_of_a_bill_is_in_it(run: Run, key: dict[str, str]) -> None:
    today, after = days_from(key["created_at"])
    for words, count in (
        (("--from", today, "--to", today), 1),
        (("--from", "2020-01-01", "--to", today), 1),
        (("--from", "2020-01-01", "--to", f"{today}T00:00"), 0),
        (("--from", after, "--to", after), 0),
    ):
        assert len(json.loads(run("billing", *words, "--json").stdout)) == count, words


def test_an_audit_begins_on_a_day(run: Run, key: dict[str, str]) -> None:
    today, after = days_from(key["created_at"])
    assert json.loads(run("audit", "--since", today, "--json").stdout)
    assert json.loads(run("audit", "--since", after, "--json").stdout) == []


def test_a_user_without_a_name_signs_with_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator.os, "getuid", lambda: 4_000_000_000)
    assert operator.change("").by == "4000000000"


@pytest.mark.parametrize("columns", ["20", "80", "200"])
def test_a_pipe_gets_every_id_whole(
    run: Run, key: dict[str, str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    header, row = run("keys", "list").stdout.splitlines()
    assert row.split()[:2] == [key["key_id"], key["prefix"]]
    assert header.split()[:2] == ["key_id", "prefix"]
    accounts = run("accounts", "list").stdout.splitlines()
    assert accounts[0].startswith("user_id")


def test_tables_and_json_use_the_same_names(run: Run, key: dict[str, str]) -> None:
    (row,) = json.loads(run("keys", "list", "--json").stdout)
    fields = {name.removesuffix("_ms") for name in row}
    assert set(run("keys", "list").stdout.splitlines()[0].split()) <= fields
    (account,) = json.loads(run("accounts", "list", "--json").stdout)
    fields = {name.removesuffix("_ms") for name in account}
    assert set(run("accounts", "list").stdout.splitlines()[0].split()) <= fields


def test_accounts_and_keys_have_the_names_of_the_rest_bodies(run: Run, key: dict[str, str]) -> None:
    report = json.loads(run("usage", key["key_id"], "--json").stdout)  # the body of GET /data-usage
    (account,) = json.loads(run("accounts", "list", "--json").stdout)
    assert (account["user_id"], key["user_id"]) == (report["user_id"],) * 2
    assert key["username"] == report["username"]
    assert key["billing_tier"] == report["billing_tier"]
    assert key["api_key_status"] == report["status"]["api_key_status"]
    assert not {"account_id", "tier", "status"} & {*account, *key}


@pytest.mark.parametrize("width", [10, 40, 80])
def test_a_narrow_terminal_gets_blocks_with_whole_ids(
    run: Run, key: dict[str, str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(
        common, "console", Console(force_terminal=True, width=width, file=(out := StringIO()))
    )
    assert run("keys", "list").exit_code == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert re.search(rf"^key_id +{key['key_id']}$", text, re.MULTILINE)


def test_usage_has_the_names_of_its_json_and_is_never_cut(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a" * 60
    run("accounts", "create", name)
    made = json.loads(run("keys", "create", name, "--json").stdout)
    report = json.loads(run("usage", made["key_id"], "--json").stdout)
    out = StringIO()
    narrow = Console(force_terminal=True, width=20, file=out)
    monkeypatch.setattr(common, "console", narrow)
    monkeypatch.setattr("onebook.cli.usage.console", narrow)
    assert run("usage", made["key_id"]).exit_code == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert re.search(rf"^username +{name}$", text, re.MULTILINE)
    shown = {line.split()[0] for line in text.splitlines() if line[:1].isalpha()}
    names = {*report, *report["billing_period"], *report["status"]}
    assert shown <= names
