"""`onebook config`: show, check and explain the settings."""

from pathlib import Path
from typing import Annotated, Any

import typer

from onebook import config
from onebook.app import process
from onebook.cli.common import reported
from onebook.cli.options import ConfigFile
from onebook.ops import preflight

config_app = typer.Typer(no_args_is_help=True, help="Show, check and explain the settings.")


@config_app.command("default")
def default() -> None:
    """Print a settings file with every default.

    Paths in the data folder are commented out, because the folder of the service's account differs.

    Example: onebook config default > onebook.toml
    """
    table = ""
    for setting in config.catalogue():
        head, _, leaf = setting.name.rpartition(".")
        if head != table:
            typer.echo(f"\n[{head}]" if table else f"[{head}]")
            table = head
        typer.echo(f"# {setting.meaning}")
        value = setting.default
        if value is None:
            typer.echo(f"# {leaf} =")
        else:
            comment = "# " if str(config.data_dir()) in str(value) else ""
            typer.echo(f"{comment}{leaf} = {toml(value)}")


@config_app.command("check")
@reported
def check(
    file: Annotated[
        Path | None, typer.Argument(help="Settings file; default: onebook.toml.")
    ] = None,
    named: ConfigFile = None,
) -> None:
    """Check the settings file, the environment and the files they refer to; print all errors.

    Example: onebook config check onebook.toml
    """
    file = file or named
    preflight.load(file)
    typer.echo(f"{file or 'The settings'}: no errors found.")


@config_app.command("doc")
def doc() -> None:
    """Explain every setting: environment variable, default, bounds and meaning.

    Example: onebook config doc
    """
    for name, value, meaning, least, most in config.catalogue():
        default = "no default" if value is None else f"default {toml(value)}"
        bounds = "" if least is None else f", from {least} to {most}"
        live = ", changed by SIGHUP" if process.is_live(name) else ""
        variable = config.variable_of(name)
        typer.echo(f"{name}\n  {meaning}\n  {variable}, {default}{bounds}{live}\n")


def toml(value: Any) -> str:
    """Format a default as TOML."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case list() | tuple():
            return "[" + ", ".join(map(toml, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + "}"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
