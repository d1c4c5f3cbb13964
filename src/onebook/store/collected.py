"""Collected transactions: records, covered time ranges, and readings of holdings.

Records and the range they complete are written in one transaction, which also checks the writer's
lease, so that no range is covered without its records, even if a process is killed.
"""

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import ColumnElement, Table, and_, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from onebook.store.database import Database, columns_of, uninterrupted, value_of
from onebook.store.leases import Lease, extend
from onebook.store.rows import CollectedRow, ListRow, RangeRow, ReadingRow
from onebook.store.tables import (
    collected_lists,
    collected_ranges,
    collected_readings,
    collected_records,
)


class CollectedStore:
    """Collected transactions of exchange accounts."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def lists(self, account: str, environment: str) -> list[ListRow]:
        """Return the collected lists of an account."""
        rows = await self.database.rows(
            select(collected_lists)
            .where(*_account(collected_lists, account, environment))
            .order_by(collected_lists.c.name)
        )
        return [value_of(row, ListRow) for row in rows]

    @uninterrupted
    async def add_list(self, account: str, environment: str, name: str) -> ListRow:
        """Return a list of an account, created if needed."""
        values = {"account": account, "environment": environment, "name": name}
        new = self.database.insert(collected_lists).values(values | {"scope": "", "records": 0})
        here = [*_account(collected_lists, account, environment), collected_lists.c.name == name]
        async with self.database.writing() as connection:
            await connection.execute(new.on_conflict_do_nothing())
            found = await connection.execute(select(collected_lists).where(*here))
            return value_of(found.one(), ListRow)

    async def ranges(self, list_ids: Collection[int]) -> dict[int, list[RangeRow]]:
        """Return the ranges of lists, oldest first."""
        rows = await self.database.rows(
            select(collected_ranges)
            .where(collected_ranges.c.list_id.in_(list_ids))
            .order_by(collected_ranges.c.from_ms)
        )
        found: dict[int, list[RangeRow]] = {each: [] for each in list_ids}
        for row in rows:
            found[row.list_id].append(RangeRow(row.from_ms, row.to_ms, row.state))
        return found

    @uninterrupted
    async def forget_ranges(
        self, lease: Lease, list_id: int, scope: str, parts: Collection[int]
    ) -> None:
        """Delete the ranges of a changed list, so that its parts are read again.

        Raises:
            LeaseLost: Another process collects this account.
        """
        async with self.database.writing() as connection:
            await extend(connection, lease)
            await connection.execute(
                delete(collected_ranges).where(collected_ranges.c.list_id.in_(parts))
            )
            of_list = update(collected_lists).where(collected_lists.c.list_id == list_id)
            await connection.execute(of_list.values(scope=scope))

    @uninterrupted
    async def write(
        self,
        lease: Lease,
        list_id: int,
        records: Sequence[CollectedRow],
        covered: Sequence[tuple[int, RangeRow]],
    ) -> int:
        """Write records, replacing older states, and the ranges they complete.

        Args:
            covered: Ranges by the part of the list that was read; the part is in `lists`.

        Returns:
            The number of new records.

        Raises:
            LeaseLost: Another process collects this account.
        """
        by_id = {record.record_id: {"list_id": list_id} | columns_of(record) for record in records}
        table, new = collected_records, 0
        put = self.database.insert(table)
        put = put.on_conflict_do_update(
            index_elements=[table.c.list_id, table.c.record_id],
            set_={
                name: put.excluded[name] for name in ("at_ms", "type", "pending", "sealed", "body")
            },
        )
        async with self.database.writing() as connection:
            await extend(connection, lease)
            if by_id:
                mine = and_(table.c.list_id == list_id, table.c.record_id.in_(by_id))
                known = await connection.execute(select(func.count()).where(mine))
                new = len(by_id) - int(known.scalar_one())
                await connection.execute(put, list(by_id.values()))
                count = collected_lists.c.records + new
                of_list = update(collected_lists).where(collected_lists.c.list_id == list_id)
                await connection.execute(of_list.values(records=count))
            for part_id, part in covered:
                await self.cover(connection, part_id, part)
        return new

    async def cover(self, connection: AsyncConnection, list_id: int, covered: RangeRow) -> None:
        """Add a range to a part of a list, within a transaction."""
        table = collected_ranges
        of_list = table.c.list_id == list_id
        rows = await connection.execute(select(table).where(of_list))
        before = [RangeRow(row.from_ms, row.to_ms, row.state) for row in rows]
        after = with_range(before, covered)
        await connection.execute(delete(table).where(of_list))
        values = [{"list_id": list_id} | columns_of(each) for each in after]
        await connection.execute(self.database.insert(table), values)

    async def page(
        self,
        list_id: int,
        *,
        types: Collection[str],
        from_ms: int,
        to_ms: int,
        below: tuple[int, str] | None,
        limit: int,
    ) -> list[CollectedRow]:
        """Return records of some types in a range, newest first.

        Args:
            from_ms: Oldest time, inclusive.
            to_ms: Newest time, exclusive.
            below: Time and id of the last record of the previous page.
        """
        table = collected_records
        wanted: list[ColumnElement[bool]] = [
            table.c.list_id == list_id,
            table.c.at_ms >= from_ms,
            table.c.at_ms < to_ms,
            table.c.type.in_(types),
        ]
        if below is not None:
            at_ms, record_id = below
            same = and_(table.c.at_ms == at_ms, table.c.record_id < record_id)
            wanted += [table.c.at_ms <= at_ms, or_(table.c.at_ms < at_ms, same)]
        rows = await self.database.rows(
            select(table)
            .where(*wanted)
            .order_by(table.c.at_ms.desc(), table.c.record_id.desc())
            .limit(limit)
        )
        return [value_of(row, CollectedRow) for row in rows]

    async def oldest_pending_ms(self, list_id: int, since_ms: int) -> int | None:
        """Return the time of the oldest record since `since_ms` whose event is unfinished."""
        table = collected_records
        of_list = and_(table.c.list_id == list_id, table.c.at_ms >= since_ms, table.c.pending)
        row = await self.database.row(select(func.min(table.c.at_ms).label("at_ms")).where(of_list))
        return None if row is None else row.at_ms

    async def ids(self, list_id: int, before_ms: int, limit: int) -> list[str]:
        """Return ids of records of a list that are older than a time."""
        table = collected_records
        older = and_(table.c.list_id == list_id, table.c.at_ms < before_ms)
        rows = await self.database.rows(select(table.c.record_id).where(older).limit(limit))
        return [row.record_id for row in rows]

    @uninterrupted
    async def delete_records(self, lease: Lease, list_id: int, record_ids: Collection[str]) -> int:
        """Delete records of a list; return their number.

        Raises:
            LeaseLost: Another process collects this account.
        """
        mine = and_(
            collected_records.c.list_id == list_id, collected_records.c.record_id.in_(record_ids)
        )
        async with self.database.writing() as connection:
            await extend(connection, lease)
            gone = (await connection.execute(delete(collected_records).where(mine))).rowcount
            count = collected_lists.c.records - gone
            of_list = update(collected_lists).where(collected_lists.c.list_id == list_id)
            await connection.execute(of_list.values(records=count))
        return gone

    @uninterrupted
    async def replace_ranges(
        self, lease: Lease, list_ids: Collection[int], covered: RangeRow
    ) -> None:
        """Replace the coverage of parts of lists in a range.

        Raises:
            LeaseLost: Another process collects this account.
        """
        async with self.database.writing() as connection:
            await extend(connection, lease)
            for list_id in list_ids:
                await self.cover(connection, list_id, covered)

    @uninterrupted
    async def delete_lists(self, lease: Lease, list_ids: Collection[int]) -> None:
        """Delete lists without records, and their ranges.

        Raises:
            LeaseLost: Another process collects this account.
        """
        async with self.database.writing() as connection:
            await extend(connection, lease)
            for table in (collected_ranges, collected_lists):
                await connection.execute(delete(table).where(table.c.list_id.in_(list_ids)))

    @uninterrupted
    async def delete_readings(
        self, lease: Lease, account: str, environment: str, before_ms: int
    ) -> int:
        """Delete readings of the holdings older than a time; return their number.

        Raises:
            LeaseLost: Another process collects this account.
        """
        table = collected_readings
        older = (*_account(table, account, environment), table.c.at_ms < before_ms)
        async with self.database.writing() as connection:
            await extend(connection, lease)
            return (await connection.execute(delete(table).where(*older))).rowcount

    @uninterrupted
    async def add_reading(
        self, lease: Lease, account: str, environment: str, reading: ReadingRow
    ) -> None:
        """Store a reading of an account's holdings.

        Raises:
            LeaseLost: Another process collects this account.
        """
        values = {"account": account, "environment": environment} | columns_of(reading)
        new = self.database.insert(collected_readings).values(values).on_conflict_do_nothing()
        async with self.database.writing() as connection:
            await extend(connection, lease)
            await connection.execute(new)

    async def readings(
        self, account: str, environment: str, *, from_ms: int, to_ms: int, limit: int
    ) -> list[ReadingRow]:
        """Return readings of an account's holdings in a range, newest first."""
        table = collected_readings
        rows = await self.database.rows(
            select(table)
            .where(
                *_account(table, account, environment),
                table.c.at_ms >= from_ms,
                table.c.at_ms <= to_ms,
            )
            .order_by(table.c.at_ms.desc())
            .limit(limit)
        )
        return [value_of(row, ReadingRow) for row in rows]


def with_range(ranges: Iterable[RangeRow], new: RangeRow) -> list[RangeRow]:
    """Add a range: it replaces overlapping parts, and adjacent ranges are joined."""
    pieces = [new]
    for each in ranges:
        if each.from_ms < new.from_ms:
            pieces.append(RangeRow(each.from_ms, min(each.to_ms, new.from_ms - 1), each.state))
        if each.to_ms > new.to_ms:
            pieces.append(RangeRow(max(each.from_ms, new.to_ms + 1), each.to_ms, each.state))
    pieces.sort(key=lambda each: each.from_ms)
    found = pieces[:1]
    for each in pieces[1:]:
        last = found[-1]
        if each.from_ms == last.to_ms + 1 and each.state == last.state:
            found[-1] = RangeRow(last.from_ms, each.to_ms, each.state)
        else:
            found.append(each)
    return found


def _account(table: Table, account: str, environment: str) -> list[ColumnElement[bool]]:
    return [table.c.account == account, table.c.environment == environment]
