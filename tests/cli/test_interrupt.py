"""Ctrl-C while a command is still importing its modules: the process ends without a traceback."""

import signal
import subprocess
import sys

import pytest

from steady import PATIENCE_S

# Interrupts itself when the first import asks for a module, as a person would at that moment.
PROGRAM = """
import os, signal, sys
from onebook.cli.main import main

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.argv[1:] = {words!r}
main()
"""


@pytest.mark.parametrize(
    ("words", "module"),
    [
        (["demo"], "typer"),
        (["demo"], "onebook.cli.commands"),
        (["demo"], "sqlalchemy"),
        (["serve"], "onebook.app"),
        (["transactions", "fetch"], "pydantic"),
        (["watch", "BTC/USDT"], "onebook.client"),
    ],
    ids=lambda each: each if isinstance(each, str) else each[0],
)
def test_it_ends_by_the_signal_and_says_nothing(words, module):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(words=words, module=module)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_shell_that_ignores_it_for_a_background_job_is_obeyed():
    program = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + PROGRAM
    done = subprocess.run(
        [sys.executable, "-c", program.format(words=["--version"], module="typer")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("onebook ")


def test_the_command_itself_has_the_handler_and_the_collector_of_python():
    """With the command's own handler: asyncio's does not replace it."""
    program = """
import gc, signal, sys
from onebook.cli.main import main
sys.argv[1:] = ["config", "schema", "--help"]
try:
    main()
except SystemExit:
    print("handler", signal.getsignal(signal.SIGINT) is signal.default_int_handler, gc.isenabled())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stdout.splitlines()[-1] == "handler True True"
