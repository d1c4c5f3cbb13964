"""Every setting: its default, its unit and what it is for; the only reader of the environment.

Order, later wins: defaults < `onebook.toml` < `ONEBOOK_*` < flags. A name that is not here
refuses to start. `onebook config doc` prints this page as a table.
"""

import difflib
import os
import tomllib
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from annotated_types import Ge, Le
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
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
# Variables with our prefix that are no settings of a node: a client's key, the inputs and the
# extent of the tests, the build with sanitizers.
OTHER_VARIABLES = frozenset(
    (
        "ONEBOOK_AUTOBAHN",
        "ONEBOOK_KEY",
        "ONEBOOK_SAMPLES",
        "ONEBOOK_SANITIZE",
        "ONEBOOK_SEEDS",
        "ONEBOOK_YARDSTICKS",
    )
)
MASTER_KEY_BYTES: Final = 32


class Section(BaseModel):
    """A table of the settings file: frozen, and nothing unknown in it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ServerSettings(Section):
    """Where the service listens and how it stops."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all."""
    port: int = Field(8000, ge=0, le=65_535)
    """TCP port of REST and WebSocket; 0 takes a free one."""
    metrics_host: str = "127.0.0.1"
    """Address of `/metrics` where `metrics_port` is set; plain HTTP."""
    metrics_port: int | None = Field(None, ge=0, le=65_535)
    """TCP port of `/metrics`, which the public port then answers with 404; none: the same port."""
    tls_cert_file: Path | None = None
    """PEM certificate chain; with `tls_key_file` the service speaks HTTPS and WSS itself."""
    tls_key_file: Path | None = None
    """PEM private key of the certificate."""
    http_connections_max: int = Field(1_000, ge=1, le=1_000_000)
    """Sockets that may speak HTTP while all of `gateway.connections_max` are taken."""
    probe_connections_max: int = Field(16, ge=0, le=1_000)
    """Sockets beside these for this machine and trusted proxies: health checks of a full node."""
    header_timeout_s: float = Field(10.0, ge=0.001, le=3_600)
    """A request's line and headers, and the TLS handshake before, must be there after so long."""
    body_timeout_s: float = Field(30.0, ge=0.001, le=3_600)
    """The body must be there so long after the headers."""
    write_timeout_s: float = Field(30.0, ge=0.001, le=3_600)
    """A client that reads nothing of its answer for so long is cut off."""
    keep_alive_timeout_s: int = Field(5, ge=1, le=3_600)
    """An HTTP connection without a request is closed after so long."""
    files_reserve: int = Field(256, ge=64, le=100_000)
    """Open files beside the sockets of clients: feeds, the database, logs."""


class TierLimits(Section):
    """What one billing tier may do."""

    requests_per_minute: int = Field(ge=1, le=1_000_000)
    """REST requests and WebSocket messages of a key together."""
    connections_max: int = Field(ge=1, le=100_000)
    """WebSocket connections of a key."""
    views_max: int = Field(500, ge=1, le=1_000_000)
    """Distinct views (symbol, exchanges and options) that a key subscribes to at one time."""


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
    usage_dir: Path | None = None
    """Folder for usage that the database does not take; none: SQLite's own, or the pepper's."""


CurrencyCode = Annotated[
    str, Field(pattern=r"^[\w.\-:$@+!()*#~]{1,19}$"), AfterValidator(str.upper)
]


class ExchangeSettings(Section):
    """What differs from an exchange's own facts; empty keeps them."""

    ws_url: str = ""
    """Where its feeds connect."""
    rest_url: str = ""
    """Base of its REST paths."""
    currencies: Mapping[CurrencyCode, CurrencyCode] = {}
    """Its codes of currencies and ours, such as {"LUNA" = "LUNC"}; before the table of Onebook."""
    channel: str = ""
    """Another of its book channels, where it has several."""


