"""The service as a process: start, stop, and messages when it cannot start."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
from contextlib import asynccontextmanager

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from e2e.service import until_ready
from onebook.client.addresses import websocket_of
from steady import PATIENCE_S

ONEBOOK = (sys.executable, "-W", "error", "-m", "onebook")


@asynccontextmanager
async def process(*words, **environment):
    running = await asyncio.create_subprocess_exec(
        *ONEBOOK,
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


async def read_until(stream, pattern):
    """The first match of a pattern in a process's output."""
    text = ""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := re.search(pattern, text)):
            line = await stream.readline()
            assert line, f"ended without {pattern}: {text}"
            text += line.decode()
    return found


async def listening(running):
    """The port of a node that was started with port 0: no other program can take it."""
    return int(
        (await read_until(running.stderr, r"listens on https?://127\.0\.0\.1:(\d+)")).group(1)
    )


async def ended(running):
    async with asyncio.timeout(PATIENCE_S):
        out, err = await running.communicate()
    # That a step was slow is a debug note of the loop.
    lines = [line for line in err.decode().splitlines(True) if "Executing <" not in line]
    return running.returncode, out.decode(), "".join(lines)


async def test_demo_prints_what_a_newcomer_needs_and_sigterm_sends_clients_away_in_order():
    async with process("demo", "--port", "0", COLUMNS="200") as demo:
        page = await read_until(demo.stdout, r"the live page +(\S+)#key=(\S+)")
        base, key = page.group(1), page.group(2)
        line = await read_until(demo.stdout, r"ONEBOOK_KEY=\S+ \S+ watch BTC/USDT --url (\S+)")
        assert line.group(1) == base.rstrip("/")
        async with connect(websocket_of(line.group(1)), compression=None) as client:
            await client.send(json.dumps({"type": "authenticate", "api_key": key}))
            await client.send(json.dumps({"type": "subscribe_aggregated", "symbol": "BTC/USDT"}))
            assert {"binance", "okx", "kucoin"} <= set(await merged(client))
            await until_ready(base)
            async with httpx.AsyncClient(base_url=base) as http:
                foreign = await http.get("api/v1/", headers={"Origin": "http://localhost:5173"})
                assert foreign.headers["access-control-allow-origin"] == "*"
                demo.send_signal(signal.SIGTERM)
                code, kinds = await until_closed(client)
        assert code == 4200
        assert "server_shutdown" in kinds
        status, _, errors = await ended(demo)
        assert status == 0
        assert errors == ""  # no warning, no task, no resource left


async def merged(client):
    """Read until the book contains every subscribed exchange; return their names."""
    names = None
    async with asyncio.timeout(PATIENCE_S):
        while True:
            message = json.loads(await client.recv())
            if message["type"] == "aggregated_subscription_response":
                names = message["exchanges"]
            elif "data" in message and not message["data"]["stale_exchanges"]:
                return names


async def until_closed(client):
    kinds = []
    async with asyncio.timeout(PATIENCE_S):
        try:
            while True:
                kinds.append(json.loads(await client.recv())["type"])
        except ConnectionClosed as closed:
            return closed.rcvd.code, kinds


async def test_the_demo_takes_the_next_port_where_its_own_is_taken_and_says_which():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with process("demo", "--port", str(port), COLUMNS="200") as demo:
            words = rf"Port {port} is in use; the demo listens on port (\d+)\."
            chosen = int((await read_until(demo.stdout, words)).group(1))
            page = await read_until(demo.stdout, r"the live page +http://127\.0\.0\.1:(\d+)/")
    assert int(page.group(1)) == chosen > port


async def test_the_demo_simulates_only_the_exchanges_of_the_settings():
    names = {
        "ONEBOOK_FEEDS__EXCHANGES": '["okx", "kraken"]',
        "ONEBOOK_TRANSACTIONS__EXCHANGES": '["okx"]',
    }
    async with process("demo", "--port", "0", COLUMNS="200", **names) as demo:
        await read_until(demo.stdout, r"runs on simulated exchanges \(okx, kraken\)")
        await read_until(demo.stdout, r"the simulated accounts \(okx\)")
    async with process("demo", "--port", "0", ONEBOOK_FEEDS__EXCHANGES='["okk"]') as demo:
        status, _, errors = await ended(demo)
    assert status == 2
    assert "feeds.exchanges: unknown exchange 'okk'." in errors


