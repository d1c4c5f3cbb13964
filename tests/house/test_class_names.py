"""A class name is unique in the package.

Exempt are modules that are one of many of a kind, and whose names stay in their file: connectors
and dialects, which may share names with each other but not with the rest of the package; and the
pure-Python reference implementations, which have the names of the compiled classes.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from onebook.exchanges import NAMES

ROOT = Path(__file__).parents[2] / "src/onebook"
REFERENCES = "core/reference"
COMPILED = "core/_core.pyi"


def of_one_exchange(path: str) -> bool:
    """Whether a module is a connector, another channel of its exchange, or a simulation."""
    if path == "exchanges/kit/through_ccxt.py":
        return True
    package, _, file = path.partition("/")
    name = file.removesuffix(".py")
    if package not in ("exchanges", "simulator") or "/" in name:
        return False
    channels = tuple(f"{each}_" for each in NAMES)
    return name in NAMES or name.startswith(channels)


def classes(text: str) -> set[str]:
    """The names of all classes of a module, nested ones too."""
    return {each.name for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ClassDef)}


def sources() -> Iterator[tuple[str, str]]:
    """Every module of the package by its path, and the description of the compiled core."""
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text()
    yield COMPILED, (ROOT / COMPILED).read_text()


def repeated(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Class names that occur in several modules, with these modules."""
    where = defaultdict(list)
    compiled = classes(modules.get(COMPILED, ""))
    for path, text in modules.items():
        for name in classes(text):
            if not (path.startswith(REFERENCES) and name in compiled):
                where[name].append(path)
    return {
        name: sorted(paths)
        for name, paths in where.items()
        if len(paths) > 1 and not all(map(of_one_exchange, paths))
    }


def test_no_class_name_is_used_twice() -> None:
    modules = dict(sources())
    assert len(modules) > 300
    assert repeated(modules) == {}


def test_connectors_may_share_names_with_each_other_only() -> None:
    same = "class Control: ..."
    connectors = {
        "exchanges/okx.py": same,
        "simulator/okx.py": same,
        "exchanges/kucoin_classic.py": same,
    }
    assert repeated(connectors) == {}
    assert list(repeated(connectors | {"exchanges/kit/contract.py": same})) == ["Control"]
    assert list(repeated(connectors | {"simulator/accounts/bybit/rows.py": same})) == ["Control"]


def test_a_reference_has_the_name_of_what_is_compiled() -> None:
    modules = {
        COMPILED: "class View: ...",
        f"{REFERENCES}/view.py": "class View: ...\nclass A: ...",
    }
    assert repeated(modules) == {}
    assert repeated(modules | {"client/view.py": "class View: ...\nclass A: ..."}) == {
        "View": ["client/view.py", COMPILED],
        "A": ["client/view.py", f"{REFERENCES}/view.py"],
    }
