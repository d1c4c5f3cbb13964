"""Prometheus metrics of the gateway, published once a second (the latency: once per update)."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from onebook.gateway.codes import CLOSE_CODES
from onebook.model import Tier

NO_TIER: Final = "none"  # tier label before authentication
OTHER_CODE: Final = "other"
# The close codes of RFC 6455 in use, and our own.
USUAL_CODES: Final = frozenset((1000, 1001, 1005, 1006, 1011, *CLOSE_CODES))

CONNECTIONS: Final = Gauge("onebook_ws_connections", "Open connections by tier.", ["tier"])
CONNECTS: Final = Counter("onebook_ws_connects", "Connection attempts by result.", ["result"])
CLOSES: Final = Counter("onebook_ws_closes", "Ended connections by close code.", ["code"])
SENT_BYTES: Final = Counter("onebook_ws_sent_bytes", "Payload bytes delivered by tier.", ["tier"])
MESSAGES: Final = Counter("onebook_ws_messages", "Messages received from clients.")
CONFLATED: Final = Counter(
    "onebook_ws_conflated", "Updates skipped for slow clients, which get the newest one instead."
)
REPLACED: Final = Counter(
    "onebook_ws_replaced", "Dead connections closed to make room for a new one of their key."
)
BEHIND: Final = Gauge("onebook_ws_behind", "Slow consumers at present.")
STREAMS: Final = Gauge("onebook_ws_streams", "Open streams.")
PUBLISHED: Final = Counter("onebook_ws_published", "Updates published by all streams.")
BACKLOG: Final = Gauge("onebook_ws_publish_backlog", "Streams that are due but not yet published.")
SATURATED: Final = Counter(
    "onebook_ws_publish_saturated",
    "Times that due streams waited 50 ms for others to be published.",
)
LATENCY: Final = Histogram(
    "onebook_delivery_latency_seconds",
    "Seconds from receiving the newest data of an update to the last socket write.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0),
)

for _tier in (*Tier, NO_TIER):
    CONNECTIONS.labels(_tier)
    SENT_BYTES.labels(_tier)


# Create every sample at 0, because PromQL's `increase` ignores the first value of a new one.
for _code in USUAL_CODES:
    CLOSES.labels(str(_code))


def move_tier(before: str, tier: str) -> None:
    """Move a connection to another tier's count."""
    CONNECTIONS.labels(before).dec()
    CONNECTIONS.labels(tier).inc()


def count_close(code: int) -> None:
    """Count the end of a connection; all close codes of peers share one label."""
    CLOSES.labels(str(code) if code in USUAL_CODES else OTHER_CODE).inc()


class GatewayTotals:
    """Counts of the hot path, published by `GatewayReport`."""

    def __init__(self) -> None:
        self.messages = 0  # received from clients
        self.behind: set[object] = set()  # slow consumers
