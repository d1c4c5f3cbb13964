"""What an operator may set about feeds: every wait and bound with its unit."""

from msgspec import Struct


class ExchangeSettings(Struct, frozen=True):
    """What differs from the exchange's own facts; "" keeps them."""

    ws_url: str = ""
    rest_url: str = ""


class FeedSettings(Struct, frozen=True):
    """Limits and waits of all feeds.

    Args:
        exchanges: Names of the exchanges to use; empty means all that are known.
        overrides: Other addresses by exchange name: a regional host, or the simulator.
        linger_s: How long a book nobody wants any more is kept.
        connect_timeout_s: TCP, TLS and the WebSocket handshake together.
        reconnect_base_s: Full jitter: the first wait is between 0 and this.
        reconnect_max_s: No wait is longer, unless the exchange asks for it.
        maintenance_s: The least wait after 503, 429 or 418 without Retry-After.
        stable_s: A connection or book of this age starts its count of tries again.
        frame_bytes_max: A longer message ends the connection.
        send_queue_max: Frames that may wait for the exchange's pace.
        fetches_max: REST bodies one feed asks for at a time.
        fetch_total_s: One body with its waits and retries.
        resync_base_s: Full jitter between resyncs of one instrument; the first is at once.
        resync_max_s: The longest such wait.
        resync_tries_max: Resyncs of one instrument before the whole connection is in doubt.
        refetches_max: Snapshots in a row that did not fit before the same.
        checksums_max: Wrong checksums of one instrument in a minute before a reconnect.
        faults_max: Frames that nobody understands in a minute before a reconnect.
        retry_offline_s: An instrument the exchange refused is asked for again after so long.
        renew_before_s: A connection is renewed so long before the exchange would end it.
        reload_s: How often the lists of instruments are read.
        reload_retry_s: The same for an exchange whose list could not be read.
    """

    exchanges: tuple[str, ...] = ()
    overrides: dict[str, ExchangeSettings] = {}
    linger_s: float = 300.0
    connect_timeout_s: float = 10.0
    reconnect_base_s: float = 1.0
    reconnect_max_s: float = 60.0
    maintenance_s: float = 30.0
    stable_s: float = 60.0
    frame_bytes_max: int = 4 << 20
    send_queue_max: int = 4_096
    fetches_max: int = 4
    fetch_total_s: float = 120.0
    resync_base_s: float = 1.0
    resync_max_s: float = 30.0
    resync_tries_max: int = 5
    refetches_max: int = 5
    checksums_max: int = 3
    faults_max: int = 3
    retry_offline_s: float = 300.0
    renew_before_s: float = 60.0
    reload_s: float = 3_600.0
    reload_retry_s: float = 60.0
