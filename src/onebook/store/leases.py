"""Leases: work that only one process may do at a time, over all processes of a database."""

from msgspec import Struct
from sqlalchemy import and_, delete, or_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from onebook.errors import OnebookError
from onebook.store.database import Database, columns_of, uninterrupted
from onebook.store.tables import leases


class Lease(Struct, frozen=True):
    """An exclusive right to write until a time; each write extends it."""

    name: str
    holder: str
    until_ms: int


class LeaseLost(OnebookError):
    """Another process has taken over the work."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Another process has taken over {name}.")


class LeaseStore:
    """The leases of a database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @uninterrupted
    async def acquire(self, lease: Lease, now_ms: int) -> bool:
        """Take or extend a lease; return False if another holder has it."""
        values = columns_of(lease)
        free = or_(leases.c.holder == lease.holder, leases.c.until_ms <= now_ms)
        new = self.database.insert(leases).values(values)
        taken = new.on_conflict_do_update(
            index_elements=[leases.c.name], set_=values, where=free
        ).returning(leases.c.name)
        async with self.database.writing() as connection:
            return (await connection.execute(taken)).first() is not None

    @uninterrupted
    async def release(self, lease: Lease) -> None:
        """Release a lease if this holder still has it."""
        held = and_(leases.c.name == lease.name, leases.c.holder == lease.holder)
        async with self.database.writing() as connection:
            await connection.execute(delete(leases).where(held))


async def extend(connection: AsyncConnection, lease: Lease) -> None:
    """Extend a lease within a transaction.

    Raises:
        LeaseLost: Another process has the lease.
    """
    held = and_(leases.c.name == lease.name, leases.c.holder == lease.holder)
    extended = update(leases).where(held).values(until_ms=lease.until_ms).returning(leases.c.name)
    if (await connection.execute(extended)).first() is None:
        raise LeaseLost(lease.name)
