"""Every command has a help text and an example."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from onebook.cli import commands
from onebook.cli.commands import app


def found(command, words):
    """The names of all commands below this one."""
    if not hasattr(command, "commands"):
        return [(words, command)]
    return [one for name, each in command.commands.items() for one in found(each, (*words, name))]


COMMANDS = [one for name in commands.COMMANDS for one in found(commands.loaded(name), (name,))]


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_the_summary_of_the_table_is_the_command_s_own(name):
    summary, _, _ = commands.loaded(name).help.partition("\n")
    assert commands.COMMANDS[name].summary == summary


def test_help_and_version_import_no_command():
    """They take a third of a second, or two with all that a server needs."""
    program = "import sys; sys.argv[1:] = {!r}\ntry: from onebook.cli.main import main; main()\n"
    program += "except SystemExit: print(*[name for name in sys.modules if 'onebook' in name])"
    for words in (["--version"], ["--help"]):
        done = subprocess.run(
            [sys.executable, "-c", program.format(words)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        imported = set(done.stdout.splitlines()[-1].split())
        assert imported - {"onebook", "onebook.errors"} == {
            "onebook.cli", "onebook.cli.commands", "onebook.cli.common", "onebook.cli.main",
        }  # fmt: skip


def test_a_command_without_the_server_says_what_to_install():
    program = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from onebook.cli.commands import app; app(['serve'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert 'pip install "onebook[server]"' in done.stderr
    assert "Traceback" not in done.stderr


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
