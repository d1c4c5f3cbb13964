"""A history fetched from a service equals the one fetched on the operator's host."""

import asyncio
import subprocess
import sys
import time
from datetime import UTC
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from client.place import ACCOUNT, Place, place
from onebook.cli.commands import app
from onebook.cli.fetching import FetchOutcome, FetchRequest, all_kept, fetch_here, fetch_there
from onebook.cli.transactions import _kept
from onebook.client import Refused, Unavailable
from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit import SimulatedKey
from onebook.store.leases import Lease, LeaseStore
from onebook.store.rows import RangeRow
from onebook.transactions.adapter import Coverage
from onebook.transactions.bybit import BYBIT
from onebook.transactions.collected import list_name, part_name
from onebook.transactions.export import FORMS
from transactions.exporting import needed


def wanted(folder: Path, form: str = "jsonl", types: tuple[str, ...] = ()) -> FetchRequest:
    now_ms = time.time_ns() // 1_000_000
    return FetchRequest(
        exchange="bybit",
        types=list(types),
        testnet=False,
        start_ms=now_ms - 12 * DAY_MS,
        end_ms=now_ms - 60_000,
        verify=True,
        output=folder / f"file{FORMS[form].ending}",
        form=form,
    )


async def both(rig: Place, one: FetchRequest) -> tuple[FetchOutcome, bytes, FetchOutcome, bytes]:
    here = await fetch_here(one, None)
    first = one.output.read_bytes()
    one.output.unlink()
    there = await fetch_there(one, rig.url, rig.key)
    return here, first, there, one.output.read_bytes()


def without_floors(found: FetchOutcome) -> FetchOutcome:
    """The start of an exchange's retention moves with time."""
    return replace(found, coverage=[replace(entry, floor=None) for entry in found.coverage])


# One of each kind of writer; a workbook holds the time when it was written.
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=() if form in ("csv", "jsonl", "rotki") else pytest.mark.soak)
        for form in sorted(FORMS.keys() - {"xlsx"})
    ],
)
async def test_both_ways_give_the_same_file_and_the_same_word(
    rig: Place, tmp_path: Path, form: str
) -> None:
    needed(form)
    here, first, there, second = await both(rig, wanted(tmp_path, form))
    # First, because files that lack something differ: an exchange that refused the address for too
    # many requests once made two.
    assert (here.errors, here.complete) == ([], True)
    assert without_floors(here) == without_floors(there)
    assert first == second
    assert here.verification is not None
    assert "ledger" in {entry.transaction_type for entry in there.coverage}
    assert there.rows > 100


async def test_answers_that_are_late_or_asked_for_again_make_the_same_file(
    rig: Place, tmp_path: Path
) -> None:
    one = wanted(tmp_path)
    assert (await fetch_here(one, None)).complete
    expected = one.output.read_bytes()
    faults = rig.bybit.faults
    faults.rate, faults.kinds = 0.25, ("slow", "10016", "502", "reset")
    for slow_s in (0.01, 0.2):
        faults.slow_s = slow_s
        assert (await fetch_here(one, None)).complete
        assert one.output.read_bytes() == expected
    assert len({kind for _, kind in faults.served}) == 4


async def test_both_ways_name_what_is_left_out(rig: Place, tmp_path: Path) -> None:
    here, _, there, _ = await both(rig, wanted(tmp_path, "koinly", ("deposits", "transfers")))
    assert here.left_out == there.left_out
    assert "ledger" in there.left_out


async def test_all_that_an_exchange_keeps(rig: Place, tmp_path: Path) -> None:
    one = replace(wanted(tmp_path, types=("trades",)), start_ms=None, verify=False)
    here, first, there, second = await both(rig, one)
    assert first == second
    assert here.complete
    assert there.complete


async def test_all_begins_with_what_was_collected_alike_here_and_by_a_service(
    rig: Place, tmp_path: Path
) -> None:
    """A service was once asked for everything since 1970, and said that it was not collected."""
    one = replace(
        wanted(tmp_path, types=("trades",)), start_ms=None, source="collected", verify=False
    )
    first_ms = one.end_ms - 1_500 * DAY_MS  # older than anything the exchange keeps
    store, lease = rig.node.store.collected, Lease("collecting", "tests", one.end_ms)
    assert await LeaseStore(store.database).acquire(lease, one.end_ms - 1)
    for source in BYBIT.sources.values():
        if source.window_ms:
            listed = await store.add_list("bybit", "mainnet", list_name(source))
            part = await store.add_list("bybit", "mainnet", part_name(source))
            covered = part.list_id, RangeRow(first_ms, one.end_ms + DAY_MS)
            await store.write(lease, listed.list_id, [], [covered])
    here, first, there, second = await both(rig, one)
    assert (here.coverage, here.complete, first) == (there.coverage, there.complete, second)
    assert {entry.from_ms for entry in there.coverage} == {first_ms}
    assert there.complete


