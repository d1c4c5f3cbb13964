"""The store: plain methods that take and return values, over SQLite or PostgreSQL.

The rules (status transitions, session lifetimes, allowances) are in `accounts`. One file for each
aggregate; `database.py` has the transactions.
"""

from onebook.store.accounts import AccountStore
from onebook.store.audit import AuditStore
from onebook.store.credentials import CredentialsStore
from onebook.store.database import whole
from onebook.store.sessions import SessionStore, forget_sessions
from onebook.store.usage import UsageStore, forget_batches


class Store(AccountStore, SessionStore, UsageStore, CredentialsStore, AuditStore):
    """All aggregates of one database.

    A SQLite file is made by `upgrade` only: whatever else finds none, or another one than it began
    with, raises `DatabaseUnavailable`.
    """

    @whole
    async def prune(self, *, sessions_before_ms: int, batches_before_ms: int) -> None:
        """Delete sessions that ended, and usage batches that were applied, before a time."""
        async with self._begin(self._writes) as connection:
            await connection.execute(forget_sessions(sessions_before_ms))
            await connection.execute(forget_batches(batches_before_ms))
