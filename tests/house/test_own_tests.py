"""Each source file of these packages has a test file of its own, named after it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Files whose tests stand elsewhere.
ELSEWHERE = {"api/transactions.py": "transactions/test_api.py"}


@pytest.mark.parametrize("package", ["accounts", "api", "store"])
def test_each_source_file_has_a_test_file(package: str) -> None:
    sources = sorted((ROOT / "src/onebook" / package).glob("[a-z]*.py"))
    assert sources
    missing = []
    for source in sources:
        name = f"{package}/{source.name}"
        tests = ELSEWHERE.get(name, f"{package}/test_{source.name}")
        if not (ROOT / "tests" / tests).is_file():
            missing.append(name)
    assert missing == []
