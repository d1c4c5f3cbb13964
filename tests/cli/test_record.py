"""`onebook record`, against the simulated exchanges."""

import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from disks import filled, small_disk
from onebook.cli.record import record, record_command
from onebook.errors import ExchangeFailed
from onebook.exchanges import EXCHANGES
from onebook.feeds.recording import ConnectionOpened, Fetched, Received, read
from onebook.simulator import SimulatedExchanges
from onebook.simulator.kit.replay import scripts

app = typer.Typer()
app.command()(record_command)


def invoke(*args: str | os.PathLike[str]) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_a_simulated_exchange_is_recorded_and_can_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "binance.rec"
    got = invoke(
        *("-e", "binance", "-s", "btc/usdt", "-s", "ETH/USDT", "-s", "BTC/USDT"),
        *("--seconds", "1", "-o", path, "--simulated"),
    )
    assert got.exit_code == 0, got.output
    entries = read(path)
    assert isinstance(entries[0], ConnectionOpened)
    assert sum(isinstance(entry, Fetched) for entry in entries) == 2
    frames = sum(isinstance(entry, Received) for entry in entries)
    assert f"{frames} frames" in got.output
    script = scripts([path])["binance"]
    assert set(script.bodies) == {line.native for line in script.lines} == {"BTCUSDT", "ETHUSDT"}
    assert 1.6e9 < entries[0].at < 1e10, "a recording has Unix seconds"


def test_a_full_disk_ends_it_with_one_line(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, filled(disk):
        path = disk / "x.rec"
        words = ("-e", "okx", "-s", "BTC/USDT", "--seconds", "1", "-o", path, "--simulated")
        got = invoke(*words)
    assert got.exit_code == 2
    assert f"ended early: {path} cannot be written: No space left" in got.output.replace("\n", " ")
    assert "Traceback" not in got.output


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("-e", "mars", "-s", "BTC/USDT"), "Unknown exchange 'mars'; known: binance"),
        (("-e", "okx", "-s", "BTC/USDX", "--simulated"), "OKX does not list BTC/USDX; it lists"),
        (("-e", "okx", "-s", "Q/Q", "--simulated"), "it lists nothing like it"),
        (
            ("-e", "p2b", "-s", "BTC/USDT", "-s", "ETH/USDT", "--simulated"),
            "p2b allows 1 book per connection",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    tmp_path: Path, args: tuple[str, ...], words: str
) -> None:
    path = tmp_path / "new.rec"
    got = invoke(*args, "-o", path, "--seconds", "0.1")
    assert got.exit_code == 2
    assert words in got.output
    assert "Traceback" not in got.output
    assert not path.exists()


def test_a_file_that_exists_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "old.rec"
    path.write_text("precious")
    got = invoke("-e", "okx", "-s", "BTC/USDT", "-o", path, "--simulated")
    assert got.exit_code == 2
    assert "cannot be written: File exists." in got.output.replace("\n", "")
    assert path.read_text() == "precious"


async def test_an_exchange_that_lists_nothing_is_said_so(tmp_path: Path) -> None:
    async with SimulatedExchanges(["okx"], rate_hz=0) as sim:
        sim["okx"].fail_rest(404)
        with pytest.raises(ExchangeFailed, match="The instrument list of OKX is unavailable"):
            await record(sim.exchanges()["okx"], ["BTC/USDT"], tmp_path / "x", seconds=0.1)


async def test_a_full_recording_ends_at_once(tmp_path: Path) -> None:
    async with SimulatedExchanges(["okx"], rate_hz=50) as sim:
        recorder = await record(
            sim.exchanges()["okx"],
            ["BTC/USDT"],
            tmp_path / "x",
            seconds=60,
            bytes_max=40_000,
        )
    assert recorder.full
    assert (tmp_path / "x").stat().st_size <= 40_000


def test_every_exchange_can_be_simulated() -> None:
    assert set(SimulatedExchanges().urls) == set(EXCHANGES)
