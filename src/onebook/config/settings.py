"""Every setting of a node: name, environment variable, default, unit and meaning.

Programs that use the library construct the sections of feeds and streams. Fields use `default=`,
because type checkers do not recognise a positional default as optional.
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

CurrencyCode = Annotated[
    str, Field(pattern=r"^[\w.\-:$@+!()*#~]{1,19}$"), AfterValidator(str.upper)
]

MASTER_KEY_BYTES: Final = 32

ENV_PREFIX: Final = "ONEBOOK_"
ENV_DELIMITER: Final = "__"


class Section(BaseModel):
    """A table of the settings file: immutable, without unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def data_dir() -> Path:
    """Default folder of the database and the secrets."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "onebook"


class ServerSettings(Section):
    """Listening sockets, TLS and HTTP limits."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all interfaces."""
    port: int = Field(8000, ge=0, le=65_535)
    """TCP port of REST and WebSocket; 0: any free port."""
    port_shared: bool = False
    """Whether other processes of the same user may listen on the port too (SO_REUSEPORT); set
    automatically for the gateways of `node.workers`."""
    metrics_host: str = "127.0.0.1"
    """Address of `/metrics` if `metrics_port` is set; plain HTTP."""
    metrics_port: int | None = Field(None, ge=0, le=65_535)
    """Separate TCP port of `/metrics`; the public port then answers 404. Default: the public port,
    restricted to requests from this machine or with `metrics_token`."""
    metrics_token: SecretStr = SecretStr("")
    """Bearer token required of other machines for `/metrics`; empty: no token."""
    tls_cert_file: Path | None = None
    """PEM certificate chain; together with `tls_key_file` it enables HTTPS and WSS."""
    tls_key_file: Path | None = None
    """PEM private key of the certificate."""
    http_connections_max: int = Field(1_000, ge=1, le=1_000_000)
    """Sockets for HTTP, in addition to `gateway.connections_max`."""
    header_timeout_s: float = Field(10.0, ge=0.001, le=3_600)
    """Maximum seconds to receive the TLS handshake, request line and headers."""
    body_timeout_s: float = Field(30.0, ge=0.001, le=3_600)
    """Maximum seconds to receive the request body after the headers."""
    write_timeout_s: float = Field(30.0, ge=0.001, le=3_600)
    """Seconds without write progress before the connection is closed."""


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
    """Whether every HTTP response and every closed connection is logged (logger
    `onebook.access`)."""


class TierLimits(Section):
    """The limits of one billing tier."""

    requests_per_minute: int = Field(ge=1, le=1_000_000)
    """REST requests and WebSocket messages of one key per minute, counted together."""
    connections_max: int = Field(ge=1, le=100_000)
    """Open WebSocket connections of one key."""
    views_max: int = Field(500, ge=1, le=1_000_000)
    """Distinct views (symbol, exchanges and options) that one key is subscribed to at a time."""


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
        """The limits of one tier."""
        limits: TierLimits = getattr(self, tier.value)
        return limits


class StoreSettings(Section):
    """The database of accounts, keys, sessions and usage."""

    url: str = Field(default_factory=lambda: f"sqlite+aiosqlite:///{data_dir() / 'onebook.db'}")
    """SQLAlchemy URL: sqlite+aiosqlite:///PATH or postgresql+asyncpg://USER@HOST/NAME. PostgreSQL
    with TLS: ...?sslmode=verify-full&sslrootcert=FILE."""
    pepper_file: Path = Field(default_factory=lambda: data_dir() / "pepper")
    """File of the secret that keys and tokens are hashed with; created with mode 0600 at the first
    start. All nodes of a service need the same file."""
    usage_dir: Path | None = None
    """Folder for usage records that could not be written to the database. Default: the folder of
    the SQLite database; with PostgreSQL, the folder of `pepper_file`."""


