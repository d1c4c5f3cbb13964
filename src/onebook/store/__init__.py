"""Where accounts, keys, sessions, usage and exchange credentials live: SQLite or PostgreSQL."""

from onebook.store.rows import (
    AccountRow,
    Change,
    ChangeRow,
    CredentialsRow,
    KeyRow,
    SecretRow,
    SessionRow,
    UsageCell,
)
from onebook.store.store import Store

__all__ = [
    "AccountRow",
    "Change",
    "ChangeRow",
    "CredentialsRow",
    "KeyRow",
    "SecretRow",
    "SessionRow",
    "Store",
    "UsageCell",
]
