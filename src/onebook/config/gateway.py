"""Settings of WebSocket connections of clients."""

from ipaddress import ip_network

from pydantic import Field, field_validator

from onebook.config.section import Section


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
    """Trusted proxies, addresses or networks, whose X-Forwarded-For is honoured."""
    query_key_allowed: bool = True
    """Whether `?api_key=` is accepted, the older pattern."""
    compression_allowed: bool = True
    """Whether permessage-deflate is offered."""
    direct_send_allowed: bool = True
    """Whether updates may go straight to sockets without TLS, past the event loop's buffers."""
    authentication_timeout_s: float = Field(10.0, ge=0.1, le=300)
    """A connection must have a key after so long."""
    verify_timeout_s: float = Field(5.0, ge=0.1, le=60)
    """Timeout of the look-up of a key in the store."""
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
    """More unread bytes make a client a slow consumer."""
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
    """Seconds of a drain, over which reconnects are spread."""
    authentications_per_minute: int = Field(60, ge=1, le=100_000)
    """Repeated `authenticate` messages of one connection; they do not count for its key."""
    actions_max: int = Field(4, ge=1, le=1_000)
    """Messages with `action` of one connection that are being answered."""
    action_records_default: int = Field(1_000, ge=1, le=10_000)
    """Records of `subscribe_transactions` without `limit`."""
    action_records_max: int = Field(1_000, ge=1, le=10_000)
    """The most that it may ask for: clients refuse messages that are too long, often over 1 MiB."""
    action_progress_s: float = Field(1.0, ge=0, le=3_600)
    """How often the progress of `subscribe_transactions` is sent at most."""
    reference_compatible: bool = False
    """Whether clients of the reference service get what they expect: `authentication_success`,
    and times of books without Z."""
    reference_welcome_delay_s: float = Field(0.5, ge=0, le=10)
    """With that: how long the first welcome waits for an `authenticate` message."""

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
