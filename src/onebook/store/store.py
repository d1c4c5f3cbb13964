"""The store: methods that take and return plain values, over SQLite or PostgreSQL.

The rules (status transitions, session lifetimes, allowances) are in `accounts`. Each aggregate has
a class and a file; `database.py` has the transactions.
"""

from typing import Self

from onebook.store.accounts import AccountStore
from onebook.store.audit import AuditStore
from onebook.store.collected import CollectedStore
from onebook.store.credentials import CredentialsStore
from onebook.store.database import Database, FactStore, uninterrupted
from onebook.store.exports import ExportStore
from onebook.store.leases import LeaseStore
from onebook.store.sessions import SessionStore, forget_sessions
from onebook.store.usage import UsageStore, forget_batches


class Store:
    """All aggregates of one database, as an async context manager that owns its connections.

    Only `database.upgrade` creates a SQLite file. All other methods raise `DatabaseUnavailable` if
    the file is missing or has been replaced.
    """

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        self.accounts = AccountStore(self.database)
        self.sessions = SessionStore(self.database)
        self.usage = UsageStore(self.database)
        self.credentials = CredentialsStore(self.database)
        self.collected = CollectedStore(self.database)
        self.exports = ExportStore(self.database)
        self.leases = LeaseStore(self.database)
        self.audit = AuditStore(self.database)
        self.facts = FactStore(self.database)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.database.close()

    @uninterrupted
    async def prune(self, *, sessions_before_ms: int, batches_before_ms: int) -> None:
        """Delete sessions that ended and usage batches applied before the given times."""
        async with self.database.writing() as connection:
            await connection.execute(forget_sessions(sessions_before_ms))
            await connection.execute(forget_batches(batches_before_ms))
