"""The pages generated from the code are current and complete."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onebook import client
from onebook.cli.commands import app
from onebook.config.settings import data_dir
from onebook.gateway import codes
from onebook.gateway.messages import MESSAGES
from onebook.model import Reason
from reference.code_pages import code_pages, index, opening
from reference.python_page import python_client

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"
STALE = "it is not what the code says: run `make reference`"
PAGES = code_pages()


def cells(name: str) -> set[str]:
    """The code spans at the beginning of the rows."""
    return set(re.findall(r"^\| `([^`]+)`", PAGES[name], re.MULTILINE))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert (REFERENCE / name).read_text(encoding="utf-8") == PAGES[name], f"{name}: {STALE}"


def test_the_page_of_the_python_client_has_every_public_name_field_and_option() -> None:
    written = (REFERENCE / "python.md").read_text(encoding="utf-8")
    assert written == python_client(), f"python.md: {STALE}"
    headings = set(re.findall(r"^## (\w+)$", written, re.MULTILINE))
    assert headings == {name for name in client.__all__ if callable(getattr(client, name, None))}, (
        "types that are aliases are in the signatures"
    )
    section = written.partition("\n## BookView\n")[2].partition("\n## ")[0]
    rows = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    assert {each.name for each in fields(client.BookView) if each.name[0] != "_"} <= rows


def test_the_index_has_every_page_with_what_it_is_about() -> None:
    text = (REFERENCE / "README.md").read_text(encoding="utf-8")
    assert text == index(REFERENCE), STALE
    named = set(re.findall(r"\]\(([^)]+)\)", text))
    there = {each.name for each in REFERENCE.glob("*.md")} - {"README.md"}
    assert named == there | {"exchanges/README.md"}
    for file in named:
        title, about = opening((REFERENCE / file).read_text(encoding="utf-8"))
        assert title
        assert len(about) > 20, file


def test_every_setting_that_the_command_explains_is_listed() -> None:
    said = CliRunner().invoke(app, ["config", "doc"]).output
    names = re.findall(r"^([a-z]\S+)$", said, re.MULTILINE)
    assert len(names) > 60
    assert cells("settings.md") == set(names)


def test_no_folder_of_this_machine_is_written() -> None:
    for name, text in PAGES.items():
        assert str(data_dir()) not in text, name
        assert str(ROOT) not in text, name


def test_every_command_and_every_option_is_listed() -> None:
    """Checked against the help texts that Typer writes."""
    seen = walked(())
    assert len(seen) > 15
    for words, text in seen:
        _, found, rest = PAGES["commands.md"].partition(f"# onebook {' '.join(words)}\n")
        assert found, words
        part = re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - {"--help"}
        assert options <= set(re.findall(r"--[a-z][a-z-]+", part)), words


def walked(words: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    """Every command below `words`, with the options in its help."""
    text = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"}).output
    _, groups, below = text.partition(" Commands ")
    if not groups:
        return [(words, text.partition(" Options ")[2])]
    names = re.findall(r"^│ ([a-z][a-z-]+) ", below, re.MULTILINE)
    assert names, text
    return [each for name in names for each in walked((*words, name))]


def test_every_error_close_code_and_reason_is_listed() -> None:
    source = (ROOT / "src/onebook/errors.py").read_text(encoding="utf-8")
    named = set(re.findall(r'^    code(?:, status)? = "(\w+)"', source, re.MULTILINE))
    assert len(named) > 20
    assert cells("errors.md") >= named - {"invalid_config"}
    assert cells("errors.md") >= set(codes.ERRORS) | {each.value for each in Reason}
    sent = {each for each in vars(codes.CloseCode).values() if isinstance(each, int)}
    assert cells("close-codes.md") == {str(each) for each in sent - {codes.CloseCode.GOING_AWAY}}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: f"{each.name}-{each.body.__name__}")
def test_every_message_is_described_with_its_fields(message) -> None:
    # Of two bodies of one name, the later has its class in the heading.
    headings = (f"{message.name} ({message.body.__name__})", message.name)
    heading = next(each for each in headings if f"\n### {each}\n" in PAGES["messages.md"])
    found = re.findall(
        rf"^### {re.escape(heading)}\n(.*?)(?=^##)", PAGES["messages.md"], re.MULTILINE | re.DOTALL
    )
    assert len(found) == 1
    for field in message.body.__struct_encode_fields__:
        assert f"| `{field}` |" in found[0]
