"""`onebook`: entry point of the command line."""

import os
import sys

import typer

from onebook import __version__
from onebook.cli.commands import HELP_NAMES, LazyCommands
from onebook.errors import DISK_FULL

EXIT_OUTPUT = 2

app = typer.Typer(
    name="onebook",
    cls=LazyCommands,
    help="Every exchange in one order book; every account in one ledger.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP_NAMES},
)


@app.callback(invoke_without_command=True)
def version(
    show: bool = typer.Option(False, "--version", help="Print the version."),
) -> None:
    """Every exchange in one order book; every account in one ledger."""
    if show:
        typer.echo(f"onebook {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    try:
        app()
    except OSError as error:
        if error.filename is not None or error.errno not in DISK_FULL:
            raise
        print(f"error: Cannot write the output: {error.strerror}.", file=sys.stderr)
        # Python flushes the remaining buffer at exit, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_OUTPUT)
    except KeyboardInterrupt:
        sys.exit(130)
