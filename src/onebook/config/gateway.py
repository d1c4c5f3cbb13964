"""Settings of WebSocket connections of clients."""

from ipaddress import ip_network

from pydantic import Field, field_validator

from onebook.config.section import Section


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
    verify_timeout_s: float = Field(5.0, ge=0.1, le=60)
    """Timeout of the database query for a key."""
    message_bytes_max: int = Field(65_536, ge=1_024, le=64 << 20)
    """Largest message accepted from a client."""
    keyless_message_bytes_max: int = Field(4_096, ge=512, le=64 << 20)
    """Largest message accepted before authentication; an `authenticate` message needs less than 200
    bytes."""
    subscriptions_max: int = Field(128, ge=1, le=10_000)
    """Subscriptions per connection."""
    looks_max: int = Field(8, ge=1, le=1_000)
    """Concurrent `get_aggregated_orderbook` requests per connection."""
    turn_frames_max: int = Field(16, ge=1, le=10_000)
    """Frames of one connection processed per turn of the event loop."""
    turn_bytes_max: int = Field(65_536, ge=1_024, le=1 << 24)
    """Bytes of one connection processed per turn of the event loop."""
    turn_s: float = Field(0.001, ge=0.001, le=1)
    """Seconds per turn of the event loop spent on frames and HTTP requests of all connections."""
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
    protocol violation, or for a flood before authentication. Doubles with each further such close;
    0: no pause."""
    offence_pause_max_s: float = Field(8.0, ge=0, le=600)
    """Longest pause between handshakes after such closes."""
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
    authentications_per_minute: int = Field(60, ge=1, le=100_000)
    """Repeated `authenticate` messages per minute and connection; they do not count against the
    key's limit."""
    actions_max: int = Field(4, ge=1, le=1_000)
    """Concurrent `action` messages per connection."""
    action_records_default: int = Field(1_000, ge=1, le=10_000)
    """Records that `subscribe_transactions` returns without `limit`."""
    action_records_max: int = Field(1_000, ge=1, le=10_000)
    """Largest `limit` of `subscribe_transactions`; many clients reject messages over 1 MiB."""
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
