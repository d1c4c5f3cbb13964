"""The commands and settings in the operator guides exist."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from onebook import config
from onebook.cli import commands
from onebook.cli.commands import app

ROOT = Path(__file__).parents[2]
GUIDES = ("operate.md", "backup.md")
TEXT = "\n".join((ROOT / "docs" / "guides" / name).read_text() for name in GUIDES)
SHELL = "\n".join(re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
COMMANDS = sorted(set(re.findall(r"(?:^|onebook )(onebook [a-z].*)$", SHELL, re.MULTILINE)))


def test_there_are_commands_to_look_at() -> None:
    assert len(COMMANDS) > 15


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_guides_is_understood(line: str) -> None:
    words = shlex.split(line.partition(" > ")[0])[1:]
    context = get_command(app).make_context("onebook", [], resilient_parsing=True)
    command = commands.loaded(words.pop(0))
    while hasattr(command, "commands"):  # a group
        command = command.commands[words.pop(0)]
    command.make_context("onebook", words, parent=context)  # refuses unknown options and values


def test_every_setting_of_the_guides_exists(tmp_path: Path) -> None:
    known = {each.name for each in config.catalogue()}
    for text in re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL):
        tomllib.loads(text)
        file = tmp_path / "onebook.toml"
        file.write_text(text)
        assert config.examine(file)[1] == []
    tables = "|".join(config.Settings.model_fields)
    named = set(re.findall(rf"`((?:{tables})\.[a-z_.]+)`", TEXT))
    assert named
    assert named - known == set()


def test_every_file_of_the_repository_that_the_guides_name_exists() -> None:
    for path in set(re.findall(r"\b((?:deploy|tests)/[\w./-]+\w)", TEXT)):
        assert list(ROOT.glob(f"{path}*")), path