class AccountsSettings(Section):
    """Keys, sessions, limits and metering."""

    allowance_bytes: int = Field(50 * GIB_BYTES, ge=1, le=1 << 60)
    """Bytes that one key may receive per billing month."""
    failures_per_minute: int = Field(10, ge=1, le=1_000_000)
    """Failed authentications per minute and address; further attempts are refused until the minute
    has passed."""
    final_flush_timeout_s: float = Field(10.0, ge=0.1, le=60)
    """Seconds a stopping node tries to write usage to the database; the rest is saved in the usage
    file."""
    tiers: TierSettings = TierSettings()
    """Limits of each billing tier."""


class ExchangeSettings(Section):
    """Deviations from the built-in facts of one exchange; an empty value keeps the fact."""

    ws_url: str = ""
    """WebSocket URL of the exchange's feeds."""
    rest_url: str = ""
    """Base URL of the exchange's REST paths."""
    currencies: Mapping[CurrencyCode, CurrencyCode] = {}
    """Currency codes of the exchange mapped to codes of Onebook, such as {"LUNA" = "LUNC"}; takes
    precedence over the built-in table."""
    channel: str = ""
    """Order book channel to use, if the exchange has several."""
    recorded: bool = False
    """Whether the data is a recording (`onebook replay`), so that its age on arrival is not
    measured."""


class CcxtSettings(Section):
    """Exchanges without a native connector, through ccxt (extra `onebook[ccxt]`)."""

    exchanges: tuple[str, ...] = ()
    """ccxt ids of the exchanges to use, such as ["bitopro"]; empty: none. Their books are only as
    exact as ccxt."""
    depth: int = Field(default=100, ge=1, le=5_000)
    """Levels per side that are taken from each ccxt book."""
    interval_s: float = Field(default=0.1, ge=0.01, le=60)
    """Minimum seconds between two updates of one book; the latest state is always delivered."""
    quiet_max_s: float = Field(default=300.0, ge=1, le=86_400)
    """Seconds without a message before a book is stale and subscribed again."""


class FeedSettings(Section):
    """Limits and timeouts of the connections to exchanges."""

    exchanges: tuple[str, ...] = ()
    """Names of the exchanges to use; empty: all supported ones."""
    overrides: Mapping[str, ExchangeSettings] = {}
    """Deviations from built-in facts, by exchange name. ws_url and rest_url: other addresses (a
    regional host, the simulator). currencies: its currency codes mapped to ours, such as {"LUNA" =
    "LUNC"}. channel: another of its book channels, such as "classic" of kucoin or "advanced" of
    coinbase. recorded: whether its data is a recording, so that its age is not measured."""
    linger_s: float = Field(default=300.0, ge=0, le=86_400)
    """Seconds a book stays open after its last subscriber has left."""
    frame_bytes_max: int = Field(default=4 << 20, ge=65_536, le=64 << 20)
    """Largest message accepted from an exchange; a larger one ends the connection. The channel
    "advanced" of coinbase may send 10 MiB."""
    ccxt: CcxtSettings = CcxtSettings()
    """Exchanges through ccxt."""


class StreamSettings(Section):
    """How the live books of a symbol are merged."""

    identity_deviation_max: float = Field(default=0.10, ge=0.001, le=1_000)
    """Largest deviation of an exchange's mid price from the median of three other exchanges, as a
    fraction. Beyond it the book is taken for another coin's and left out of the merge."""
    identity_recovery_s: float = Field(default=10.0, ge=0, le=86_400)
    """Seconds a book that was left out must stay within half of `identity_deviation_max` before it
    is merged again."""


