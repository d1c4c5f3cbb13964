"""A connector is small: how many lines of code each has, and which may have more."""

import ast
import inspect
import sys
from types import ModuleType

import pytest

from onebook.exchanges import EXCHANGES

LINES_MAX = 100
LINES_HARD_MAX = 160
# Protocols of the hardest kind, and what makes them so.
HARD = {
    "hyperliquid": "pairs that are indices into a list of coins, two speeds",
    "phemex": "integers at scales of pairs and currencies, which two lists state",
    "bitfinex": "signed amounts, ids for names, numbered connections, checksums, maintenance",
    "deribit": "heartbeats that are asked for and answered, maintenance on a channel of its own",
    "cryptocom": "two shapes of a book, its heartbeats by book and by connection",
    "htx": "deltas of a window, its whole books requested on the same socket",
    "kucoin_classic": "an address by POST, a welcome, a REST body, fillers among the levels",
}


def modules() -> dict[str, ModuleType]:
    """The module of each exchange and of each of its book channels."""
    found = {name: sys.modules[f"onebook.exchanges.{name}"] for name in EXCHANGES}
    for exchange in EXCHANGES.values():
        for channel in exchange.channels.values():
            (books,) = channel.connector.args  # type: ignore[attr-defined]
            module = sys.modules[books.data.__module__]
            found[module.__name__.rpartition(".")[2]] = module
    return found


def code_lines(source: str) -> int:
    """Count the lines that are neither blank nor of an import, a docstring or a comment."""
    left_out = set[int]()
    for node in ast.walk(ast.parse(source)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif documented and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            left_out.update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    lines = enumerate(map(str.strip, source.splitlines()), start=1)
    return sum(1 for number, line in lines if line and line[0] != "#" and number not in left_out)


def test_code_is_counted_without_docstrings_imports_blanks_and_comments() -> None:
    source = '''"""Two
lines."""

from a import (
    b,
)

# Why.
X = (
    "text"  # counted
)


def f() -> str:
    """What."""
    return """two
lines"""
'''
    assert code_lines(source) == 6


@pytest.mark.parametrize("name", modules())
def test_a_connector_has_at_most_so_many_lines(name: str) -> None:
    lines = code_lines(inspect.getsource(modules()[name]))
    if name in HARD:
        assert LINES_MAX < lines <= LINES_HARD_MAX, "hard, or no longer so"
    else:
        assert lines <= LINES_MAX


def test_the_hard_ones_are_few_and_exist() -> None:
    assert HARD.keys() <= modules().keys()
    assert len(HARD) <= len(EXCHANGES) / 5
