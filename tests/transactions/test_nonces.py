"""Nonces rise for a key over tasks, processes and restarts, and arrive in their order."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from clocks import SteppedClock
from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.transactions.nonces import Nonces
from transactions.bybit_support import run

PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from onebook.clock import SYSTEM_CLOCK
from onebook.transactions.nonces import Nonces

async def main():
    nonces = Nonces(Path(sys.argv[1]), "fennec", SYSTEM_CLOCK)
    arrived = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)  # what an exchange sees, in order
    for _ in range(int(sys.argv[3])):
        async with nonces.turn("key") as turn:
            nonce = turn.nonce()
            await asyncio.sleep(0.0005)  # the way to the exchange
            os.write(arrived, b"%d\\n" % nonce)
asyncio.run(main())
"""


async def made(nonces: Nonces, *keys: str) -> list[int]:
    found = []
    for key in keys:
        async with nonces.turn(key) as turn:
            found.append(turn.nonce())
    return found


def test_two_processes_of_one_key_do_not_overtake_each_other(tmp_path: Path) -> None:
    arrived, count = tmp_path / "arrived", 150
    arrived.touch()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "nonces"), str(arrived), str(count)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    nonces = [int(line) for line in arrived.read_text().split()]
    assert len(nonces) == 2 * count
    assert nonces == sorted(set(nonces))


def test_a_restart_with_a_clock_that_went_back_goes_on_above(tmp_path: Path) -> None:
    before = run(made(Nonces(tmp_path, "fennec", SteppedClock(5_000)), "a"))
    after = run(made(Nonces(tmp_path, "fennec", SteppedClock(1_000)), "a", "b"))
    assert [*before, *after] == [5_000_000_000, 5_000_000_001, 1_000_000_000]


def test_its_scale_is_the_finest_in_use() -> None:
    (nonce,) = run(made(Nonces(None, "fennec", SYSTEM_CLOCK), "a"))
    assert 1.7e18 < nonce < 2**63


def test_a_folder_that_cannot_be_written_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    nonces = Nonces(tmp_path / "file" / "nonces", "fennec", Clock())
    with caplog.at_level(logging.WARNING):
        first, second = run(made(nonces, "secret-key", "secret-key"))
    assert first < second
    assert len(caplog.records) == 1
    assert "secret-key" not in caplog.text


def test_a_file_reveals_no_key_and_others_cannot_read_it(tmp_path: Path) -> None:
    run(made(Nonces(tmp_path / "nonces", "fennec", SYSTEM_CLOCK), "secret-key"))
    (file,) = (tmp_path / "nonces").iterdir()
    assert "secret-key" not in file.name
    assert file.stat().st_mode & 0o077 == 0
    assert (tmp_path / "nonces").stat().st_mode & 0o077 == 0


def test_a_damaged_file_counts_as_new(tmp_path: Path) -> None:
    nonces = Nonces(tmp_path, "fennec", SteppedClock(1_000))
    run(made(nonces, "a"))
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"no number")
    assert run(made(Nonces(tmp_path, "fennec", SteppedClock(2_000)), "a")) == [2_000_000_000]
    assert file.read_bytes() == b"2000000000"
