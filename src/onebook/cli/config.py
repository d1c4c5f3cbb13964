"""`onebook config`: see, check and read about the settings."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from rich.table import Table

from onebook import config
from onebook.cli.common import console, reported

config_app = typer.Typer(no_args_is_help=True, help="Show, check and explain the settings.")


@config_app.command("default")
def default() -> None:
    """Print a settings file with every default.

    Example: onebook config default > onebook.toml
    """
    table = ""
    for name, field in fields():
        head, _, leaf = name.rpartition(".")
        if head != table:
            typer.echo(f"\n[{head}]" if table else f"[{head}]")
            table = head
        typer.echo(f"# {field.description}")
        value = _default(field)
        typer.echo(f"# {leaf} =" if value is None else f"{leaf} = {_toml(value)}")


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
    table = Table("setting", "variable", "default", "meaning", box=None, pad_edge=False)
    for name, field in fields():
        variable = config.ENV_PREFIX + name.upper().replace(".", config.ENV_DELIMITER)
        value = _default(field)
        shown = "" if value is None else _toml(value)
        table.add_row(name, variable, shown, field.description)
    console.print(table)


def fields(
    model: type[BaseModel] = config.Settings, prefix: str = ""
) -> list[tuple[str, FieldInfo]]:
    """Every setting with its description and default."""
    found: list[tuple[str, FieldInfo]] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, config.Section):
            found += fields(kind, f"{prefix}{name}.")
        else:
            found.append((prefix + name, field))
    return found


def _default(field: FieldInfo) -> Any:
    value = field.get_default(call_default_factory=True)
    return None if value is PydanticUndefined else value


def _toml(value: Any) -> str:
    """A default in TOML."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case list() | tuple():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + "}"
        case Enum():
            return _toml(value.value)
        case BaseModel():
            return _toml(value.model_dump())
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
