"""Encrypted credentials of exchange environments, and data keys under the same master key."""

from sqlalchemy import ColumnElement, delete, select, update

from onebook.store.audit import record
from onebook.store.database import Database, columns_of, uninterrupted, value_of
from onebook.store.rows import AuditedChange, CredentialsRow, DataKeyRow
from onebook.store.tables import credentials, data_keys


class CredentialsStore:
    """Encrypted credentials of exchange environments."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @uninterrupted
    async def put_credentials(
        self, row: CredentialsRow, change: AuditedChange | None = None
    ) -> None:
        """Store the credentials of an exchange environment, replacing previous ones."""
        values = columns_of(row)
        put = self.database.insert(credentials).values(values)
        put = put.on_conflict_do_update(
            index_elements=[credentials.c.exchange, credentials.c.environment], set_=values
        )
        async with self.database.writing() as connection:
            await connection.execute(put)
            if change is not None:
                subject = f"{row.exchange}/{row.environment}"
                await record(connection, change, "set_credentials", subject)

    async def credentials(self, exchange: str, environment: str) -> CredentialsRow | None:
        """Find the credentials of an exchange environment."""
        row = await self.database.row(
            select(credentials).where(*_environment(exchange, environment))
        )
        return None if row is None else value_of(row, CredentialsRow)

    async def list_credentials(self) -> list[CredentialsRow]:
        """List the exchange environments with credentials."""
        order = (credentials.c.exchange, credentials.c.environment)
        rows = await self.database.rows(select(credentials).order_by(*order))
        return [value_of(row, CredentialsRow) for row in rows]

    @uninterrupted
    async def rewrap_credentials(self, before: CredentialsRow, after: CredentialsRow) -> bool:
        """Replace credentials if they still equal `before`; return whether they did.

        This allows changing the encryption key while the service runs, and resuming an interrupted
        change.
        """
        same = _environment(before.exchange, before.environment)
        rewrapped = (
            update(credentials)
            .where(*same, credentials.c.ciphertext == before.ciphertext)
            .values(kek_id=after.kek_id, ciphertext=after.ciphertext, nonce=after.nonce)
            .returning(credentials.c.exchange)
        )
        async with self.database.writing() as connection:
            return (await connection.execute(rewrapped)).first() is not None

    @uninterrupted
    async def delete_credentials(
        self, exchange: str, environment: str, change: AuditedChange | None = None
    ) -> bool:
        """Delete the credentials of an exchange environment; return whether any existed."""
        gone = delete(credentials).where(*_environment(exchange, environment))
        async with self.database.writing() as connection:
            found = await connection.execute(gone.returning(credentials.c.exchange))
            removed = found.first() is not None
            if removed and change is not None:
                subject = f"{exchange}/{environment}"
                await record(connection, change, "remove_credentials", subject)
            return removed

    async def data_keys(self) -> list[DataKeyRow]:
        """List the data keys."""
        rows = await self.database.rows(select(data_keys).order_by(data_keys.c.name))
        return [value_of(row, DataKeyRow) for row in rows]

    @uninterrupted
    async def add_data_key(self, row: DataKeyRow) -> DataKeyRow:
        """Store a data key unless its name exists; return the stored one."""
        new = self.database.insert(data_keys).values(columns_of(row)).on_conflict_do_nothing()
        async with self.database.writing() as connection:
            await connection.execute(new)
            kept = select(data_keys).where(data_keys.c.name == row.name)
            return value_of((await connection.execute(kept)).one(), DataKeyRow)

    @uninterrupted
    async def rewrap_data_key(self, before: DataKeyRow, after: DataKeyRow) -> bool:
        """Replace a data key if it still equals `before`; return whether it did."""
        rewrapped = (
            update(data_keys)
            .where(data_keys.c.name == before.name, data_keys.c.wrapped == before.wrapped)
            .values(kek_id=after.kek_id, wrapped=after.wrapped)
            .returning(data_keys.c.name)
        )
        async with self.database.writing() as connection:
            return (await connection.execute(rewrapped)).first() is not None


def _environment(exchange: str, environment: str) -> tuple[ColumnElement[bool], ...]:
    return credentials.c.exchange == exchange, credentials.c.environment == environment
