"""Limits and waits of client connections that are the same in every installation.

An operator's settings are in `config/settings.py`. Tests and benchmarks pass other `GatewayLimits`;
a value that never varies is a constant, here if the documents state it, otherwise beside its use.
"""

from typing import Final

from msgspec import Struct

AUTHENTICATION_TIMEOUT_S: Final = 10.0  # from the upgrade to an accepted key
SLOW_TIMEOUT_S: Final = 10.0  # that a slow consumer may read nothing
MESSAGE_BYTES_MAX: Final = 65_536  # of a client's message
KEYLESS_MESSAGE_BYTES_MAX: Final = 4_096  # before authentication, which needs less than 200


class GatewayLimits(Struct, frozen=True, kw_only=True):
    """Limits of one gateway and its connections; `_s` are seconds."""

    # Input of one connection
    changes_per_s: float = 50.0  # subscriptions started or ended, sustained; then reading pauses
    changes_burst: int = 256
    flood_per_s: float = 20.0  # refused messages, control frames and fragments, sustained
    flood_burst: int = 40  # and at once, before the connection is closed
    actions_max: int = 4  # concurrent `action` messages
    live_max: int = 16  # subscriptions of one connection that get new transactions
    progress_s: float = 1.0  # between two progress messages of a transaction subscription

    # Sending to one client
    write_buffer_bytes_max: int = 65_536  # unsent bytes of this process that make it slow
    unsent_bytes_max: int = 131_072  # unsent bytes that the kernel holds (TCP_NOTSENT_LOWAT)
    direct_send: bool = True  # without TLS, write to the socket past the event loop's buffers

    # Opening and closing
    offence_pause_s: float = 1.0  # between handshakes of an address after an offence; doubles
    welcome_delay_s: float = 0.5  # of the first welcome, with `reference_compatible`
    liveness_wait_s: float = 3.0  # for a pong, at a key's connection limit
    close_timeout_s: float = 5.0  # for the client's answer to a close frame


LIMITS: Final = GatewayLimits()
