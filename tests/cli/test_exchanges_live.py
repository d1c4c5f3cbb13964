"""`onebook exchanges check --live`: its table, its file, its recordings, and Ctrl-C."""

import asyncio
import getpass
import json
import re
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner, Result

from onebook.cli import exchanges_live
from onebook.cli.commands import app
from onebook.cli.exchanges_live import file_name
from onebook.feeds.recording import ConnectionOpened, Received, read
from onebook.simulator import SimulatedExchanges
from onebook.simulator.kit.replay import scripts
from steady import PATIENCE_S

SECONDS = "6"


def settings_of(sims: SimulatedExchanges, folder: Path) -> str:
    lines = ["[feeds]", f"exchanges = {json.dumps(list(sims.urls))}"]
    for name, urls in sims.urls.items():
        lines += [f"[feeds.overrides.{name}]"]
        lines += [f'ws_url = "{urls.ws}"', f'rest_url = "{urls.rest}"']
    file = folder / "onebook.toml"
    file.write_text("\n".join(lines))
    return str(file)


async def checked(sims: SimulatedExchanges, folder: Path, *words: str) -> Result:
    settings = settings_of(sims, folder)
    line = ["exchanges", "check", "--live", "--seconds", SECONDS, "--config", settings, *words]
    return await asyncio.to_thread(
        CliRunner().invoke, app, line, env={"COLUMNS": "200"}, catch_exceptions=False
    )


async def test_a_report_says_what_was_found_and_nothing_of_this_host(tmp_path: Path) -> None:
    """The report, the table, the recordings and the exit status of one run."""
    output, folder = tmp_path / "report.json", tmp_path / "frames"
    async with SimulatedExchanges(["okx", "binance", "kraken"]) as sims:
        sims["kraken"].refuse("ETH/USDT")
        words = ("-o", str(output), "--record", str(folder))
        got = await checked(sims, tmp_path, *words)
        places = [urlsplit(url).netloc for urls in sims.urls.values() for url in urls]
    assert got.exit_code == 1, got.output
    assert re.search(r"^binance +well +2 of 2 +by number +100 / \d+ +", got.output, re.MULTILINE)
    assert re.search(r"^kraken +2 faults +3 of 4 ", got.output, re.MULTILINE)
    assert "refused: The exchange refused a subscription." in got.output
    text = output.read_text()
    report = json.loads(text)
    assert report["format"] == "onebook-exchanges-check/1"
    assert report["started_at"].endswith("Z")
    found = {each["exchange"]: each for each in report["exchanges"]}
    okx, binance, kraken = found["okx"], found["binance"], found["kraken"]
    assert okx["findings"] == []
    assert {each["kind"] for each in kraken["findings"]} == {"refused", "never_live"}
    assert {each["by"] for each in binance["comparisons"]} == {"ids", "time"}
    for private in (*places, "127.0.0.1", str(tmp_path), str(Path.home())):
        assert private not in text
    if len(getpass.getuser()) > 3:
        assert getpass.getuser() not in text
    entries = read(folder / "okx.rec")
    assert isinstance(entries[0], ConnectionOpened)
    assert sum(isinstance(each, Received) for each in entries) >= okx["traffic"]["frames"] > 0
    assert scripts([folder / "binance.rec"])["binance"].bodies


async def test_an_exchange_that_is_well_is_status_0_and_json_is_json(tmp_path: Path) -> None:
    async with SimulatedExchanges(["okx"]) as sims:
        got = await checked(sims, tmp_path, "okx", "-s", "btc/usdt", "--json")
    assert got.exit_code == 0, got.output
    (okx,) = json.loads(got.stdout)["exchanges"]
    assert [each["symbol"] for each in okx["books"]] == ["BTC/USDT"]
    assert okx["addresses"] == "own"
    assert "okx: well" in got.stderr
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--output", "x.json"), "--symbol, --record and --output need --live"),
        (("--live", "okxx"), "Unknown exchange 'okxx'"),
        (("--live", "okx", "-o", "old.json"), "Cannot use old.json: File exists"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.json").write_text("kept")
    got = CliRunner().invoke(app, ["exchanges", "check", *words], env={"COLUMNS": "200"})
    assert got.exit_code == 2
    assert message in got.stderr
    assert "Traceback" not in got.output
    assert Path("old.json").read_text() == "kept"


async def test_ctrl_c_writes_what_it_has(tmp_path: Path) -> None:
    """In its own process, as a user runs it."""
    output = tmp_path / "report.json"
    async with SimulatedExchanges(["okx", "kraken"]) as sims:
        settings = settings_of(sims, tmp_path)
        line = ["exchanges", "check", "--live", "--seconds", "600", "--config", settings]
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "onebook", *line, "-o", str(output)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE_S):
            while not all(sims[name].followers("BTC/USDT") for name in sims.urls):
                await asyncio.sleep(0.05)
            running.send_signal(signal.SIGINT)
            out, errors = await running.communicate()
    assert running.returncode == exchanges_live.EXIT_INTERRUPTED, errors.decode()
    assert "The check was ended early." in out.decode()
    assert "Traceback" not in errors.decode()
    report = json.loads(output.read_text())
    assert report["interrupted"] is True
    assert {each["exchange"] for each in report["exchanges"]} == {"okx", "kraken"}


def test_the_default_file_names_the_time() -> None:
    assert file_name(1_790_000_000.9) == "onebook-check-20260921T141320Z.json"
