"""The store: plain methods that take and return values, over SQLite or PostgreSQL.

It keeps what it is given and decides nothing: which moves a status may make, when a session ends
and what a key may use are the rules of `accounts`. Every method is one transaction, and one that
has begun is finished even if nobody waits for it any more: a driver that is cancelled in the
middle may leave its transaction open, and with it SQLite's only write lock.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from msgspec import Struct, convert
from sqlalchemy import (
    ColumnElement,
    Row,
    Update,
    bindparam,
    delete,
    func,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from onebook.errors import ConfigError, DatabaseUnavailable, InvalidRequest
from onebook.model import KeyStatus, Tier
from onebook.store import audit, outage
from onebook.store.engine import AT_ONCE, BEGIN, WRITES, DatabaseFile, open_engine
from onebook.store.faults import database_errors
from onebook.store.outage import Outage
from onebook.store.rows import (
    AccountRow,
    Change,
    ChangeRow,
    CredentialsRow,
    KeyRow,
    SecretRow,
    SessionRow,
    UsageCell,
)
from onebook.store.tables import (
    accounts,
    credentials,
    facts,
    key_secrets,
    keys,
    sessions,
    usage,
    usage_batches,
)

OPERATION_TIMEOUT_S = 15.0
WAL_TRIES_MAX = 100
WAL_PAUSE_S = 0.05
WRITTEN_AT = "written_at_ms"  # the fact that `probe` writes
BATCHES_KEPT = 2  # of every node epoch, however old: a usage file holds no more
# Serialises the rare writes that nodes watch for, so that their stamps appear in order.
CHANGES_LOCK = 0x6368616E676573

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Struct)

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
).join_from(keys, accounts)


def _whole(
    method: Callable[Concatenate["Store", P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["Store", P], Coroutine[Any, Any, R]]:
    """Let a method run to its end in a task of the store's, also when its caller is cancelled."""

    @functools.wraps(method)
    async def wrapped(store: "Store", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await store._finish(method(store, *args, **kwargs))

    return wrapped


class Store:
    """One database; an async context manager that owns its connections.

    A SQLite file is made by `upgrade` only: whatever else finds none, or another one than it began
    with, raises `DatabaseUnavailable`.
    """

    def __init__(self, url: str) -> None:
        self._engine: AsyncEngine = open_engine(url)
        self._on_postgres = self._engine.dialect.name == "postgresql"
        self._file = (
            None if self._on_postgres else DatabaseFile(Path(self._engine.url.database or ""))
        )
        self._outage = Outage()
        # A read is one statement, and needs no transaction around it.
        alone = {"isolation_level": "AUTOCOMMIT"} if self._on_postgres else {BEGIN: AT_ONCE}
        self._reads = self._engine.execution_options(**alone)
        self._writes = self._engine.execution_options(**{BEGIN: WRITES})
        self._insert = postgresql.insert if self._on_postgres else sqlite.insert
        self._running: set[asyncio.Task[Any]] = set()

    @property
    def path(self) -> Path | None:
        """The file of a SQLite database."""
        return None if self._file is None else self._file.path

    @property
    def name(self) -> str:
        """What to call the database in the names of files about it."""
        return f"{self._engine.url.database}" if self._file is None else self._file.path.name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=OPERATION_TIMEOUT_S)
        await self._engine.dispose()

    async def _finish(self, work: Coroutine[Any, Any, R]) -> R:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        began = self._outage.began()
        try:
            async with asyncio.timeout(OPERATION_TIMEOUT_S):
                return await asyncio.shield(task)
        except TimeoutError:
            reason = f"It did not answer within {OPERATION_TIMEOUT_S:g} s."
            self._outage.failed(outage.READS, reason, began)
            raise DatabaseUnavailable(reason) from None

    @asynccontextmanager
    async def _begin(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        kind: outage.Kind = outage.WRITES if engine is self._writes else outage.READS
        began = self._outage.began()
        try:
            async with self._connected(engine) as connection:
                yield connection
        except DatabaseUnavailable as error:
            self._outage.failed(kind, error.reason, began)
            raise
        self._outage.succeeded(kind, began)

    @asynccontextmanager
    async def _connected(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        """One transaction, its errors mapped.

        The file is checked before and after: what is committed to one that was deleted meanwhile
        is lost, and what such a file makes SQLite say is not the cause.
        """
        async with database_errors(self._engine.url):
            self.check_file()
            try:
                async with engine.begin() as connection:
                    yield connection
            except Exception:
                self.check_file()
                raise
            self.check_file()

    def check_file(self) -> None:
        """Check that the file of a SQLite database is still the one that was opened.

        Raises:
            FileFault: It is missing, or another one.
        """
        if self._file is not None:
            self._file.check()

    @_whole
    async def _all(self, statement: Any) -> list[Row[Any]]:
        async with self._begin(self._reads) as connection:
            return list((await connection.execute(statement)).all())

    @_whole
    async def _one(self, statement: Any) -> Row[Any] | None:
        async with self._begin(self._reads) as connection:
            return (await connection.execute(statement)).first()

    async def upgrade(self, *, create: bool = True) -> None:
        """Bring the schema to this release; several nodes may do so at once.

        Args:
            create: Whether to make the file of a SQLite database if there is none.

        Raises:
            ConfigError: The database cannot be used, or a newer release wrote it.
        """
        # Alembic costs a tenth of a second to import, which only this method should pay.
        from onebook.store import migrate

        if self._file is not None and create:
            self._file.create()
        try:
            if self._file is not None:
                await self._use_wal()
            async with self._connected(self._writes) as connection:
                await connection.run_sync(migrate.upgrade)
        except DatabaseUnavailable as error:
            raise ConfigError(error.reason) from error

    async def revisions(self) -> tuple[str | None, str]:
        """The revision of the schema, None of an empty database, and that of this release."""
        from onebook.store import migrate

        async with self._connected(self._reads) as connection:
            return await connection.run_sync(migrate.revisions)

    async def _use_wal(self) -> None:
        """Switch the file to WAL, which SQLite remembers in it.

        SQLite does not wait for a lock here (the busy timeout does not cover a change of the
        journal), so two nodes that start together take turns by trying again.
        """
        for _ in range(WAL_TRIES_MAX):
            async with database_errors(self._engine.url):
                self.check_file()
                try:
                    async with self._reads.connect() as connection:
                        await connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                        return
                except OperationalError as error:
                    if "locked" not in str(error.orig):
                        raise
            await asyncio.sleep(WAL_PAUSE_S)
        raise DatabaseUnavailable(f"The database {self.path} stays locked by another program.")

    @_whole
    async def fact(self, name: str, value: str) -> str:
        """Keep a fact about the database if it is new, and return the one that is kept."""
        new = self._insert(facts).values(name=name, value=value).on_conflict_do_nothing()
        async with self._begin(self._writes) as connection:
            await connection.execute(new)
            kept = select(facts.c.value).where(facts.c.name == name)
            return str((await connection.execute(kept)).scalar_one())

    @_whole
    async def probe(self, now_ms: int) -> None:
        """Write a fact, to learn whether the database takes writes."""
        new = self._insert(facts).values(name=WRITTEN_AT, value=str(now_ms))
        put = new.on_conflict_do_update(
            index_elements=[facts.c.name], set_={"value": new.excluded.value}
        )
        async with self._begin(self._writes) as connection:
            await connection.execute(put)

    @_whole
    async def record_change(self, change: Change, action: str, subject: str) -> None:
        """Add to the audit trail what was changed in another way than through this store."""
        async with self._begin(self._writes) as connection:
            await audit.record(connection, change, action, subject)

    async def changes(
        self, subject: str | None, *, since_ms: int, until_ms: int, rows_max: int
    ) -> list[ChangeRow]:
        """The newest entries of the audit trail in a span of time, newest first."""
        rows = await self._all(audit.trail(subject, since_ms, until_ms, rows_max))
        return [_value(row, ChangeRow) for row in rows]

    @_whole
    async def create_account(self, account: AccountRow) -> None:
        """Add an account.

        Raises:
            InvalidRequest: The username is taken.
        """
        row = _columns(account)
        try:
            async with self._begin(self._writes) as connection:
                await connection.execute(accounts.insert().values(row))
                change = Change(account.created_at_ms, account.changed_by, account.reason)
                await audit.record(
                    connection,
                    change,
                    "create_account",
                    account.account_id,
                    after=account.username,
                )
        except IntegrityError:
            raise InvalidRequest(
                f"There is an account with the username {account.username!r} already."
            ) from None

    async def account(self, id_or_username: str) -> AccountRow | None:
        """Find an account by its id or its username."""
        named = or_(accounts.c.account_id == id_or_username, accounts.c.username == id_or_username)
        row = await self._one(select(accounts).where(named))
        return None if row is None else _value(row, AccountRow)

    async def accounts(self) -> list[AccountRow]:
        """Every account, oldest first."""
        order = (accounts.c.created_at_ms, accounts.c.account_id)
        return [
            _value(row, AccountRow) for row in await self._all(select(accounts).order_by(*order))
        ]

    @_whole
    async def move_account(
        self, account_id: str, moved: tuple[KeyStatus, KeyStatus], change: Change
    ) -> bool:
        """Change an account's status if it still is the first of `moved`; say whether it was.

        The sessions of its keys end for good if it may no longer be used.
        """
        status, following = moved
        same = (accounts.c.account_id == account_id, accounts.c.status == status)
        async with self._begin(self._writes) as connection:
            stamp = await self._stamp(connection, change)
            stamp["suspensions"] = accounts.c.suspensions + int(following is not KeyStatus.ACTIVE)
            moving = update(accounts).where(*same).values(status=following, **stamp)
            moving_id = moving.returning(accounts.c.account_id)
            moved_one = (await connection.execute(moving_id)).first() is not None
            if moved_one and following is not KeyStatus.ACTIVE:
                theirs = select(keys.c.key_id).where(keys.c.account_id == account_id)
                await connection.execute(_end_sessions(sessions.c.key_id.in_(theirs)))
            if moved_one:
                await audit.record(
                    connection, change, "move_account", account_id, before=status, after=following
                )
            return moved_one

    @_whole
    async def create_key(self, key: KeyRow, digest: bytes) -> None:
        """Add a key with its first secret."""
        row = {column.name: getattr(key, column.name) for column in keys.columns}
        secret = {"digest": digest, "key_id": key.key_id, "created_at_ms": key.created_at_ms}
        async with self._begin(self._writes) as connection:
            change = Change(key.changed_at_ms, key.changed_by, key.reason)
            row |= await self._stamp(connection, change)
            await connection.execute(keys.insert().values(row))
            await connection.execute(key_secrets.insert().values(secret))
            await audit.record(connection, change, "create_key", key.key_id, after=key.tier)

    async def key(self, key_id: str) -> KeyRow | None:
        """Find a key by its id."""
        return (await self.keys_by_id([key_id])).get(key_id)

    async def keys_by_id(self, key_ids: Collection[str]) -> dict[str, KeyRow]:
        """Find keys by their ids; what there is none of is left out."""
        rows = await self._all(_KEYS.where(keys.c.key_id.in_(key_ids)))
        return {row.key_id: _value(row, KeyRow) for row in rows}

    async def secrets(self, digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        """Find the keys that digests open; what opens none is left out."""
        found = _KEYS.add_columns(key_secrets.c.digest, key_secrets.c.retires_at_ms).join(
            key_secrets, key_secrets.c.key_id == keys.c.key_id
        )
        rows = await self._all(found.where(key_secrets.c.digest.in_(digests)))
        return {row.digest: SecretRow(_value(row, KeyRow), row.retires_at_ms) for row in rows}

    async def keys(self, account_id: str | None = None) -> list[KeyRow]:
        """Every key, or those of one account, oldest first."""
        found = _KEYS.order_by(keys.c.created_at_ms, keys.c.key_id)
        if account_id is not None:
            found = found.where(keys.c.account_id == account_id)
        return [_value(row, KeyRow) for row in await self._all(found)]

    @_whole
    async def newest_change(self) -> int:
        """The stamp of the newest change, for a watch that begins now."""
        async with self._begin(self._reads) as connection:
            return await _newest_stamp(connection)

    async def changed_keys(self, after_ms: int) -> tuple[list[KeyRow], int]:
        """The keys that were changed, or whose account was, after a stamp; and the newest stamp."""
        newest = func.greatest if self._on_postgres else func.max
        stamp = newest(keys.c.changed_at_ms, accounts.c.changed_at_ms).label("stamp")
        changed = or_(keys.c.changed_at_ms > after_ms, accounts.c.changed_at_ms > after_ms)
        rows = await self._all(_KEYS.add_columns(stamp).where(changed))
        return [_value(row, KeyRow) for row in rows], max(
            (row.stamp for row in rows), default=after_ms
        )

    @_whole
    async def move_key(
        self, key_id: str, moved: tuple[KeyStatus, KeyStatus], change: Change
    ) -> bool:
        """Change a key's status if it still is the first of `moved`; say whether it was.

        Its sessions end for good if it may no longer be used.
        """
        status, following = moved
        same = (keys.c.key_id == key_id, keys.c.status == status)
        async with self._begin(self._writes) as connection:
            stamp = await self._stamp(connection, change)
            stamp["suspensions"] = keys.c.suspensions + int(following is not KeyStatus.ACTIVE)
            moving = update(keys).where(*same).values(status=following, **stamp)
            moving_id = moving.returning(keys.c.key_id)
            moved_one = (await connection.execute(moving_id)).first() is not None
            if moved_one and following is not KeyStatus.ACTIVE:
                await connection.execute(_end_sessions(sessions.c.key_id == key_id))
            if moved_one:
                await audit.record(
                    connection, change, "move_key", key_id, before=status, after=following
                )
            return moved_one

    @_whole
    async def change_key(
        self, key_id: str, tier: Tier, allowance_bytes: int | None, change: Change
    ) -> None:
        """Change what a key may do: its tier, and its own allowance, if it has one."""
        found = select(keys.c.tier, keys.c.allowance_bytes).where(keys.c.key_id == key_id)
        async with self._begin(self._writes) as connection:
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
                    await audit.record(
                        connection,
                        change,
                        action,
                        key_id,
                        before=_shown(before),
                        after=_shown(after),
                    )

    @_whole
    async def rotate_key(
        self, key_id: str, secret: tuple[str, bytes], change: Change, *, retires_at_ms: int
    ) -> None:
        """Give a key another secret (prefix, digest); the ones before it retire at a time.

        The key's sessions end for good if that time has come.
        """
        prefix, digest = secret
        before = (key_secrets.c.key_id == key_id, _open_after(retires_at_ms))
        new = {"digest": digest, "key_id": key_id, "created_at_ms": change.now_ms}
        async with self._begin(self._writes) as connection:
            stamp = await self._stamp(connection, change)
            await connection.execute(
                update(key_secrets).where(*before).values(retires_at_ms=retires_at_ms)
            )
            await connection.execute(key_secrets.insert().values(new))
            await connection.execute(
                update(keys).where(keys.c.key_id == key_id).values(prefix=prefix, **stamp)
            )
            await audit.record(connection, change, "rotate_key", key_id, after=prefix)
            if retires_at_ms <= change.now_ms:
                await connection.execute(_end_sessions(sessions.c.key_id == key_id))

    async def open_secrets(self, key_ids: Collection[str], now_ms: int) -> set[bytes]:
        """The digests that open any of these keys at a time."""
        found = select(key_secrets.c.digest)
        found = found.where(key_secrets.c.key_id.in_(key_ids), _open_after(now_ms))
        return {row.digest for row in await self._all(found)}

    @_whole
    async def touch_keys(self, used_at_ms: Mapping[str, int]) -> None:
        """Note when keys were used last."""
        if not used_at_ms:
            return
        touched = update(keys).where(keys.c.key_id == bindparam("id"))
        touched = touched.values(last_used_at_ms=bindparam("at"))
        rows = [{"id": key_id, "at": at} for key_id, at in sorted(used_at_ms.items())]
        async with self._begin(self._writes) as connection:
            await connection.execute(touched, rows)

    async def _stamp(self, connection: AsyncConnection, change: Change) -> dict[str, Any]:
        """The columns of a change, with a stamp later than every one before it.

        The stamp follows the clock but never goes back, so that a node that polls for what is
        newer misses nothing when the clocks of two machines differ.
        """
        if self._on_postgres:
            lock = text("SELECT pg_advisory_xact_lock(:id)")
            await connection.execute(lock, {"id": CHANGES_LOCK})
        return {
            "changed_at_ms": max(change.now_ms, await _newest_stamp(connection) + 1),
            "changed_by": change.by,
            "reason": change.reason,
        }

    @_whole
    async def create_session(
        self, session: SessionRow, digest: bytes, *, secret: bytes, live_max: int
    ) -> list[bytes] | None:
        """Add a session; the oldest beyond `live_max` go, and their digests are returned.

        Returns None, and adds nothing, if the digest `secret` no longer opens the key or the key
        may not be used: a node learns of that up to a second late.
        """
        row = _columns(session)
        mine = (
            sessions.c.key_id == session.key_id,
            sessions.c.expires_at_ms > session.created_at_ms,
        )
        excess = select(sessions.c.id).where(*mine).order_by(sessions.c.id.desc())
        gone = delete(sessions).where(sessions.c.id.in_(excess.offset(live_max)))
        async with self._begin(self._writes) as connection:
            # Locked: of two nodes that add a session to one key both would spare the oldest, and
            # a suspension that commits meanwhile would not end this session.
            usable = select(keys.c.key_id).join(accounts).join(key_secrets).with_for_update()
            usable = usable.where(
                keys.c.key_id == session.key_id,
                keys.c.status == KeyStatus.ACTIVE,
                accounts.c.status == KeyStatus.ACTIVE,
                key_secrets.c.digest == secret,
                _open_after(session.created_at_ms),
            )
            if (await connection.execute(usable)).first() is None:
                return None
            await connection.execute(sessions.insert().values(digest=digest, **row))
            return [
                row.digest for row in await connection.execute(gone.returning(sessions.c.digest))
            ]

    async def session(self, digest: bytes) -> SessionRow | None:
        """Find a session by the digest of its token."""
        columns = [sessions.c[name] for name in SessionRow.__struct_fields__]
        row = await self._one(select(*columns).where(sessions.c.digest == digest))
        return None if row is None else _value(row, SessionRow)

    @_whole
    async def apply_usage(
        self, batch: tuple[str, int], deltas: Mapping[UsageCell, int], now_ms: int
    ) -> dict[UsageCell, int] | None:
        """Add a batch (node epoch, number) of bytes, once.

        Returns:
            The new totals of the cells in the batch; None if this batch was counted before.
        """
        epoch, seq = batch
        entry = self._insert(usage_batches).values(node_epoch=epoch, seq=seq, applied_at_ms=now_ms)
        # RETURNING, not rowcount: some drivers give -1 for a row that was not inserted.
        entry_seq = entry.on_conflict_do_nothing().returning(usage_batches.c.seq)
        new = self._insert(usage)
        add = new.on_conflict_do_update(
            index_elements=[usage.c.key_id, usage.c.period_start_ms],
            set_={"bytes": usage.c.bytes + new.excluded.bytes},
        ).returning(usage.c.key_id, usage.c.period_start_ms, usage.c.bytes)
        # In one order on every node, so that two nodes cannot wait for each other's rows.
        rows = [
            {"key_id": cell.key_id, "period_start_ms": cell.period_start_ms, "bytes": count}
            for cell, count in sorted(deltas.items())
        ]
        async with self._begin(self._writes) as connection:
            if (await connection.execute(entry_seq)).first() is None:
                return None
            totals = (await connection.execute(add, rows)).all() if rows else []
            return {UsageCell(row[0], row[1]): row[2] for row in totals}

    async def usage_between(self, since_ms: int, until_ms: int) -> dict[UsageCell, int]:
        """The bytes counted for every key in the periods that begin in a span of time."""
        within = (usage.c.period_start_ms >= since_ms, usage.c.period_start_ms < until_ms)
        rows = await self._all(select(usage).where(*within))
        return {UsageCell(row.key_id, row.period_start_ms): row.bytes for row in rows}

    async def usage(self, cell: UsageCell) -> int:
        """The bytes counted for a key in a period."""
        return (await self.usage_of([cell])).get(cell, 0)

    async def usage_of(self, cells: Collection[UsageCell]) -> dict[UsageCell, int]:
        """The bytes counted for keys in their periods; what has none is left out."""
        # Both databases look up many keys and a range in the index, but not so many pairs.
        oldest_ms = min((cell.period_start_ms for cell in cells), default=0)
        recent = usage.c.key_id.in_({cell.key_id for cell in cells})
        rows = await self._all(select(usage).where(recent, usage.c.period_start_ms >= oldest_ms))
        found = {UsageCell(row.key_id, row.period_start_ms): row.bytes for row in rows}
        return {cell: found[cell] for cell in cells if cell in found}

    @_whole
    async def prune(self, *, sessions_before_ms: int, batches_before_ms: int) -> None:
        """Forget sessions that ended, and batches that were applied, before a time.

        The last batches of every node stay: a usage file that a crash left behind names them, and
        may be taken in long after.
        """
        same_node = usage_batches.alias()
        newest = select(func.max(same_node.c.seq)).where(
            same_node.c.node_epoch == usage_batches.c.node_epoch
        )
        superseded = usage_batches.c.seq <= newest.scalar_subquery() - BATCHES_KEPT
        async with self._begin(self._writes) as connection:
            await connection.execute(
                delete(sessions).where(sessions.c.expires_at_ms < sessions_before_ms)
            )
            await connection.execute(
                delete(usage_batches).where(
                    usage_batches.c.applied_at_ms < batches_before_ms, superseded
                )
            )

    @_whole
    async def put_credentials(self, row: CredentialsRow) -> None:
        """Keep the credentials of an exchange environment in place of those before."""
        values = _columns(row)
        put = self._insert(credentials).values(values)
        put = put.on_conflict_do_update(
            index_elements=[credentials.c.exchange, credentials.c.environment], set_=values
        )
        async with self._begin(self._writes) as connection:
            await connection.execute(put)

    async def credentials(self, exchange: str, environment: str) -> CredentialsRow | None:
        """Find the credentials of an exchange environment."""
        row = await self._one(select(credentials).where(*_environment(exchange, environment)))
        return None if row is None else _value(row, CredentialsRow)

    async def list_credentials(self) -> list[CredentialsRow]:
        """Every exchange environment that has credentials."""
        order = (credentials.c.exchange, credentials.c.environment)
        rows = await self._all(select(credentials).order_by(*order))
        return [_value(row, CredentialsRow) for row in rows]

    @_whole
    async def rewrap_credentials(self, before: CredentialsRow, after: CredentialsRow) -> bool:
        """Replace credentials if they still are `before`; say whether they were.

        So a change of the encryption key can run while the service does, and be resumed.
        """
        same = _environment(before.exchange, before.environment)
        rewrapped = (
            update(credentials)
            .where(*same, credentials.c.ciphertext == before.ciphertext)
            .values(kek_id=after.kek_id, ciphertext=after.ciphertext, nonce=after.nonce)
            .returning(credentials.c.exchange)
        )
        async with self._begin(self._writes) as connection:
            return (await connection.execute(rewrapped)).first() is not None

    @_whole
    async def delete_credentials(self, exchange: str, environment: str) -> bool:
        """Forget the credentials of an exchange environment; say whether there were any."""
        gone = delete(credentials).where(*_environment(exchange, environment))
        async with self._begin(self._writes) as connection:
            found = await connection.execute(gone.returning(credentials.c.exchange))
            return found.first() is not None


async def _newest_stamp(connection: AsyncConnection) -> int:
    stamps = [
        (await connection.execute(select(func.max(table.c.changed_at_ms)))).scalar()
        for table in (keys, accounts)
    ]
    return max(stamp or 0 for stamp in stamps)


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _environment(exchange: str, environment: str) -> tuple[ColumnElement[bool], ...]:
    return credentials.c.exchange == exchange, credentials.c.environment == environment


def _open_after(at_ms: int) -> ColumnElement[bool]:
    return or_(key_secrets.c.retires_at_ms.is_(None), key_secrets.c.retires_at_ms > at_ms)


def _end_sessions(which: ColumnElement[bool]) -> Update:
    """End sessions, whatever a node's clock says: they expired when they began."""
    return update(sessions).where(which).values(expires_at_ms=sessions.c.created_at_ms)


def _value(row: Row[Any], kind: type[T]) -> T:
    """One row as the value it stands for, its texts turned into enums."""
    return convert(row, kind, from_attributes=True)


def _columns(value: Struct) -> dict[str, Any]:
    """A value as the columns of its row."""
    return {name: getattr(value, name) for name in value.__struct_fields__}