class GatewaySettings(Section):
    """WebSocket connections of clients."""

    path: str = "/api/v1/ws"
    """URL path of the WebSocket endpoint."""
    connections_max: int = Field(10_000, ge=1, le=1_000_000)
    """WebSocket connections of this node; further ones are answered with HTTP 503."""
    connects_per_minute: int = Field(60, ge=0, le=1_000_000)
    """Connection attempts per minute and address; further ones are answered with HTTP 429. 0: no
    limit."""
    sockets_per_address_max: int = Field(256, ge=0, le=1_000_000)
    """Open sockets per address, HTTP and WebSocket together; 0: no limit."""
    origins: tuple[str, ...] = ()
    """Values of the `Origin` header accepted from browsers; empty: all."""
    forwarded_from: tuple[str, ...] = ("127.0.0.1",)
    """Addresses or networks of trusted proxies, whose X-Forwarded-For is honoured."""
    query_key_allowed: bool = True
    """Whether `?api_key=` in the URL is accepted, for older clients."""
    compression_allowed: bool = True
    """Whether permessage-deflate is offered."""
    direct_send_allowed: bool = True
    """Whether updates on connections without TLS are written to the socket directly, bypassing the
    event loop's buffers."""
    authentication_timeout_s: float = Field(10.0, ge=0.1, le=300)
    """Seconds a client has to authenticate after connecting."""
    message_bytes_max: int = Field(65_536, ge=1_024, le=64 << 20)
    """Largest message accepted from a client."""
    subscriptions_max: int = Field(128, ge=1, le=10_000)
    """Subscriptions per connection."""
    looks_max: int = Field(8, ge=1, le=1_000)
    """Concurrent `get_aggregated_orderbook` requests per connection."""
    subscription_changes_per_s: float = Field(50.0, ge=0.001, le=1_000_000)
    """Sustained rate of subscriptions started or ended, per second and connection; beyond it,
    reading from the connection pauses."""
    subscription_changes_burst: int = Field(256, ge=1, le=1_000_000)
    """Burst above `subscription_changes_per_s`."""
    flood_per_s: float = Field(20.0, ge=0.1, le=1_000_000)
    """Sustained rate of refused messages, control frames and fragments, per second and connection;
    beyond it the connection is closed."""
    flood_burst: int = Field(40, ge=1, le=1_000_000)
    """Burst above `flood_per_s`."""
    offence_pause_s: float = Field(1.0, ge=0, le=60)
    """Seconds between handshakes of an address after one of its connections was closed for a
    protocol violation, or for a flood before authentication. Doubles with each further such close,
    up to 8 s; 0: no pause."""
    write_buffer_bytes_max: int = Field(65_536, ge=1_024, le=16 << 20)
    """Unsent bytes above which a client counts as a slow consumer and gets only the latest book."""
    unsent_bytes_max: int = Field(131_072, ge=1_024, le=1 << 30)
    """Unsent bytes that the kernel holds per client (TCP_NOTSENT_LOWAT)."""
    slow_timeout_s: float = Field(10.0, ge=1, le=3_600)
    """Seconds a slow consumer may read nothing before its connection is closed."""
    ping_interval_s: float = Field(20.0, ge=1, le=3_600)
    """Seconds between pings; a connection that has not answered by the next ping is closed."""
    liveness_wait_s: float = Field(3.0, ge=0.001, le=5)
    """At a key's connection limit, seconds an existing connection has to answer a ping before it is
    closed to make room for a new one."""
    close_timeout_s: float = Field(5.0, ge=0, le=60)
    """Seconds the client has to answer a close frame."""
    drain_s: float = Field(30.0, ge=0, le=3_600)
    """Duration of a graceful shutdown; the clients' reconnects are spread over it."""
    actions_max: int = Field(4, ge=1, le=1_000)
    """Concurrent `action` messages per connection."""
    action_records_max: int = Field(1_000, ge=1, le=10_000)
    """Largest `limit` of `subscribe_transactions`, and the limit of a message without one; many
    clients reject messages over 1 MiB."""
    action_progress_s: float = Field(1.0, ge=0, le=3_600)
    """Minimum seconds between two progress messages of `subscribe_transactions`."""
    reference_compatible: bool = False
    """Whether to imitate the reference service: send `authentication_success`, and timestamps of
    books without Z."""
    reference_welcome_delay_s: float = Field(0.5, ge=0, le=10)
    """With `reference_compatible`: seconds the first welcome waits for an `authenticate`
    message."""

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
    """Addresses of one exchange in place of its own; empty: its own."""

    mainnet_url: str = ""
    """Base URL of the live exchange: of every host that is not in `hosts`."""
    testnet_url: str = ""
    """Base URL of the testnet."""
    demo_url: str = ""
    """Base URL of demo accounts."""
    hosts: Mapping[str, str] = {}
    """Base URLs of single hosts of the live exchange, by name."""


