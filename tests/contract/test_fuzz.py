"""Every connector reads hostile bytes within limits (`fuzz.py`); `make soak` runs it longer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import SAMPLES

PLACE_BYTES = 512
PROGRAM = Path(__file__).with_name("fuzz.py")
# Of each channel: mutated inputs, and messages with one member grown to the limit.
INPUTS = int(os.environ.get("ONEBOOK_FUZZ_INPUTS", "12"))
SWOLLEN = int(os.environ.get("ONEBOOK_FUZZ_SWOLLEN", "2"))
HUGE = int(os.environ.get("ONEBOOK_FUZZ_HUGE", "3"))  # every third of the huge inputs
SEED = int(os.environ.get("ONEBOOK_FUZZ_SEED", "1"))
PATIENCE_S = float(os.environ.get("ONEBOOK_FUZZ_PATIENCE_S", "110"))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded as Linux does it")
@pytest.mark.timeout(PATIENCE_S + 10)
def test_no_bytes_raise_hang_or_take_memory(tmp_path: Path) -> None:
    """In its own process, without the debug hooks of `PYTHONDEVMODE`, which use memory."""
    place = tmp_path / "place"
    place.write_bytes(bytes(PLACE_BYTES))
    words = [str(each) for each in (place, SEED, INPUTS, SWOLLEN, HUGE)]
    done = subprocess.run(
        [sys.executable, PROGRAM, *words, *([str(SAMPLES)] if SAMPLES.is_dir() else [])],
        env={**os.environ, "PYTHONDEVMODE": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    said = f"{done.stdout}{done.stderr}"
    assert done.returncode == 0, f"{said}while reading {place.read_bytes().decode().strip()}"
    assert done.stdout.count("\n") == 1, said
