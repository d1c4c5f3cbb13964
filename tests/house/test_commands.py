"""Every command explains itself: help, and an example."""

import re

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from onebook.cli.main import app


def commands(command, words=()):
    """Every command below this one, as the words that name it."""
    if not hasattr(command, "commands"):
        return [(words, command)]
    return [
        found for name, each in command.commands.items() for found in commands(each, (*words, name))
    ]


COMMANDS = commands(get_command(app))


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[" ".join(w) for w, _ in COMMANDS])
def test_every_command_has_help_with_an_example(words, command):
    assert re.search(rf"Example: .*onebook {' '.join(words)}\b", command.help)
    answer = CliRunner().invoke(app, [*words, "--help"])
    assert answer.exit_code == 0
    assert "Example:" in answer.output


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[" ".join(w) for w, _ in COMMANDS])
def test_every_option_says_what_it_is(words, command):
    assert [each.name for each in command.params if not getattr(each, "help", "")] == []


def test_the_commands_of_the_readme_exist():
    from pathlib import Path

    readme = (Path(__file__).parents[2] / "README.md").read_text()
    named = set(re.findall(r"^onebook ([a-z]+)", readme, re.MULTILINE))
    assert named - {words[0] for words, _ in COMMANDS} == set()


def test_an_unknown_word_is_one_clear_line_and_status_2():
    answer = CliRunner().invoke(app, ["serv"])
    assert answer.exit_code == 2
    assert "No such command" in answer.output


def test_the_version_is_printed():
    from onebook import __version__

    assert CliRunner().invoke(app, ["--version"]).output == f"onebook {__version__}\n"
