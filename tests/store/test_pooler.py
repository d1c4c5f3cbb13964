"""PgBouncer between nodes and PostgreSQL, which gives each transaction any of its connections."""

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy.engine import make_url

from databases import database
from onebook.store import Store, UsageCell
from steady import PATIENCE_S
from store.samples import ALICE, KEY

ACCOUNT = "nobody"  # PgBouncer does not run as root
ROUNDS = 4
AT_ONCE = 10  # of each kind of work and store
CELL = UsageCell(KEY.key_id, 0)


@pytest.fixture
def pooled(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Start PgBouncer in a pooling mode; yields the URL of a database through it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("no pgbouncer on PATH")
    with ExitStack() as stack:
        url = make_url(stack.enter_context(database("postgresql", tmp_path)))

        def started(mode: str) -> str:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="onebook-pooler-")))
            folder.chmod(0o755)  # for its account
            (folder / "users").write_text(f'"{url.username}" ""\n')
            (folder / "pgbouncer.ini").write_text(
                f"[databases]\n* = host={url.host} port={url.port}\n[pgbouncer]\n"
                f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
                f"auth_type = trust\nauth_file = {folder}/users\npool_mode = {mode}\n"
            )
            words = ["-u", ACCOUNT] if os.geteuid() == 0 else []
            process = subprocess.Popen(
                [program, "-q", *words, str(folder / "pgbouncer.ini")], stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            ends_at = time.monotonic() + PATIENCE_S
            while time.monotonic() < ends_at:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    assert process.poll() is None
                    time.sleep(0.01)
            return url.set(port=port).render_as_string(hide_password=False)

        yield started


@pytest.mark.parametrize("mode", ["transaction", "session"])
async def test_connections_that_share_those_of_a_pooler_each_get_their_answers(
    pooled: Callable[[str], str], mode: str
) -> None:
    """Named prepared statements failed once two connections were busy at once."""
    url = pooled(mode)
    async with Store(url) as one, Store(url) as other:
        await one.database.upgrade()
        await one.accounts.create_account(ALICE)
        await one.accounts.create_key(KEY, b"first")
        for round_ in range(ROUNDS):
            working = [
                each
                for number in range(AT_ONCE)
                for store, epoch in ((one, "one"), (other, "other"))
                for each in (
                    store.accounts.list_accounts(),
                    store.usage.apply((epoch, round_ * AT_ONCE + number), {CELL: 1}, 1),
                    store.accounts.newest_change(),
                )
            ]
            await asyncio.gather(*working)
        assert await other.usage.total(CELL) == 2 * ROUNDS * AT_ONCE
