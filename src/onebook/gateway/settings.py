"""What an operator may set at the gateway, with the contract's numbers as defaults."""

from collections.abc import Mapping

from msgspec import Struct, field

from onebook.config import TIERS, TierLimits
from onebook.model import Tier


class GatewaySettings(Struct, frozen=True):
    """The limits of WebSocket connections.

    Args:
        path: Where clients connect.
        tiers: What each billing tier may do.
        connections_max: Connections of this node; more get HTTP 503.
        connects_per_minute: Attempts from one address; more get HTTP 429; 0 does not count.
        origins: Values of `Origin` that browsers may come from; empty allows all.
        forwarded_from: Proxies whose X-Forwarded-For is believed.
        query_key_allowed: Whether `?api_key=` is accepted, the older pattern.
        compression_allowed: Whether permessage-deflate is offered.
        authentication_timeout_s: A connection must have a key after so long.
        verify_timeout_s: The store must have said whether a key is good after so long.
        message_bytes_max: The longest message a client may send.
        subscriptions_max: Subscriptions of one connection.
        looks_max: Unanswered `get_aggregated_orderbook` of one connection.
        flood_per_s: Refused or control messages of one connection, sustained.
        flood_burst: How many of these at once.
        write_buffer_bytes_max: More that is not read marks a client as behind.
        unsent_bytes_max: What the kernel may hold unsent for one client.
        slow_timeout_s: A client that reads nothing for so long is closed.
        ping_interval_s: How often we ping; a ping unanswered until the next ends the connection.
        close_timeout_s: The peer must have answered a close after so long.
        drain_s: Seconds over which clients are sent away.
    """

    path: str = "/api/v1/ws"
    tiers: Mapping[Tier, TierLimits] = field(default_factory=lambda: TIERS)
    connections_max: int = 10_000
    connects_per_minute: int = 60
    origins: tuple[str, ...] = ()
    forwarded_from: tuple[str, ...] = ("127.0.0.1",)
    query_key_allowed: bool = True
    compression_allowed: bool = True
    authentication_timeout_s: float = 10.0
    verify_timeout_s: float = 5.0
    message_bytes_max: int = 65_536
    subscriptions_max: int = 128
    looks_max: int = 8
    flood_per_s: float = 20.0
    flood_burst: int = 40
    write_buffer_bytes_max: int = 65_536
    unsent_bytes_max: int = 131_072
    slow_timeout_s: float = 10.0
    ping_interval_s: float = 20.0
    close_timeout_s: float = 5.0
    drain_s: float = 30.0
