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
    """What differs from an exchange's own facts; empty keeps them."""

    ws_url: str = ""
    """Where its feeds connect."""
    rest_url: str = ""
    """Base of its REST paths."""
    currencies: Mapping[CurrencyCode, CurrencyCode] = {}
    """Its codes of currencies and ours, such as {"LUNA" = "LUNC"}; before the table of Onebook."""
    channel: str = ""
    """Another of its book channels, where it has several."""
    recorded: bool = False
    """Its data is a recording's (`onebook replay`), whose age on arrival means nothing."""


class CcxtSettings(Section):
    """Exchanges without a connector of ours, through ccxt: the extra `onebook[ccxt]`."""

    exchanges: tuple[str, ...] = ()
    """Their ccxt ids, such as ["bitopro"]; empty: none. Their books are as exact as ccxt."""
    depth: int = Field(default=100, ge=1, le=5_000)
    """Levels a side that are taken over of each book."""
    interval_s: float = Field(default=0.1, ge=0.01, le=60)
    """Each book is taken over at most once in so many seconds; the last state always is."""
    books_max: int = Field(default=20, ge=1, le=1_000)
    """Books of one ccxt client; more make another, with connections of its own."""
    connects_per_minute: int = Field(default=20, ge=1, le=1_000)
    """Clients that are started for one exchange, evenly apart: reconnects are among them."""
    quiet_max_s: float = Field(default=300.0, ge=1, le=86_400)
    """A book without a message for so long is stale and asked for again."""
    snapshot_s: float = Field(default=30.0, ge=1, le=3_600)
    """A book must be there so long after it was asked for."""
    list_s: float = Field(default=60.0, ge=1, le=3_600)
    """Reading all markets of one exchange, with ccxt's waits and requests."""
    stop_s: float = Field(default=5.0, ge=0.1, le=60)
    """How long ccxt may take to close what it has open; then it is left."""
    tasks_max: int = Field(default=2_000, ge=100, le=100_000)
    """Asyncio tasks of one ccxt client; more end it."""


