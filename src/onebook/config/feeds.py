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
    frame_bytes_max: int = Field(default=4 << 20, ge=65_536, le=64 << 20)
    """Largest message accepted from an exchange; a larger one ends the connection. The channel
    "advanced" of coinbase may send 10 MiB."""
    frames_per_tick_max: int = Field(default=5_000, ge=100, le=1_000_000)
    """Frames of one connection per 0.1 s; beyond that, reading pauses until the 0.1 s are over."""
    silent_min_s: float = Field(default=5.0, ge=0.001, le=3_600)
    """Minimum seconds of silence of all its books before a busy connection is considered dead."""
    quiet_min_s: float = Field(default=10.0, ge=0.001, le=3_600)
    """Minimum seconds of silence of one busy instrument before it is stale and resubscribed."""
    old_s: float = Field(default=5.0, ge=0.001, le=86_400)
    """Age on arrival, by the exchange's timestamp, above which data is counted as old; it is still
    used."""
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
