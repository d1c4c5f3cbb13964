"""Exports of exchanges (files created on request), and budgets over days and months.

A job is the state of one export at the exchange, shared by all nodes; its file is on the node that
downloaded it. A budget limits uses in a rolling window, over all processes.
"""

from typing import Final

from msgspec import json
from sqlalchemy import select, update

from onebook.store.database import Database, columns_of, uninterrupted, value_of
from onebook.store.rows import ExportJobRow
from onebook.store.tables import budgets, export_jobs

NO_USES: Final = "[]"


class ExportStore:
    """Export jobs and budgets."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def jobs(self, exchange: str, environment: str, owner: str) -> list[ExportJobRow]:
        """Return the jobs of an account, sorted by the name of the export."""
        table = export_jobs
        rows = await self.database.rows(
            select(table)
            .where(
                table.c.exchange == exchange,
                table.c.environment == environment,
                table.c.owner == owner,
            )
            .order_by(table.c.name)
        )
        return [value_of(row, ExportJobRow) for row in rows]

    async def job(
        self, exchange: str, environment: str, owner: str, name: str
    ) -> ExportJobRow | None:
        """Return a job; None if the export was not requested."""
        found = await self.jobs(exchange, environment, owner)
        return next((each for each in found if each.name == name), None)

    @uninterrupted
    async def put(self, job: ExportJobRow) -> None:
        """Write the state of a job."""
        values = columns_of(job)
        table = export_jobs
        new = self.database.insert(table).values(values)
        key = [table.c.exchange, table.c.environment, table.c.owner, table.c.name]
        async with self.database.writing() as connection:
            await connection.execute(new.on_conflict_do_update(index_elements=key, set_=values))

    @uninterrupted
    async def spend(self, name: str, *, units: int, period_ms: int, now_ms: int) -> int | None:
        """Use one unit of a budget with a limit per period.

        Returns:
            None if a unit was available, otherwise the time of the next one, Unix ms.
        """
        table = budgets
        new = self.database.insert(table).values(name=name, uses=NO_USES)
        # The update locks the row: on PostgreSQL, others wait here.
        locked = new.on_conflict_do_update(
            index_elements=[table.c.name], set_={"name": name}
        ).returning(table.c.uses)
        async with self.database.writing() as connection:
            found = (await connection.execute(locked)).one()
            since_ms = now_ms - period_ms
            uses = [each for each in json.decode(found.uses, type=list[int]) if each > since_ms]
            if len(uses) >= units:
                return uses[-units] + period_ms
            uses.append(now_ms)
            spent = update(table).where(table.c.name == name)
            await connection.execute(spent.values(uses=json.encode(sorted(uses)).decode()))
            return None

    async def uses(self, name: str) -> list[int]:
        """Return when the units of a budget were used, Unix ms; the oldest may have expired."""
        row = await self.database.row(select(budgets.c.uses).where(budgets.c.name == name))
        return [] if row is None else json.decode(row.uses, type=list[int])
