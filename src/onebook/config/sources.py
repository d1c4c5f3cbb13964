"""Reads the settings from flags, environment and file; each error is one sentence."""

import difflib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError, model_validator
from pydantic_settings import SettingsConfigDict

from onebook.config.settings import ENV_DELIMITER, ENV_PREFIX, Settings, catalogue, variable_of
from onebook.errors import ConfigError
from onebook.files import read_toml

FILE_NAME = "onebook.toml"
# Variables with our prefix that are not settings of a node: the settings file of commands, the key
# and address of a client, inputs and extent of the tests, the build with sanitizers.
OTHER_VARIABLES = frozenset(
    (
        "ONEBOOK_AUTOBAHN",
        "ONEBOOK_CONFIG",
        "ONEBOOK_KEY",
        "ONEBOOK_SAMPLES",
        "ONEBOOK_SANITIZE",
        "ONEBOOK_SEEDS",
        "ONEBOOK_URL",
        "ONEBOOK_WS_URL",
        "ONEBOOK_YARDSTICKS",
    )
)

_WORDS: Final[Mapping[str, str]] = {
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text in quotes",
    "string_pattern_mismatch": "must match {pattern}",
    "path_type": "must be a path in quotes",
    "tuple_type": "must be a list in square brackets",
    "mapping_type": "must be a table",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
    "missing": "is missing",
}


def load(file: Path | None = None, *, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read the settings from flags, environment and file.

    Args:
        file: The settings file; None means `onebook.toml` in the working directory, if it exists.
        overrides: Flags, nested like the file; None values are ignored.

    Raises:
        ConfigError: All errors: an unreadable file, unknown names, values out of range.
    """
    settings, faults = examine(file, overrides=overrides)
    if faults:
        raise ConfigError("\n".join(faults))
    return settings


def examine(
    file: Path | None = None, *, overrides: Mapping[str, Any] | None = None
) -> tuple[Settings, list[str]]:
    """Read the settings; each error is one sentence.

    Returns:
        The settings, with defaults in place of invalid values, and the errors.
    """
    path = file or Path(FILE_NAME)
    faults = [*_file_faults(path, named=file is not None)]
    readable = None if faults else path
    faults += _unknown_variables()
    merged: dict[str, Any] = {}

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=readable)

        @model_validator(mode="before")
        @classmethod
        def _keep_input(cls, values: dict[str, Any]) -> dict[str, Any]:
            merged.update(values)
            return values

    flags = _without_none(overrides or {})
    try:
        settings: Settings = FromFile(**flags)
    except ValidationError as error:
        for fault in error.errors(include_input=False, include_url=False):
            names = [part for part in fault["loc"] if isinstance(part, str)]
            faults.append(_origin(names, path, flags) + _sentence(".".join(names), fault))
            _remove(merged, names)
        settings = _sections(merged)
    settings._origin = partial(_origin_if_given, given=merged, path=path, flags=flags)
    return settings, faults


def _file_faults(path: Path, *, named: bool) -> Iterator[str]:
    """Report why the file is unreadable; the default file may be absent."""
    if not path.is_file():
        if named:
            yield f"Settings file {path} not found."
        return
    try:
        read_toml(path)
    except ValueError as error:
        yield f"{path} is not TOML: {error}."
    except OSError as error:
        yield f"Cannot read the settings file {path}: {error.strerror}."


def _unknown_variables() -> list[str]:
    """Report variables with an unknown table, which pydantic-settings ignores."""
    tables = set(Settings.model_fields)
    return [
        f"Unknown setting in the variable {variable}."
        for variable in sorted(os.environ.keys() - OTHER_VARIABLES)
        if variable.startswith(ENV_PREFIX)
        and variable.removeprefix(ENV_PREFIX).lower().split(ENV_DELIMITER)[0] not in tables
    ]


def _origin(names: list[str], path: Path, flags: Mapping[str, Any]) -> str:
    """Return the source of a value: flag, variable or file, in this order of precedence."""
    value: Any = flags
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    if value is not None:
        return "Command line: "
    parts = [variable_of(".".join(names[: depth + 1])) for depth in range(len(names))]
    for variable in os.environ:
        if variable.upper() in parts or variable.upper().startswith(parts[-1] + ENV_DELIMITER):
            return f"{variable}: "
    return f"{path}: " if path.is_file() else ""


def _origin_if_given(
    name: str, *, given: Mapping[str, Any], path: Path, flags: Mapping[str, Any]
) -> str:
    """Return the source of a setting or table; "" if it was not given."""
    names = name.split(".")
    value: Any = given
    for each in names:
        value = value.get(each) if isinstance(value, Mapping) else None
    return "" if value is None else _origin(names, path, flags)


def _remove(values: dict[str, Any], names: list[str]) -> None:
    """Remove one setting from nested values."""
    for name in names[:-1]:
        inner = values.get(name)
        if not isinstance(inner, dict):
            break
        values = inner
    else:
        values.pop(names[-1], None)
        return
    values.pop(name, None)


def _sections(values: Mapping[str, Any]) -> Settings:
    """Return settings with the valid sections and defaults for the others."""
    sections = {}
    for name, field in Settings.model_fields.items():
        sections[name] = field.get_default(call_default_factory=True)
        with suppress(ValidationError):
            sections[name] = type(sections[name]).model_validate(values.get(name, {}))
    return Settings.model_construct(**sections)


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_none(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value is not None
    }


def _near(name: str) -> str:
    """Return the known name most similar to an unknown one; "" if none is."""
    table, dot, leaf = name.rpartition(".")
    known = [each.name for each in catalogue() if each.name.startswith(table + dot)]
    beside = {each.removeprefix(table + dot).partition(".")[0] for each in known}
    near = difflib.get_close_matches(leaf, sorted(beside), n=1)
    return table + dot + near[0] if near else ""


def _sentence(name: str, fault: Any) -> str:
    """Format an error as a sentence, without the value, which may be secret."""
    if fault["type"] == "extra_forbidden":
        near = _near(name)
        hint = f" Did you mean {near}?" if near else ""
        return f"Unknown setting {name}.{hint}"
    words = in_words(fault)
    return f"Setting {name}: {fault['msg']}." if words is None else f"Setting {name} {words}."


def in_words(fault: Any) -> str | None:
    """Return the predicate of a sentence about the value; None to use pydantic's text."""
    words = _WORDS.get(fault["type"])
    return None if words is None else words.format(**fault.get("ctx", {}))
