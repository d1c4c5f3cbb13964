"""Prometheus metrics of the transaction interface: requests to exchanges, records delivered.

Requests to exchanges are rare and counted one by one; records are counted by batch. No label ever
contains a key, an account or a symbol.
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
    "onebook_transactions_retries", "Requests to the exchange that were retried.", ["exchange"]
)
WAITED: Final = Counter(
    "onebook_transactions_limit_wait_seconds",
    "Time that requests waited for the exchange's rate limits.",
    ["exchange"],
)
TRIPS: Final = Counter(
    "onebook_transactions_circuit_trips",
    "Answers (HTTP 403) after which requests to the exchange are paused.",
    ["exchange"],
)
OPEN_UNTIL: Final = Gauge(
    "onebook_transactions_circuit_open_until_timestamp_seconds",
    "End of the pause in requests to the exchange, Unix time; open while it is in the future.",
    ["exchange"],
)
RECORDS: Final = Counter(
    "onebook_transactions_records", "Records delivered by type.", ["exchange", "type"]
)
UNREADABLE: Final = Counter(
    "onebook_transactions_unreadable_rows",
    "Rows of the exchange that could not be mapped; their records are of kind `other`.",
    ["exchange"],
)
UNKNOWN: Final = Counter(
    "onebook_transactions_unknown_kinds",
    "Records of kind `other` because the mapping does not know the exchange's word.",
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
    "transactions.collect_every of this node; 0: no automatic collection.",
)
COLLECTED_AGE: Final = Gauge(
    "onebook_transactions_collected_age_seconds",
    "Time since the last collection of the account that has waited longest, by any process, or "
    "since this process started waiting for it.",
    ["exchange"],
)
COLLECTION_UNREADABLE: Final = Counter(
    "onebook_transactions_collection_unreadable",
    "Reads of collected records that could not be opened: the master key is missing, or they are "
    "damaged.",
)
EXPORTS: Final = Counter(
    "onebook_transactions_exports",
    "Exports that exchanges make on request, by what happened: requested, stored (downloaded and "
    "checked), failed, or full (not stored, because the directory has no room or is not writable).",
    ["exchange", "outcome"],
)
EXPORT_WAITING: Final = Gauge(
    "onebook_transactions_export_waiting_seconds",
    "Age of the oldest unfinished export when the exchange was last asked about it.",
    ["exchange"],
)
EXPORT_BYTES: Final = Gauge(
    "onebook_transactions_export_bytes",
    "Size of the directory of exports after the last download.",
)

REFUSED: Final = Counter(
    "onebook_transactions_refused",
    "Requests refused because the key (429) or the node (503) has too many running.",
    ["limit"],
)
RUNNING: Final = Gauge("onebook_transactions_running", "Running requests.")
UNREAD: Final = Counter(
    "onebook_transactions_unread", "Streamed answers ended because the client stopped reading."
)
LIVE_SUBSCRIPTIONS: Final = Gauge(
    "onebook_transactions_live_subscriptions",
    "Subscriptions to live records.",
    ["exchange"],
)
LIVE_RECORDS: Final = Counter(
    "onebook_transactions_live_records", "New and changed records pushed.", ["exchange"]
)
LIVE_READS: Final = Counter(
    "onebook_transactions_live_reads",
    "Reads of an account's new records by outcome: ok or failed.",
    ["exchange", "outcome"],
)
LIVE_STREAMS: Final = Gauge(
    "onebook_transactions_live_streams", "Open private streams of accounts.", ["exchange"]
)
LIVE_STREAMS_MISSING: Final = Gauge(
    "onebook_transactions_live_streams_missing",
    "Private streams of followed accounts that are not open.",
    ["exchange"],
)
LIVE_BEHIND: Final = Gauge(
    "onebook_transactions_live_behind_seconds",
    "Maximum age of the last complete read, over all followed accounts.",
    ["exchange"],
)
LIVE_STREAM_LOSSES: Final = Counter(
    "onebook_transactions_live_stream_losses",
    "Private streams ended by the exchange, or because the last subscription ended.",
    ["exchange"],
)

OK: Final = "ok"
TOO_OLD: Final = "too_old"
CURSOR_GONE: Final = "cursor_gone"
CANCELLED: Final = "cancelled"  # the client disconnected
KEY: Final = "key"
NODE: Final = "node"

# A counter without a sample is absent, and `increase` misses its first count.
for _limit in (KEY, NODE):
    REFUSED.labels(_limit)
