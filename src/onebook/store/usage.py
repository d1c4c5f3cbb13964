"""Delivered bytes by key and period, counted once for each batch."""

from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy import Delete, delete, func, select

from onebook.store.database import Database, whole
from onebook.store.rows import UsageCell
from onebook.store.tables import usage, usage_batches

BATCHES_KEPT: Final = 2  # of every node epoch, however old: a usage file holds no more


class UsageStore:
    """Delivered bytes."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @whole
    async def apply(
        self, batch: tuple[str, int], deltas: Mapping[UsageCell, int], now_ms: int
    ) -> dict[UsageCell, int] | None:
        """Add a batch (node epoch, number) of bytes, once.

        Returns:
            The new totals of the cells in the batch; None if this batch was counted before.
        """
        epoch, seq = batch
        entry = self.database.insert(usage_batches).values(
            node_epoch=epoch, seq=seq, applied_at_ms=now_ms
        )
        # RETURNING, not rowcount: some drivers give -1 for a row that was not inserted.
        entry_seq = entry.on_conflict_do_nothing().returning(usage_batches.c.seq)
        new = self.database.insert(usage)
        add = new.on_conflict_do_update(
            index_elements=[usage.c.key_id, usage.c.period_start_ms],
            set_={"bytes": usage.c.bytes + new.excluded.bytes},
        ).returning(usage.c.key_id, usage.c.period_start_ms, usage.c.bytes)
        # In one order on every node, to avoid deadlocks.
        rows = [
            {"key_id": cell.key_id, "period_start_ms": cell.period_start_ms, "bytes": count}
            for cell, count in sorted(deltas.items())
        ]
        async with self.database.writing() as connection:
            if (await connection.execute(entry_seq)).first() is None:
                return None
            totals = (await connection.execute(add, rows)).all() if rows else []
            return {UsageCell(row[0], row[1]): row[2] for row in totals}

    async def between(self, since_ms: int, until_ms: int) -> dict[UsageCell, int]:
        """The bytes counted for every key in the periods that begin in a span of time."""
        within = (usage.c.period_start_ms >= since_ms, usage.c.period_start_ms < until_ms)
        rows = await self.database.rows(select(usage).where(*within))
        return {UsageCell(row.key_id, row.period_start_ms): row.bytes for row in rows}

    async def total(self, cell: UsageCell) -> int:
        """The bytes counted for a key in a period."""
        return (await self.totals([cell])).get(cell, 0)

    async def totals(self, cells: Collection[UsageCell]) -> dict[UsageCell, int]:
        """The bytes counted for keys in their periods; what has none is left out."""
        # Both databases use the index for many keys and a range, but not for many pairs.
        oldest_ms = min((cell.period_start_ms for cell in cells), default=0)
        recent = usage.c.key_id.in_({cell.key_id for cell in cells})
        rows = await self.database.rows(
            select(usage).where(recent, usage.c.period_start_ms >= oldest_ms)
        )
        found = {UsageCell(row.key_id, row.period_start_ms): row.bytes for row in rows}
        return {cell: found[cell] for cell in cells if cell in found}


def forget_batches(before_ms: int) -> Delete:
    """Delete the batches that were applied before a time.

    The last batches of every node stay: a usage file from before a crash may be applied long after.
    """
    same_node = usage_batches.alias()
    newest = select(func.max(same_node.c.seq)).where(
        same_node.c.node_epoch == usage_batches.c.node_epoch
    )
    superseded = usage_batches.c.seq <= newest.scalar_subquery() - BATCHES_KEPT
    return delete(usage_batches).where(usage_batches.c.applied_at_ms < before_ms, superseded)
