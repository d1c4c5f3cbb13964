"""Database of accounts, keys, sessions, usage and exchange credentials: SQLite or PostgreSQL."""

from onebook.store.rows import (
    AccountRow,
    AuditedChange,
    ChangeRow,
    CollectedRow,
    CredentialsRow,
    DataKeyRow,
    ExportJobRow,
    KeyRow,
    ListRow,
    PepperRow,
    RangeRow,
    ReadingRow,
    Rehashed,
    SecretRow,
    SessionRow,
    UsageCell,
)
from onebook.store.store import Store

__all__ = [
    "AccountRow",
    "AuditedChange",
    "ChangeRow",
    "CollectedRow",
    "CredentialsRow",
    "DataKeyRow",
    "ExportJobRow",
    "KeyRow",
    "ListRow",
    "PepperRow",
    "RangeRow",
    "ReadingRow",
    "Rehashed",
    "SecretRow",
    "SessionRow",
    "Store",
    "UsageCell",
]
