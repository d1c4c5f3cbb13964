"""Whether the output of a whole test run contains a key or a session token.

Every key and token of a test is a real one: made by the service's own generators. None may be in
what tests capture of logs and stderr, nor in any file that they leave (databases with their WAL,
usage files, exports, logs of processes). A plugin of pytest, one search per worker.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from onebook.accounts.keys import well_formed

KEYS = re.compile(rb"ob_live_[0-9A-Za-z]{49}")
TOKENS = re.compile(rb"obs_[0-9A-Za-z]{43}(?![0-9A-Za-z])")
FILE_BYTES_MAX = 64 << 20
CAPTURED = ("log", "stderr")
# These write secrets themselves, to see what becomes of them.
WRITERS = ("test_logs.py", "test_stderr.py", "tests/security/")

_found: list[str] = []


def holds_secret(content: bytes) -> bool:
    """Whether bytes contain a session token, or a key with a valid checksum."""
    return bool(TOKENS.search(content)) or any(
        well_formed(text.decode()) for text in KEYS.findall(content)
    )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Search the captured output of a test."""
    if any(writer in report.nodeid for writer in WRITERS):
        return
    for name, text in report.sections:
        if any(kind in name for kind in CAPTURED) and holds_secret(text.encode()):
            _found.append(f"{name} of {report.nodeid}")


@pytest.fixture(scope="session", autouse=True)
def _no_secret_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Search the files after this worker's last test."""
    yield
    files = (each for each in tmp_path_factory.getbasetemp().rglob("*") if each.is_file())
    _found.extend(str(path) for path in files if _leaks(path))
    assert not _found, f"keys or tokens are in: {', '.join(_found)}"


def _leaks(path: Path) -> bool:
    if path.is_symlink() or path.stat().st_size > FILE_BYTES_MAX:
        return False
    try:
        return holds_secret(path.read_bytes())
    except OSError:  # a socket, or a file of a process that is still ending
        return False
