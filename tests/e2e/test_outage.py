"""A database that is locked, full, deleted or down: the node reports it and loses no usage.

On real files, a real small disk, a lock of another process, and a real PostgreSQL behind a proxy
that stops.
"""

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager, suppress

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from databases import DatabaseProxy, database
from e2e.service import PATIENCE_S, client_of, key_of, node_on, until_ready
from onebook.accounts.keys import key_of as key_from
from onebook.accounts.usage import stored_usage
from onebook.simulator import SimulatedExchanges
from onebook.store import Store

from .test_process import ended, listening, process, read_until

NAMES = ["okx", "kraken"]  # more of them take the time of the node that is watched
RATE_HZ = 20.0
DISK_BYTES = 8 << 20
QUICK = {"final_flush_timeout_s": 1}
HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
async def exchanges():
    async with SimulatedExchanges(NAMES, rate_hz=RATE_HZ) as simulated:
        yield simulated


@pytest.fixture
def disk(tmp_path):
    """A disk of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here: needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def outages(caplog):
    """The log lines about the database, and all other errors."""
    return [
        record.getMessage().partition(":")[0].partition(" after ")[0]
        for record in caplog.records
        if record.name in ("onebook.store", "onebook.accounts", "onebook.gateway")
        and (record.levelno >= logging.WARNING or "available again" in record.getMessage())
    ]


async def ran(code, *arguments):
    """Run a Python program without blocking the event loop, and so the node."""
    running = await asyncio.create_subprocess_exec(sys.executable, "-c", code, *arguments)
    async with asyncio.timeout(PATIENCE_S):
        assert await running.wait() == 0


@asynccontextmanager
async def served(node, text):
    """A client that reads everything until the node ends."""
    async with client_of(node, text) as client:
        await client.say(type="subscribe_aggregated", symbol="BTC/USDT", interval_ms=50)

        async def read():
            with suppress(Exception):
                while True:
                    await client.next()

        reading = asyncio.create_task(read())
        yield client
        await reading


async def billed(url, key_id):
    async with Store(url) as store:
        row = await store.accounts.key(key_id)
        return await stored_usage(store, key_from(row), time.time_ns() // 1_000_000)


async def only_key(store):
    [row] = await store.accounts.list_keys()
    return row.key_id


async def stop_client(node):
    """Close the clients as a drain does."""
    await node.gateway.drain(0.0)


async def test_a_locked_database_is_not_ready_and_what_was_used_meanwhile_is_billed(
    exchanges, tmp_path, caplog
):
    caplog.set_level("INFO")
    async with node_on(exchanges.urls, tmp_path, accounts=QUICK) as node:
        text = await key_of(node)
        key_id = await only_key(node.store)
        async with served(node, text) as client:
            await until_ready(node.url)
            holder = await asyncio.create_subprocess_exec(
                sys.executable, "-c", HOLDER, str(tmp_path / "onebook.db"),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            assert await holder.stdout.readline() == b"held\n"
            await until_ready(node.url, 503, "No usage has been written")
            async with asyncio.timeout(PATIENCE_S):  # until the first write has given up
                while "The database is unavailable" not in outages(caplog):
                    await asyncio.sleep(0.05)
            holder.stdin.close()
            await holder.wait()
            await until_ready(node.url)
            await stop_client(node)
    assert outages(caplog) == ["The database is unavailable", "The database is available again"]
    assert "stays locked by another program" in caplog.text
    assert await billed(f"sqlite:///{tmp_path}/onebook.db", key_id) == client.received_bytes
    assert list(tmp_path.glob("*.usage-*")) == []


async def test_a_deleted_database_is_an_error_and_usage_waits_for_its_return(
    exchanges, tmp_path, caplog
):
    caplog.set_level("INFO")
    path, backup = tmp_path / "onebook.db", tmp_path / "backup"
    async with node_on(exchanges.urls, tmp_path, accounts=QUICK) as node:
        text = await key_of(node)
        key_id = await only_key(node.store)
        async with served(node, text) as client:
            await node.accounts.meter.flush()
            assert await node.store.facts.setdefault("saved", "yes") == "yes"
            await ran(
                "import sqlite3, sys; sqlite3.connect(sys.argv[1])"
                ".execute('VACUUM INTO ?', sys.argv[2:])",
                str(path),
                str(backup),
            )
            saved = await billed(f"sqlite:///{backup}", key_id)
            await until_ready(node.url)
            caplog.clear()
            for each in tmp_path.glob("onebook.db*"):
                if "usage" not in each.name:
                    each.unlink()
            await until_ready(node.url, 503)
            assert not path.exists()
            await stop_client(node)
    assert not path.exists()
    unavailable, kept = outages(caplog)
    assert unavailable == "The database is unavailable"
    assert "was deleted or moved while the node runs" in caplog.text
    assert "the next start reads them from" in kept
    [left] = tmp_path.glob("onebook.db.usage-*")
    assert left.stat().st_mode & 0o777 == 0o600
    shutil.copy(backup, path)
    async with node_on(exchanges.urls, tmp_path):
        pass
    # What was written between the backup and the deletion is in neither.
    late = client.received_bytes - await billed(f"sqlite:///{path}", key_id)
    assert 0 <= late < client.received_bytes - saved
    assert not left.exists()


async def test_a_missing_database_with_its_pepper_is_not_made_anew(exchanges, tmp_path):
    async with node_on(exchanges.urls, tmp_path):
        pass
    (tmp_path / "onebook.db").unlink()
    with pytest.raises(Exception, match=r"The database .*onebook.db is missing"):
        async with node_on(exchanges.urls, tmp_path):
            pass
    assert not (tmp_path / "onebook.db").exists()


def toml(folder, urls, **store):
    lines = ["[server]", "port = 0", "[store]", f'url = "sqlite:///{folder}/onebook.db"']
    lines += [f'pepper_file = "{folder}/pepper"']
    lines += [f'{name} = "{value}"' for name, value in store.items()]
    lines += ["[accounts]", "final_flush_timeout_s = 1"]
    lines += ["[transactions]", f'master_key_file = "{folder}/master_key"']
    lines += ["[gateway]", "drain_s = 0.1", "[feeds]", f"exchanges = {NAMES}"]
    for name, each in urls.items():
        lines += [f"[feeds.overrides.{name}]", f'ws_url = "{each.ws}"', f'rest_url = "{each.rest}"']
    return "\n".join(lines) + "\n"


async def made_key(folder):
    from onebook.accounts import Admin
    from onebook.accounts.pepper import load_pepper
    from onebook.model import Tier
    from onebook.store import AuditedChange

    async with Store(f"sqlite:///{folder}/onebook.db") as store:
        await store.database.upgrade()
        admin = Admin(store, load_pepper(folder / "pepper"))
        change = AuditedChange(time.time_ns() // 1_000_000, "tests", "")
        await admin.create_account("alice", change)
        made = await admin.create_key("alice", Tier.BASIC, change)
    return made.row.key_id, made.text


def fill(folder):
    """Use the last byte of a disk."""
    with (folder / "ballast").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4_096)


async def delivered(port, text, after):
    """Bytes that a client receives until the node stops; `after` is called after the first."""
    total = 0
    url = f"ws://127.0.0.1:{port}/api/v1/ws"
    async with asyncio.timeout(PATIENCE_S), connect(url, compression=None) as socket:
        await socket.recv()
        await socket.send(json.dumps({"type": "authenticate", "api_key": text}))
        message = await socket.recv()
        total += len(message.encode())
        while json.loads(message)["type"] != "aggregated_subscription_response":
            await asyncio.sleep(0.1)  # the lists may not be read yet
            await socket.send(json.dumps({"type": "subscribe_aggregated", "symbol": "BTC/USDT"}))
            message = await socket.recv()
            total += len(message.encode())
        for _ in range(20):
            total += len((await socket.recv()).encode())
        after()
        with suppress(ConnectionClosed):
            while True:
                total += len((await socket.recv()).encode())
    return total


@pytest.mark.parametrize("kept", [True, False])
async def test_a_stop_on_a_full_disk_keeps_usage_or_exits_with_1(exchanges, disk, kept, tmp_path):
    key_id, text = await made_key(disk)
    file = tmp_path / "onebook.toml"
    nowhere = {} if kept else {"usage_dir": "/dev/null/nowhere"}
    file.write_text(toml(disk, exchanges.urls, **nowhere))
    before = await billed(f"sqlite:///{disk}/onebook.db", key_id)
    async with process("serve", "--config", str(file)) as running:

        async def stop_once_full():
            await read_until(running.stderr, "cannot grow: the disk is full")
            running.send_signal(signal.SIGTERM)

        def full():
            fill(disk)
            stopping.append(asyncio.create_task(stop_once_full()))

        stopping = []
        total = await delivered(await listening(running), text, full)
        await stopping[0]
        status, _, errors = await ended(running)
    os.truncate(disk / "ballast", 0)
    url = f"sqlite:///{disk}/onebook.db"
    if not kept:
        assert status == 1
        assert "could not be written and are lost" in errors
        return
    assert status == 0
    assert "the next start reads them from" in errors
    assert await billed(url, key_id) - before < total
    async with node_on(exchanges.urls, disk):
        pass
    assert await billed(url, key_id) - before == total
    assert list(disk.glob("*.usage-*")) == []


@pytest.fixture
def postgres(tmp_path):
    with database("postgresql", tmp_path) as url:
        yield url


async def test_a_postgresql_outage_is_logged_once_and_loses_no_byte(
    exchanges, postgres, tmp_path, caplog
):
    caplog.set_level("INFO")
    url = postgres
    line = DatabaseProxy(url)
    await line.up()
    tables = {
        "accounts": QUICK,
        "store": {"url": line.url, "pepper_file": str(tmp_path / "pepper")},
    }
    async with node_on(exchanges.urls, tmp_path, **tables) as node:
        text = await key_of(node)
        key_id = await only_key(node.store)
        async with served(node, text) as client:
            await until_ready(node.url)
            await line.cut()
            await until_ready(node.url, 503)
            async with connect(node.url.replace("http", "ws") + "/api/v1/ws") as other:
                await other.recv()
                unknown = "ob_live_" + "x" * 49
                await other.send(json.dumps({"type": "authenticate", "api_key": unknown}))
                await other.recv()
            [left] = tmp_path.glob("*.usage-*")
            async with asyncio.timeout(PATIENCE_S):
                while not left.read_bytes().strip(b"\0"):
                    await asyncio.sleep(0.05)
            await line.up()
            await until_ready(node.url)
            await stop_client(node)
    assert await billed(url, key_id) == client.received_bytes
    await line.cut()
    assert outages(caplog) == ["The database is unavailable", "The database is available again"]
    assert list(tmp_path.glob("*.usage-*")) == []
