"""Accounts, keys with their secrets, and peppers; nodes poll the change stamps."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    LargeBinary,
    Text,
    bindparam,
    func,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from onebook.errors import InvalidRequest
from onebook.model import KeyStatus, Tier
from onebook.store.audit import record
from onebook.store.database import Database, columns_of, uninterrupted, value_of
from onebook.store.rows import AccountRow, AuditedChange, KeyRow, PepperRow, Rehashed, SecretRow
from onebook.store.sessions import end_sessions
from onebook.store.tables import accounts, key_secrets, keys, open_after, peppers, sessions

# Serializes the rare writes whose stamps nodes poll, so that stamps are committed in order.
CHANGES_LOCK: Final = 0x6368616E676573

_KEYS = select(
    keys.c.key_id,
    keys.c.account_id,
    accounts.c.username,
    accounts.c.status.label("account_status"),
    keys.c.tier,
    keys.c.status,
    keys.c.prefix,
    keys.c.created_at_ms,
    keys.c.expires_at_ms,
    keys.c.last_used_at_ms,
    keys.c.changed_at_ms,
    keys.c.changed_by,
    keys.c.reason,
    (keys.c.suspensions + accounts.c.suspensions).label("suspensions"),
    keys.c.allowance_bytes,
    keys.c.fees,
).join_from(keys, accounts)

_CURRENT = select(peppers.c.pepper_id).order_by(peppers.c.id.desc()).limit(1)
_OLD = select(peppers.c.pepper_id).where(
    peppers.c.id.not_in(select(peppers.c.id).order_by(peppers.c.id.desc()).limit(1))
)
_RETIRED = select(peppers.c.pepper_id).where(peppers.c.retired_at_ms.is_not(None))


class AccountStore:
    """Accounts, keys and their secrets."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @uninterrupted
    async def create_account(self, account: AccountRow) -> None:
        """Add an account.

        Raises:
            InvalidRequest: The username is taken.
        """
        row = columns_of(account)
        try:
            async with self.database.writing() as connection:
                await connection.execute(accounts.insert().values(row))
                change = AuditedChange(account.created_at_ms, account.changed_by, account.reason)
                name = account.username
                await record(connection, change, "create_account", account.account_id, after=name)
        except IntegrityError:
            raise InvalidRequest(
                f"An account with the username {account.username!r} already exists."
            ) from None

    async def account(self, id_or_username: str) -> AccountRow | None:
        """Find an account by its id or its username."""
        named = or_(accounts.c.account_id == id_or_username, accounts.c.username == id_or_username)
        row = await self.database.row(select(accounts).where(named))
        return None if row is None else value_of(row, AccountRow)

    async def list_accounts(self) -> list[AccountRow]:
        """List all accounts, oldest first."""
        order = (accounts.c.created_at_ms, accounts.c.account_id)
        return [
            value_of(row, AccountRow)
            for row in await self.database.rows(select(accounts).order_by(*order))
        ]

    @uninterrupted
    async def move_account(
        self, account_id: str, moved: tuple[KeyStatus, KeyStatus], change: AuditedChange
    ) -> bool:
        """Change an account's status from the first of `moved` to the second.

        Returns False if the status was different. If the account may no longer be used, the
        sessions of its keys end permanently.
        """
        status, following = moved
        same = (accounts.c.account_id == account_id, accounts.c.status == status)
        async with self.database.writing() as connection:
            stamp = await self._stamp(connection, change)
            stamp["suspensions"] = accounts.c.suspensions + int(following is not KeyStatus.ACTIVE)
            moving = update(accounts).where(*same).values(status=following, **stamp)
            moving_id = moving.returning(accounts.c.account_id)
            moved_one = (await connection.execute(moving_id)).first() is not None
            if moved_one and following is not KeyStatus.ACTIVE:
                theirs = select(keys.c.key_id).where(keys.c.account_id == account_id)
                await connection.execute(end_sessions(sessions.c.key_id.in_(theirs)))
            if moved_one:
                await record(
                    connection, change, "move_account", account_id, before=status, after=following
                )
            return moved_one

    @uninterrupted
    async def create_key(self, key: KeyRow, digest: bytes, *, pepper_id: str = "") -> None:
        """Add a key with the digest of its first secret under a pepper."""
        row = {column.name: getattr(key, column.name) for column in keys.columns}
        secret = {
            "digest": digest,
            "key_id": key.key_id,
            "created_at_ms": key.created_at_ms,
            "pepper_id": pepper_id,
        }
        async with self.database.writing() as connection:
            change = AuditedChange(key.changed_at_ms, key.changed_by, key.reason)
            row |= await self._stamp(connection, change)
            await _require_in_use(connection, pepper_id)
            await connection.execute(keys.insert().values(row))
            await connection.execute(key_secrets.insert().values(secret))
            await record(connection, change, "create_key", key.key_id, after=key.tier)

    async def key(self, key_id: str) -> KeyRow | None:
        """Find a key by its id."""
        return (await self.keys_by_id([key_id])).get(key_id)

    async def keys_by_id(self, key_ids: Collection[str]) -> dict[str, KeyRow]:
        """Find keys by their ids; unknown ids are omitted."""
        rows = await self.database.rows(_KEYS.where(keys.c.key_id.in_(key_ids)))
        return {row.key_id: value_of(row, KeyRow) for row in rows}

    async def secrets(self, digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        """Find the keys of valid digests; others are omitted.

        Digests under a retired pepper are not valid.
        """
        found = _KEYS.add_columns(key_secrets.c.digest, key_secrets.c.retires_at_ms).join(
            key_secrets, key_secrets.c.key_id == keys.c.key_id
        )
        valid = (key_secrets.c.digest.in_(digests), key_secrets.c.pepper_id.not_in(_RETIRED))
        rows = await self.database.rows(found.where(*valid))
        return {row.digest: SecretRow(value_of(row, KeyRow), row.retires_at_ms) for row in rows}

    async def list_keys(self, account_id: str | None = None) -> list[KeyRow]:
        """List all keys, or those of one account, oldest first."""
        found = _KEYS.order_by(keys.c.created_at_ms, keys.c.key_id)
        if account_id is not None:
            found = found.where(keys.c.account_id == account_id)
        return [value_of(row, KeyRow) for row in await self.database.rows(found)]

    @uninterrupted
    async def newest_change(self) -> int:
        """Return the stamp of the newest change, to start polling from."""
        async with self.database.reading() as connection:
            return await _newest_stamp(connection)

    async def changed_keys(self, after_ms: int) -> tuple[list[KeyRow], int]:
        """Return the keys changed after a stamp (also by their account), and the newest stamp."""
        newest = func.greatest if self.database.on_postgres else func.max
        stamp = newest(keys.c.changed_at_ms, accounts.c.changed_at_ms).label("stamp")
        changed = or_(keys.c.changed_at_ms > after_ms, accounts.c.changed_at_ms > after_ms)
        rows = await self.database.rows(_KEYS.add_columns(stamp).where(changed))
        return [value_of(row, KeyRow) for row in rows], max(
            (row.stamp for row in rows), default=after_ms
        )

    @uninterrupted
    async def move_key(
        self, key_id: str, moved: tuple[KeyStatus, KeyStatus], change: AuditedChange
    ) -> bool:
        """Change a key's status from the first of `moved` to the second.

        Returns False if the status was different. If the key may no longer be used, its sessions
        end permanently.
        """
        status, following = moved
        same = (keys.c.key_id == key_id, keys.c.status == status)
        async with self.database.writing() as connection:
            stamp = await self._stamp(connection, change)
            stamp["suspensions"] = keys.c.suspensions + int(following is not KeyStatus.ACTIVE)
            moving = update(keys).where(*same).values(status=following, **stamp)
            moving_id = moving.returning(keys.c.key_id)
            moved_one = (await connection.execute(moving_id)).first() is not None
            if moved_one and following is not KeyStatus.ACTIVE:
                await connection.execute(end_sessions(sessions.c.key_id == key_id))
            if moved_one:
                await record(connection, change, "move_key", key_id, before=status, after=following)
            return moved_one

    @uninterrupted
    async def change_key(
        self, key_id: str, tier: Tier, allowance_bytes: int | None, change: AuditedChange
    ) -> None:
        """Change a key's tier or its own allowance."""
        found = select(keys.c.tier, keys.c.allowance_bytes).where(keys.c.key_id == key_id)
        async with self.database.writing() as connection:
            stamp = await self._stamp(connection, change)
            row = (await connection.execute(found)).one()
            changing = update(keys).where(keys.c.key_id == key_id)
            await connection.execute(
                changing.values(tier=tier, allowance_bytes=allowance_bytes, **stamp)
            )
            for action, before, after in (
                ("change_tier", row.tier, tier.value),
                ("change_allowance", row.allowance_bytes, allowance_bytes),
            ):
                if before != after:
                    await record(
                        connection,
                        change,
                        action,
                        key_id,
                        before=_shown(before),
                        after=_shown(after),
                    )

    @uninterrupted
    async def change_fees(self, key_id: str, fees: str, change: AuditedChange) -> None:
        """Replace a key's table of taker fees."""
        found = select(keys.c.fees).where(keys.c.key_id == key_id)
        async with self.database.writing() as connection:
            before = (await connection.execute(found)).scalar_one()
            if before == fees:
                return
            stamp = await self._stamp(connection, change)
            changing = update(keys).where(keys.c.key_id == key_id)
            await connection.execute(changing.values(fees=fees, **stamp))
            await record(connection, change, "change_fees", key_id, before=before, after=fees)

    @uninterrupted
    async def rotate_key(
        self,
        key_id: str,
        secret: tuple[str, bytes],
        change: AuditedChange,
        *,
        retires_at_ms: int,
        pepper_id: str = "",
    ) -> None:
        """Add a new secret (prefix, digest) to a key; older ones expire at the given time.

        If that time has passed, the key's sessions end permanently.
        """
        prefix, digest = secret
        before = (key_secrets.c.key_id == key_id, open_after(retires_at_ms))
        new = {
            "digest": digest,
            "key_id": key_id,
            "created_at_ms": change.now_ms,
            "pepper_id": pepper_id,
        }
        async with self.database.writing() as connection:
            stamp = await self._stamp(connection, change)
            await _require_in_use(connection, pepper_id)
            await connection.execute(
                update(key_secrets).where(*before).values(retires_at_ms=retires_at_ms)
            )
            await connection.execute(key_secrets.insert().values(new))
            await connection.execute(
                update(keys).where(keys.c.key_id == key_id).values(prefix=prefix, **stamp)
            )
            await record(connection, change, "rotate_key", key_id, after=prefix)
            if retires_at_ms <= change.now_ms:
                await connection.execute(end_sessions(sessions.c.key_id == key_id))

    async def open_secrets(self, key_ids: Collection[str], now_ms: int) -> set[bytes]:
        """Return the digests that are valid at a time for any of these keys."""
        found = select(key_secrets.c.digest)
        found = found.where(key_secrets.c.key_id.in_(key_ids), open_after(now_ms))
        return {row.digest for row in await self.database.rows(found)}

    async def list_peppers(self) -> list[PepperRow]:
        """List the peppers of this database, the current one last."""
        rows = await self.database.rows(select(peppers).order_by(peppers.c.id))
        return [value_of(row, PepperRow) for row in rows]

    @uninterrupted
    async def first_pepper(self, pepper_id: str, now_ms: int) -> None:
        """Record the first pepper of a database."""
        async with self.database.writing() as connection:
            await self._lock_changes(connection)
            if (await connection.execute(select(peppers.c.id).limit(1))).first() is None:
                row = {"pepper_id": pepper_id, "current_from_ms": now_ms}
                await connection.execute(peppers.insert().values(row))

    @uninterrupted
    async def rotate_pepper(self, pepper_id: str, change: AuditedChange) -> None:
        """Make another pepper the current one."""
        async with self.database.writing() as connection:
            await self._lock_changes(connection)
            row = {"pepper_id": pepper_id, "current_from_ms": change.now_ms}
            await connection.execute(peppers.insert().values(row))
            await record(connection, change, "rotate_pepper", pepper_id)

    @uninterrupted
    async def rehash(self, rehashed: Collection[Rehashed], now_ms: int) -> None:
        """Add digests of the same secrets under a newer pepper.

        The old digests stay until their pepper is retired, because other nodes may not have the new
        pepper yet.
        """
        before = key_secrets.c.digest == bindparam("before")
        in_use = select(peppers.c.id).where(
            peppers.c.pepper_id == bindparam("pepper"), peppers.c.retired_at_ms.is_(None)
        )
        same = select(
            bindparam("after", type_=LargeBinary),
            key_secrets.c.key_id,
            key_secrets.c.created_at_ms,
            key_secrets.c.retires_at_ms,
            bindparam("pepper", type_=Text),
        ).where(before, key_secrets.c.pepper_id.not_in(_RETIRED), in_use.exists())
        names = ["digest", "key_id", "created_at_ms", "retires_at_ms", "pepper_id"]
        add = self.database.insert(key_secrets).from_select(names, same).on_conflict_do_nothing()
        note = update(key_secrets).where(before, in_use.exists())
        note = note.values(rehashed_at_ms=bindparam("now_ms"))
        async with self.database.writing() as connection:
            # A concurrent rotation of the key would miss the new row.
            await self._lock_changes(connection)
            for each in rehashed:
                row = {"before": each.before, "pepper": each.pepper_id}
                await connection.execute(add, row | {"after": each.after})
                await connection.execute(note, row | {"now_ms": now_ms})

    async def keys_under_old_peppers(self, now_ms: int) -> list[KeyRow]:
        """List the keys with a valid secret not yet used under the current pepper."""
        found = _KEYS.where(keys.c.key_id.in_(select(key_secrets.c.key_id).where(*_left(now_ms))))
        found = found.where(keys.c.status != KeyStatus.EXPIRED)
        rows = await self.database.rows(found.order_by(keys.c.created_at_ms, keys.c.key_id))
        return [value_of(row, KeyRow) for row in rows]

    @uninterrupted
    async def retire_peppers(self, change: AuditedChange) -> list[str]:
        """Retire all peppers except the current one; return the ids of keys that lost a secret.

        Secrets not used under the current pepper become invalid; sessions under other peppers end.
        """
        old = peppers.c.pepper_id.in_(_OLD)
        async with self.database.writing() as connection:
            stamp = await self._stamp(connection, change)
            lost = select(key_secrets.c.key_id).where(*_left(change.now_ms)).distinct()
            key_ids = sorted(row.key_id for row in await connection.execute(lost))
            revoked = update(key_secrets).where(*_left(change.now_ms)).values(retires_at_ms=0)
            await connection.execute(revoked)
            for key_id in key_ids:
                await connection.execute(
                    update(keys).where(keys.c.key_id == key_id).values(**stamp)
                )
                await record(connection, change, "revoke_key_text", key_id)
            await connection.execute(end_sessions(sessions.c.pepper_id.in_(_OLD)))
            retired = update(peppers).where(old, peppers.c.retired_at_ms.is_(None))
            retired = retired.values(retired_at_ms=change.now_ms).returning(peppers.c.pepper_id)
            for row in (await connection.execute(retired)).all():
                await record(connection, change, "retire_pepper", row.pepper_id)
            return key_ids

    @uninterrupted
    async def touch_keys(self, used_at_ms: Mapping[str, int]) -> None:
        """Record when keys were last used."""
        if not used_at_ms:
            return
        touched = update(keys).where(keys.c.key_id == bindparam("id"))
        touched = touched.values(last_used_at_ms=bindparam("at"))
        rows = [{"id": key_id, "at": at} for key_id, at in sorted(used_at_ms.items())]
        async with self.database.writing() as connection:
            await connection.execute(touched, rows)

    async def _stamp(self, connection: AsyncConnection, change: AuditedChange) -> dict[str, Any]:
        """Return the columns of a change, with a stamp later than all earlier ones.

        The stamp follows the clock but never decreases, so that polling nodes miss no change if the
        clocks of two machines differ.
        """
        await self._lock_changes(connection)
        return {
            "changed_at_ms": max(change.now_ms, await _newest_stamp(connection) + 1),
            "changed_by": change.by,
            "reason": change.reason,
        }

    async def _lock_changes(self, connection: AsyncConnection) -> None:
        """Lock out other writers of keys and peppers; SQLite allows only one writer anyway."""
        if self.database.on_postgres:
            lock = text("SELECT pg_advisory_xact_lock(:id)")
            await connection.execute(lock, {"id": CHANGES_LOCK})


def _left(now_ms: int) -> tuple[ColumnElement[bool], ...]:
    """Select valid secrets that have no digest under the current pepper."""
    return (
        key_secrets.c.pepper_id.not_in(_CURRENT),
        key_secrets.c.rehashed_at_ms.is_(None),
        open_after(now_ms),
    )


async def _require_in_use(connection: AsyncConnection, pepper_id: str) -> None:
    """Refuse a new secret under a retired pepper, because it would be invalid."""
    retired = _RETIRED.where(peppers.c.pepper_id == pepper_id)
    if (await connection.execute(retired)).first() is not None:
        raise InvalidRequest("The pepper was retired meanwhile; run the command again.")


def _shown(value: object) -> str:
    return "" if value is None else str(value)


async def _newest_stamp(connection: AsyncConnection) -> int:
    stamps = [
        (await connection.execute(select(func.max(table.c.changed_at_ms)))).scalar()
        for table in (keys, accounts)
    ]
    return max(stamp or 0 for stamp in stamps)
