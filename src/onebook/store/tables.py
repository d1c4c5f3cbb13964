"""Tables in SQLAlchemy Core; migrations create them.

Times are Unix milliseconds. No secret is stored in plain text: keys and tokens are digests under
peppers outside the database, exchange credentials are encrypted.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    or_,
)

# SQLite generates row ids only for columns declared exactly INTEGER PRIMARY KEY.
RowId = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "fk": "%(table_name)s_%(column_0_name)s_fk",
        "ix": "%(table_name)s_%(column_0_name)s_ix",
        "uq": "%(table_name)s_%(column_0_name)s_uq",
    }
)

accounts = Table(
    "accounts",
    metadata,
    Column("account_id", Text, primary_key=True),
    Column("username", Text, nullable=False, unique=True),
    Column("status", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("changed_at_ms", BigInteger, nullable=False),
    Column("changed_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("suspensions", BigInteger, nullable=False, server_default="0"),
    Index(None, "changed_at_ms"),
)

keys = Table(
    "keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("account_id", Text, ForeignKey(accounts.c.account_id), nullable=False),
    Column("tier", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("prefix", Text, nullable=False),  # of the newest secret, for lists
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger),
    Column("last_used_at_ms", BigInteger),
    Column("changed_at_ms", BigInteger, nullable=False),
    Column("changed_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("suspensions", BigInteger, nullable=False, server_default="0"),  # includes expiries
    Column("allowance_bytes", BigInteger),  # null: that of the settings
    Column("fees", Text, nullable=False, server_default="{}"),  # JSON: percent by exchange
    Index(None, "account_id"),
    Index(None, "changed_at_ms"),
)

# Peppers of the digests, by ids that reveal nothing about them; the newest is current.
peppers = Table(
    "peppers",
    metadata,
    Column("id", RowId, Identity(), primary_key=True),
    Column("pepper_id", Text, nullable=False, unique=True),
    Column("current_from_ms", BigInteger, nullable=False),
    Column("retired_at_ms", BigInteger),
)

# A key has two secrets during a rotation, and one row per secret and pepper it was used with;
# usage, limits and sessions are shared.
key_secrets = Table(
    "key_secrets",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("key_id", Text, ForeignKey(keys.c.key_id), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("retires_at_ms", BigInteger),
    Column("pepper_id", Text, nullable=False, server_default=""),
    Column("rehashed_at_ms", BigInteger),  # when the secret got a row under a newer pepper
    Index(None, "key_id"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", RowId, Identity(), primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("session_id", Text, nullable=False, unique=True),
    Column("key_id", Text, ForeignKey(keys.c.key_id), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    Column("pepper_id", Text, nullable=False, server_default=""),
    Index(None, "key_id"),
    Index(None, "expires_at_ms"),
)

usage = Table(
    "usage",
    metadata,
    Column("key_id", Text, ForeignKey(keys.c.key_id), primary_key=True),
    Column("period_start_ms", BigInteger, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)

# Makes flushes idempotent: the batches listed here have been counted.
usage_batches = Table(
    "usage_batches",
    metadata,
    Column("node_epoch", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("applied_at_ms", BigInteger, nullable=False),
    Index(None, "applied_at_ms"),
)

credentials = Table(
    "credentials",
    metadata,
    Column("exchange", Text, primary_key=True),
    Column("environment", Text, primary_key=True),
    Column("kek_id", Text, nullable=False),
    Column("ciphertext", LargeBinary, nullable=False),
    Column("nonce", LargeBinary, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
)

# Data keys encrypted with the master key, such as that of the collected records.
data_keys = Table(
    "data_keys",
    metadata,
    Column("name", Text, primary_key=True),
    Column("kek_id", Text, nullable=False),
    Column("wrapped", LargeBinary, nullable=False),
)

# A list of an exchange account whose records are collected.
collected_lists = Table(
    "collected_lists",
    metadata,
    Column("list_id", RowId, Identity(), primary_key=True),
    Column("account", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),  # digest of the queries used to read it
    Column("records", BigInteger, nullable=False),
    UniqueConstraint("account", "environment", "name"),
)

collected_records = Table(
    "collected_records",
    metadata,
    Column("list_id", BigInteger, ForeignKey(collected_lists.c.list_id), primary_key=True),
    Column("record_id", Text, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("pending", Boolean, nullable=False),
    Column("sealed", Boolean, nullable=False),
    Column("body", LargeBinary, nullable=False),  # compressed JSON, encrypted if sealed
    Index(None, "list_id", "at_ms", "record_id"),
)

# Completely read ranges of a list; they do not overlap.
collected_ranges = Table(
    "collected_ranges",
    metadata,
    Column("list_id", BigInteger, ForeignKey(collected_lists.c.list_id), primary_key=True),
    Column("from_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("to_ms", BigInteger, nullable=False),  # inclusive
    Column("state", Text, nullable=False),  # "": complete; otherwise the code of the reason
)

# Readings of an account's holdings.
collected_readings = Table(
    "collected_readings",
    metadata,
    Column("account", Text, primary_key=True),
    Column("environment", Text, primary_key=True),
    Column("at_ms", BigInteger, primary_key=True),
    Column("sealed", Boolean, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

# Work that only one process may do at a time.
leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
)

# Exports of exchanges: their state at the exchange, shared by all nodes.
export_jobs = Table(
    "export_jobs",
    metadata,
    Column("exchange", Text, primary_key=True),
    Column("environment", Text, primary_key=True),
    Column("owner", Text, primary_key=True),  # digest of the user at the exchange
    Column("name", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("requested_at_ms", BigInteger, nullable=False),
    Column("changed_at_ms", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),  # of a failure
    Column("reference", Text, nullable=False, server_default=""),  # the exchange's id of the export
)

# Uses of request budgets that an exchange limits per day or month.
budgets = Table(
    "budgets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("uses", Text, nullable=False),  # JSON: Unix ms of each use, oldest first
)

# The audit trail: every change by an operator, written in the transaction of the change.
changes = Table(
    "changes",
    metadata,
    Column("id", RowId, Identity(), primary_key=True),
    Column("changed_at_ms", BigInteger, nullable=False),
    Column("changed_by", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),  # id of an account or key, or an environment
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Index(None, "changed_at_ms"),
    Index(None, "subject"),
)

# Facts about the database as a whole, such as when it was last written.
facts = Table(
    "facts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)


def open_after(at_ms: int) -> ColumnElement[bool]:
    """Select the secrets that are still valid after a time."""
    return or_(key_secrets.c.retires_at_ms.is_(None), key_secrets.c.retires_at_ms > at_ms)
