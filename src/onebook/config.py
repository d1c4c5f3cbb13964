"""Every setting: its default, its unit and what it is for; the only reader of the environment.

Order, later wins: defaults < `onebook.toml` < `ONEBOOK_*` < flags. A name that is not here
refuses to start. `onebook config doc` prints this page as a table.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from onebook.errors import ConfigError
from onebook.model import GIB_BYTES, Tier

ENV_PREFIX = "ONEBOOK_"
ENV_DELIMITER = "__"
FILE_NAME = "onebook.toml"
# Variables with our prefix that are no settings of a node: a client's key, the tests' samples,
# the build with sanitizers.
OTHER_VARIABLES = frozenset(("ONEBOOK_KEY", "ONEBOOK_SAMPLES", "ONEBOOK_SANITIZE"))


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


class TierLimits(Section):
    """What one billing tier may do."""

    requests_per_minute: int = Field(ge=1)
    """REST requests and WebSocket messages of a key together."""
    connections_max: int = Field(ge=1)
    """WebSocket connections of a key."""


class TierSettings(Section):
    """The billing tiers."""

    basic: TierLimits = TierLimits(requests_per_minute=600, connections_max=5)
    premium: TierLimits = TierLimits(requests_per_minute=1_200, connections_max=20)
    developer: TierLimits = TierLimits(requests_per_minute=1_000, connections_max=15)
    enterprise: TierLimits = TierLimits(requests_per_minute=10_000, connections_max=100)

    def of(self, tier: Tier) -> TierLimits:
        """The limits of one tier."""
        limits: TierLimits = getattr(self, tier.value)
        return limits


def _data_dir() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "onebook"


class StoreSettings(Section):
    """Where accounts, keys, sessions and usage live."""

    url: str = Field(default_factory=lambda: f"sqlite+aiosqlite:///{_data_dir() / 'onebook.db'}")
    """SQLAlchemy address: sqlite+aiosqlite:///PATH or postgresql+asyncpg://USER@HOST/NAME."""
    pepper_file: Path = Field(default_factory=lambda: _data_dir() / "pepper")
    """Secret under which keys and tokens are digested; made with mode 0600 at the first start."""


class ExchangeSettings(Section):
    """What differs from an exchange's own facts; empty keeps them."""

    ws_url: str = ""
    """Where its feeds connect."""
    rest_url: str = ""
    """Base of its REST paths."""


class FeedSettings(Section):
    """Limits and waits of all feeds."""

    exchanges: tuple[str, ...] = ()
    """Names of the exchanges to use; empty means all that are known."""
    overrides: Mapping[str, ExchangeSettings] = {}
    """Other addresses by exchange name: a regional host, or the simulator."""
    linger_s: float = Field(300.0, ge=0)
    """How long a book nobody wants any more is kept."""
    connect_timeout_s: float = Field(10.0, ge=0)
    """TCP, TLS and the WebSocket handshake together."""
    reconnect_base_s: float = Field(1.0, ge=0)
    """Full jitter: the first wait is between 0 and this."""
    reconnect_max_s: float = Field(60.0, ge=0)
    """No wait is longer, unless the exchange asks for it."""
    maintenance_s: float = Field(30.0, ge=0)
    """The least wait after 503, 429 or 418 without Retry-After."""
    stable_s: float = Field(60.0, ge=0)
    """A connection or book of this age starts its count of tries again."""
    frame_bytes_max: int = Field(4 << 20, ge=1)
    """A longer message ends the connection."""
    send_queue_max: int = Field(4_096, ge=1)
    """Frames that may wait for the exchange's pace."""
    fetches_max: int = Field(4, ge=1)
    """REST bodies one feed asks for at a time."""
    fetch_total_s: float = Field(120.0, ge=0)
    """One body with its waits and retries."""
    resync_base_s: float = Field(1.0, ge=0)
    """Full jitter between resyncs of one instrument; the first is at once."""
    resync_max_s: float = Field(30.0, ge=0)
    """The longest such wait."""
    resync_tries_max: int = Field(5, ge=0)
    """Resyncs of one instrument before the whole connection is in doubt."""
    refetches_max: int = Field(5, ge=1)
    """Snapshots in a row that did not fit before the same."""
    checksums_max: int = Field(3, ge=0)
    """Wrong checksums of one instrument in a minute before a reconnect."""
    faults_max: int = Field(3, ge=0)
    """Frames that nobody understands in a minute before a reconnect."""
    retry_offline_s: float = Field(300.0, ge=0)
    """An instrument the exchange refused is asked for again after so long."""
    renew_before_s: float = Field(60.0, ge=0)
    """A connection is renewed so long before the exchange would end it."""
    reload_s: float = Field(3_600.0, ge=0)
    """How often the lists of instruments are read."""
    reload_retry_s: float = Field(60.0, ge=0)
    """The same for an exchange whose list could not be read."""


