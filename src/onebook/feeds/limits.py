"""Limits and timeouts of feeds that are the same in every installation.

Limits that operators set are in `config/settings.py`. `onebook exchanges check` and tests pass
shorter limits; a value that never varies is a constant beside its use.
"""

from typing import Final

from msgspec import Struct


class FeedLimits(Struct, frozen=True, kw_only=True):
    """Limits of one feed; `_s` is in seconds."""

    # Connections
    connect_timeout_s: float = 10.0  # TCP, TLS and WebSocket handshakes together
    reconnect_base_s: float = 1.0  # maximum of the first wait (full jitter); doubles each time
    reconnect_max_s: float = 60.0  # unless the exchange demands a longer wait
    frame_bytes_max: int = 4 << 20  # per message; an exchange's facts may allow more
    frames_per_tick_max: int = 5_000  # per 0.1 s and connection; then reading pauses
    stable_s: float = 60.0  # without a failure, until a connection's or book's retries are reset
    send_queue_max: int = 4_096  # frames that wait for the exchange's message rate limit
    faults_max: int = 3  # invalid frames per minute before a reconnect
    noise_per_s: float = 100.0  # control frames and messages without data: sustained rate,
    noise_burst: int = 2_000  # and burst, above which the connection is closed

    # Resyncs of one instrument
    resync_base_s: float = 1.0  # maximum of the second wait (the first is 0); full jitter, doubles
    resync_max_s: float = 30.0
    resync_tries_max: int = 5  # before the whole connection is reopened
    retry_offline_s: float = 300.0  # after a refusal; also the longest wait after a failed snapshot
    slow_down_s: float = 10.0  # first pause after a rate limit error; doubles each time
    slow_down_max_s: float = 300.0  # before jitter of up to the same length
    fetch_total_s: float = 120.0  # one snapshot request, including waits and retries

    # Refetched snapshots of live books
    reseed_levels: int = 600  # refetch if fewer levels are left before the horizon; 0: by distance
    reseed_min_s: float = 10.0  # between two refetches
    probe_first_s: float = 5.0  # of silence after subscribing, until a check over REST
    probe_quiet_s: float = 300.0  # of silence of an established stream, until a check over REST
    dead_stream_s: float = 10.0  # maximum lag of a stream behind a REST snapshot
    audits: bool = False  # whether live books are compared with REST snapshots (`feeds.audits`)

    # Silence
    silent_min_s: float = 5.0  # without data of any book, until a busy connection counts as dead
    quiet_min_s: float = 10.0  # without data of a busy instrument, until it is resubscribed
    old_s: float = 5.0  # age on arrival from which data is counted as old (but still used)

    # Cadence: silence limits derived from an instrument's own update intervals
    cadence_evidence_s: float = 30.0  # minimum time of observed updates
    cadence_gaps_min: int = 50  # minimum number of observed intervals
    cadence_factor: float = 4.0  # silence limit as a multiple of the longest recent interval

    # Instrument lists; a longer one is rejected as a whole
    list_rows_max: int = 50_000
    list_bytes_max: int = 24 << 20  # the largest known is about half of this
    list_pages_max: int = 100
    reload_s: float = 3_600.0  # between two reloads of a list
    reload_retry_s: float = 60.0  # maximum wait after a failed one


LIMITS: Final = FeedLimits()
