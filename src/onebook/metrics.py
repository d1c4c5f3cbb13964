"""Every Prometheus metric of a node, as module constants.

No label ever holds a key, a token or a symbol. Counters that belong to the hot path are plain
integers there and are brought here once a second.
"""

from typing import Final

from prometheus_client import Counter, Gauge

EXCHANGE_UP: Final = Gauge(
    "onebook_exchange_up", "1 while at least one feed of the exchange is connected.", ["exchange"]
)
EXCHANGE_FRAMES: Final = Counter(
    "onebook_exchange_frames", "Frames received from the exchange.", ["exchange"]
)
EXCHANGE_RECONNECTS: Final = Counter(
    "onebook_exchange_reconnects", "Connections to the exchange that ended.", ["exchange"]
)
BOOK_INVALIDATIONS: Final = Counter(
    "onebook_book_invalidations",
    "Books that could no longer be trusted, by cause.",
    ["exchange", "reason"],
)
EXCHANGE_LAST_FRAME: Final = Gauge(
    "onebook_exchange_last_frame_timestamp_seconds",
    "When the exchange last sent anything, Unix time.",
    ["exchange"],
)
