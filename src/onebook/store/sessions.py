"""REST sessions, by the digest of their token."""

from collections.abc import Collection

from sqlalchemy import ColumnElement, Delete, Update, delete, select, update

from onebook.model import KeyStatus
from onebook.store.database import Database, columns_of, uninterrupted, value_of
from onebook.store.rows import SessionRow
from onebook.store.tables import accounts, key_secrets, keys, open_after, sessions


class SessionStore:
    """REST sessions."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @uninterrupted
    async def create(
        self,
        session: SessionRow,
        digest: bytes,
        *,
        secret: bytes,
        live_max: int,
        pepper_id: str = "",
    ) -> list[bytes] | None:
        """Add a session, delete the oldest ones beyond `live_max`, and return their digests.

        Returns None without adding a session if the digest `secret` or its key is no longer valid,
        because nodes learn of a change up to a second later.
        """
        row = columns_of(session)
        mine = (
            sessions.c.key_id == session.key_id,
            sessions.c.expires_at_ms > session.created_at_ms,
        )
        excess = select(sessions.c.id).where(*mine).order_by(sessions.c.id.desc())
        gone = delete(sessions).where(sessions.c.id.in_(excess.offset(live_max)))
        async with self.database.writing() as connection:
            # Locked, because otherwise two nodes that add sessions to one key would both keep the
            # oldest, and a concurrent suspension would not end this session.
            usable = select(keys.c.key_id).join(accounts).join(key_secrets).with_for_update()
            usable = usable.where(
                keys.c.key_id == session.key_id,
                keys.c.status == KeyStatus.ACTIVE,
                accounts.c.status == KeyStatus.ACTIVE,
                key_secrets.c.digest == secret,
                open_after(session.created_at_ms),
            )
            if (await connection.execute(usable)).first() is None:
                return None
            await connection.execute(
                sessions.insert().values(digest=digest, pepper_id=pepper_id, **row)
            )
            return [
                row.digest for row in await connection.execute(gone.returning(sessions.c.digest))
            ]

    async def find(self, digests: Collection[bytes]) -> dict[bytes, SessionRow]:
        """Find sessions by the digests of their tokens; unknown digests are omitted."""
        columns = [sessions.c[name] for name in SessionRow.__struct_fields__]
        found = select(sessions.c.digest, *columns).where(sessions.c.digest.in_(digests))
        return {row.digest: value_of(row, SessionRow) for row in await self.database.rows(found)}


def end_sessions(which: ColumnElement[bool]) -> Update:
    """End sessions at once, independently of node clocks: they expire at their start."""
    return update(sessions).where(which).values(expires_at_ms=sessions.c.created_at_ms)


def forget_sessions(before_ms: int) -> Delete:
    """Delete sessions that ended before a time."""
    return delete(sessions).where(sessions.c.expires_at_ms < before_ms)
