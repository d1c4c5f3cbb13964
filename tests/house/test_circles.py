"""No module of these packages imports another in a circle, also not for its types alone."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src/onebook"
PACKAGES = ["gateway"]


def imported(path, package):
    """Names of the package's modules that a file imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            found.add(node.module.removeprefix(f"{package}.").partition(".")[0])
    return found


def circles(graph):
    """Modules left when those that import no other are taken away again and again."""
    left = dict(graph)
    while leaves := [name for name, imports in left.items() if not imports & left.keys()]:
        for name in leaves:
            del left[name]
    return set(left)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_another_in_a_circle(package):
    files = [each for each in (ROOT / package).glob("*.py") if each.stem != "__init__"]
    graph = {each.stem: imported(each, f"onebook.{package}") for each in files}
    assert any(graph.values())
    assert not circles(graph)


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == set("abcd")
    assert not circles({"a": {"b"}, "b": set()})
