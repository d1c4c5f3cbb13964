"""Each mutation of `tests/mutations.py` still applies: its text and its test exist."""

import re
from pathlib import Path

import pytest

from mutations import MUTATIONS, ROOT, only

SOURCE = {path: path.read_text() for path in sorted((ROOT / "src").rglob("*.py"))}
TESTS = set(
    re.findall(
        r"^ *(?:async )?def (test_\w+)\(",
        "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py")),
        re.MULTILINE,
    )
)


def test_every_text_exists_exactly_once():
    """Otherwise only the nightly run would notice a changed text."""
    found = {
        name: sum(text.count(each.old) for text in SOURCE.values())
        for name, each in MUTATIONS.items()
    }
    assert {name: count for name, count in found.items() if count != 1} == {}


def test_every_named_test_exists():
    assert {name for name, each in MUTATIONS.items() if each.test not in TESTS} == set()


@pytest.mark.parametrize("texts", [("x = 2\n",), ("x = 1\n", "x = 1\n"), ("x = 1; x = 1\n",)])
def test_a_text_that_is_missing_or_repeated_is_an_error(tmp_path: Path, texts: tuple[str, ...]):
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.py").write_text(text)
    with pytest.raises(LookupError, match="x = 1"):
        only(tmp_path, "*.py", "x = 1")
