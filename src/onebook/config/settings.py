"""Every setting of a node: name, environment variable, default, unit and meaning.

Fields use `default=`, because users of the library construct some sections and type checkers do not
recognise a positional default as optional.
"""

import os
from base64 import b64decode
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from annotated_types import Ge, Le
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from onebook.model import GIB_BYTES, Tier
from onebook.proxies import Proxies, proxy_setting

CurrencyCode = Annotated[
    str, Field(pattern=r"^[\w.\-:$@+!()*#~]{1,19}$"), AfterValidator(str.upper)
]

MASTER_KEY_BYTES: Final = 32

ENV_PREFIX: Final = "ONEBOOK_"
ENV_DELIMITER: Final = "__"


class Section(BaseModel):
    """Base class of the settings file's tables: immutable, and rejects unknown names."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True
    )


def data_dir() -> Path:
    """Return the default folder of the database and the secrets."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "onebook"


class ServerSettings(Section):
    """Listening sockets, TLS and HTTP limits."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all interfaces."""
    port: int = Field(8000, ge=0, le=65_535)
    """TCP port of REST and WebSocket; 0: any free port."""
    metrics_host: str = "127.0.0.1"
    """Address that serves `/metrics` over plain HTTP, if `metrics_port` is set."""
    metrics_port: int | None = Field(None, ge=0, le=65_535)
    """Separate TCP port for `/metrics`; the public port then returns 404. If unset, `/metrics` is
    served on the public port, to this machine or to requests with `metrics_token`."""
    metrics_token: SecretStr = SecretStr("")
    """Bearer token that other machines must send for `/metrics`. Empty: the public port serves
    `/metrics` to this machine only, the separate port to any machine."""
    tls_cert_file: Path | None = None
    """PEM certificate chain; together with `tls_key_file` it enables HTTPS and WSS."""
    tls_key_file: Path | None = None
    """PEM private key of the certificate."""
    http_connections_max: int = Field(1_000, ge=1, le=1_000_000)
    """Maximum open HTTP connections, in addition to `gateway.connections_max`."""


class ApiSettings(Section):
    """The REST API."""

    public_url: str = ""
    """Public URL of the service, such as https://books.example; empty: derived from each
    request."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose web pages may call the API (CORS); empty: none."""


class LogSettings(Section):
    """Logging."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    format: Literal["auto", "json", "text"] = "auto"
    """json: one object per line; text: human-readable; auto: text on a terminal, otherwise json."""
    access: bool = True
    """Whether every HTTP response and every closed WebSocket connection is logged (logger
    `onebook.access`)."""


class TierLimits(Section):
    """The limits of one billing tier."""

    requests_per_minute: int = Field(ge=1, le=1_000_000)
    """Maximum REST requests and WebSocket messages per key and minute, counted together."""
    connections_max: int = Field(ge=1, le=100_000)
    """Maximum open WebSocket connections per key."""
    views_max: int = Field(500, ge=1, le=1_000_000)
    """Maximum distinct views (symbol, exchanges and options) per key, over all its connections."""
    interval_ms_min: int = Field(0, ge=0, le=60_000)
    """Minimum `interval_ms` of a view; 0 permits immediate updates."""


class TierSettings(Section):
    """The billing tiers."""

    basic: TierLimits = TierLimits(requests_per_minute=600, connections_max=5, views_max=500)
    premium: TierLimits = TierLimits(requests_per_minute=1_200, connections_max=20, views_max=2_000)
    developer: TierLimits = TierLimits(
        requests_per_minute=1_000, connections_max=15, views_max=1_500
    )
    enterprise: TierLimits = TierLimits(
        requests_per_minute=10_000, connections_max=100, views_max=10_000
    )

    @field_validator("*", mode="before")
    @classmethod
    def _keep_other_limits(cls, given: Any, tier: ValidationInfo) -> Any:
        """Keep the tier's defaults for limits that the table does not set."""
        if not isinstance(given, Mapping):
            return given
        assert tier.field_name is not None
        return cls.model_fields[tier.field_name].default.model_dump() | dict(given)

    def of(self, tier: Tier) -> TierLimits:
        """Return the limits of a tier."""
        limits: TierLimits = getattr(self, tier.value)
        return limits


