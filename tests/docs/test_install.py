"""The documents' installation steps: Onebook is in no registry."""

import re

import pytest

from docs.examples import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FROM_REGISTRY = re.compile(r"pip install[^`\n]*?[ '\"]onebook\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_document_installs_from_a_registry(page):
    assert FROM_REGISTRY.findall(page.read_text(encoding="utf-8")) == []
