"""Settings of the connections to exchanges, and of merged streams.

Programs that use the library construct these classes. Type checkers see by `default=`, and not by a
positional default, that a field may be left out.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from onebook.config.section import Section

CurrencyCode = Annotated[
    str, Field(pattern=r"^[\w.\-:$@+!()*#~]{1,19}$"), AfterValidator(str.upper)
]


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
    books_max: int = Field(default=20, ge=1, le=1_000)
    """Books per ccxt client; further books get another client with its own connections."""
    connects_per_minute: int = Field(default=20, ge=1, le=1_000)
    """Maximum ccxt clients started per minute and exchange, reconnects included."""
    quiet_max_s: float = Field(default=300.0, ge=1, le=86_400)
    """Seconds without a message before a book is stale and subscribed again."""
    snapshot_s: float = Field(default=30.0, ge=1, le=3_600)
    """Seconds a subscription may take to deliver its first book."""
    list_s: float = Field(default=60.0, ge=1, le=3_600)
    """Total timeout for loading all markets of one exchange, including ccxt's waits and retries."""
    stop_s: float = Field(default=5.0, ge=0.1, le=60)
    """Seconds ccxt may take to close its connections; after that they are abandoned."""
    tasks_max: int = Field(default=2_000, ge=100, le=100_000)
    """Asyncio tasks of one ccxt client; a client that exceeds this is restarted."""


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
    connect_timeout_s: float = Field(default=10.0, ge=0.1, le=120)
    """Timeout of the TCP, TLS and WebSocket handshakes together."""
    reconnect_base_s: float = Field(default=1.0, ge=0.01, le=60)
    """Upper bound of the first wait before a reconnect, in seconds; waits are random (full jitter)
    and the bound doubles with each attempt."""
    reconnect_max_s: float = Field(default=60.0, ge=1, le=3_600)
    """Longest wait before a reconnect, unless the exchange requests a longer one."""
    maintenance_s: float = Field(default=30.0, ge=0.1, le=3_600)
    """Shortest wait before a reconnect after HTTP 503, 429 or 418 without Retry-After."""
    stable_s: float = Field(default=60.0, ge=0, le=86_400)
    """Seconds without a failure after which the retry counters of a connection or book are
    reset."""
    frame_bytes_max: int = Field(default=4 << 20, ge=65_536, le=64 << 20)
    """Largest message accepted from an exchange; a larger one ends the connection. The channel
    "advanced" of coinbase may send 10 MiB."""
    send_queue_max: int = Field(default=4_096, ge=1, le=65_536)
    """Frames queued for one exchange because of its message rate limit; beyond that the connection
    is reopened."""
    fetches_max: int = Field(default=4, ge=1, le=64)
    """Concurrent REST requests for snapshots, per feed."""
    fetch_total_s: float = Field(default=120.0, ge=1, le=3_600)
    """Total timeout of one snapshot request, including waits and retries."""
    resync_base_s: float = Field(default=1.0, ge=0.01, le=60)
    """Upper bound of the wait before the second resync of an instrument (full jitter, doubling);
    the first resync is immediate."""
    resync_max_s: float = Field(default=30.0, ge=1, le=3_600)
    """Longest wait between resyncs of one instrument."""
    resync_tries_max: int = Field(default=5, ge=0, le=1_000)
    """Resyncs of one instrument before the whole connection is reopened."""
    refetches_max: int = Field(default=5, ge=1, le=1_000)
    """Consecutive unusable snapshots before the connection is reopened."""
    reseed_levels: int = Field(default=600, ge=0, le=20_000)
    """A live book is refetched when fewer levels than this remain before its horizon (the last
    level of its snapshot); 0: only by price distance."""
    reseed_min_s: float = Field(default=10.0, ge=0.001, le=3_600)
    """Minimum seconds between two refetches of a live book."""
    reseed_total_s: float = Field(default=15.0, ge=0.001, le=600)
    """Total timeout of one reseed request, including waits and retries."""
    reseed_tries_max: int = Field(default=3, ge=1, le=1_000)
    """Consecutive unanswered reseed requests on the socket before the book is stale."""
    probe_first_s: float = Field(default=5.0, ge=0.001, le=3_600)
    """Seconds of silence after subscribing before a stream is checked over REST."""
    probe_quiet_s: float = Field(default=300.0, ge=0.001, le=86_400)
    """Seconds of silence after which an established stream is checked over REST."""
    dead_stream_s: float = Field(default=10.0, ge=0.001, le=3_600)
    """Seconds a stream may lag behind a REST snapshot before it is considered dead."""
    checksums_max: int = Field(default=3, ge=0, le=1_000)
    """Checksum mismatches of one instrument per minute before the connection is reopened."""
    faults_max: int = Field(default=3, ge=0, le=1_000)
    """Unknown frames per minute before the connection is reopened."""
    frames_per_tick_max: int = Field(default=5_000, ge=100, le=1_000_000)
    """Frames of one connection per 0.1 s; beyond that, reading pauses until the 0.1 s are over."""
    receive_bytes_max: int = Field(default=262_144, ge=65_536, le=16 << 20)
    """Kernel receive buffer of one connection: the most data read and processed in one go."""
    noise_per_s: float = Field(default=100.0, ge=0.001, le=100_000)
    """Sustained rate of control frames and messages without data, per second and connection."""
    noise_burst: int = Field(default=2_000, ge=10, le=1_000_000)
    """Burst above `noise_per_s`; a connection that exceeds it is closed."""
    slow_down_s: float = Field(default=10.0, ge=0.001, le=3_600)
    """First pause of requests after a rate limit error of an exchange; doubles with each further
    error, with jitter."""
    slow_down_max_s: float = Field(default=300.0, ge=0.001, le=3_600)
    """Longest pause after rate limit errors, before jitter of up to the same length."""
    cadence_evidence_s: float = Field(default=30.0, ge=0.001, le=3_600)
    """Seconds of observed updates before an instrument's silence limit is derived from its own
    update intervals."""
    cadence_gaps_min: int = Field(default=50, ge=2, le=10_000)
    """Minimum number of observed update intervals before that."""
    cadence_factor: float = Field(default=4.0, ge=1.5, le=100)
    """Multiple of the longest recent update interval after which an instrument or connection counts
    as silent."""
    cadence_window_s: float = Field(default=600.0, ge=0.001, le=86_400)
    """Seconds an update interval is remembered: at least this, at most twice as long."""
    silent_min_s: float = Field(default=5.0, ge=0.001, le=3_600)
    """Minimum seconds of silence of all its books before a busy connection is considered dead."""
    quiet_min_s: float = Field(default=10.0, ge=0.001, le=3_600)
    """Minimum seconds of silence of one busy instrument before it is stale and resubscribed."""
    frozen_max_s: float = Field(default=600.0, ge=0, le=86_400)
    """After a silence, seconds during which an identical book is rejected as frozen; a changed book
    is accepted at once."""
    old_s: float = Field(default=5.0, ge=0.001, le=86_400)
    """Age on arrival, by the exchange's timestamp, above which data is counted as old; it is still
    used."""
    list_rows_max: int = Field(default=50_000, ge=100, le=1_000_000)
    """Most rows of an exchange's instrument list; a longer list is rejected as a whole."""
    list_bytes_max: int = Field(default=24 << 20, ge=1 << 16, le=32 << 20)
    """Most bytes of an exchange's instrument list; the largest known is about half of the
    default."""
    list_pages_max: int = Field(default=100, ge=1, le=10_000)
    """Most pages of an exchange's instrument list, if the exchange sends it in pages."""
    retry_offline_s: float = Field(default=300.0, ge=1, le=86_400)
    """Seconds before an instrument that the exchange refused is subscribed again; also the longest
    wait between retries of a failing snapshot request."""
    renew_before_s: float = Field(default=60.0, ge=0, le=3_600)
    """Seconds before the exchange's connection lifetime ends at which a replacement is opened."""
    reload_s: float = Field(default=3_600.0, ge=60, le=86_400)
    """Seconds between reloads of the instrument lists."""
    reload_retry_s: float = Field(default=60.0, ge=1, le=3_600)
    """Seconds before a failed instrument list is requested again."""
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