class StoreSettings(Section):
    """The database of accounts, keys, sessions and usage."""

    url: str = Field(default_factory=lambda: f"sqlite+aiosqlite:///{data_dir() / 'onebook.db'}")
    """SQLAlchemy URL of the database: sqlite+aiosqlite:///PATH or
    postgresql+asyncpg://USER@HOST/NAME; for PostgreSQL with TLS, append
    ?sslmode=verify-full&sslrootcert=FILE."""
    pepper_file: Path = Field(default_factory=lambda: data_dir() / "pepper")
    """File with the secret for hashing API keys and session tokens; created with mode 0600 at the
    first start. All nodes of a service need the same file."""
    usage_dir: Path | None = None
    """Folder for usage records that could not be written to the database. Default: the folder of
    the SQLite database; with PostgreSQL, the folder of `pepper_file`."""


class AccountsSettings(Section):
    """Keys, sessions, limits and metering."""

    allowance_bytes: int = Field(50 * GIB_BYTES, ge=1, le=1 << 60)
    """Bytes that one key may receive per billing month."""
    final_flush_timeout_s: float = Field(10.0, ge=0.1, le=60)
    """At shutdown, maximum seconds for writing usage to the database; the rest is saved in the
    usage file."""
    tiers: TierSettings = TierSettings()
    """Limits of each billing tier."""


class ExchangeSettings(Section):
    """Overrides of the built-in facts of one exchange; empty values override nothing."""

    ws_url: str = ""
    """WebSocket URL of the exchange's feeds."""
    rest_url: str = ""
    """Base URL of the exchange's REST paths."""
    currencies: Mapping[CurrencyCode, CurrencyCode] = {}
    """Maps the exchange's currency codes to Onebook's, such as {"LUNA" = "LUNC"}; takes precedence
    over the built-in table."""
    channel: str = ""
    """Order book channel to use, if the exchange has several."""
    api_key: SecretStr = SecretStr("")
    """API key for a channel that needs one."""
    recorded: bool = False
    """Whether the exchange is a recording (`onebook replay`); if so, the age of its data is not
    measured."""


class CcxtSettings(Section):
    """Exchanges without a native connector, through ccxt (extra `onebook[ccxt]`)."""

    exchanges: tuple[str, ...] = ()
    """ccxt ids of the exchanges to use, such as ["bitopro"]; empty: none. Their books are only as
    exact as ccxt."""
    depth: int = Field(default=100, ge=1, le=5_000)
    """Levels per side read from each ccxt book."""
    transfers: bool = False
    """Whether to read through ccxt, once an hour, which coins can be deposited and withdrawn, for
    `transferable` of crossings. Also covers exchanges with a native connector, except those that
    publish this only to account owners, such as Binance, Bybit and OKX. ccxt needs about 100 MB of
    memory."""


class FeedSettings(Section):
    """Limits and timeouts of the connections to exchanges."""

    exchanges: tuple[str, ...] = ()
    """Names of the exchanges to use; empty: all supported ones."""
    overrides: Mapping[str, ExchangeSettings] = {}
    """Changes to built-in facts, by exchange name. ws_url, rest_url: other addresses, such as a
    regional host or the simulator. currencies: maps the exchange's currency codes to Onebook's,
    such as {"LUNA" = "LUNC"}. channel: the order book channel, if the exchange has several, such as
    "classic" on kucoin, "advanced" on coinbase or "sbe" on binance. api_key: the key that a channel
    needs, such as an Ed25519 key without permissions for "sbe". recorded: whether the exchange
    is a recording (`onebook replay`); if so, the age of its data is not measured."""
    linger_s: float = Field(default=300.0, ge=0, le=86_400)
    """Seconds a book stays open after its last subscriber has left."""
    ccxt: CcxtSettings = CcxtSettings()
    """Exchanges through ccxt."""
    audits: bool = False
    """Whether live books are compared with REST snapshots of the same number, on exchanges whose
    REST snapshots have the numbers of their stream: one request a minute and exchange, only while
    its REST budget is not in use. A book that differs is logged, invalidated and requested
    again. Not yet confirmed with the exchanges themselves."""
    proxy: SecretStr = SecretStr("")
    """Proxy for receiving books and instrument lists from exchanges, except through ccxt:
    http://USER:PASSWORD@HOST:PORT (HTTP CONNECT, also https) or socks5://USER:PASSWORD@HOST:PORT,
    which also resolves host names. Empty: use HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY
    from the environment. `direct`: no proxy."""

    @field_validator("proxy")
    @classmethod
    def _proxy_address(cls, value: SecretStr) -> SecretStr:
        proxy_setting(value.get_secret_value())
        return value

    @property
    def proxies(self) -> Proxies:
        """Return the proxy settings of connections to exchanges."""
        return Proxies(self.proxy.get_secret_value())