class TransactionSettings(Section):
    """The transaction interface."""

    exchanges: tuple[str, ...] = ()
    """Exchanges whose transactions are offered, such as bybit; empty: every supported exchange."""
    overrides: Mapping[str, AccountUrls] = {}
    """Other addresses, by exchange name: mainnet_url, testnet_url, demo_url and hosts (the
    simulator)."""
    master_key_file: Path = Field(default_factory=lambda: data_dir() / "master_key")
    """File of the key that encrypts exchange credentials; created with mode 0600 when first
    needed."""
    master_key: SecretStr = SecretStr("")
    """The master key itself, instead of `master_key_file`: base64. To rotate it, put the new key
    first and the old ones after it, separated by blanks."""
    deadline_s: float = Field(60.0, ge=0.1, le=3_600)
    """Seconds before a JSON answer ends; it is then partial and contains a cursor to continue
    from."""
    stream_deadline_s: float = Field(3_600.0, ge=1, le=86_400)
    """Seconds before a streamed answer ends."""
    runs_max: int = Field(16, ge=1, le=1_000)
    """Concurrent transaction queries of this node."""
    runs_per_key_max: int = Field(4, ge=1, le=1_000)
    """Concurrent transaction queries of one API key; choose it below `runs_max`, so that one key
    cannot block all others."""
    reserve_share: float = Field(0.1, ge=0, le=0.5)
    """Fraction of each per-minute limit of the exchange that one API key leaves to others. 0: a
    single key may use all of it, and another key then waits up to a minute."""

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
    """Connection to NATS; not used with `node.role = "all"`."""

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
    """PEM file of the certificate authorities that NATS' certificate is verified against. Default:
    those of the system."""
    tls_cert_file: Path | None = None
    """PEM client certificate, if NATS requires one."""
    tls_key_file: Path | None = None
    """PEM private key of the client certificate."""
    connect_timeout_s: float = Field(10.0, ge=0.1, le=300)
    """Seconds a starting node tries to connect to NATS before it exits."""
    embedded_port: int = Field(0, ge=0, le=65_535)
    """Port on 127.0.0.1 of the nats-server that `node.workers` starts; 0: any free port."""


class NodeSettings(Section):
    """Several nodes as one service: docs/guides/many-nodes.md."""

    role: Literal["all", "feeds", "gateway"] = "all"
    """feeds: connects to exchanges; gateway: serves clients; all: both in one process, without
    NATS."""
    workers: int = Field(0, ge=0, le=256)
    """Gateway processes behind one port. They share one feeds process and one nats-server (none is
    started if nats.servers is set). 0: everything in one process."""
    name: str = Field("", max_length=64, pattern=r"^[ -~]*$")
    """Name of this node in logs and status; empty: host name and process id."""
    cluster: str = Field("onebook", min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    """Name shared by all nodes of one service: the first token of every NATS subject."""
    heartbeat_timeout_s: float = Field(1.0, ge=0.1, le=60)
    """Seconds without a heartbeat before a node is considered dead and its books are stale on every
    gateway."""
    isolated_s: float = Field(5.0, ge=0.1, le=600)
    """Seconds without NATS before a gateway disconnects its clients and accepts no new ones, and a
    feeds node closes its connections to exchanges. Choose it longer than a restart of NATS."""


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
