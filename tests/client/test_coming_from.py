"""The examples of the guide "Coming from ..." run as written."""

import ast
import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from client.place import place
from client.test_js import MODULE, NODE, needs_node
from e2e.service import ws_url
from library.test_examples import NAMES, Run
from onebook import exchanges
from onebook.config import GatewaySettings
from onebook.gateway import GatewayLimits
from onebook.simulator import SimulatedExchanges
from steady import PATIENCE_S

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/coming-from.md").read_text()
FENCES = re.findall(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
BLOCKS = [(language, kind, text) for language, kind, text in FENCES if language != "toml"]


def of(kind, language="python"):
    return [text for lang, each, text in BLOCKS if (lang, each) == (language, kind)]


async def first_line(*words, **environment):
    """The first output of a program, which is then ended."""
    process = await asyncio.create_subprocess_exec(
        *words, env={"PATH": os.environ["PATH"], **environment},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_S):
            line = await process.stdout.readline()
            errors = b"" if line else await process.stderr.read()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    assert line, errors.decode()
    return line.decode()


@pytest.mark.parametrize(("kind", "count"), [("onebook", 3), ("quantcite", 2)])
async def test_clients_run(tmp_path, kind, count):
    settings = {"reference_compatible": kind == "quantcite"}
    limits = GatewayLimits(welcome_delay_s=3.0)
    assert len(of(kind)) == count
    async with place(tmp_path, gateway=settings, gateway_limits=limits) as rig:
        given = {
            "ONEBOOK_URL": rig.url,
            "ONEBOOK_WS_URL": ws_url(rig.node),
            "ONEBOOK_KEY": rig.key,
        }
        for text in of(kind):
            line = await first_line(sys.executable, "-u", "-c", text, **given)
            assert re.search(r"\d", line), line
            assert "not live" not in line


@needs_node
async def test_the_javascript_client_runs(tmp_path):
    (program,) = of("onebook", "js")
    program = program.replace('from "onebook"', f'from "{MODULE.as_uri()}"')
    words = ("--no-warnings", "--experimental-websocket", "--input-type=module", "-e", program)
    async with place(tmp_path) as rig:
        line = await first_line(NODE, *words, ONEBOOK_URL=rig.url, ONEBOOK_KEY=rig.key)
    assert re.match(r"20\S+Z [0-9.]+ \[ '\w+'", line), line


async def test_library_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(of("library")) == 4
    async with SimulatedExchanges(NAMES, seed=2, rate_hz=20) as sim:
        for name, exchange in sim.exchanges().items():
            monkeypatch.setitem(exchanges.EXCHANGES, name, exchange)
            sim[name].admit_all()
        for source in of("library"):
            run = Run(source)
            with monkeypatch.context() as patch:
                patch.setattr(asyncio, "run", run.start)
                run.load()
            await run.ended()
            assert re.search(r"\d", run.lines[-1]), source


def test_the_blocks_of_others_are_programs():
    assert {kind for _, kind, _ in BLOCKS} == {
        "onebook", "library", "quantcite", "ccxt", "cryptofeed",
    }  # fmt: skip
    for text in of("ccxt") + of("cryptofeed"):
        ast.parse(text)


def test_the_settings_that_it_names_exist():
    named = set(re.findall(r"`gateway\.(\w+)`", GUIDE))
    assert named
    assert named <= set(GatewaySettings.model_fields)