async def test_a_replay_says_how_to_create_a_key_and_then_which_key_it_accepts(samples, tmp_path):
    recording = str(samples / "exchange_frames" / "POLONIEX.ws.1.0")
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    async with process("replay", recording, "--port", "0", **environment) as replay:
        await read_until(replay.stdout, r"has none yet")
        await read_until(replay.stdout, r"accounts create me\n")
        await read_until(replay.stdout, r"keys create me\)\n")
    for command in ("accounts create me", "keys create me"):
        async with process(*command.split(), **environment) as created:
            status, key, _ = await ended(created)
        assert status == 0
    async with process("replay", recording, "--port", "0", **environment) as replay:
        await read_until(replay.stdout, "with an API key of its database")
        shown = await read_until(replay.stdout, r"(ob_live_\w+)\.\.\.  me")
        url = await read_until(replay.stdout, r"watch \S+/\S+ --url (\S+)")
        words = ("watch", "BTC/USDT", "--url", url.group(1), "--updates", "1")
        async with process(*words, ONEBOOK_KEY=key.strip()) as watch:
            status, out, _ = await ended(watch)
    assert key.startswith(shown.group(1))
    assert status == 0
    assert "poloniex" in out


async def test_a_taken_port_is_one_clear_line_and_status_2(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        async with process("serve", "--port", port, XDG_DATA_HOME=str(tmp_path)) as serve:
            status, _, errors = await ended(serve)
    assert status == 2
    assert errors.startswith(f"error: Cannot listen on 127.0.0.1 port {port}")
    assert errors.count("\n") == 1


async def test_bad_settings_are_one_clear_line_and_status_2(tmp_path):
    (tmp_path / "onebook.toml").write_text("[server]\nprot = 1\n")
    async with process("serve", "--config", str(tmp_path / "onebook.toml")) as serve:
        status, _, errors = await ended(serve)
    assert status == 2
    file = tmp_path / "onebook.toml"
    assert errors == f"error: {file}: Unknown setting server.prot. Did you mean server.port?\n"


async def test_a_tls_certificate_that_is_none_is_one_clear_line(tmp_path):
    (tmp_path / "cert.pem").write_text("no certificate")
    words = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "cert.pem"))
    environment = {"XDG_DATA_HOME": str(tmp_path), "ONEBOOK_FEEDS__EXCHANGES": "[]"}
    async with process("serve", "--port", "0", *words, **environment) as serve:
        status, _, errors = await ended(serve)
    assert status == 2
    file = tmp_path / "cert.pem"
    assert errors.splitlines() == [
        f"error: Command line: server.tls_cert_file: {file} contains no PEM certificate.",
        f"Command line: server.tls_key_file: {file} contains no PEM private key.",
    ]


async def test_a_node_listens_while_the_lists_of_exchanges_cannot_be_read(tmp_path):
    async def silent(reader, writer):
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as black_hole:
        place = f"http://127.0.0.1:{black_hole.sockets[0].getsockname()[1]}"
        overrides = {name: {"rest_url": place} for name in ("okx", "kraken")}
        environment = {
            "XDG_DATA_HOME": str(tmp_path),
            "ONEBOOK_FEEDS__EXCHANGES": '["okx", "kraken"]',
            "ONEBOOK_FEEDS__OVERRIDES": json.dumps(overrides),
            "ONEBOOK_GATEWAY__DRAIN_S": "0",
        }
        async with process("serve", "--port", "0", **environment) as serve:
            found = await read_until(serve.stderr, r"listens on (http\S+[0-9])")
            assert "Cannot read the instruments" not in found.string, "it waited for the lists"
            async with httpx.AsyncClient(base_url=found.group(1)) as http:
                assert (await http.get("livez")).status_code == 200
            serve.send_signal(signal.SIGTERM)
            status, _, _ = await ended(serve)
    assert status == 0


async def test_tls_faults_are_found_before_the_database_is_made(tmp_path):
    words = ("--tls-cert", str(tmp_path / "none.pem"))
    async with process("serve", *words, XDG_DATA_HOME=str(tmp_path / "data")) as serve:
        status, _, errors = await ended(serve)
    assert status == 2
    assert "server.tls_cert_file" in errors
    assert not (tmp_path / "data").exists()
