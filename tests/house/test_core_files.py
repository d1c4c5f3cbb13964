"""The compiled core is laid out as documented: code in headers, each with its tests."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ROOT / "src" / "onebook" / "core"


def test_every_compiled_source_has_a_test_file_of_its_own():
    sources = {
        path.stem.strip("_") for end in ("h", "pxi", "pyx") for path in CORE.glob(f"*.{end}")
    }
    assert {"core", "digits", "levels", "scan", "view"} <= sources
    tests = ROOT / "tests" / "core"
    assert [each for each in sorted(sources) if not (tests / f"test_{each}.py").exists()] == []


def test_a_table_of_contents_holds_no_code():
    tables = [*CORE.glob("*.pxd")]
    assert tables
    for path in tables:
        code = re.search(r"^\s*(return|if|while|for|cdef inline)\b", path.read_text(), re.MULTILINE)
        assert code is None, path.name
