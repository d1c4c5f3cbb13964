"""Limits and timeouts of client connections that are the same in every installation.

An operator's settings are in `config/settings.py`. Tests and benchmarks pass other `GatewayLimits`;
a value that never varies is a constant, here if the documentation states it, otherwise next to its
use.
"""

from typing import Final

from msgspec import Struct

AUTHENTICATION_TIMEOUT_S: Final = 10.0  # from the upgrade to an accepted key
SLOW_TIMEOUT_S: Final = 10.0  # without a read by a slow consumer
MESSAGE_BYTES_MAX: Final = 65_536  # longest client message
KEYLESS_MESSAGE_BYTES_MAX: Final = 4_096  # longest before authentication, which needs less than 200


class GatewayLimits(Struct, frozen=True, kw_only=True):
    """Limits of one gateway and its connections; `_s` are seconds."""

    # Input of one connection
    changes_per_s: float = 50.0  # sustained rate of subscription changes; above it, reading pauses
    changes_burst: int = 256
    flood_per_s: float = 20.0  # refused messages, control frames and fragments: sustained rate,
    flood_burst: int = 40  # and burst, above which the connection is closed
    actions_max: int = 4  # concurrent `action` messages
    live_max: int = 16  # live transaction subscriptions per connection
    progress_s: float = 1.0  # interval of the progress messages of a transaction subscription

    # Sending to one client
    write_buffer_bytes_max: int = 65_536  # unsent bytes in this process that make a client slow
    unsent_bytes_max: int = 131_072  # unsent bytes in the kernel (TCP_NOTSENT_LOWAT)
    direct_send: bool = True  # without TLS, bypass the event loop's buffers

    # Opening and closing
    offence_pause_s: float = 1.0  # between handshakes of an offending address; doubles each time
    welcome_delay_s: float = 0.5  # delay of the first welcome with `reference_compatible`
    liveness_wait_s: float = 3.0  # timeout of a pong at a key's connection limit
    close_timeout_s: float = 5.0  # timeout of the client's reply to a close frame


LIMITS: Final = GatewayLimits()
