"""What a process writes to stderr: JSON lines without keys, also where a library fails."""

import asyncio
import json
import os
import sys

import pytest

from gateway.attack import UPGRADE, text

from .test_process import PATIENCE_S, read_until

SECRET = "ob_live_" + "S3cr3t" * 9
# A node whose libraries fail in one way, with a key in the words of the failure.
NODE = """
import sys, threading, warnings
from onebook.cli.main import app

SECRET, way = sys.argv[1:3]

def fail(*arguments, **options):
    raise RuntimeError("no frame of " + SECRET)

if way == "frames":
    from onebook.gateway.inbound import Inbound

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