class FeedSettings(Section):
    """Limits and waits of all feeds."""

    exchanges: tuple[str, ...] = ()
    """Names of the exchanges to use; empty means all that are known."""
    overrides: Mapping[str, ExchangeSettings] = {}
    """By exchange name: ws_url and rest_url, other addresses (a regional host, the simulator);
    currencies, its codes of coins and ours, such as {"LUNA" = "LUNC"}, before Onebook's table;
    channel, another of its book channels, such as "classic" of kucoin or
    "advanced" of coinbase; recorded, that its data is a recording's, whose age is not measured."""
    linger_s: float = Field(default=300.0, ge=0, le=86_400)
    """How long a book without subscribers is kept."""
    connect_timeout_s: float = Field(default=10.0, ge=0.1, le=120)
    """TCP, TLS and the WebSocket handshake together."""
    reconnect_base_s: float = Field(default=1.0, ge=0.01, le=60)
    """Full jitter: the first wait is between 0 and this."""
    reconnect_max_s: float = Field(default=60.0, ge=1, le=3_600)
    """No wait is longer, unless the exchange asks for it."""
    maintenance_s: float = Field(default=30.0, ge=0.1, le=3_600)
    """The least wait after 503, 429 or 418 without Retry-After."""
    stable_s: float = Field(default=60.0, ge=0, le=86_400)
    """A connection or book of this age starts its count of tries again."""
    frame_bytes_max: int = Field(default=4 << 20, ge=65_536, le=64 << 20)
    """A longer message ends the connection; Coinbase's channel "advanced" may send 10 MiB."""
    send_queue_max: int = Field(default=4_096, ge=1, le=65_536)
    """Frames that may wait for the exchange's pace."""
    fetches_max: int = Field(default=4, ge=1, le=64)
    """REST bodies one feed asks for at a time."""
    fetch_total_s: float = Field(default=120.0, ge=1, le=3_600)
    """One body with its waits and retries."""
    resync_base_s: float = Field(default=1.0, ge=0.01, le=60)
    """Full jitter between resyncs of one instrument; the first is at once."""
    resync_max_s: float = Field(default=30.0, ge=1, le=3_600)
    """The longest such wait."""
    resync_tries_max: int = Field(default=5, ge=0, le=1_000)
    """Resyncs of one instrument before the whole connection is reconnected."""
    refetches_max: int = Field(default=5, ge=1, le=1_000)
    """Snapshots in a row that did not fit before the same."""
    reseed_levels: int = Field(default=600, ge=0, le=20_000)
    """A live book is fetched again below so many levels before its horizon; 0: by distance only."""
    reseed_min_s: float = Field(default=10.0, ge=0.001, le=3_600)
    """No book is fetched again sooner than this while it is live."""
    reseed_total_s: float = Field(default=15.0, ge=0.001, le=600)
    """One such body: by REST with its waits and retries, on the socket until its answer."""
    reseed_tries_max: int = Field(default=3, ge=1, le=1_000)
    """Such requests on the socket in a row without an answer before the book is stale."""
    probe_first_s: float = Field(default=5.0, ge=0.001, le=3_600)
    """A stream that has delivered nothing since it was subscribed is checked by REST after this."""
    probe_quiet_s: float = Field(default=300.0, ge=0.001, le=86_400)
    """The same for one that has delivered nothing for so long."""
    dead_stream_s: float = Field(default=10.0, ge=0.001, le=3_600)
    """A stream must have delivered what a newer REST body shows after so long."""
    checksums_max: int = Field(default=3, ge=0, le=1_000)
    """Wrong checksums of one instrument in a minute before a reconnect."""
    faults_max: int = Field(default=3, ge=0, le=1_000)
    """Unknown frames in a minute before a reconnect."""
    frames_per_tick_max: int = Field(default=5_000, ge=100, le=1_000_000)
    """Frames of one connection in a tenth of a second before reading pauses for the rest of it."""
    receive_bytes_max: int = Field(default=262_144, ge=65_536, le=16 << 20)
    """What the kernel may hold of one connection: so much is read and worked off in one go."""
    noise_per_s: float = Field(default=100.0, ge=0.001, le=100_000)
    """Messages and control frames without data of one connection a second, sustained."""
    noise_burst: int = Field(default=2_000, ge=10, le=1_000_000)
    """How many of these at once; more end the connection."""
    slow_down_s: float = Field(default=10.0, ge=0.001, le=3_600)
    """Pause of requests after a rate limit error of an exchange; doubles each time, jittered."""
    slow_down_max_s: float = Field(default=300.0, ge=0.001, le=3_600)
    """The longest such pause, before jitter of up to as much again."""
    cadence_evidence_s: float = Field(default=30.0, ge=0.001, le=3_600)
    """Seconds of a book's own intervals after which its silence limit comes from them."""
    cadence_gaps_min: int = Field(default=50, ge=2, le=10_000)
    """And at least so many of these intervals."""
    cadence_factor: float = Field(default=4.0, ge=1.5, le=100)
    """So many times its longest gap of late is silence."""
    cadence_window_s: float = Field(default=600.0, ge=0.001, le=86_400)
    """How long a gap is remembered, at least; at most twice as long."""
    silent_min_s: float = Field(default=5.0, ge=0.001, le=3_600)
    """A connection whose books together always changed is never dead before this much silence."""
    quiet_min_s: float = Field(default=10.0, ge=0.001, le=3_600)
    """The same for one instrument: it becomes stale and is asked for again."""
    frozen_max_s: float = Field(default=600.0, ge=0, le=86_400)
    """After a silence the very same book is not accepted for so long, unless it changes."""
    old_s: float = Field(default=5.0, ge=0.001, le=86_400)
    """Data older than this on arrival, by the exchange's own time, is counted but not refused."""
    list_rows_max: int = Field(default=50_000, ge=100, le=1_000_000)
    """The longest instrument list of an exchange, in rows; a longer one is refused whole."""
    list_bytes_max: int = Field(default=24 << 20, ge=1 << 16, le=32 << 20)
    """The same in bytes; the largest known is about half of this."""
    list_pages_max: int = Field(default=100, ge=1, le=10_000)
    """The same in pages, where an exchange sends its list in several."""
    retry_offline_s: float = Field(default=300.0, ge=1, le=86_400)
    """An instrument the exchange refused is asked for again after so long; the longest wait between
    requests for a snapshot that fails."""
    renew_before_s: float = Field(default=60.0, ge=0, le=3_600)
    """A connection is renewed so long before the exchange would end it."""
    reload_s: float = Field(default=3_600.0, ge=60, le=86_400)
    """How often the lists of instruments are read."""
    reload_retry_s: float = Field(default=60.0, ge=1, le=3_600)
    """The same for an exchange whose list could not be read."""
    ccxt: CcxtSettings = CcxtSettings()
    """Exchanges through ccxt."""


class StreamSettings(Section):
    """How the live books of a symbol become one."""

    identity_deviation_max: float = Field(default=0.10, ge=0.001, le=1_000)
    """A mid price farther than this share from the median of three other exchanges is another
    coin's: the book is not merged."""
    identity_recovery_s: float = Field(default=10.0, ge=0, le=86_400)
    """It is merged again when it was within half of that for so long."""
