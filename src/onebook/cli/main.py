"""`onebook`: every command, from one place."""

import sys

import typer

from onebook import __version__
from onebook.cli.accounts import accounts_app
from onebook.cli.config import config_app
from onebook.cli.credentials import credentials_app
from onebook.cli.db import db_app
from onebook.cli.demo import demo_command
from onebook.cli.exchanges import exchanges_app
from onebook.cli.keys import keys_app
from onebook.cli.nodes import nodes_command
from onebook.cli.record import record_command
from onebook.cli.replay import replay_command
from onebook.cli.serve import serve_command
from onebook.cli.transactions import transactions_app
from onebook.cli.usage import usage
from onebook.cli.watch import watch_command

app = typer.Typer(
    name="onebook",
    help="Every exchange in one order book; every account in one ledger.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve_command)
app.command("demo")(demo_command)
app.command("watch")(watch_command)
app.command("replay")(replay_command)
app.command("record")(record_command)
app.command("nodes")(nodes_command)
app.command("usage")(usage)
app.add_typer(exchanges_app, name="exchanges")
app.add_typer(keys_app, name="keys")
app.add_typer(accounts_app, name="accounts")
app.add_typer(credentials_app, name="credentials")
app.add_typer(transactions_app, name="transactions")
app.add_typer(db_app, name="db")
app.add_typer(config_app, name="config")


@app.callback(invoke_without_command=True)
def version(
    show: bool = typer.Option(False, "--version", help="Print the version."),
) -> None:
    """Every exchange in one order book; every account in one ledger."""
    if show:
        typer.echo(f"onebook {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command that the words on the command line name."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
