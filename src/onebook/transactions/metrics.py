"""Prometheus metrics of the transaction interface: requests to exchanges, records delivered.

Requests to exchanges are rare, so they are counted one by one; records are counted by batch.
No label ever holds a key, an account or a symbol.
"""

from typing import Final

from prometheus_client import Counter, Gauge

REQUESTS: Final = Counter(
    "onebook_transactions_requests",
    "Requests to the exchange by outcome: ok, too_old, cursor_gone, cancelled, or the reason "
    "of the failure.",
    ["exchange", "outcome"],
)
RETRIES: Final = Counter(
    "onebook_transactions_retries", "Requests that were sent to the exchange again.", ["exchange"]
)
WAITED: Final = Counter(
    "onebook_transactions_limit_wait_seconds",
    "Time that requests waited for their turn under the exchange's limits.",
    ["exchange"],
)
TRIPS: Final = Counter(
    "onebook_transactions_circuit_trips",
    "Answers (HTTP 403) after which nothing is asked of the exchange for a while.",
    ["exchange"],
)
OPEN_UNTIL: Final = Gauge(
    "onebook_transactions_circuit_open_until_timestamp_seconds",
    "Until when nothing is asked of the exchange, Unix time; open while it lies ahead.",
    ["exchange"],
)
RECORDS: Final = Counter(
    "onebook_transactions_records", "Records delivered by type.", ["exchange", "type"]
)
UNREADABLE: Final = Counter(
    "onebook_transactions_unreadable_rows",
    "Rows of the exchange that did not fit the mapping; records give them as `other`.",
    ["exchange"],
)
UNKNOWN: Final = Counter(
    "onebook_transactions_unknown_kinds",
    "Records of kind `other`: the exchange uses a word that the mapping does not know.",
    ["exchange"],
)
COLLECTED: Final = Counter(
    "onebook_transactions_collected_records", "Records added to the collection.", ["exchange"]
)
COLLECTIONS: Final = Counter(
    "onebook_transactions_collections",
    "Collections of an account by outcome: ok, incomplete, busy (another process collects it), "
    "failed.",
    ["exchange", "outcome"],
)
COLLECT_EVERY: Final = Gauge(
    "onebook_transactions_collect_every_seconds",
    "transactions.collect_every of this node; 0: it collects nothing by itself.",
)
COLLECTED_AGE: Final = Gauge(
    "onebook_transactions_collected_age_seconds",
    "Time since an account was collected last by any process, or since this one waits for it.",
    ["account", "environment"],
)
COLLECTION_UNREADABLE: Final = Counter(
    "onebook_transactions_collection_unreadable",
    "Reads of collected records that could not be opened: the master key is missing, or they are "
    "damaged.",
)

REFUSED: Final = Counter(
    "onebook_transactions_refused",
    "Requests refused because the key (429) or the node (503) has too many under way.",
    ["limit"],
)
RUNNING: Final = Gauge("onebook_transactions_running", "Requests under way.")
UNREAD: Final = Counter(
    "onebook_transactions_unread", "Streamed answers ended because the client read nothing."
)
LIVE_SUBSCRIPTIONS: Final = Gauge(
    "onebook_transactions_live_subscriptions",
    "Subscriptions that get new records as they happen.",
    ["exchange"],
)
LIVE_RECORDS: Final = Counter(
    "onebook_transactions_live_records", "New and changed records that were pushed.", ["exchange"]
)
LIVE_READS: Final = Counter(
    "onebook_transactions_live_reads",
    "Reads of what is new in an account, by outcome: ok or failed.",
    ["exchange", "outcome"],
)
LIVE_STREAMS: Final = Gauge(
    "onebook_transactions_live_streams", "Private streams of accounts that are open.", ["exchange"]
)
LIVE_STREAMS_MISSING: Final = Gauge(
    "onebook_transactions_live_streams_missing",
    "Private streams of followed accounts that are not open.",
    ["exchange"],
)
LIVE_BEHIND: Final = Gauge(
    "onebook_transactions_live_behind_seconds",
    "Age of the last complete read of the followed account that is furthest behind.",
    ["exchange"],
)
LIVE_STREAM_LOSSES: Final = Counter(
    "onebook_transactions_live_stream_losses",
    "Private streams of accounts that ended, by the exchange or with the last subscription.",
    ["exchange"],
)

OK: Final = "ok"
TOO_OLD: Final = "too_old"
CURSOR_GONE: Final = "cursor_gone"
CANCELLED: Final = "cancelled"  # the client has gone
KEY: Final = "key"
NODE: Final = "node"

# A counter without a sample is absent, and `increase` cannot see the first one.
for _limit in (KEY, NODE):
    REFUSED.labels(_limit)
