"""The audit trail: one row per change made by an operator.

Each row is written in the transaction of its change, so that neither exists without the other. The
only exception is a new master key, which changes a file and many rows: its row is written
afterwards.
"""

from sqlalchemy import Select, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from onebook.store.database import Database, uninterrupted, value_of
from onebook.store.rows import AuditedChange, ChangeRow
from onebook.store.tables import changes, keys

COLUMNS = [column for column in changes.columns if column.name != "id"]


class AuditStore:
    """The audit trail."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @uninterrupted
    async def record(self, change: AuditedChange, action: str, subject: str) -> None:
        """Add a change made outside the stores of accounts and keys."""
        async with self.database.writing() as connection:
            await record(connection, change, action, subject)

    async def changes(
        self, subject: str | None, *, since_ms: int, until_ms: int, rows_max: int
    ) -> list[ChangeRow]:
        """List changes in a time range, newest first; those of an account include its keys."""
        rows = await self.database.rows(_trail(subject, since_ms, until_ms, rows_max))
        return [value_of(row, ChangeRow) for row in rows]


async def record(
    connection: AsyncConnection,
    change: AuditedChange,
    action: str,
    subject: str,
    *,
    before: str = "",
    after: str = "",
) -> None:
    """Add a change to the audit trail."""
    row = {
        "changed_at_ms": change.now_ms,
        "changed_by": change.by,
        "action": action,
        "subject": subject,
        "before": before,
        "after": after,
        "reason": change.reason,
    }
    await connection.execute(changes.insert().values(row))


def _trail(
    subject: str | None, since_ms: int, until_ms: int, rows_max: int
) -> Select[tuple[object, ...]]:
    found = select(*COLUMNS).where(
        changes.c.changed_at_ms >= since_ms, changes.c.changed_at_ms < until_ms
    )
    if subject is not None:
        theirs = select(keys.c.key_id).where(keys.c.account_id == subject)
        found = found.where(or_(changes.c.subject == subject, changes.c.subject.in_(theirs)))
    return found.order_by(changes.c.id.desc()).limit(rows_max)
