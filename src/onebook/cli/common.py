"""Helpers of all commands: consoles, event loop, error exits, tables."""

import functools
import sys
import textwrap
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NoReturn, ParamSpec, TypeVar

import typer
import uvloop
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from onebook.errors import DatabaseUnavailable, OnebookError, file_problem

EXIT_BAD_INPUT = 2
TABLE_GAP = 2

console = Console()
errors = Console(stderr=True, highlight=False)

P = ParamSpec("P")
R = TypeVar("R")


def fail(message: str) -> NoReturn:
    """Print an input error as `print_sentence` does, and exit with status 2."""
    errors.print(f"[red]error:[/] {escape(message)}", soft_wrap=not errors.is_terminal)
    raise typer.Exit(EXIT_BAD_INPUT)


def print_sentence(text: str, *, err: bool = False) -> None:
    """Print text that a terminal wraps between words, indented as it begins; elsewhere on one line.

    Args:
        err: Print it to standard error.
    """
    where = errors if err else console
    if where.is_terminal:
        indent = text[: len(text) - len(text.lstrip())]
        text = textwrap.fill(
            text,
            where.width,
            subsequent_indent=indent,
            break_long_words=False,  # paths and ids stay whole for copying
            break_on_hyphens=False,
        )
    typer.echo(text, err=err)


def reported(command: Callable[P, R]) -> Callable[P, R]:
    """Print our own errors on one line instead of a traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except DatabaseUnavailable as error:
            fail(error.reason)  # for the operator; `message` is for clients
        except OnebookError as error:
            fail(error.message)
        except OSError as error:
            if error.filename is None:
                raise
            fail(file_problem(error))
        except KeyboardInterrupt:
            sys.exit(130)

    return wrapped


def run(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine on uvloop."""
    return uvloop.run(coroutine)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table without cutting or wrapping cells.

    On a terminal narrower than the table, each row is printed as a block of `column value` lines.
    """
    cells = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if console.is_terminal and _width(widths) > console.width:
        _print_blocks(columns, cells[1:])
        return
    for number, row in enumerate(cells):
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        line = (" " * TABLE_GAP).join(padded).rstrip()
        console.print(Text(line, style="" if number else "bold"), soft_wrap=True, highlight=False)


def fitting(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return how many columns from the left fit the terminal; all without a terminal."""
    cells = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    count = len(widths)
    while console.is_terminal and count > 1 and _width(widths[:count]) > console.width:
        count -= 1
    return count


def size(count_bytes: float, *, digits: int = 1) -> str:
    """Format a number of bytes with a suitable unit."""
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if round(count_bytes, 0 if unit == "B" else digits) < 1_024:
            break
        count_bytes, unit = count_bytes / 1_024, larger
    return f"{count_bytes:.{0 if unit == 'B' else digits}f} {unit}"


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + TABLE_GAP * (len(widths) - 1)


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one per line, without cutting or wrapping values."""
    fields = tuple(fields)
    width = max(len(name) for name, _ in fields) + TABLE_GAP
    for name, value in fields:
        line = Text.assemble((name.ljust(width), "bold"), value)
        console.print(line, soft_wrap=True, highlight=False)


def _print_blocks(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    for number, row in enumerate(rows):
        if number:
            console.print()
        print_fields(zip(columns, row, strict=True))
