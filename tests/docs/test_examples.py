"""The pages show the programs of `examples/`, which use only public names."""

import ast
import re

import pytest

import onebook
import onebook.client
from docs.examples import DECLARATIONS, INCLUDED, ROOT, TYPES, pages, with_programs

PROGRAMS = sorted((ROOT / "examples").glob("*.py"))
PUBLIC = {"onebook", "onebook.client"}
# Where an example needs more than the promise covers, and its page says so.
BEYOND = {"simulated.py": {"onebook.library", "onebook.simulator"}}


def imported(program):
    """The modules of Onebook that a program imports."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("onebook"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onebook"):
            yield node.module


def test_every_program_is_on_one_page_and_in_the_list():
    shown = [name for page in pages() for _, name, *_ in INCLUDED.findall(page.read_text())]
    folder = ROOT / "examples"
    hooks = [path.relative_to(folder).as_posix() for path in folder.rglob("*.js")]
    assert sorted(shown) == sorted([*(path.name for path in PROGRAMS), *hooks])
    assert len(PROGRAMS) >= 8
    listed = re.findall(r"^\| `([\w./]+)`", (ROOT / "examples/README.md").read_text(), re.M)
    assert sorted(listed) == sorted(shown)


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.stem)
def test_a_page_shows_the_program_as_it_is(page):
    text = page.read_text()
    assert with_programs(text) == text, "`make reference` copies the programs into the pages"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_uses_what_is_public(path):
    assert set(imported(path.read_text())) <= PUBLIC | BEYOND.get(path.name, set())


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_ctrl_c_is_no_traceback(path):
    program = path.read_text()
    takes_long = "asyncio.run(" in program or ".transaction" in program
    assert takes_long == ("suppress(KeyboardInterrupt)" in program)


def test_the_guide_of_the_javascript_client_has_every_type():
    declared = re.findall(r"^export (?:interface|class) (\w+)", DECLARATIONS.read_text(), re.M)
    page = (ROOT / "docs/guides/javascript.md").read_text()
    shown = [name for _, name, _ in TYPES.findall(page)]
    # Without members; a message on the wire; a part that only tests import.
    unsaid = {"Refused", "Unavailable", "DataLimitWarning", "PackedReader"}
    assert sorted(shown) == sorted({*declared} - unsaid)


def test_the_readme_says_what_is_public():
    section = (ROOT / "README.md").read_text().partition("## What is public\n")[2]
    sentence = section.partition("\n## ")[0]
    assert set(re.findall(r"`(onebook[\w.]*)`", sentence)) == PUBLIC
    for name in ("/asyncapi.json", "/openapi.json"):
        assert name in sentence
    for module in (onebook, onebook.client):
        names = [name for name in dir(module) if not name.startswith("_")]
        assert all(getattr(module, name) is not None for name in names)
