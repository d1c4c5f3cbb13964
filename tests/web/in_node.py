"""Modules of the page without a document, run in Node."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from steady import PATIENCE_S

PAGE = Path(__file__).parents[2] / "src/onebook/web/page"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


async def run(module: str, names: str, script: str, given: Any = None) -> Any:
    """The result of a script that uses a module's named exports and `given`."""
    assert NODE is not None
    program = f"""
      import {{ {names} }} from "{(PAGE / module).as_uri()}";
      import {{ readFileSync }} from "node:fs";
      const given = JSON.parse(readFileSync(0));
      console.log(JSON.stringify(await (async () => {{ {script} }})()));
    """
    process = await asyncio.create_subprocess_exec(
        NODE, "--no-warnings", "--input-type=module", "-e", program,
        env={"PATH": os.environ["PATH"]},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        out, errors = await process.communicate(json.dumps(given).encode())
    assert process.returncode == 0, errors.decode()
    return json.loads(out)
