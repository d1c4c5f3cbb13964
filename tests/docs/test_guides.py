"""The examples of the guides run as they are written, on simulated exchanges."""

import json
import re
import sys
from datetime import UTC, datetime

import pytest

from client.place import place, small_account
from docs.examples import ROOT, addressed, blocks, environment, finished, kinds, printed, typed
from onebook.simulator.accounts.bybit import demo

LAST_YEAR = datetime.now(UTC).year - 1
PYTHON = (sys.executable, "-u", "-c")


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("guides/keep-50-gb.md", {("python", "client"), ("python", "warned")}),
        ("guides/follow-deltas.md", {("python", "client")}),
        (
            "guides/year-of-transactions.md",
            {("sh", "fetch"), ("python", "client"), ("sh", "curl")},
        ),
        ("guides/new-exchange.md", {("python", "connector"), ("sh", "onebook")}),
    ],
)
def test_every_block_is_run_here(page, expected):
    assert kinds(page) == expected


async def test_keep_50_gb(tmp_path):
    frugal, forecast = blocks("guides/keep-50-gb.md", "python", "client")
    (warned,) = blocks("guides/keep-50-gb.md", "python", "warned")
    async with place(tmp_path, accounts={"allowance_bytes": 200_000}) as rig:
        given = environment(rig.url, rig.key)
        shown = await printed(*PYTHON, frugal, pattern=r"\d+ [0-9.]+ [0-9.]+\n", **given)
        assert "not live" not in shown
        status, out, errors = await finished(*PYTHON, forecast, **given)
        assert (status, errors) == (0, "")
        assert re.fullmatch(
            r"used [0-9.]+%, renewed at \d{4}-\d\d-\d\d\nmay use [0-9,]+ bytes a second .*\n", out
        )
        shown = await printed(
            *PYTHON, warned, pattern=r"slower from now on, renewed at \S", **given
        )
        assert shown.count("\n") == 1


async def test_follow_deltas(tmp_path):
    (program,) = blocks("guides/follow-deltas.md", "python", "client")
    async with place(tmp_path) as rig:
        given = environment(rig.url, rig.key)
        shown = await printed(*PYTHON, program, pattern=r"(?m)(^\d+ \[\('.*\n){20}", **given)
    numbers = [int(line.split()[0]) for line in shown.splitlines()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "no resync was needed"


def message(kind, number, bids, before=None, checksum=None):
    return {
        "type": f"aggregated_orderbook_{kind}", "update_number": number,
        "previous_update_number": before, "checksum": checksum, "data": {"bids": bids, "asks": []},
    }  # fmt: skip


def test_the_book_of_the_deltas_guide_refuses_a_gap_and_a_wrong_checksum():
    (program,) = blocks("guides/follow-deltas.md", "python", "client")
    names = {"__name__": "example"}
    exec(compile(program, "example", "exec"), names)
    book = names["Book"]()
    assert book.apply(message("update", 1, [["100.5", "1.5"], ["100", "2"]]))
    right = 0x3E452191
    after = [["100", "0"], ["99.5", "4"]]
    assert not book.apply(message("delta", 3, after, before=2, checksum=right)), "a lost delta"
    assert book.bids == {"100.5": "1.5", "100": "2"}
    assert not book.apply(message("delta", 2, after, before=1, checksum=right + 1))
    assert book.apply(message("update", 1, [["100.5", "1.5"], ["100", "2"]]))
    assert book.apply(message("delta", 2, after, before=1, checksum=right))
    assert book.bids == {"100.5": "1.5", "99.5": "4"}


@pytest.mark.parametrize("days", [30, pytest.param(365, marks=pytest.mark.soak)])
async def test_a_year_of_transactions(tmp_path, days):
    """Against the service: a year of the demo's account, or a month of another."""
    year = days == 365

    def written(block):
        block = addressed(block, rig.url, rig.key)
        if year:
            return block.replace("2025", str(LAST_YEAR))
        return block.replace("--year 2025", f"--from {days}d").replace("365", str(days))

    page = "guides/year-of-transactions.md"
    async with (
        demo() if year else small_account(days=40, executions=400) as account,
        place(tmp_path, account=account, rate_hz=0) as rig,
    ):
        given = environment(rig.url, rig.key)
        commands = f"export ONEBOOK_KEY={rig.key}\n"
        commands += "".join(written(each) for each in blocks(page, "sh", "fetch"))
        async for status, out, errors in typed(commands, cwd=tmp_path, **given):
            assert (status, errors) == (0, ""), out
            assert re.search(
                r"[1-9][\d,]* (rows of [\d,]+ )?records (read|in \w+\.(csv|jsonl|xlsx|zip))\.", out
            ), out
        fees, resumed = blocks(page, "python", "client")
        status, out, errors = await finished(*PYTHON, written(fees), **given)
        assert (status, errors) == (0, "")
        assert re.match(r"[A-Z]+ -?[0-9.]+\n", out), out
        status, out, errors = await finished(*PYTHON, written(resumed), cwd=tmp_path, **given)
        assert (status, errors) == (0, "")
        assert out.endswith("records; done\n")
        lines = (tmp_path / "history.jsonl").read_text().splitlines()
        assert len({json.loads(line)["transactionId"] for line in lines}) == len(lines) > 0
        shown = []
        for curl in blocks(page, "sh", "curl"):
            status, out, errors = await finished("bash", "-ec", written(curl), **given)
            assert status == 0, errors
            shown.append(out.splitlines())
        lines, rows = shown
        assert json.loads(lines[-1])["type"] == "summary"
        assert rows[0].startswith("Date,Sent Amount,")
        assert len(rows) > 100


async def test_a_new_exchange(tmp_path):
    page = "guides/new-exchange.md"
    (program,) = blocks(page, "python", "connector")
    given = environment("", "")
    status, out, errors = await finished(*PYTHON, program, **given)
    assert (status, errors) == (0, "")
    opened, snapshot, delta, gap = out.splitlines()
    assert "Send(" in opened
    assert "Snapshot(" in snapshot
    assert "Delta(" in delta
    assert "Gap(" in gap
    (commands,) = blocks(page, "sh", "onebook")
    status, out, errors = await finished("bash", "-ec", commands, cwd=tmp_path, **given)
    assert (status, errors) == (0, "")
    assert "wss://ws.okx.com" in out


def test_the_files_that_the_guide_to_a_new_exchange_names_are_there():
    text = (ROOT / "docs/guides/new-exchange.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:src|tests)/[\w/.<>]+)`", text))
    assert len(named) > 5
    for each in named:
        assert (ROOT / each.replace("<name>", "okx")).exists(), each
