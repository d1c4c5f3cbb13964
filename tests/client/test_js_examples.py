"""Every JavaScript example in the repository runs in Node against a real node."""

import re
import shutil
from pathlib import Path

import pytest

from client.place import place
from client.test_js import MODULE, NODE
from docs.examples import printed
from e2e.service import ws_url
from onebook.web.samples import JAVASCRIPT, PLACEHOLDER_WS_URL

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?:js|javascript|mjs)\b.*?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", ROOT / "clients/js/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PRICE = r"\d+\.\d"


def header():
    """The example in the module's header comment, with `key` replaced."""
    lines = MODULE.read_text().splitlines()
    code = [line[5:] for line in lines[: lines.index("")] if line.startswith("//   ")]
    return "const key = process.env.ONEBOOK_KEY;\n" + "\n".join(code)


def examples():
    """Each example and its location."""
    found = [
        (str(page.relative_to(ROOT)), text)
        for page in PAGES
        for text in FENCE.findall(page.read_text())
    ]
    return [*found, ("onebook.js", header()), ("samples.py", JAVASCRIPT)]


def test_the_examples_are_found():
    places = [place for place, _ in examples()]
    assert {"clients/js/README.md", "docs/guides/coming-from.md", "onebook.js", "samples.py"} <= {
        *places
    }
    assert "import { Onebook }" in header()


@pytest.mark.skipif(NODE is None, reason="node is not installed")
async def test_every_example_prints_a_price(tmp_path):
    package = tmp_path / "node_modules/onebook"
    package.mkdir(parents=True)
    for file in (ROOT / "clients/js/package.json", MODULE):
        shutil.copy(file, package)
    async with place(tmp_path) as rig:
        given = {"PATH": "", "ONEBOOK_URL": rig.url, "ONEBOOK_KEY": rig.key}
        for where, text in examples():
            program = (
                text.replace("http://127.0.0.1:8000", rig.url)
                .replace(PLACEHOLDER_WS_URL, ws_url(rig.node).partition("/api")[0])
                .replace("ob_live_...", rig.key)
            )
            flags = ("--no-warnings", "--experimental-websocket", "--input-type=module", "-e")
            words = (NODE, *flags, program)  # no file: it has a key
            assert await printed(*words, pattern=PRICE, cwd=tmp_path, **given), where
