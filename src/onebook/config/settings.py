"""All settings of a node, their names and environment variables."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, PrivateAttr
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from onebook.config.accounts import AccountsSettings, StoreSettings
from onebook.config.feeds import FeedSettings, StreamSettings
from onebook.config.gateway import GatewaySettings
from onebook.config.nodes import NatsSettings, NodeSettings
from onebook.config.section import Section
from onebook.config.server import ApiSettings, LogSettings, ServerSettings
from onebook.config.transactions import TransactionSettings

ENV_PREFIX: Final = "ONEBOOK_"
ENV_DELIMITER: Final = "__"


class Variables(EnvSettingsSource):
    """Reads settings from environment variables: lists and tables are JSON, other values text.

    Invalid JSON becomes an error of its setting instead of ending the read.
    """

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return a list or table from its text, or the text."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


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
    accounts: AccountsSettings = AccountsSettings()
    feeds: FeedSettings = FeedSettings()
    streams: StreamSettings = StreamSettings()
    gateway: GatewaySettings = GatewaySettings()
    api: ApiSettings = ApiSettings()
    transactions: TransactionSettings = Field(default_factory=TransactionSettings)
    node: NodeSettings = NodeSettings()
    nats: NatsSettings = NatsSettings()
    log: LogSettings = LogSettings()
    _origin: Callable[[str], str] | None = PrivateAttr(default=None)

    def origin(self, name: str) -> str:
        """Return the prefix of a message about a setting: the flag, variable or file that sets it.

        It ends in a colon and a space; "" if the value is the default.
        """
        return "" if self._origin is None else self._origin(name)

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
        return init_settings, Variables(settings_cls), TomlConfigSettingsSource(settings_cls)


class Setting(NamedTuple):
    """One setting for the documentation; the bounds are None unless it is a number."""

    name: str
    default: Any
    meaning: str
    least: float | None = None
    most: float | None = None


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + name.upper().replace(".", ENV_DELIMITER)


def catalogue(section: BaseModel | None = None, prefix: str = "") -> list[Setting]:
    """All settings as `table.name`, in the order of `Settings`; None means no default."""
    model = Settings if section is None else type(section)
    found: list[Setting] = []
    for name, field in model.model_fields.items():
        default = (
            field.get_default(call_default_factory=True)
            if section is None
            else getattr(section, name)
        )
        if isinstance(default, Section):
            found += catalogue(default, f"{prefix}{name}.")
            continue
        least: Any = next((each.ge for each in field.metadata if isinstance(each, Ge)), None)
        most: Any = next((each.le for each in field.metadata if isinstance(each, Le)), None)
        meaning = " ".join((field.description or "").split())
        found.append(Setting(prefix + name, default, meaning, least, most))
    return found