class CcxtSettings(Section):
    """Exchanges without a connector of ours, through ccxt: the extra `onebook[ccxt]`."""

    exchanges: tuple[str, ...] = ()
    """Their ccxt ids, such as ["bitopro"]; empty: none. Their books are as exact as ccxt."""
    depth: int = Field(100, ge=1, le=5_000)
    """Levels a side that are taken over of each book."""
    interval_s: float = Field(0.1, ge=0.01, le=60)
    """Each book is taken over at most once in so many seconds; the last state always is."""
    books_max: int = Field(20, ge=1, le=1_000)
    """Books of one ccxt client; more make another, with connections of its own."""
    connects_per_minute: int = Field(20, ge=1, le=1_000)
    """Clients that are started for one exchange, evenly apart: reconnects are among them."""
    quiet_max_s: float = Field(300.0, ge=1, le=86_400)
    """A book without a message for so long is stale and asked for again."""
    snapshot_s: float = Field(30.0, ge=1, le=3_600)
    """A book must be there so long after it was asked for."""
    list_s: float = Field(60.0, ge=1, le=3_600)
    """Reading all markets of one exchange, with ccxt's waits and requests."""
    stop_s: float = Field(5.0, ge=0.1, le=60)
    """How long ccxt may take to close what it has open; then it is left."""
    tasks_max: int = Field(2_000, ge=100, le=100_000)
    """Asyncio tasks of one ccxt client; more end it."""


