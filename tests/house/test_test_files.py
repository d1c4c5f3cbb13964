"""Each source file of these packages has a test file of its own, `test_<file>.py`."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("accounts", "api", "gateway", "store", "transactions")
# Files whose tests stand elsewhere.
ELSEWHERE = {"api/transactions.py": "transactions/test_api.py"}


def has_tests(path: Path) -> bool:
    found = path.exists() and re.search(r"^ *(async )?def test_", path.read_text(), re.MULTILINE)
    return bool(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_each_source_file_has_a_test_file_of_its_own(package: str) -> None:
    folder = ROOT / "src/onebook" / package
    sources = [each for each in folder.rglob("*.py") if "migrations" not in each.parts]
    sources = [each.relative_to(folder.parent) for each in sources if each.stem != "__init__"]
    assert len(sources) > 1
    missing = []
    for source in sources:
        tests = ELSEWHERE.get(str(source), source.with_name(f"test_{source.name}"))
        if not has_tests(ROOT / "tests" / tests):
            missing.append(str(tests))
    assert not missing, f"write {missing}"
