"""The server of a whole node: its deadlines and limits, and 1,300 silent sockets."""

import asyncio
import resource
import socket
import subprocess
import sys

import httpx
import pytest

from e2e.service import client_of, key_of, settings_in
from onebook import app
from steady import PATIENCE_S

from .rig import QUICK, measured, peer_of


async def test_1300_silent_sockets_shut_nobody_out_of_a_node_that_began_with_1024_files(tmp_path):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 16_000:
        pytest.skip("the hard limit of open files is too low for this test")
    process = subprocess.Popen(
        [
            "/bin/sh", "-c", 'ulimit -Sn 1024; exec "$@"', "sh", sys.executable, "-m", "onebook",
            "demo", "--port", "0",
        ],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        url = await asyncio.get_running_loop().run_in_executor(None, _page, process)
        port = httpx.URL(url).port
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(1_300)]
        try:
            async with httpx.AsyncClient(base_url=url, timeout=10) as client:
                assert (await client.get("/livez")).status_code == 200
        finally:
            for each in silent:
                each.close()
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def _page(process):
    for line in process.stdout:
        if "the live page" in line:
            return line.split()[-1].partition("#")[0]
    raise AssertionError("the demo did not start")


async def test_a_whole_node_has_its_deadlines_and_its_places(tmp_path):
    async with app.running(settings_in(tmp_path), overrides={}, timeouts=QUICK) as node:
        key = await key_of(node)
        async with client_of(node, key) as client:
            async with peer_of(node.address[1]) as peer:
                await peer.send(b"GET /livez HTT")
                assert (await peer.rest()).startswith(b"HTTP/1.1 408 ")
            await client.say(type="ping")
            assert (await client.next())["type"] == "pong"
            assert measured("onebook_sockets") == 1
        async with asyncio.timeout(PATIENCE_S):
            while measured("onebook_sockets"):
                await asyncio.sleep(0.02)