class FeedSettings(Section):
    """Limits and waits of all feeds."""

    exchanges: tuple[str, ...] = ()
    """Names of the exchanges to use; empty means all that are known."""
    overrides: Mapping[str, ExchangeSettings] = {}
    """By exchange name: ws_url and rest_url, other addresses (a regional host, the simulator);
    currencies, its codes of coins and ours, such as {"LUNA" = "LUNC"}, before Onebook's table;
    channel, another of its book channels, such as "classic" of kucoin or
    "advanced" of coinbase."""
    linger_s: float = Field(300.0, ge=0, le=86_400)
    """How long a book nobody wants any more is kept."""
    connect_timeout_s: float = Field(10.0, ge=0.1, le=120)
    """TCP, TLS and the WebSocket handshake together."""
    reconnect_base_s: float = Field(1.0, ge=0.01, le=60)
    """Full jitter: the first wait is between 0 and this."""
    reconnect_max_s: float = Field(60.0, ge=1, le=3_600)
    """No wait is longer, unless the exchange asks for it."""
    maintenance_s: float = Field(30.0, ge=0.1, le=3_600)
    """The least wait after 503, 429 or 418 without Retry-After."""
    stable_s: float = Field(60.0, ge=0, le=86_400)
    """A connection or book of this age starts its count of tries again."""
    frame_bytes_max: int = Field(4 << 20, ge=65_536, le=64 << 20)
    """A longer message ends the connection."""
    send_queue_max: int = Field(4_096, ge=1, le=65_536)
    """Frames that may wait for the exchange's pace."""
    fetches_max: int = Field(4, ge=1, le=64)
    """REST bodies one feed asks for at a time."""
    fetch_total_s: float = Field(120.0, ge=1, le=3_600)
    """One body with its waits and retries."""
    resync_base_s: float = Field(1.0, ge=0.01, le=60)
    """Full jitter between resyncs of one instrument; the first is at once."""
    resync_max_s: float = Field(30.0, ge=1, le=3_600)
    """The longest such wait."""
    resync_tries_max: int = Field(5, ge=0, le=1_000)
    """Resyncs of one instrument before the whole connection is in doubt."""
    refetches_max: int = Field(5, ge=1, le=1_000)
    """Snapshots in a row that did not fit before the same."""
    reseed_levels: int = Field(600, ge=0, le=20_000)
    """A live book is fetched again below so many levels before its horizon; 0: by distance only."""
    reseed_min_s: float = Field(10.0, ge=0.001, le=3_600)
    """No book is fetched again sooner than this while it is live."""
    reseed_total_s: float = Field(15.0, ge=0.001, le=600)
    """One such body: by REST with its waits and retries, on the socket until its answer."""
    reseed_tries_max: int = Field(3, ge=1, le=1_000)
    """Such requests on the socket in a row without an answer before the book is stale."""
    probe_first_s: float = Field(5.0, ge=0.001, le=3_600)
    """A stream that has delivered nothing since it was subscribed is checked by REST after this."""
    probe_quiet_s: float = Field(300.0, ge=0.001, le=86_400)
    """The same for one that has delivered nothing for so long."""
    dead_stream_s: float = Field(10.0, ge=0.001, le=3_600)
    """A stream must have delivered what a newer REST body shows after so long."""
    checksums_max: int = Field(3, ge=0, le=1_000)
    """Wrong checksums of one instrument in a minute before a reconnect."""
    faults_max: int = Field(3, ge=0, le=1_000)
    """Frames that nobody understands in a minute before a reconnect."""
    frames_per_tick_max: int = Field(5_000, ge=100, le=1_000_000)
    """Frames of one connection in a tenth of a second before reading pauses for the rest of it."""
    receive_bytes_max: int = Field(262_144, ge=65_536, le=16 << 20)
    """What the kernel may hold of one connection: so much is read and worked off in one go."""
    noise_per_s: float = Field(100.0, ge=0.001, le=100_000)
    """Messages and control frames without data of one connection a second, sustained."""
    noise_burst: int = Field(2_000, ge=10, le=1_000_000)
    """How many of these at once; more end the connection."""
    slow_down_s: float = Field(10.0, ge=0.001, le=3_600)
    """Pause of requests when an exchange asks for fewer; doubles each time, jittered."""
    slow_down_max_s: float = Field(300.0, ge=0.001, le=3_600)
    """The longest such pause, before jitter of up to as much again."""
    cadence_evidence_s: float = Field(30.0, ge=0.001, le=3_600)
    """A book is judged by its own gaps once they add up to so many seconds."""
    cadence_gaps_min: int = Field(50, ge=2, le=10_000)
    """And once there were so many of them."""
    cadence_factor: float = Field(4.0, ge=1.5, le=100)
    """So many times its longest gap of late is silence."""
    cadence_window_s: float = Field(600.0, ge=0.001, le=86_400)
    """How long a gap is remembered, at least; at most twice as long."""
    silent_min_s: float = Field(5.0, ge=0.001, le=3_600)
    """A connection whose books together always changed is never dead before this much silence."""
    quiet_min_s: float = Field(10.0, ge=0.001, le=3_600)
    """The same for one instrument: it becomes stale and is asked for again."""
    frozen_max_s: float = Field(600.0, ge=0, le=86_400)
    """After a silence the very same book is not accepted for so long, unless it changes."""
    old_s: float = Field(5.0, ge=0.001, le=86_400)
    """Data older than this on arrival, by the exchange's own time, is counted but not refused."""
    list_rows_max: int = Field(50_000, ge=100, le=1_000_000)
    """The longest instrument list of an exchange, in rows; a longer one is refused whole."""
    list_bytes_max: int = Field(24 << 20, ge=1 << 16, le=32 << 20)
    """The same in bytes; the largest known is about half of this."""
    list_pages_max: int = Field(100, ge=1, le=10_000)
    """The same in pages, where an exchange sends its list in several."""
    retry_offline_s: float = Field(300.0, ge=1, le=86_400)
    """An instrument the exchange refused is asked for again after so long."""
    renew_before_s: float = Field(60.0, ge=0, le=3_600)
    """A connection is renewed so long before the exchange would end it."""
    reload_s: float = Field(3_600.0, ge=60, le=86_400)
    """How often the lists of instruments are read."""
    reload_retry_s: float = Field(60.0, ge=1, le=3_600)
    """The same for an exchange whose list could not be read."""
    ccxt: CcxtSettings = CcxtSettings()
    """Exchanges through ccxt."""


class StreamSettings(Section):
    """How the live books of a symbol become one."""

    identity_deviation_max: float = Field(0.10, ge=0.001, le=1_000)
    """A mid price farther than this share from the median of three other exchanges is another
    coin's: the book is not merged."""
    identity_recovery_s: float = Field(10.0, ge=0, le=86_400)
    """It is merged again when it was within half of that for so long."""


