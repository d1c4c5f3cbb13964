"""Options and forms of output that several commands have; needs no package of the server."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="The settings file; onebook.toml if not given.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