def test_all_is_complete_from_the_oldest_kept_record_of_each_type() -> None:
    def covered(kind: str, from_ms: int | None, reason: str | None) -> Coverage:
        return Coverage(kind, from_ms, 10 * DAY_MS, reason is None, reason, None)

    found = all_kept(
        [
            covered("whole", 0, None),
            covered("short", 5 * DAY_MS, "older_not_kept"),
            covered("none", None, "older_not_kept"),
            covered("late", 2 * DAY_MS, "deadline"),
            covered("hole", 2 * DAY_MS, "not_collected"),
        ]
    )
    assert [entry.complete for entry in found] == [True, True, False, False, False]
    assert [_kept(entry, UTC) for entry in found] == [
        "",
        "complete from 1970-01-06 00:00; nothing older is kept, so that earlier balances cannot be "
        "proven.",
        "",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"types": ["nfts"]}, "nfts"),
        ({"exchange": "mtgox"}, "mtgox"),
        ({"start_ms": 5, "end_ms": 6}, "end_time is earlier"),
    ],
)
async def test_what_a_service_refuses_leaves_no_file(
    rig: Place, tmp_path: Path, change: dict[str, object], says: str
) -> None:
    with pytest.raises(Refused) as refused:
        await fetch_there(replace(wanted(tmp_path), **change), rig.url, rig.key)
    assert says in refused.value.message
    assert list(tmp_path.glob("file*")) == []


async def test_a_wrong_key_and_a_wrong_address_are_sentences(rig: Place, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="API key"):
        await fetch_there(wanted(tmp_path), rig.url, "ob_live_wrong")
    with pytest.raises(Unavailable, match="refused"):
        await fetch_there(wanted(tmp_path), "http://127.0.0.1:9", rig.key)


async def test_a_failure_of_the_exchange_leaves_no_file(rig: Place, tmp_path: Path) -> None:
    rig.bybit._keys[ACCOUNT.api_key] = SimulatedKey(ACCOUNT.api_key, "another secret")
    with pytest.raises((Refused, Unavailable)):
        await fetch_there(wanted(tmp_path), rig.url, rig.key)
    assert list(tmp_path.glob("file*")) == []


async def test_a_key_that_is_used_up_in_between_leaves_no_file(tmp_path: Path) -> None:
    async with place(tmp_path, rate_hz=0, accounts={"allowance_bytes": 50_000}) as rig:
        with pytest.raises(Refused, match="allowance"):
            await fetch_there(wanted(tmp_path), rig.url, rig.key)
    assert list(tmp_path.glob("file*")) == []


def test_a_service_is_fetched_from_without_the_packages_of_a_server(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from onebook.cli.commands import SERVER_PACKAGES\n"
        "sys.modules.update(dict.fromkeys(SERVER_PACKAGES))\n"
        "from onebook.cli.main import main\n"
        "sys.argv[0] = 'onebook'\n"
        "main()\n"
    )

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, "transactions", "fetch", "-o", "a.csv", *words],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith("error: ")
        return done.stderr

    assert "127.0.0.1:9" in run("--url", "http://127.0.0.1:9/", "--key", "k" * 10)
    said = run()
    assert 'pip install "onebook[server]"; or use --url to fetch from a service.' in said
    assert "ONEBOOK_KEY" in run("--url", "http://127.0.0.1:9", "--key", "")


async def command(*words: str, key: str = "") -> tuple[int, str]:
    """Run a command beside this process's node; return its status and output."""
    done = await asyncio.to_thread(
        CliRunner().invoke,
        app,
        words,
        env={"ONEBOOK_KEY": key, "COLUMNS": "200"},
        prog_name="onebook",
    )
    return done.exit_code, done.output


async def test_an_account_is_verified_alike_here_and_by_a_service(
    rig: Place, tmp_path: Path
) -> None:
    """Including records that only a reading of the holdings reveals, which no file has."""
    words = "transactions", "verify", "--from", "30d"
    here = await command(*words)
    there = await command(*words, "--url", rig.url, key=rig.key)
    for status, printed in (here, there):
        assert status == 0, printed
        assert "ledger chain: holds" in printed
        assert "holdings: holds" in printed
        assert printed.splitlines()[-1].endswith(" records read.")
    assert [line for line in here[1].splitlines() if ": " in line] == [
        line for line in there[1].splitlines() if ": " in line
    ]
    assert not list(tmp_path.glob("*.part"))


async def test_a_lost_record_is_found_by_the_command(rig: Place) -> None:
    lines = rig.bybit.account.ledger.entries
    del lines[len(lines) // 2]
    status, printed = await command("transactions", "verify", "--from", "30d")
    assert status == 1
    assert "ledger chain: " in printed
    assert "broken" in printed


async def test_credentials_are_checked_alike_here_and_by_a_service(rig: Place) -> None:
    words = "credentials", "check", "bybit"
    here = await command(*words)
    there = await command(*words, "--url", rig.url, key=rig.key)
    assert here == there
    assert here[0] == 0
    assert "The internal credentials are valid." in here[1]
    rig.bybit._keys[ACCOUNT.api_key] = SimulatedKey(ACCOUNT.api_key, "another secret")
    here = await command(*words)
    assert here[0] == 1
    assert here == await command(*words, "--url", rig.url, key=rig.key)
    for more, key, says in (
        (["--url", rig.url], "", "--url needs an API key"),
        (["--url", rig.url], "ob_live_wrong", "API key"),
        (["--url", "http://127.0.0.1:9"], rig.key, "refused"),
        (["--testnet", "--url", rig.url], rig.key, "has set no Bybit testnet credentials"),
    ):
        status, printed = await command(*words, *more, key=key)
        assert status != 0
        assert says in printed, printed