class StreamSettings(Section):
    """Merging of live books."""

    identity_deviation_max: float = Field(default=0.10, ge=0.001, le=1_000)
    """Maximum deviation of an exchange's mid price from the median of at least three others, as a
    fraction. A book that deviates more is treated as belonging to a different coin and left out
    of merged views."""


class HistorySettings(Section):
    """The history of order books in Parquet files (extra `onebook[history]`)."""

    dir: Path | None = None
    """Folder for the history of all open books, from which `as_of` and `start` are answered; unset:
    no history. Gateways read it but do not record: with several nodes or `node.workers`, one
    recorder does, and only `symbols`."""
    symbols: tuple[str, ...] = ()
    """Pairs whose books are kept open on every exchange and recorded, whether clients follow them
    or not, such as BTC/USDT."""
    store: str = ""
    """Object store to which closed hours are copied, such as
    `s3://bucket/prefix?region=eu-central-1`; empty: none."""
    signing_key_file: Path | None = None
    """Ed25519 key (PEM) that signs the manifest of each hour; created if absent. Unset: manifests
    are not signed."""
    keep_days: int = Field(30, ge=1, le=36_500)
    """Days after which recorded hours are deleted."""
    keep_gb: int = Field(100, ge=1, le=1_000_000)
    """Maximum GiB of recorded hours in `dir`; the oldest are deleted first, but none that the store
    does not have yet."""


