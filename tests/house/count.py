"""Counts what makes a source tree hard to maintain: `python tests/house/count.py [src/onebook]`.

- lines: of Python, and of what is compiled (`.pyx`, `.pxd`, `.pxi`, `.h`);
- Python files, and those of fewer than 100 lines;
- Protocols: each wants two implementations or a package border;
- the share of lines that are imports, and files that exactly one other imports: a subject that was
  cut is tied together again by them;
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

SMALL_LINES = 100
SHARED_LINES = 8
COMPILED = (".pyx", ".pxd", ".pxi", ".h")
PACKAGE = "onebook"
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")

Trees = Mapping[str, ast.Module]  # by path below the package


def python_files(root: Path) -> dict[str, str]:
    """The text of every Python file, by path."""
    return {each.relative_to(root).as_posix(): each.read_text() for each in root.rglob("*.py")}


def compiled_files(root: Path) -> dict[str, str]:
    found = (each for each in root.rglob("*") if each.suffix in COMPILED)
    return {each.relative_to(root).as_posix(): each.read_text() for each in found}


# Class names


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Each statement of a module, nested ones included."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for block in BLOCKS:
            inner = getattr(node, block, ())
            waiting += inner
            yield from inner


def repeated_classes(trees: Trees) -> set[str]:
    """Class names that occur in several modules."""
    where = defaultdict(set)
    for path, tree in trees.items():
        if not path.startswith("core/"):
            for each in statements(tree):
                if isinstance(each, ast.ClassDef):
                    where[each.name].add(path)
    return {
        name
        for name, paths in where.items()
        if len(paths) > 1 and not all(of_one_exchange(each, trees) for each in paths)
    }


def of_one_exchange(path: str, trees: Trees) -> bool:
    """Whether a module is a connector or its simulation, which share a name."""
    if path == "exchanges/kit/through_ccxt.py":
        return True
    folder, _, file = path.partition("/")
    if folder not in ("exchanges", "simulator") or "/" in file:
        return False
    names = [file, *(f"{file[:at]}.py" for at, letter in enumerate(file) if letter == "_")]
    both = any({f"exchanges/{each}", f"simulator/{each}"} <= trees.keys() for each in names)
    return both


# Callback slots


def assigned_slots(trees: Trees) -> set[str]:
    """Callback slots assigned by code of other objects."""
    slots = {name for tree in trees.values() for name in _declared(tree)}
    return {
        target.attr
        for tree in trees.values()
        for target in _assigned(tree)
        if not _is_self(target.value) and (target.attr in slots or target.attr.startswith("on_"))
    }


def _declared(tree: ast.Module) -> Iterator[str]:
    """Attributes that an object assigns itself, annotated as callables."""
    for each in statements(tree):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Attribute):
            kinds = ast.unparse(each.annotation).split(" | ")
            if any(kind.startswith("Callable") for kind in kinds):
                yield each.target.attr


def _assigned(tree: ast.Module) -> Iterator[ast.Attribute]:
    for each in statements(tree):
        targets = each.targets if isinstance(each, ast.Assign) else ()
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from (part for part in parts if isinstance(part, ast.Attribute))


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


# Import circles


def import_circles(trees: Trees) -> list[list[str]]:
    """Groups of modules that import each other, directly or indirectly."""
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
    for each in statements(tree):
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
    """Pairs of files that share `SHARED_LINES` consecutive lines of code."""
    where = defaultdict(set)
    for path, text in texts.items():
        code = code_lines(text)
        for at in range(len(code) - SHARED_LINES + 1):
            where[tuple(code[at : at + SHARED_LINES])].add(path)
    return {pair for paths in where.values() for pair in combinations(sorted(paths), 2)}


def code_lines(text: str) -> list[str]:
    """Lines of code, without those that any files may share."""
    left_out = set[int]()
    for node in statements(ast.parse(text)):
        texts = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if texts or isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = ((at, line.strip()) for at, line in enumerate(text.splitlines(), start=1))
    return [
        line
        for at, line in lines
        if at not in left_out and not line.startswith("#") and any(map(str.isalpha, line))
    ]


def protocols(trees: Trees) -> Iterator[str]:
    """Each Protocol, by its file and name."""
    for path, tree in trees.items():
        for each in statements(tree):
            if isinstance(each, ast.ClassDef) and any(is_protocol(base) for base in each.bases):
                yield f"{path}: {each.name}"


def is_protocol(base: ast.expr) -> bool:
    return ast.unparse(base).split("[")[0] in ("Protocol", "typing.Protocol")


def imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    return (each for each in statements(tree) if isinstance(each, ast.Import | ast.ImportFrom))


def import_share(trees: Trees, lines: Mapping[str, int]) -> int:
    """Lines of import statements per thousand."""
    found = sum(
        (each.end_lineno or each.lineno) - each.lineno + 1
        for tree in trees.values()
        for each in imports(tree)
    )
    return round(1000 * found / sum(lines[path] for path in trees))


def imported_once(trees: Trees) -> set[str]:
    """Files that exactly one other file of the package imports; `__init__.py` apart."""
    users = defaultdict[str, set[str]](set)
    for path, tree in trees.items():
        for each in imports(tree):
            module = getattr(each, "module", None) or ""
            names = [f"{module}.{alias.name}" for alias in each.names] if module else []
            for name in [module, *names, *(alias.name for alias in each.names)]:
                file = name.removeprefix(f"{PACKAGE}.").replace(".", "/") + ".py"
                if name.startswith(f"{PACKAGE}.") and file in trees and file != path:
                    users[file].add(path)
    return {file for file, importing in users.items() if len(importing) == 1}


class Source(NamedTuple):
    """A source tree: the text and syntax of its Python files, and the lines of all files."""

    texts: Mapping[str, str]
    trees: Trees
    lines: Mapping[str, int]

    @classmethod
    def read(cls, root: Path) -> "Source":
        """All files below a folder."""
        texts = python_files(root)
        every = texts | compiled_files(root)
        return cls(
            texts,
            {path: ast.parse(text) for path, text in texts.items()},
            {path: len(text.splitlines()) for path, text in every.items()},
        )


# Each figure; of those that should be 0, the names behind it.
FIGURES: dict[str, Callable[[Source], object]] = {
    "python lines": lambda of: sum(of.lines[path] for path in of.texts),
    "compiled lines": lambda of: sum(of.lines[path] for path in of.lines.keys() - of.texts.keys()),
    "python files": lambda of: len(of.texts),
    "files of fewer than 100 lines": lambda of: sum(
        of.lines[path] < SMALL_LINES for path in of.texts
    ),
    "import lines, per mille": lambda of: import_share(of.trees, of.lines),
    "files imported by exactly one other": lambda of: sorted(imported_once(of.trees)),
    "protocols": lambda of: sorted(protocols(of.trees)),
    "class names used twice": lambda of: sorted(repeated_classes(of.trees)),
    "callback slots assigned from outside": lambda of: sorted(assigned_slots(of.trees)),
    "import circles": lambda of: import_circles(of.trees),
    "duplicated pairs": lambda of: sorted(duplicated_pairs(of.texts)),
}


def main() -> None:
    """Print the figures; `-v` adds the names behind them."""
    words = [each for each in sys.argv[1:] if each != "-v"]
    root = Path(words[0]) if words else Path(__file__).parents[2] / "src" / PACKAGE
    source = Source.read(root)
    for name, count in FIGURES.items():
        each = count(source)
        figure = len(each) if isinstance(each, list) else each
        print(f"{name}: {figure}")
        if "-v" in sys.argv and isinstance(each, list):
            print("".join(f"  {json.dumps(one)}\n" for one in each), end="")


if __name__ == "__main__":
    main()
