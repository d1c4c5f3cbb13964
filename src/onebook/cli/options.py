"""Options and output shared by several commands; needs no server package."""

from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from onebook.clock import iso_ms
from onebook.errors import InvalidRequest

FILE_VARIABLE: Final = "ONEBOOK_CONFIG"
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar=FILE_VARIABLE, help="Settings file; default: onebook.toml."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
ServiceUrl = Annotated[
    str,
    typer.Option(
        help="URL of a service to query; without it, this host's exchange credentials are used.",
        show_default=False,
    ),
]
ServiceKey = Annotated[
    str,
    typer.Option(
        envvar="ONEBOOK_KEY",
        help="API key for --url; preferably set in the variable ONEBOOK_KEY.",
        show_default=False,
    ),
]
AT_MS: Final = "_at_ms"


def require_service_key(url: str, key: str) -> None:
    """Check that a key is given with the URL of a service.

    Raises:
        InvalidRequest: The key is missing.
    """
    if url and not key:
        raise InvalidRequest("--url needs an API key; set the variable ONEBOOK_KEY.")


def print_json(value: Any) -> None:
    """Print a value as one JSON document, with the same names as the tables.

    Times, `..._at_ms` in the code, are printed as `..._at` in ISO 8601 (UTC, milliseconds).
    """
    typer.echo(json_text(value))


def json_text(value: Any) -> str:
    """Return the text that `print_json` prints."""
    named = _with_times(msgspec.to_builtins(value))
    return msgspec.json.format(msgspec.json.encode(named), indent=2).decode()


def _with_times(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_times(each) for each in value]
    if not isinstance(value, dict):
        return value
    return dict(_named(name, each) for name, each in value.items())


def _named(name: str, value: Any) -> tuple[str, Any]:
    if not name.endswith(AT_MS):
        return name, _with_times(value)
    return name.removesuffix("_ms"), None if value is None else iso_ms(value)
