"""Each source file of these packages has a test file of its own, `test_<file>.py`."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Packages below src/onebook that keep to it, with the folder of their tests.
PACKAGES = {"gateway": "tests/gateway"}


def has_tests(path):
    return path.exists() and re.search(r"^(async )?def test_", path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("package", PACKAGES)
def test_each_source_file_has_a_test_file_of_its_own(package):
    folder = ROOT / "src/onebook" / package
    sources = [each.stem for each in folder.glob("*.py") if not each.stem.startswith("__")]
    assert len(sources) > 1
    tests = ROOT / PACKAGES[package]
    missing = [name for name in sources if not has_tests(tests / f"test_{name}.py")]
    assert not missing, f"write tests/{package}/test_<name>.py for {missing}"
