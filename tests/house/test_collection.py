"""Every worker collects the same tests, at any time and with any order of sets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from families import LONG

ROOT = Path(__file__).parents[2]
COLLECT = ("-m", "pytest", "-n0", "--collect-only", "-q", "-o", "addopts=--import-mode=importlib")


@pytest.mark.soak
def test_a_second_collection_finds_the_same_tests(request: pytest.FixtureRequest) -> None:
    """xdist aborts the run if two workers collect different tests."""
    if request.config.args != ["tests"]:
        pytest.skip("only a part of the suite was asked for")
    output = subprocess.run(
        [sys.executable, *COLLECT, "-p", "no:cacheprovider", "-m", request.config.option.markexpr],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=90,
    ).stdout
    here = [item.nodeid for item in request.session.items]
    assert [line for line in output.splitlines() if "::" in line] == here


@pytest.mark.parametrize("name", LONG)
def test_what_begins_first_is_there(name: str) -> None:
    """A renamed test would silently be started last again."""
    file, _, test = name.partition("::")
    assert f"def {test}" in (ROOT / file).read_text()
