"""Prometheus metrics of the gateway: published once a second, the latency once an update."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from onebook.gateway.codes import CLOSE_CODES
from onebook.model import Tier

NO_TIER: Final = "none"  # not authenticated
OTHER_CODE: Final = "other"
# Close codes of RFC 6455 in use, plus our own.
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
BEHIND: Final = Gauge("onebook_ws_behind", "Clients that read more slowly than we write.")
STREAMS: Final = Gauge("onebook_ws_streams", "Open streams.")
PUBLISHED: Final = Counter("onebook_ws_published", "Updates published by all streams.")
BACKLOG: Final = Gauge("onebook_ws_publish_backlog", "Streams that are due and not yet published.")
SATURATED: Final = Counter(
    "onebook_ws_publish_saturated",
    "Turns in which more streams were due than can be published in one.",
)
LATENCY: Final = Histogram(
    "onebook_delivery_latency_seconds",
    "From an exchange's newest data in an update to the last socket written.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0),
)

for _tier in (*Tier, NO_TIER):
    CONNECTIONS.labels(_tier)
    SENT_BYTES.labels(_tier)


# Create every sample at 0: PromQL's `increase` ignores the first count of an absent one.
for _code in USUAL_CODES:
    CLOSES.labels(str(_code))


def move_tier(before: str, tier: str) -> None:
    """Count a connection under another tier."""
    CONNECTIONS.labels(before).dec()
    CONNECTIONS.labels(tier).inc()


def count_close(code: int) -> None:
    """Count the end of a connection; a peer's own codes share one label."""
    CLOSES.labels(str(code) if code in USUAL_CODES else OTHER_CODE).inc()


class GatewayTotals:
    """Counts of the hot path, which `GatewayReport` publishes."""

    def __init__(self) -> None:
        self.messages = 0  # received from clients