class AccountsSettings(Section):
    """Keys, sessions, limits and the meter."""

    allowance_bytes: int = Field(50 * GIB_BYTES, ge=1, le=1 << 60)
    """What a key may have delivered in a billing month, in bytes."""
    failures_per_minute: int = Field(10, ge=1, le=1_000_000)
    """Failed authentications of one address before it must wait."""
    unknown_keys_per_minute: int = Field(60, ge=1, le=1_000_000)
    """Usage reports of unknown keys that one address may ask for."""
    sessions_per_key_max: int = Field(100, ge=1, le=10_000)
    """Live sessions of one key; the oldest goes."""
    flush_interval_s: float = Field(0.5, ge=0.01, le=0.5)
    """How often usage is written; a crash loses this and the time of one write, at most 1 s."""
    flush_age_max_s: float = Field(5.0, ge=3, le=600)
    """Not ready when the database has taken neither usage nor a probe for so long."""
    final_flush_timeout_s: float = Field(10.0, ge=0.1, le=60)
    """How long a stop tries to write usage; what is left then goes into the usage file."""
    poll_interval_s: float = Field(1.0, ge=0.01, le=2)
    """How often the database is asked for changed keys."""
    tiers: TierSettings = TierSettings()
    """What each billing tier may do."""


class GatewaySettings(Section):
    """The limits of WebSocket connections."""

    path: str = "/api/v1/ws"
    """Where clients connect."""
    connections_max: int = Field(10_000, ge=1, le=1_000_000)
    """Connections of this node; more get HTTP 503."""
    connects_per_minute: int = Field(60, ge=0, le=1_000_000)
    """Attempts from one address; more get HTTP 429; 0 does not count."""
    sockets_per_address_max: int = Field(256, ge=0, le=1_000_000)
    """Open sockets of one address, HTTP and WebSocket; 0 does not count."""
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
    authentication_timeout_s: float = Field(10.0, ge=0.1, le=300)
    """A connection must have a key after so long."""
    verify_timeout_s: float = Field(5.0, ge=0.1, le=60)
    """The store must have said whether a key is good after so long."""
    message_bytes_max: int = Field(65_536, ge=1_024, le=64 << 20)
    """The longest message a client may send."""
    keyless_message_bytes_max: int = Field(4_096, ge=512, le=64 << 20)
    """The longest message before authentication; a key needs less than 200 bytes."""
    subscriptions_max: int = Field(128, ge=1, le=10_000)
    """Subscriptions of one connection."""
    looks_max: int = Field(8, ge=1, le=1_000)
    """Unanswered `get_aggregated_orderbook` of one connection."""
    turn_frames_max: int = Field(16, ge=1, le=10_000)
    """Frames of one connection that are acted on in one turn of the event loop."""
    turn_bytes_max: int = Field(65_536, ge=1_024, le=1 << 24)
    """Bytes of the same."""
    turn_s: float = Field(0.001, ge=0.001, le=1)
    """How long frames and HTTP requests of all connections are acted on in one turn."""
    subscription_changes_per_s: float = Field(50.0, ge=0.001, le=1_000_000)
    """Subscriptions that one connection may begin or end, sustained; then it is read later."""
    subscription_changes_burst: int = Field(256, ge=1, le=1_000_000)
    """How many of these at once."""
    flood_per_s: float = Field(20.0, ge=0.1, le=1_000_000)
    """Refused messages, control frames and fragments of one connection, sustained."""
    flood_burst: int = Field(40, ge=1, le=1_000_000)
    """How many of these at once."""
    offence_pause_s: float = Field(1.0, ge=0, le=60)
    """An address whose socket was closed for a violation of the protocol or a flood before
    authentication gets one handshake in so long, doubled by each further one; 0: no pause."""
    offence_pause_max_s: float = Field(8.0, ge=0, le=600)
    """The longest such pause."""
    write_buffer_bytes_max: int = Field(65_536, ge=1_024, le=16 << 20)
    """More that is not read marks a client as behind."""
    unsent_bytes_max: int = Field(131_072, ge=1_024, le=1 << 30)
    """What the kernel may hold unsent for one client."""
    slow_timeout_s: float = Field(10.0, ge=1, le=3_600)
    """A client that reads nothing for so long is closed."""
    ping_interval_s: float = Field(20.0, ge=1, le=3_600)
    """How often we ping; a ping unanswered until the next ends the connection."""
    liveness_wait_s: float = Field(3.0, ge=0.001, le=5)
    """A connection that has not answered a ping for so long gives way to a new one of its key."""
    close_timeout_s: float = Field(5.0, ge=0, le=60)
    """The peer must have answered a close after so long."""
    drain_s: float = Field(30.0, ge=0, le=3_600)
    """Seconds over which clients are sent away."""

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


