"""Delivered bytes by key and period; each batch is counted once."""

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Final

from sqlalchemy import Delete, delete, func, select

from onebook.store.database import Database, uninterrupted
from onebook.store.rows import UsageCell
from onebook.store.tables import usage, usage_batches

CELLS_AT_ONCE: Final = 500  # cells of a statement, which takes 2 ms to build
BATCHES_KEPT: Final = 2  # per node epoch, whatever their age; a usage file has no more


class UsageStore:
    """Delivered bytes."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @uninterrupted
    async def apply(
        self, batch: tuple[str, int], deltas: Mapping[UsageCell, int], now_ms: int
    ) -> dict[UsageCell, int] | None:
        """Add a batch (node epoch, number) of bytes, once.

        Returns:
            The new totals of the cells in the batch; None if the batch was already counted.
        """
        epoch, seq = batch
        entry = self.database.insert(usage_batches).values(
            node_epoch=epoch, seq=seq, applied_at_ms=now_ms
        )
        # RETURNING instead of rowcount, because some drivers return -1 for a row that was not
        # inserted.
        entry_seq = entry.on_conflict_do_nothing().returning(usage_batches.c.seq)
        new = self.database.insert(usage)
        add = new.on_conflict_do_update(
            index_elements=[usage.c.key_id, usage.c.period_start_ms],
            set_={"bytes": usage.c.bytes + new.excluded.bytes},
        ).returning(usage.c.key_id, usage.c.period_start_ms, usage.c.bytes)
        cells = iter(sorted(deltas))  # on all nodes alike, to avoid deadlocks
        totals: dict[UsageCell, int] = {}
        async with self.database.writing() as connection:
            if (await connection.execute(entry_seq)).first() is None:
                return None
            while part := tuple(islice(cells, CELLS_AT_ONCE)):
                rows = [
                    {
                        "key_id": cell.key_id,
                        "period_start_ms": cell.period_start_ms,
                        "bytes": deltas[cell],
                    }
                    for cell in part
                ]
                for row in await connection.execute(add, rows):
                    totals[UsageCell(row[0], row[1])] = row[2]
        return totals

    async def between(self, since_ms: int, until_ms: int) -> dict[UsageCell, int]:
        """Return the bytes of all keys in the periods that start within a time range."""
        within = (usage.c.period_start_ms >= since_ms, usage.c.period_start_ms < until_ms)
        rows = await self.database.rows(select(usage).where(*within))
        return {UsageCell(row.key_id, row.period_start_ms): row.bytes for row in rows}

    async def total(self, cell: UsageCell) -> int:
        """Return the bytes of a key in a period."""
        return (await self.totals([cell])).get(cell, 0)

    async def totals(self, cells: Collection[UsageCell]) -> dict[UsageCell, int]:
        """Return the bytes of keys in their periods; cells without bytes are omitted."""
        # Both databases use the index for a list of keys with a range, but not for a list of pairs.
        oldest_ms = min((cell.period_start_ms for cell in cells), default=0)
        recent = usage.c.key_id.in_({cell.key_id for cell in cells})
        rows = await self.database.rows(
            select(usage).where(recent, usage.c.period_start_ms >= oldest_ms)
        )
        found = {UsageCell(row.key_id, row.period_start_ms): row.bytes for row in rows}
        return {cell: found[cell] for cell in cells if cell in found}


def forget_batches(before_ms: int) -> Delete:
    """Delete batches that were applied before a time.

    The last batches of every node are kept, because a usage file written before a crash may be
    applied much later.
    """
    same_node = usage_batches.alias()
    newest = select(func.max(same_node.c.seq)).where(
        same_node.c.node_epoch == usage_batches.c.node_epoch
    )
    superseded = usage_batches.c.seq <= newest.scalar_subquery() - BATCHES_KEPT
    return delete(usage_batches).where(usage_batches.c.applied_at_ms < before_ms, superseded)
