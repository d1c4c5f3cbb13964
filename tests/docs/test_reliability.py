"""Each promise of docs/explanation/reliability.md names an existing test."""

import re

from docs.examples import ROOT


def test_each_promise_has_a_test():
    text = (ROOT / "docs/explanation/reliability.md").read_text(encoding="utf-8")
    table = text.partition("\n\n## ")[0].partition("|---|---|---|\n")[2]
    promises = [line.split(" | ") for line in table.splitlines() if not line.startswith("| **")]
    assert len(promises) > 25
    for promise, _, tests in promises:
        named = re.findall(r"`([\w/.]+)`", tests)
        assert named, promise
        for name in named:
            assert (ROOT / "tests" / name).exists(), name