class ApiSettings(Section):
    """How the REST API presents itself."""

    public_url: str = ""
    """The address clients use, such as https://books.example; empty: taken from the request."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call us from a browser; empty: none."""
    body_bytes_max: int = Field(65_536, ge=1_024, le=16 << 20)
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
    deadline_s: float = Field(60.0, ge=0.1, le=3_600)
    """A JSON answer ends here, partial, with a cursor to go on."""
    stream_deadline_s: float = Field(3_600.0, ge=1, le=86_400)
    """A streamed answer ends here."""
    runs_max: int = Field(16, ge=1, le=1_000)
    """Answers being made at once."""
    runs_per_key_max: int = Field(4, ge=1, le=1_000)
    """Answers being made at once for one API key; fewer than `runs_max`, or one key takes all."""
    unread_s: float = Field(30.0, ge=0.001, le=3_600)
    """A streamed answer of which the client reads nothing for so long is ended."""
    reserve_share: float = Field(0.1, ge=0, le=0.5)
    """Share of each limit of the exchange by the minute that one API key leaves to others; 0: a
    key that asks alone may use all of it, and then another waits up to a minute."""

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
    """How nodes reach NATS; not used by a node of the role all."""

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    """Addresses, such as nats://HOST:4222 or tls://HOST:4222; several of one cluster."""
    user: str = ""
    """User name, where NATS wants one."""
    password: SecretStr = SecretStr("")
    """Password of the user."""
    token: SecretStr = SecretStr("")
    """Token, where NATS wants one."""
    credentials_file: Path | None = None
    """File of a NATS account (.creds) with its JWT and seed."""
    tls_ca_file: Path | None = None
    """PEM certificates that NATS' own must be signed by; none: those of the system."""
    tls_cert_file: Path | None = None
    """PEM certificate of this node, where NATS asks for one."""
    tls_key_file: Path | None = None
    """PEM private key of that certificate."""
    connect_timeout_s: float = Field(10.0, ge=0.1, le=300)
    """A node that cannot connect for so long at its start gives up."""
    outbox_bytes_max: int = Field(16 << 20, ge=1 << 20, le=1 << 30)
    """Messages that may wait to be written to NATS; more are dropped and sent again on request."""