class AccountsSettings(Section):
    """Keys, sessions, limits and the meter."""

    allowance_bytes: int = Field(50 * GIB_BYTES, ge=0)
    """What a key may have delivered in a billing month, in bytes."""
    failures_per_minute: int = Field(10, ge=1)
    """Failed authentications of one address before it must wait."""
    unknown_keys_per_minute: int = Field(60, ge=1)
    """Usage reports of unknown keys that one address may ask for."""
    sessions_per_key_max: int = Field(100, ge=1)
    """Live sessions of one key; the oldest goes."""
    flush_interval_s: float = Field(0.5, gt=0)
    """How often usage is written; a crash loses this and the time a write takes."""
    poll_interval_s: float = Field(1.0, gt=0)
    """How often the database is asked for changed keys."""
    tiers: TierSettings = TierSettings()
    """What each billing tier may do."""


class GatewaySettings(Section):
    """The limits of WebSocket connections."""

    path: str = "/api/v1/ws"
    """Where clients connect."""
    connections_max: int = Field(10_000, ge=1)
    """Connections of this node; more get HTTP 503."""
    connects_per_minute: int = Field(60, ge=0)
    """Attempts from one address; more get HTTP 429; 0 does not count."""
    origins: tuple[str, ...] = ()
    """Values of `Origin` that browsers may come from; empty allows all."""
    forwarded_from: tuple[str, ...] = ("127.0.0.1",)
    """Proxies, addresses or networks, whose X-Forwarded-For is believed."""
    query_key_allowed: bool = True
    """Whether `?api_key=` is accepted, the older pattern."""
    compression_allowed: bool = True
    """Whether permessage-deflate is offered."""
    direct_send_allowed: bool = True
    """Whether updates may go straight to sockets without TLS, past the event loop's buffers."""
    io_uring_allowed: bool = True
    """Whether one system call may send such updates to many clients, where Linux allows it."""
    authentication_timeout_s: float = Field(10.0, ge=0)
    """A connection must have a key after so long."""
    verify_timeout_s: float = Field(5.0, ge=0)
    """The store must have said whether a key is good after so long."""
    message_bytes_max: int = Field(65_536, ge=1)
    """The longest message a client may send."""
    subscriptions_max: int = Field(128, ge=1)
    """Subscriptions of one connection."""
    looks_max: int = Field(8, ge=0)
    """Unanswered `get_aggregated_orderbook` of one connection."""
    flood_per_s: float = Field(20.0, ge=0)
    """Refused or control messages of one connection, sustained."""
    flood_burst: int = Field(40, ge=0)
    """How many of these at once."""
    write_buffer_bytes_max: int = Field(65_536, ge=0)
    """More that is not read marks a client as behind."""
    unsent_bytes_max: int = Field(131_072, ge=0)
    """What the kernel may hold unsent for one client."""
    slow_timeout_s: float = Field(10.0, ge=0)
    """A client that reads nothing for so long is closed."""
    ping_interval_s: float = Field(20.0, ge=0)
    """How often we ping; a ping unanswered until the next ends the connection."""
    close_timeout_s: float = Field(5.0, ge=0)
    """The peer must have answered a close after so long."""
    drain_s: float = Field(30.0, ge=0)
    """Seconds over which clients are sent away."""


class ApiSettings(Section):
    """How the REST API presents itself."""

    public_url: str = ""
    """The address clients use, such as https://books.example; empty: taken from the request."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call us from a browser; empty: none."""
    body_bytes_max: int = Field(65_536, ge=1_024)
    """The largest request body."""


class TransactionSettings(Section):
    """The transaction interface and its exchanges."""

    bybit_mainnet_url: str = "https://api.bybit.com"
    """Address of Bybit's live exchange."""
    bybit_testnet_url: str = "https://api-testnet.bybit.com"
    """Address of Bybit's testnet."""
    master_key_file: Path = Field(default_factory=lambda: _data_dir() / "master_key")
    """Key that wraps exchange credentials; made with mode 0600 when first needed."""
    master_key: SecretStr = SecretStr("")
    """The same from the environment instead of a file: base64, the newest first, then a blank."""
    deadline_s: float = Field(60.0, gt=0)
    """A JSON answer ends here, partial, with a cursor to go on."""
    stream_deadline_s: float = Field(3_600.0, gt=0)
    """A streamed answer ends here."""
    runs_max: int = Field(16, ge=1)
    """Answers being made at once."""


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
    accounts: AccountsSettings = AccountsSettings()
    feeds: FeedSettings = FeedSettings()
    gateway: GatewaySettings = GatewaySettings()
    api: ApiSettings = ApiSettings()
    transactions: TransactionSettings = Field(default_factory=TransactionSettings)
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
    tables = set(Settings.model_fields)
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
    near = difflib.get_close_matches(name, [each.name for each in catalogue()], n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"There is no setting {name}.{hint}"


class Setting(NamedTuple):
    """One setting as it is documented."""

    name: str
    default: Any
    meaning: str


def catalogue(section: BaseModel | None = None, prefix: str = "") -> list[Setting]:
    """Every setting as `table.name`, in the order of this file; None where there is no default."""
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
        else:
            found.append(Setting(prefix + name, default, field.description or ""))
    return found
