"""Every setting: its default, its unit and what it is for; the only reader of the environment.

Order, later wins: defaults < `onebook.toml` < `ONEBOOK_*` < flags. A name that is not here
refuses to start. `onebook config doc` prints this page as a table.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from onebook.errors import ConfigError
from onebook.model import Tier

ENV_PREFIX = "ONEBOOK_"
ENV_DELIMITER = "__"
FILE_NAME = "onebook.toml"
# Variables with our prefix that are no settings of a node: a client's key, the tests' samples,
# the build with sanitizers.
OTHER_VARIABLES = frozenset(("ONEBOOK_KEY", "ONEBOOK_SAMPLES", "ONEBOOK_SANITIZE"))


class TierLimits(BaseModel):
    """What one billing tier may do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests_per_minute: int
    connections_max: int


TIERS: Mapping[Tier, TierLimits] = {
    Tier.BASIC: TierLimits(requests_per_minute=600, connections_max=5),
    Tier.PREMIUM: TierLimits(requests_per_minute=1_200, connections_max=20),
    Tier.DEVELOPER: TierLimits(requests_per_minute=1_000, connections_max=15),
    Tier.ENTERPRISE: TierLimits(requests_per_minute=10_000, connections_max=100),
}


class Section(BaseModel):
    """A table of the settings file: frozen, and nothing unknown in it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ServerSettings(Section):
    """Where the service listens and how it stops."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all."""
    port: int = Field(8000, ge=0, le=65_535)
    """TCP port of REST and WebSocket; 0 takes a free one."""
    tls_cert_file: Path | None = None
    """PEM certificate chain; with `tls_key_file` the service speaks HTTPS and WSS itself."""
    tls_key_file: Path | None = None
    """PEM private key of the certificate."""
    public_url: str = ""
    """The address clients use, such as https://books.example; empty: taken from the request."""
    drain_s: float = Field(30.0, ge=0)
    """Seconds over which clients are sent away after SIGTERM."""
    forwarded_allow_ips: str = "127.0.0.1"
    """Proxies whose X-Forwarded-For is believed, comma separated."""


def _data_dir() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "onebook"


class StoreSettings(Section):
    """Where accounts, keys, sessions and usage live."""

    url: str = Field(default_factory=lambda: f"sqlite+aiosqlite:///{_data_dir() / 'onebook.db'}")
    """SQLAlchemy address: sqlite+aiosqlite:///PATH or postgresql+asyncpg://USER@HOST/NAME."""
    pepper_file: Path = Field(default_factory=lambda: _data_dir() / "pepper")
    """Secret under which keys and tokens are digested; made with mode 0600 at the first start."""


class LogSettings(Section):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is written."""
    format: Literal["auto", "json", "text"] = "auto"
    """json: one object a line; text: for people; auto: text on a terminal, json elsewhere."""


class Settings(BaseSettings):
    """All settings of one node."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
        extra="forbid",
        frozen=True,
    )

    server: ServerSettings = ServerSettings()
    store: StoreSettings = Field(default_factory=StoreSettings)
    log: LogSettings = LogSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then the environment, then the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load(file: Path | None = None, *, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read the settings from flags, environment and file.

    Args:
        file: The settings file; None takes `onebook.toml` of the working directory if it is there.
        overrides: Flags, nested like the file; None values are left out.

    Raises:
        ConfigError: A file that cannot be read, an unknown name, a value out of range.
    """
    if file is not None and not file.is_file():
        raise ConfigError(f"There is no settings file {file}.")
    path = file or Path(FILE_NAME)

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    _refuse_unknown_variables()
    try:
        return FromFile(**_without_none(overrides or {}))
    except ValidationError as error:
        raise ConfigError(_sentence(error)) from None
    except SettingsError as error:
        raise ConfigError(f"The environment cannot be used: {error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None


def _refuse_unknown_variables() -> None:
    """A misspelt table in a variable would be passed over by pydantic-settings; say so instead."""
    tables = {name.split(".")[0] for name in setting_names()}
    for variable in os.environ.keys() - OTHER_VARIABLES:
        table = variable.removeprefix(ENV_PREFIX).lower().split(ENV_DELIMITER)[0]
        if variable.startswith(ENV_PREFIX) and table not in tables:
            raise ConfigError(f"There is no setting for the variable {variable}.")


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_none(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value is not None
    }


def _sentence(error: ValidationError) -> str:
    """The first fault in words; never the value, which may be a secret."""
    fault = error.errors(include_input=False, include_url=False)[0]
    name = ".".join(str(part) for part in fault["loc"])
    if fault["type"] != "extra_forbidden":
        return f"Setting {name}: {fault['msg'].lower()}."
    near = difflib.get_close_matches(name, setting_names(), n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"There is no setting {name}.{hint}"


def setting_names(model: type[BaseModel] = Settings, prefix: str = "") -> list[str]:
    """Every setting as `table.name`, in the order of this file."""
    names = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            names += setting_names(kind, f"{prefix}{name}.")
        else:
            names.append(f"{prefix}{name}")
    return names