class NodeSettings(Section):
    """Several nodes as one service: docs/guides/many-nodes.md."""

    role: Literal["all", "feeds", "gateway"] = "all"
    """feeds: connections to exchanges; gateway: clients; all: both in one process, without NATS."""
    name: str = Field("", max_length=64, pattern=r"^[ -~]*$")
    """What operators call this node; none: its host name and process."""
    cluster: str = Field("onebook", min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    """Nodes of one name work together; the first token of every NATS subject."""
    heartbeat_interval_s: float = Field(0.2, ge=0.02, le=10)
    """How often a node says that it is alive."""
    heartbeat_timeout_s: float = Field(1.0, ge=0.1, le=60)
    """A node without a heartbeat for so long is dead: its books are stale on every gateway."""
    isolated_s: float = Field(2.0, ge=0.1, le=600)
    """A feeds node that NATS does not reach for so long closes its connections to exchanges."""
    handover_max_s: float = Field(10.0, ge=0, le=600)
    """How long a book that moves is kept open for the other node to have it live."""
    linger_s: float = Field(10.0, ge=0, le=86_400)
    """How long a gateway follows a book that no client is subscribed to any more; feeds nodes
    keep it for feeds.linger_s after that."""
    request_timeout_s: float = Field(1.0, ge=0.05, le=60)
    """A request to another node must be answered after so long."""
    snapshot_retry_s: float = Field(0.1, ge=0.01, le=60)
    """How often a snapshot of a book that is not in step is asked for."""
    held_messages_max: int = Field(2_000, ge=1, le=1_000_000)
    """Messages of one book that are held while its snapshot is on the way."""


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
    streams: StreamSettings = StreamSettings()
    gateway: GatewaySettings = GatewaySettings()
    api: ApiSettings = ApiSettings()
    transactions: TransactionSettings = Field(default_factory=TransactionSettings)
    node: NodeSettings = NodeSettings()
    nats: NatsSettings = NatsSettings()
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
        ConfigError: A file that cannot be read, unknown names, values out of range: all of them.
    """
    settings, faults = examine(file, overrides=overrides)
    if faults:
        raise ConfigError("\n".join(faults))
    return settings


def examine(
    file: Path | None = None, *, overrides: Mapping[str, Any] | None = None
) -> tuple[Settings, list[str]]:
    """Read the settings, and say in a sentence each what is wrong with them.

    Returns:
        The settings, with defaults in place of what is at fault, and the faults.

    Raises:
        ConfigError: There is no such file, or it is not TOML.
    """
    if file is not None and not file.is_file():
        raise ConfigError(f"There is no settings file {file}.")
    path = file or Path(FILE_NAME)
    merged: dict[str, Any] = {}

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=path)

        @model_validator(mode="before")
        @classmethod
        def _keep_input(cls, values: dict[str, Any]) -> dict[str, Any]:
            merged.update(values)
            return values

    flags = _without_none(overrides or {})
    faults = _unknown_variables()
    try:
        return FromFile(**flags), faults
    except ValidationError as error:
        for fault in error.errors(include_input=False, include_url=False):
            names = [part for part in fault["loc"] if isinstance(part, str)]
            faults.append(_origin(names, path, flags) + _sentence(".".join(names), fault))
            _remove(merged, names)
        return _sections(merged), faults
    except SettingsError as error:
        raise ConfigError(f"The environment cannot be used: {error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None
    except OSError as error:
        raise ConfigError(f"The settings file {path} cannot be read: {error.strerror}.") from None


def _unknown_variables() -> list[str]:
    """A misspelt table in a variable would be passed over by pydantic-settings; say so instead."""
    tables = set(Settings.model_fields)
    return [
        f"There is no setting for the variable {variable}."
        for variable in sorted(os.environ.keys() - OTHER_VARIABLES)
        if variable.startswith(ENV_PREFIX)
        and variable.removeprefix(ENV_PREFIX).lower().split(ENV_DELIMITER)[0] not in tables
    ]


def _origin(names: list[str], path: Path, flags: Mapping[str, Any]) -> str:
    """Where a value comes from: a flag, a variable or the file, in this order of precedence."""
    value: Any = flags
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    if value is not None:
        return "Command line: "
    parts = [variable_of(".".join(names[: depth + 1])) for depth in range(len(names))]
    for variable in os.environ:
        if variable.upper() in parts:
            return f"{variable}: "
    return f"{path}: " if path.is_file() else ""


def _remove(values: dict[str, Any], names: list[str]) -> None:
    """Take one setting out of nested values."""
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
    """Settings of the sections that are valid, and the defaults of the others."""
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
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
    "missing": "is missing",
}


def _sentence(name: str, fault: Any) -> str:
    """A fault in words; never the value, which may be a secret."""
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, [each.name for each in catalogue()], n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"There is no setting {name}.{hint}"
    words = _WORDS.get(fault["type"])
    if words is None:
        return f"Setting {name}: {fault['msg']}."
    return f"Setting {name} {words.format(**fault.get('ctx', {}))}."


class Setting(NamedTuple):
    """One setting as it is documented; the bounds of a number, None of anything else."""

    name: str
    default: Any
    meaning: str
    least: float | None = None
    most: float | None = None


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + name.upper().replace(".", ENV_DELIMITER)


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
            continue
        least: Any = next((each.ge for each in field.metadata if isinstance(each, Ge)), None)
        most: Any = next((each.le for each in field.metadata if isinstance(each, Le)), None)
        meaning = " ".join((field.description or "").split())
        found.append(Setting(prefix + name, default, meaning, least, most))
    return found
