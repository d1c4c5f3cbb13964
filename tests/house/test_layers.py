"""The layers of ARCHITECTURE.md hold, and the introductory documents name existing files."""

import re
import subprocess
import sys
from pathlib import Path

from onebook.exchanges import EXCHANGES
from onebook.simulator import DIALECTS

ROOT = Path(__file__).parents[2]


def test_imports_point_down():
    """In its own process, because import-linter silences the loggers of its process."""
    program = Path(sys.executable).with_name("lint-imports")
    linted = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout


def test_every_exchange_has_a_simulator_and_those_in_the_readme_exist():
    readme = (ROOT / "README.md").read_text()
    (some,) = re.findall(
        r"^Exchanges: (.+) and more; `onebook exchanges list`", readme, re.MULTILINE
    )
    assert set(DIALECTS) == set(EXCHANGES)
    assert set(some.split(", ")) <= {each.display for each in EXCHANGES.values()}


def test_the_layers_of_the_page_are_those_that_are_checked():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    settings = (ROOT / "pyproject.toml").read_text()
    block = page.split("## Layers")[1].split("```")[1]
    layers = [line.split("   ")[0].strip() for line in block.strip().splitlines()]
    assert len(layers) == 14
    for layer in layers:
        # The lowest row but one lists modules that may import each other: a colon in the settings.
        assert f'"{layer}"' in settings or f'"{layer.replace("|", ":")}"' in settings