class GatewaySettings(Section):
    """WebSocket connections of clients."""

    connections_max: int = Field(10_000, ge=1, le=1_000_000)
    """Maximum WebSocket connections of this node; further ones get HTTP 503."""
    connects_per_minute: int = Field(60, ge=0, le=1_000_000)
    """Maximum connection attempts per minute and client address; further ones get HTTP 429. 0: no
    limit."""
    sockets_per_address_max: int = Field(256, ge=0, le=1_000_000)
    """Maximum open sockets per client address, HTTP and WebSocket together; 0: no limit."""
    origins: tuple[str, ...] = ()
    """Values of the `Origin` header accepted from browsers; empty: all."""
    forwarded_from: tuple[str, ...] = ("127.0.0.1",)
    """Addresses or networks of trusted proxies, whose X-Forwarded-For is honoured."""
    query_key_allowed: bool = True
    """Whether `?api_key=` in the URL is accepted, for older clients."""
    compression_allowed: bool = True
    """Whether permessage-deflate is offered."""
    subscriptions_max: int = Field(128, ge=1, le=10_000)
    """Maximum subscriptions per connection."""
    ping_interval_s: float = Field(20.0, ge=1, le=3_600)
    """Seconds between pings; a connection that has not answered by the next ping is closed."""
    drain_s: float = Field(30.0, ge=0, le=3_600)
    """Seconds over which a stopping node closes its client connections, so that the clients do not
    reconnect all at once."""
    reference_compatible: bool = False
    """Whether to imitate the reference service: delay the first `welcome` by up to 0.5 s, send
    `authentication_success`, and omit the Z of book timestamps."""

    @field_validator("forwarded_from")
    @classmethod
    def _networks(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            try:
                ip_network(value, strict=False)
            except ValueError:
                raise ValueError(
                    f"must hold addresses or networks such as 10.0.0.0/8, and {value!r} is neither"
                ) from None
        return values


class AccountUrls(Section):
    """Replacement URLs and rate limits of one exchange; an empty URL keeps the built-in one."""

    mainnet_url: str = ""
    """Base URL of the live exchange, for every host that is not in `hosts`."""
    testnet_url: str = ""
    """Base URL of the testnet."""
    demo_url: str = ""
    """Base URL of demo accounts."""
    hosts: Mapping[str, str] = {}
    """Base URLs of individual hosts of the live exchange, by name."""
    limit_factor: float = Field(1.0, ge=0.1, le=100)
    """Factor of the exchange's rate limits per account, such as 3 for Kraken's tier Pro; limits per
    address stay unchanged."""


class TransactionSettings(Section):
    """The transaction interface."""

    exchanges: tuple[str, ...] = ()
    """Exchanges offered by the transaction interface, such as bybit; empty: all supported ones."""
    overrides: Mapping[str, AccountUrls] = {}
    """Base URLs to use instead of the built-in ones, for example the simulator's, and rate limits;
    by exchange name: mainnet_url, testnet_url, demo_url, hosts, and limit_factor, by which an
    account's rate limits exceed the exchange's lowest ones (3 for Kraken's tier Pro)."""
    master_key_file: Path = Field(default_factory=lambda: data_dir() / "master_key")
    """File with the key that encrypts exchange credentials; created with mode 0600 when first
    needed."""
    master_key: SecretStr = SecretStr("")
    """The master key in base64, in place of `master_key_file`. To rotate it, put the new key first
    and the old ones after it, separated by spaces."""
    deadline_s: float = Field(60.0, ge=0.1, le=3_600)
    """Maximum seconds for a JSON response; a longer query gets a partial response with a cursor to
    continue from."""
    stream_deadline_s: float = Field(3_600.0, ge=1, le=86_400)
    """Maximum seconds for a streamed response."""
    runs_max: int = Field(16, ge=1, le=1_000)
    """Maximum concurrent transaction queries of this node."""
    runs_per_key_max: int = Field(4, ge=1, le=1_000)
    """Maximum concurrent transaction queries per API key; keep it below `runs_max`, so that one key
    cannot block all others."""
    reserve_share: float = Field(0.1, ge=0, le=0.5)
    """Fraction of an exchange's per-minute rate limits that one API key must leave for other keys.
    0: one key can use up the limits and make the others wait up to a minute."""
    collect_every: float = Field(0.0, ge=0, le=7 * 86_400)
    """Seconds between two automatic collections of an account, such as 3600; 0: only
    `onebook transactions collect` collects."""
    collect_encrypted: bool = False
    """Encrypt collected records and exports. The encryption keys are protected in the same way as
    exchange credentials. Data stored earlier is not changed."""
    collected_records_max: int = Field(10_000_000, ge=1, le=1_000_000_000)
    """Maximum collected records per account. In SQLite, each takes 1.2 to 1.5 kB."""
    exports_dir: Path | None = None
    """Directory for export files that exchanges create on request, such as OKX's older bills.
    Default: `exports` beside `master_key_file`."""
    exports_bytes_max: int = Field(2 << 30, ge=1 << 20, le=1 << 42)
    """Maximum bytes of `exports_dir`; when it is full, further exports are refused."""
    exports_days: int = Field(400, ge=1, le=3_650)
    """Days after which an unused export file is deleted. It can be requested again."""

    @property
    def exports_folder(self) -> Path:
        """The directory of exports."""
        return self.exports_dir or self.master_key_file.parent / "exports"

    @field_validator("master_key")
    @classmethod
    def _keys_of_32_bytes(cls, value: SecretStr) -> SecretStr:
        for each in value.get_secret_value().split():
            try:
                size = len(b64decode(each, validate=True))
            except ValueError:
                size = 0
            if size != MASTER_KEY_BYTES:
                raise ValueError(f"must hold keys of {MASTER_KEY_BYTES} bytes in base64")
        return value


class NatsSettings(Section):
    """Connection to NATS; unused with `node.role = "all"`."""

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    """URLs of the NATS servers of one cluster, such as nats://HOST:4222 or tls://HOST:4222."""
    user: str = ""
    """User name, if NATS requires one."""
    password: SecretStr = SecretStr("")
    """Password of the user."""
    token: SecretStr = SecretStr("")
    """Token, if NATS requires one."""
    credentials_file: Path | None = None
    """Credentials file (.creds) with the JWT and seed of a NATS user."""
    tls_ca_file: Path | None = None
    """PEM file of the certificate authorities that may sign the NATS server's certificate. Default:
    the system's."""
    tls_cert_file: Path | None = None
    """PEM client certificate, if NATS requires one."""
    tls_key_file: Path | None = None
    """PEM private key of the client certificate."""
    embedded_port: int = Field(0, ge=0, le=65_535)
    """Port on 127.0.0.1 of the nats-server that `node.workers` starts; 0: any free port."""


class NodeSettings(Section):
    """Several nodes as one service: docs/guides/many-nodes.md."""

    role: Literal["all", "feeds", "gateway", "recorder"] = "all"
    """feeds: connects to exchanges; gateway: serves clients; recorder: records `history.symbols`
    into `history.dir`; all: everything in one process, without NATS."""
    workers: int = Field(0, ge=0, le=256)
    """Number of gateway processes that share one port, one feeds process, one nats-server (not
    started if nats.servers is set), and one recorder if history.dir is set. 0: everything in one
    process."""
    name: str = Field("", max_length=64, pattern=r"^[ -~]*$")
    """Name of this node in logs and status; empty: host name and process id."""
    cluster: str = Field("onebook", min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    """Name shared by all nodes of one service: the first token of every NATS subject."""
    heartbeat_timeout_s: float = Field(1.0, ge=0.1, le=60)
    """Seconds without a heartbeat after which a node is considered dead and its books become stale
    on every gateway."""
    isolated_s: float = Field(5.0, ge=0.1, le=600)
    """Seconds without NATS after which a gateway disconnects its clients and accepts no new ones,
    and a feeds node closes its connections to exchanges. Set this longer than NATS
    takes to restart."""


class Variables(EnvSettingsSource):
    """Reads settings from environment variables: lists and tables are JSON, other values text.

    Invalid JSON is reported as an error of its setting; the other settings are still read.
    """

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Parse a list or table; return the text if it is not JSON."""
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
    history: HistorySettings = HistorySettings()
    gateway: GatewaySettings = GatewaySettings()
    api: ApiSettings = ApiSettings()
    transactions: TransactionSettings = Field(default_factory=TransactionSettings)
    node: NodeSettings = NodeSettings()
    nats: NatsSettings = NatsSettings()
    log: LogSettings = LogSettings()
    _origin: Callable[[str], str] | None = PrivateAttr(default=None)

    def origin(self, name: str) -> str:
        """Return the flag, variable or file that set a value, as the prefix of an error message.

        The prefix ends with a colon and a space; "" if the setting has its default.
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
        """Order the sources: flags, environment, file."""
        return init_settings, Variables(settings_cls), TomlConfigSettingsSource(settings_cls)


class Setting(NamedTuple):
    """One setting as the documentation lists it; bounds are None unless the setting is a number."""

    name: str
    default: Any
    meaning: str
    least: float | None = None
    most: float | None = None


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return ENV_PREFIX + name.upper().replace(".", ENV_DELIMITER)


def catalogue(section: BaseModel | None = None, prefix: str = "") -> list[Setting]:
    """Return all settings as `table.name`, in the order of `Settings`; None: no default.

    Nested tables follow the settings of their table, as TOML requires.
    """
    model = Settings if section is None else type(section)
    found: list[Setting] = []
    tables: list[Setting] = []
    for name, field in model.model_fields.items():
        default = (
            field.get_default(call_default_factory=True)
            if section is None
            else getattr(section, name)
        )
        if isinstance(default, Section):
            tables += catalogue(default, f"{prefix}{name}.")
            continue
        least: Any = next((each.ge for each in field.metadata if isinstance(each, Ge)), None)
        most: Any = next((each.le for each in field.metadata if isinstance(each, Le)), None)
        meaning = " ".join((field.description or "").split())
        found.append(Setting(prefix + name, default, meaning, least, most))
    return found + tables
