"""A forked command or worker equals a started one, for itself and for its test."""

import asyncio
import os
import re
import signal
import subprocess
import sys

import pytest

import preloaded
from steady import PATIENCE_S

# What a fork would take over from the process that forks.
SHOWN = """
import gc, os, resource, signal, sys, threading, time, warnings
print(__name__, sys.argv, sys.orig_argv, sys.path, sys.flags, sys.warnoptions)
print(os.getcwd(), sorted(os.environ.items()), time.tzname)
print(resource.getrlimit(resource.RLIMIT_NOFILE), os.getppid(), os.nice(0), gc.isenabled())
print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), threading.active_count())
print([(each, signal.getsignal(each)) for each in sorted(signal.valid_signals())])
print(sorted(os.listdir("/proc/self/fd")))
for each in (sys.stdin, sys.stdout, sys.stderr):
    print(each.encoding, each.errors, each.line_buffering, each.fileno(), each.isatty())
with warnings.catch_warnings(record=True):
    try:
        print(warnings.warn("odd", ImportWarning), warnings.warn("odd"))
    except Warning as raised:
        print(repr(raised))
with open("/proc/self/cmdline") as file:
    print(input(), "preloaded" in file.read(), file=sys.stderr)
sys.exit(7)
"""
# Each outcome of a test, and of the import of a test module.
SUITE = {
    "test_tests": """
import os, sys, threading
imported_by = os.getpid()
def test_passes():
    with open(os.environ["PYTEST_XDIST_WORKER"], "a") as file:
        print(imported_by == os.getpid(), file=file)
    print(sys.flags, sys.warnoptions, sys.argv, sys.path, os.getcwd(), threading.active_count())
    readline = {"COLUMNS", "LINES"}  # which GNU readline sets for the processes that pytest starts
    print(sorted({*os.environ} - readline), sorted(os.listdir("/proc/self/fd")))
def test_fails():
    counts = [1, 2]
    assert counts == [1, 3]
def test_ends_its_worker():
    os._exit(7)
""",
    "test_broken": "import nothing_of_this_name",
    "test_skipped": "import pytest; pytest.importorskip('nothing_of_this_name')",
}
UNUSUAL = """
import random, sys
print(random.random())
if "raise" in sys.argv:
    raise ValueError("unusual")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def forks(request):
    """The plugin ends the forking process with the worker."""
    if sys.platform != "linux" or not request.config.pluginmanager.has_plugin("preloaded"):
        pytest.skip("commands are forked on Linux, unless pytest has `-p no:preloaded`")


@pytest.fixture(params=[preloaded.Plain, preloaded.Popen], ids=["started", "forked"])
def way(request, monkeypatch):
    """Each way to start a command."""
    monkeypatch.setattr(subprocess, "Popen", request.param)
    monkeypatch.setattr(preloaded, "MODULES", {"onebook", "shown", "unusual"})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shown.py").write_text(SHOWN)
    (tmp_path / "unusual.py").write_text(UNUSUAL)
    return tmp_path


def run(name, *words, python=(), **options):
    return subprocess.run(
        [sys.executable, *python, "-m", name, *words],
        capture_output=True, text=True, timeout=PATIENCE_S, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [{}, {"start_new_session": True}, {"process_group": 0}, {"python": preloaded.STRICT}],
)
def test_both_find_the_same_surroundings(folder, monkeypatch, options):
    monkeypatch.setattr(preloaded, "MODULES", {"shown"})
    found = []
    for way in (preloaded.Plain, preloaded.Popen):
        monkeypatch.setattr(subprocess, "Popen", way)
        with open(folder / "open", "w"):  # a file that no child may have
            done = run("shown", "--one", "", input="hello\n", cwd=folder, **options,
                       env={**preloaded.early(os.environ), "PATH": "", "TZ": "ABC-9"})  # fmt: skip
        found.append(done)
    plain, forked = found
    assert plain.stdout == forked.stdout
    assert ("ImportWarning('odd')" in plain.stdout) == ("python" in options)
    assert "'ABC', 'ABC'" in plain.stdout
    assert plain.returncode == forked.returncode == 7
    assert (plain.stderr, forked.stderr) == ("hello False\n", "hello True\n")


def test_both_answer_the_same(way):
    done = run("onebook", "config", "nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such command" in done.stderr


def test_no_two_draw_the_same_numbers_and_what_is_raised_is_shown(way, folder):
    first, second = (run("unusual", "raise", cwd=folder) for _ in range(2))
    assert first.returncode == second.returncode == 1
    assert first.stdout != second.stdout
    assert first.stderr.startswith("Traceback")
    assert first.stderr.endswith("\nValueError: unusual\n")


async def test_it_is_a_child_whose_signals_and_exit_codes_arrive(way, folder):
    for sent, code in ((signal.SIGKILL, -9), (signal.SIGINT, -2), (signal.SIGTERM, -15)):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "unusual", cwd=folder,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        async with asyncio.timeout(PATIENCE_S):
            await process.stdout.readline()
            assert await process.stdout.readline() == b"ready\n"
            process.send_signal(sent)
            assert await process.wait() == code


def test_the_forked_one_has_imported_what_commands_need(folder, monkeypatch):
    (folder / "shown.py").write_text("import sys; print('sqlalchemy' in sys.modules)")
    monkeypatch.setattr(preloaded, "MODULES", {"shown"})
    for way, text in ((preloaded.Plain, "False\n"), (preloaded.Popen, "True\n")):
        monkeypatch.setattr(subprocess, "Popen", way)
        assert run("shown", cwd=folder).stdout == text


def test_forked_workers_report_what_started_ones_do(tmp_path):
    for name, text in SUITE.items():
        (tmp_path / f"{name}.py").write_text(text)
    reports = []
    for plugins in ("-pxdist", "-pxdist -ppreloaded"):
        variables = {
            **os.environ,
            "PYTEST_ADDOPTS": plugins,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.path.dirname(preloaded.__file__),
        }
        words = (
            "-n1 -rA -p no:cacheprovider --import-mode=importlib --continue-on-collection-errors"
        )
        done = run("pytest", *words.split(), cwd=tmp_path, env=variables)
        assert (done.returncode, done.stderr) == (1, "")
        reports.append(re.sub(r"in \d+\.\d+s|pytest-of-\S+", "", done.stdout))
    started, forked = reports
    assert started == forked
    assert "assert [1, 2] == [1, 3]" in forked
    assert "2 failed, 1 passed, 1 skipped, 1 error" in forked
    assert (tmp_path / "gw0").read_text() == "True\nFalse\n"
