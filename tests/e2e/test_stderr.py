"""Output on stderr: JSON lines without keys, also where a library fails."""

import asyncio
import fcntl
import json
import os
import re
import signal
import sys
import time
from datetime import UTC, datetime

import httpx
import pytest
from websockets.asyncio.client import connect

from gateway.attack import UPGRADE, text
from onebook.accounts import Admin
from onebook.accounts.pepper import load_pepper
from onebook.client.addresses import websocket_of
from onebook.model import Tier
from onebook.simulator import SimulatedExchanges
from onebook.store import AuditedChange, Store

from .test_process import PATIENCE_S, read_until

STOP_MAX_S = 15.0
PIPE_BYTES = 4_096
REQUESTS = 100  # a line each: several times what the pipe holds

SECRET = "ob_live_" + "S3cr3t" * 9
# A node whose libraries fail in one way, with a key in the words of the failure.
NODE = """
import sys, threading, warnings
from onebook.cli.commands import app

SECRET, way = sys.argv[1:3]

def fail(*arguments, **options):
    raise RuntimeError("no frame of " + SECRET)

if way == "frames":
    from onebook.gateway.connection import Inbound

    Inbound.received = fail
elif way == "handshake":
    from websockets.server import ServerProtocol
    ServerProtocol.process_request = fail
elif way == "http":
    import h11
    h11.Connection.receive_data = fail
else:
    from websockets.protocol import Protocol
    before = Protocol.receive_data

    class Broken:
        def __del__(self):
            fail()

    def elsewhere(self, data):
        Broken()
        warnings.warn("no frame of " + SECRET, stacklevel=1)
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        return before(self, data)

    Protocol.receive_data = elsewhere
sys.argv = ["onebook", *sys.argv[3:]]
app()
"""
EXPECTED = {"frames": 1, "handshake": 1, "http": 1, "elsewhere": 3}


@pytest.mark.parametrize("way", EXPECTED)
async def test_what_a_library_raises_is_logged_as_json_and_without_keys(tmp_path, way):
    variables = {
        "ONEBOOK_LOG__FORMAT": "json",
        "ONEBOOK_STORE__URL": f"sqlite:///{tmp_path}/onebook.db",
        "ONEBOOK_STORE__PEPPER_FILE": f"{tmp_path}/pepper",
        "ONEBOOK_TRANSACTIONS__MASTER_KEY_FILE": f"{tmp_path}/master_key",
        "ONEBOOK_FEEDS__EXCHANGES": '["okx"]',
        "ONEBOOK_FEEDS__OVERRIDES": '{"okx": {"ws_url": "ws://127.0.0.1:1", '
        '"rest_url": "http://127.0.0.1:1"}}',
    }
    node = await asyncio.create_subprocess_exec(
        sys.executable, "-c", NODE, SECRET, way, "serve", "--port", "0",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **variables},
    )  # fmt: skip
    try:
        port = int((await read_until(node.stderr, r"127\.0\.0\.1:(\d+)")).group(1))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(UPGRADE)
        if way in ("frames", "elsewhere"):
            async with asyncio.timeout(PATIENCE_S):
                await reader.readuntil(b"\r\n\r\n")
            writer.write(text(type="ping"))
        lines = []
        async with asyncio.timeout(PATIENCE_S):
            while sum("no frame of" in each for each in lines) < EXPECTED[way]:
                lines.append((await node.stderr.readline()).decode())
        writer.close()
        node.terminate()
        out, err = await asyncio.wait_for(node.communicate(), PATIENCE_S)
    finally:
        if node.returncode is None:
            node.kill()
            await node.wait()
    for line in [*lines, *err.decode().splitlines()]:
        assert json.loads(line)["message"], line
        assert SECRET not in line
    assert SECRET not in out.decode()


async def key_in(folder):
    """The key of a new database."""
    async with Store(f"sqlite:///{folder}/onebook.db") as store:
        await store.database.upgrade()
        admin = Admin(store, load_pepper(folder / "pepper"))
        change = AuditedChange(time.time_ns() // 1_000_000, "tests", "")
        await admin.create_account("alice", change)
        return (await admin.create_key("alice", Tier.PREMIUM, change)).text


async def test_a_log_pipe_that_nobody_reads_stops_nothing(tmp_path):
    """More requests than a pipe holds, then a stream, a probe and a stop; the log is lost."""
    key = await key_in(tmp_path)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    async with SimulatedExchanges(["okx"], rate_hz=20) as simulated:
        urls = simulated.urls["okx"]
        overrides = {"okx": {"ws_url": urls.ws, "rest_url": urls.rest}}
        variables = {
            "ONEBOOK_GATEWAY__DRAIN_S": "1",
            "ONEBOOK_LOG__FORMAT": "json",
            "ONEBOOK_STORE__URL": f"sqlite:///{tmp_path}/onebook.db",
            "ONEBOOK_STORE__PEPPER_FILE": f"{tmp_path}/pepper",
            "ONEBOOK_TRANSACTIONS__MASTER_KEY_FILE": f"{tmp_path}/master_key",
            "ONEBOOK_FEEDS__EXCHANGES": '["okx"]',
            "ONEBOOK_FEEDS__OVERRIDES": json.dumps(overrides),
        }
        node = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "onebook", "serve", "--port", "0",
            stdout=asyncio.subprocess.DEVNULL, stderr=writing, env={**os.environ, **variables},
        )  # fmt: skip
        os.close(writing)
        try:
            text = b""
            while not (found := re.search(rb"listens on (http://127\.0\.0\.1:\d+)", text)):
                text += await asyncio.to_thread(os.read, reading, 1_000)
            base = found.group(1).decode()
            async with (
                httpx.AsyncClient(base_url=base, timeout=PATIENCE_S) as http,
                connect(websocket_of(base), compression=None) as client,
            ):
                await client.send(json.dumps({"type": "authenticate", "api_key": key}))
                subscribe = {"type": "subscribe_aggregated", "symbol": "BTC/USDT"}
                await client.send(json.dumps(subscribe))
                for _ in range(REQUESTS):
                    assert (await http.get("api/v1/nothing")).status_code == 404
                scraped = (await http.get("metrics")).text
                assert (await http.get("livez")).status_code == 200
                await updated_since(client, datetime.now(UTC))
                node.send_signal(signal.SIGTERM)
                began_s = time.monotonic()
                await client.wait_closed()
            async with asyncio.timeout(PATIENCE_S):
                assert await node.wait() == 0
            assert time.monotonic() - began_s < STOP_MAX_S
            assert "onebook_log_records_dropped_total" in scraped
        finally:
            if node.returncode is None:
                node.kill()
                await node.wait()
            os.close(reading)


async def updated_since(client, moment):
    """Wait for an update that is newer than a moment."""
    async with asyncio.timeout(PATIENCE_S):
        async for text in client:
            update = json.loads(text)
            if update["type"] != "aggregated_orderbook_update":
                continue
            if datetime.fromisoformat(update["timestamp"]) > moment:
                return
