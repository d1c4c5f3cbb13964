"""The README's examples run as written."""

import asyncio
import json
import re
import shlex
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from onebook.simulator import SimulatedExchanges

from .service import key_of, node_on, ws_url
from .test_process import PATIENCE_S, ended, process, read_until

README = (Path(__file__).parents[2] / "README.md").read_text()


def client_program():
    programs = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (text,) = (each for each in programs if "onebook.client" in each)
    return text


def test_the_client_is_run_with_the_environment_of_the_demo():
    assert "ONEBOOK_KEY=ob_live_... .venv/bin/python client.py" in README


async def test_the_client_prints_books_and_ctrl_c_ends_it_without_a_traceback(exchanges, tmp_path):
    (tmp_path / "client.py").write_text(client_program())
    async with node_on(exchanges.urls, tmp_path) as node:
        environment = {"ONEBOOK_KEY": await key_of(node), "ONEBOOK_URL": ws_url(node)}
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-u", str(tmp_path / "client.py"), env=environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            await read_until(client.stdout, r"\d{4}-\d\d-\d\dT\S+ [0-9.]+ \(.*\) [0-9.]+ \(")
            client.send_signal(signal.SIGINT)
            status, _, errors = await ended(client)
        finally:
            if client.returncode is None:
                client.kill()
                await client.wait()
    assert (status, errors) == (0, "")


async def test_the_client_says_why_it_is_not_live(tmp_path):
    (tmp_path / "client.py").write_text(client_program())
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-u", str(tmp_path / "client.py"),
        env={"ONEBOOK_KEY": "any", "ONEBOOK_URL": "ws://127.0.0.1:1/"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_S):
            line = await client.stdout.readline()
    finally:
        client.kill()
        await client.wait()
    assert line.decode() == "not live: Connection refused by 127.0.0.1:1.\n"


async def test_the_client_outlives_the_loss_of_every_exchange(tmp_path):
    (tmp_path / "client.py").write_text(client_program())
    async with AsyncExitStack() as stack:
        simulated = await stack.enter_async_context(SimulatedExchanges(["okx"], rate_hz=20))
        async with node_on(simulated.urls, tmp_path) as node:
            client = await asyncio.create_subprocess_exec(
                sys.executable, "-u", str(tmp_path / "client.py"),
                env={"ONEBOOK_KEY": await key_of(node), "ONEBOOK_URL": node.url},
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            try:
                await read_until(client.stdout, r"\d{4}-\d\d-\d\dT\S+ [0-9.]+ \(")
                await stack.aclose()
                await read_until(client.stdout, r"not live: \['okx'\]")
                client.send_signal(signal.SIGINT)
                status, _, errors = await ended(client)
            finally:
                if client.returncode is None:
                    client.kill()
                    await client.wait()
    assert (status, errors) == (0, "")


async def test_the_commands_that_need_no_exchange_run_as_written(tmp_path):
    environment = {
        "XDG_DATA_HOME": str(tmp_path),
        "ONEBOOK_STORE__URL": f"sqlite+aiosqlite:///{tmp_path / 'onebook.db'}",
    }
    lines = [line.partition("#")[0] for line in README.splitlines() if line.startswith("onebook ")]
    own = [shlex.split(line)[1:] for line in lines]
    run = [words for words in own if words[0] in ("accounts", "keys", "config")]
    assert len(run) == 3
    printed = []
    for words in run:
        async with process(*words, **environment) as running:
            status, out, errors = await ended(running)
        assert status == 0, errors
        printed.append(out)
    assert "alice" in printed[0]
    assert printed[1].startswith("ob_live_")
    async with process("keys", "list", "--json", **environment) as running:
        _, out, _ = await ended(running)
    assert json.loads(out)[0]["billing_tier"] == "premium"
