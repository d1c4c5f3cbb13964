"""The kinds of findings are sentences with a grade, and the guide explains each."""

import re
from pathlib import Path

from onebook.ops.livecheck import FindingKind, Grade

GUIDE = Path(__file__).parents[3] / "docs/guides/check-exchanges.md"


def test_each_kind_has_a_sentence_and_a_grade() -> None:
    for kind in FindingKind:
        assert re.fullmatch(r"[A-Z].*[a-z]\.", kind.sentence)
        assert kind.grade in Grade


def test_the_guide_has_a_row_for_each_kind() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+?) \| .+ \|$", GUIDE.read_text(), re.MULTILINE)
    assert rows == [(kind.value, kind.grade.value, kind.sentence) for kind in FindingKind]
