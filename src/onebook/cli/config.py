"""`onebook config`: see, check and read about the settings."""

from pathlib import Path
from typing import Annotated, Any

import typer

from onebook import config
from onebook.cli.common import reported

config_app = typer.Typer(no_args_is_help=True, help="Show, check and explain the settings.")


@config_app.command("default")
def default() -> None:
    """Print a settings file with every default.

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
        typer.echo(f"# {leaf} =" if value is None else f"{leaf} = {toml(value)}")


@config_app.command("check")
@reported
def check(
    file: Annotated[Path | None, typer.Argument(help="The settings file.")] = None,
) -> None:
    """Check a settings file and the environment; say what is wrong, or that nothing is.

    Example: onebook config check onebook.toml
    """
    config.load(file)
    typer.echo(f"{file or 'The settings'}: no fault found.")


@config_app.command("doc")
def doc() -> None:
    """Explain every setting: its variable, its default, its meaning.

    Example: onebook config doc
    """
    for name, value, meaning in config.catalogue():
        variable = config.ENV_PREFIX + name.upper().replace(".", config.ENV_DELIMITER)
        default = "no default" if value is None else f"default {toml(value)}"
        typer.echo(f"{name}\n  {meaning}\n  {variable}, {default}\n")


def toml(value: Any) -> str:
    """A default in TOML."""
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
