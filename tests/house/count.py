"""Counts what makes a source tree hard to carry on: `python tests/house/count.py [src/onebook]`.

- lines: of Python, and of what is compiled (`.pyx`, `.pxd`, `.pxi`, `.h`);
- files over 450 lines;
- class names used twice, connectors and dialects among each other exempt, and the pure-Python
  reference with the names of the compiled classes;
- callback slots: attributes that an object annotates as callables, or that are named `on_...`,
  and that the code of another object assigns;
- import circles: groups of modules that import each other, also within functions or for types;
- duplicated pairs: pairs of files that share 8 or more lines of code in a row, without docstrings,
  comments, imports and lines without a letter.
"""

import ast
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path

LINES_MAX = 450
SHARED_LINES = 8
COMPILED = (".pyx", ".pxd", ".pxi", ".h")
PACKAGE = "onebook"

Trees = Mapping[str, ast.Module]  # by path below the package


def python_files(root: Path) -> dict[str, str]:
    """The text of every Python file by its path."""
    return {each.relative_to(root).as_posix(): each.read_text() for each in root.rglob("*.py")}


def compiled_files(root: Path) -> dict[str, str]:
    found = (each for each in root.rglob("*") if each.suffix in COMPILED)
    return {each.relative_to(root).as_posix(): each.read_text() for each in found}


# Class names


def repeated_classes(trees: Trees) -> set[str]:
    """Names of classes that stand in several modules."""
    where = defaultdict(set)
    for path, tree in trees.items():
        if not path.startswith("core/"):
            for each in ast.walk(tree):
                if isinstance(each, ast.ClassDef):
                    where[each.name].add(path)
    return {
        name
        for name, paths in where.items()
        if len(paths) > 1 and not all(of_one_exchange(each, trees) for each in paths)
    }


def of_one_exchange(path: str, trees: Trees) -> bool:
    """Whether a module is a connector or a dialect: both folders have one of its name."""
    folder, _, file = path.partition("/")
    if folder not in ("exchanges", "simulator") or "/" in file:
        return False
    names = [file, *(f"{file[:at]}.py" for at, letter in enumerate(file) if letter == "_")]
    both = any({f"exchanges/{each}", f"simulator/{each}"} <= trees.keys() for each in names)
    return both or file == "through_ccxt.py"


# Callback slots


def assigned_slots(trees: Trees) -> set[str]:
    """Callback slots that code of other objects assigns."""
    slots = {name for tree in trees.values() for name in _declared(tree)}
    return {
        target.attr
        for tree in trees.values()
        for target in _assigned(tree)
        if not _is_self(target.value) and (target.attr in slots or target.attr.startswith("on_"))
    }


def _declared(tree: ast.Module) -> Iterator[str]:
    """Attributes that an object gives itself, annotated as callables."""
    for each in ast.walk(tree):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Attribute):
            kinds = ast.unparse(each.annotation).split(" | ")
            if any(kind.startswith("Callable") for kind in kinds):
                yield each.target.attr


def _assigned(tree: ast.Module) -> Iterator[ast.Attribute]:
    for each in ast.walk(tree):
        targets = each.targets if isinstance(each, ast.Assign) else ()
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from (part for part in parts if isinstance(part, ast.Attribute))


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


# Import circles


def import_circles(trees: Trees) -> list[list[str]]:
    """Groups of modules each of which imports, by way of others, every other."""
    modules = {_module(path): tree for path, tree in trees.items()}
    graph = {name: _imports(name, tree, modules.keys()) for name, tree in modules.items()}
    reached = {name: _reachable(graph, name) for name in graph}
    found = {
        frozenset(other for other in reached[name] if name in reached[other]) for name in graph
    }
    return sorted(sorted(each) for each in found if len(each) > 1)


def _module(path: str) -> str:
    return ".".join((PACKAGE, *Path(path).with_suffix("").parts)).removesuffix(".__init__")


def _imports(name: str, tree: ast.Module, modules: Iterable[str]) -> set[str]:
    known, found = set(modules), set[str]()
    for each in ast.walk(tree):
        if isinstance(each, ast.Import):
            found |= {alias.name for alias in each.names}
        elif isinstance(each, ast.ImportFrom) and each.module:
            inner = {f"{each.module}.{alias.name}" for alias in each.names}
            found |= inner & known if inner & known else {each.module}
    return (found & known) - {name}


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found, ahead = set[str](), [start]
    while ahead:
        for each in graph[ahead.pop()] - found:
            found.add(each)
            ahead.append(each)
    return found


# Duplicated pairs


def duplicated_pairs(texts: Mapping[str, str]) -> set[tuple[str, str]]:
    """Pairs of files that share `SHARED_LINES` lines of code in a row."""
    where = defaultdict(set)
    for path, text in texts.items():
        code = code_lines(text)
        for at in range(len(code) - SHARED_LINES + 1):
            where[tuple(code[at : at + SHARED_LINES])].add(path)
    return {pair for paths in where.values() for pair in combinations(sorted(paths), 2)}


def code_lines(text: str) -> list[str]:
    """Lines of code without what files may share by nature."""
    left_out = set[int]()
    for node in ast.walk(ast.parse(text)):
        texts = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if texts or isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = ((at, line.strip()) for at, line in enumerate(text.splitlines(), start=1))
    return [
        line
        for at, line in lines
        if at not in left_out and not line.startswith("#") and any(map(str.isalpha, line))
    ]


def counts(root: Path) -> dict[str, object]:
    """All figures of one tree, with the names behind those that should be 0."""
    texts, compiled = python_files(root), compiled_files(root)
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = {path: len(text.splitlines()) for path, text in (texts | compiled).items()}
    return {
        "python lines": sum(lines[path] for path in texts),
        "compiled lines": sum(lines[path] for path in compiled),
        "files over 450 lines": sorted(path for path, each in lines.items() if each > LINES_MAX),
        "class names used twice": sorted(repeated_classes(trees)),
        "callback slots assigned from outside": sorted(assigned_slots(trees)),
        "import circles": import_circles(trees),
        "duplicated pairs": sorted(duplicated_pairs(texts)),
    }


def main() -> None:
    """Print the figures; `-v` adds the names behind them."""
    words = [each for each in sys.argv[1:] if each != "-v"]
    root = Path(words[0]) if words else Path(__file__).parents[2] / "src" / PACKAGE
    for name, each in counts(root).items():
        figure = len(each) if isinstance(each, list) else each
        print(f"{name}: {figure}")
        if "-v" in sys.argv and isinstance(each, list):
            print("".join(f"  {json.dumps(one)}\n" for one in each), end="")


if __name__ == "__main__":
    main()
