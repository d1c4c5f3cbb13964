"""The React hook of `examples/react`, and the rules of `useSyncExternalStore`."""

import asyncio
import json
import os
import shutil
from pathlib import Path

from client.place import place
from client.test_js import MODULE, NODE, ROOT, needs_node
from steady import PATIENCE_S

HERE = Path(__file__).parent / "react"


def packages(folder):
    """The hook and its test, with the packages they import."""
    for name, files in {
        "onebook": [ROOT / "clients/js/package.json", MODULE],
        "react": [HERE / "index.js"],
    }.items():
        package = folder / "node_modules" / name
        package.mkdir(parents=True)
        for file in files:
            shutil.copy(file, package)
    (folder / "node_modules/react/package.json").write_text('{"type": "module"}')
    (folder / "package.json").write_text('{"type": "module"}')
    shutil.copy(ROOT / "examples/react/useOrderBook.js", folder)
    shutil.copy(HERE / "use.js", folder)


@needs_node
async def test_components_share_one_connection_and_see_snapshots_that_do_not_change(tmp_path):
    packages(tmp_path)
    async with place(tmp_path / "node") as rig:
        running = await asyncio.create_subprocess_exec(
            NODE, "--no-warnings", "--experimental-websocket", "use.js", cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "ONEBOOK_URL": rig.url, "ONEBOOK_KEY": rig.key},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(PATIENCE_S):
                out, errors = await running.communicate()
        finally:
            if running.returncode is None:
                running.kill()
                await running.wait()
    assert running.returncode == 0, errors.decode()
    assert json.loads(out) == {
        "first": [False, None],
        "levels": [1, 5],
        "shared": True,
        "kept": True,
        "problems": ["invalid_parameters", "invalid_symbol"],
        "live": True,
        "sockets": 1,
        "ended": False,
        "stranger": "invalid_api_key",
    }
