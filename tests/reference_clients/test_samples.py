"""The reference service's sample clients run with only their URL and key changed."""

import asyncio
import os
import re
import shutil
import sys

import pytest

from client.place import place
from e2e.service import ws_url
from onebook.gateway import GatewayLimits
from reference_clients.samples import JAVASCRIPT, PYTHON
from steady import PATIENCE_S

NODE = shutil.which("node")
# Longer than a busy machine takes from the handshake to the first message of a program.
LIMITS = GatewayLimits(welcome_delay_s=3.0)


async def output(*words, **environment):
    process = await asyncio.create_subprocess_exec(
        *words, env={"PATH": os.environ["PATH"], **environment},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    return out.decode().strip()


async def test_every_sample_runs(tmp_path):
    async with place(
        tmp_path, gateway={"reference_compatible": True}, gateway_limits=LIMITS
    ) as rig:
        given = {"URL": ws_url(rig.node), "REST": f"{rig.url}/api/v1", "KEY": rig.key}
        runs = [(sys.executable, "-W", "ignore", "-c", text) for text, _ in PYTHON.values()]
        expected = [pattern for _, pattern in PYTHON.values()]
        if NODE is not None:
            flags = ("--no-warnings", "--experimental-websocket", "--input-type=module", "-e")
            runs += [(NODE, *flags, text) for text, _ in JAVASCRIPT.values()]
            expected += [pattern for _, pattern in JAVASCRIPT.values()]
        for words, pattern in zip(runs, expected, strict=False):
            found = await output(*words, **given)
            assert re.fullmatch(pattern, found), (words[-1], found)


@pytest.mark.parametrize("name", ["examples/python", "authentication"])
async def test_without_the_setting_the_specification_holds(tmp_path, name):
    async with place(tmp_path) as rig:
        given = {"URL": ws_url(rig.node), "KEY": rig.key}
        with pytest.raises(AssertionError, match=r"authentication failed|user_id"):
            await output(sys.executable, "-W", "ignore", "-c", PYTHON[name][0], **given)
