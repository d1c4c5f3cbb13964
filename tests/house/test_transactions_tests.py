"""Each source file of the transaction interface has a test file of its own."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "onebook" / "transactions"
TESTS = ROOT / "tests" / "transactions"
FILES = sorted(
    path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if path.name != "__init__.py"
)


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_source_file_has_a_test_file(file: Path) -> None:
    tests = TESTS / file.with_name(f"test_{file.name}")
    assert tests.exists(), f"{file} needs {tests.relative_to(ROOT)}"
    assert "def test_" in tests.read_text()
