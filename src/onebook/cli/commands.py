"""Table of the commands; the module of a command is imported when the command runs.

`onebook --help` prints the summaries of this table; a test compares them with the commands'
docstrings.
"""

import gc
import inspect
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from onebook import __version__
from onebook.cli.common import fail


class CommandPath(NamedTuple):
    """Location of a command: `module:attribute` of a function or `Typer` group."""

    path: str
    summary: str


COMMANDS: Final = {
    "serve": CommandPath("serve:serve_command", "Run the service until it is stopped."),
    "demo": CommandPath(
        "demo:demo_command",
        "Run the service on simulated exchanges, with a ready-to-use key.",
    ),
    "doctor": CommandPath(
        "doctor:doctor_command",
        "Check settings, permissions, clock, database, key files, versions and network access.",
    ),
    "top": CommandPath(
        "top:top_command",
        "Show a running node: load, clients, database and exchanges, those with problems first.",
    ),
    "watch": CommandPath(
        "watch:watch_command",
        "Show the merged book of one pair, live: price, amount, and the exchanges at each level.",
    ),
    "replay": CommandPath(
        "replay:replay_command",
        "Run the service on recorded exchange data.",
    ),
    "record": CommandPath(
        "record:record_command",
        "Record the order book frames of an exchange into a file for `onebook replay`.",
    ),
    "history": CommandPath(
        "history:history_app", "Recorded order books: show, bars, verify, import."
    ),
    "nodes": CommandPath("nodes:nodes_command", "Show the live nodes of this cluster."),
    "usage": CommandPath(
        "usage:usage", "Show the usage of a key in its billing period, and its allowance."
    ),
    "billing": CommandPath(
        "billing:billing_command", "Report the usage of all keys per billing period."
    ),
    "audit": CommandPath(
        "audit:audit_command", "Show the changes made by operators, newest first."
    ),
    "backup": CommandPath(
        "backup:backup_command",
        "Back up database, pepper, master key and settings file into one archive, while nodes run.",
    ),
    "restore": CommandPath(
        "backup:restore_command",
        "Restore a backup to the paths in the settings; existing files are never overwritten.",
    ),
    "exchanges": CommandPath("exchanges:exchanges_app", "Exchanges: list, show, check, quality."),
    "keys": CommandPath(
        "keys:keys_app", "API keys: create, list, change, suspend, resume, expire, rotate."
    ),
    "accounts": CommandPath("accounts:accounts_app", "Users: create, list, suspend, resume."),
    "credentials": CommandPath(
        "credentials:credentials_app",
        "Exchange credentials of the operator: set, check, list, rotate, remove.",
    ),
    "transactions": CommandPath(
        "transactions:transactions_app",
        "Transaction history of exchange accounts: fetch, verify, collect, forget, follow.",
    ),
    "db": CommandPath("db:db_app", "Database: upgrade."),
    "config": CommandPath("config:config_app", "Show, check and explain the settings."),
}
# Packages that only the service needs, installed by `pip install "onebook[server]"`.
SERVER_PACKAGES: Final = frozenset(
    (
        "aiosqlite",
        "alembic",
        "cryptography",
        "fastapi",
        "isal",
        "markdown_it",
        "sqlalchemy",
        "starlette",
        "uvicorn",
    )
)


HELP_NAMES: Final = ["-h", "--help"]


class LazyCommands(TyperGroup):
    """A command group that imports only the command that runs; its own help imports none."""

    def list_commands(self, ctx: Any) -> list[str]:
        """List the commands in the order of the table."""
        return list(COMMANDS)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the group itself."""
        _set_help(self)
        super().format_help(ctx, formatter)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a placeholder with the summary; `resolve_command` returns the real command."""
        place = COMMANDS.get(cmd_name)
        return None if place is None else TyperCommand(cmd_name, help=place.summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command named by the arguments and import it."""
        name, command, rest = super().resolve_command(ctx, args)
        found = loaded(name) if name and command else command
        gc.enable()  # `main` set both for the imports
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return name, found, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; reword pydantic's message about an invalid option value."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _in_words(error)
            raise


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


def loaded(name: str) -> Any:  # click's class, or Typer's copy of it
    """Import a command.

    If the server's packages are missing, the command fails with the pip command to install them.
    """
    module, _, attribute = COMMANDS[name].path.partition(":")
    with require_server(name):
        found: Any = getattr(import_module(f"onebook.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        group: Any = typer.main.get_group(found)
        group.name = name
        for each in (group, *group.commands.values()):
            _set_help(each)
        return group
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(found)
    command = typer.main.get_command(alone)
    _set_help(command)
    return command


@contextmanager
def require_server(name: str, otherwise: str = "") -> Iterator[None]:
    """Fail with the pip command to run if an import of a server package fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in SERVER_PACKAGES:
            raise
        fail(
            f"`onebook {name}` requires the server packages ({error.name} is not installed)."
            f' Install it with: pip install "onebook[server]"{otherwise and f"; or {otherwise}."}'
        )


def _in_words(error: typer.BadParameter) -> str:
    """Describe an invalid value without pydantic's phrases, which Typer would print."""
    from pydantic import ValidationError  # imported late, because --version and --help must be fast

    from onebook.config.sources import in_words

    found = error.__cause__
    if not isinstance(found, ValidationError):
        return error.message
    (fault, *_) = found.errors(include_url=False)
    if fault["type"] == "value_error":  # a sentence of Typer's after "Value error, "
        return str(fault["ctx"]["error"])
    words = in_words(fault)
    return error.message if words is None else f"{fault['input']!r} {words}."


def _set_help(command: Any) -> None:
    """Unwrap the paragraphs of a help text, and hide the value type of flags.

    Typer keeps the line breaks of a docstring, and shows `<bool>` beside a flag that takes no
    value.
    """
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(each.replace("\n", " ") for each in paragraphs)
    for each in command.get_params(typer.Context(command, help_option_names=HELP_NAMES)):
        if getattr(each, "is_flag", False):
            each.metavar = ""
