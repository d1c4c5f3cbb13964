"""What every command shares: where it prints, how it runs a coroutine, how it fails."""

import functools
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, ParamSpec, TypeVar

import typer
import uvloop
from rich.console import Console
from rich.markup import escape

from onebook.errors import OnebookError

EXIT_BAD_INPUT = 2

console = Console()
_errors = Console(stderr=True, highlight=False)

P = ParamSpec("P")
R = TypeVar("R")


def fail(message: str) -> NoReturn:
    """Say in one line what is wrong with the input, and exit with status 2."""
    _errors.print(f"[red]error:[/] {escape(message)}", soft_wrap=True)
    raise typer.Exit(EXIT_BAD_INPUT)


def reported(command: Callable[P, R]) -> Callable[P, R]:
    """Turn our own errors into one clear line: a person never sees a traceback for bad input."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except OnebookError as error:
            fail(error.message)
        except KeyboardInterrupt:
            sys.exit(130)

    return wrapped


def run(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run one coroutine on uvloop to its end."""
    return uvloop.run(coroutine)
