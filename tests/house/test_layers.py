"""The layers of ARCHITECTURE.md hold, and the files that a newcomer reads say what is there."""

from pathlib import Path

from importlinter.cli import lint_imports

from onebook.exchanges import EXCHANGES
from onebook.simulator.dialects import DIALECTS

ROOT = Path(__file__).parents[2]


def test_imports_point_down(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == 0


def test_every_exchange_has_a_simulator_and_stands_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    assert set(DIALECTS) == set(EXCHANGES)
    assert [each.display for each in EXCHANGES.values() if each.display not in readme] == []


def test_the_layers_of_the_page_are_those_that_are_checked():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    settings = (ROOT / "pyproject.toml").read_text()
    block = page.split("## Layers")[1].split("```")[1]
    layers = [line.split("   ")[0].strip() for line in block.strip().splitlines()]
    assert len(layers) == 9
    for layer in layers:
        # The lowest row but one lists modules that may import each other: a colon in the settings.
        assert f'"{layer}"' in settings or f'"{layer.replace("|", ":")}"' in settings
