"""Migrations run once, whichever process starts first, and never downgrade on their own."""

import asyncio

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, inspect, text

from databases import database
from onebook.accounts import Admin, Peppers
from onebook.accounts.pepper import require_same_pepper
from onebook.errors import ConfigError
from onebook.model import Tier
from onebook.store import AuditedChange, Store
from onebook.store.migrations.versions import (
    r0001_first_release,
    r0002_suspensions,
    r0003_operator,
    r0004_peppers,
    r0005_collection,
    r0006_exports,
    r0007_fees,
    r0008_export_reference,
)
from onebook.store.tables import metadata
from together import in_processes, upgraded

NODES = 3


async def test_the_migrations_make_exactly_the_tables_of_the_code(empty_url: str) -> None:
    def differences(connection: Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))

    async with Store(empty_url) as store:
        await store.database.upgrade()
        async with store.database.reading() as connection:
            assert await connection.run_sync(differences) == []


async def test_upgrading_again_changes_nothing(empty_url: str) -> None:
    async with Store(empty_url) as store:
        await store.database.upgrade()
        await store.facts.setdefault("kept", "yes")
        await store.database.upgrade()
        assert await store.facts.setdefault("kept", "no") == "yes"


async def test_two_nodes_starting_at_once_migrate_once(empty_url: str) -> None:
    async with Store(empty_url) as one, Store(empty_url) as other:
        await asyncio.gather(
            one.database.upgrade(), other.database.upgrade(), one.database.upgrade()
        )
        assert (
            await one.facts.setdefault("works", "yes")
            == await other.facts.setdefault("works", "no")
            == "yes"
        )


def test_processes_starting_at_once_migrate_once(tmp_path: object) -> None:
    with database("sqlite", tmp_path) as url:
        assert in_processes(NODES, upgraded, url) == ["upgraded"] * NODES


async def test_a_newer_schema_is_refused_with_a_plain_message(empty_url: str) -> None:
    async with Store(empty_url) as store:
        await store.database.upgrade()
        async with store.database.writing() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        with pytest.raises(ConfigError, match="schema 9999, newer than 0008 of this release"):
            await store.database.upgrade()


async def test_the_first_schema_can_be_taken_down(empty_url: str) -> None:
    def down(connection: Connection) -> list[str]:
        with Operations.context(MigrationContext.configure(connection)):
            r0008_export_reference.downgrade()
            r0007_fees.downgrade()
            r0006_exports.downgrade()
            r0005_collection.downgrade()
            r0004_peppers.downgrade()
            r0003_operator.downgrade()
            r0002_suspensions.downgrade()
            r0001_first_release.downgrade()
        return inspect(connection).get_table_names()

    async with Store(empty_url) as store:
        await store.database.upgrade()
        async with store.database.writing() as connection:
            assert await connection.run_sync(down) == ["alembic_version"]


async def test_a_database_of_the_first_release_keeps_its_keys(empty_url: str) -> None:
    def down(connection: Connection) -> None:
        with Operations.context(MigrationContext.configure(connection)):
            r0008_export_reference.downgrade()
            r0007_fees.downgrade()
            r0006_exports.downgrade()
            r0005_collection.downgrade()
            r0004_peppers.downgrade()
            r0003_operator.downgrade()
            r0002_suspensions.downgrade()

    async with Store(empty_url) as store:
        await store.database.upgrade()
        peppers = Peppers(b"p" * 32)
        await require_same_pepper(store, peppers)
        admin = Admin(store, peppers)
        await admin.create_account("alice", AuditedChange(1, "operator", ""))
        made = await admin.create_key("alice", Tier.BASIC, AuditedChange(2, "operator", ""))
        async with store.database.writing() as connection:
            await connection.run_sync(down)
            await connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
        await store.database.upgrade()
        assert [each.pepper_id for each in await store.accounts.list_peppers()] == [
            peppers.current_id
        ]
        assert await store.accounts.keys_under_old_peppers(3) == []
        await admin.move_key(made.row.key_id, "suspend", AuditedChange(3, "operator", ""))
        await admin.move_account("alice", "suspend", AuditedChange(4, "operator", ""))
        await admin.move_account("alice", "resume", AuditedChange(5, "operator", ""))
        row = await store.accounts.key(made.row.key_id)
    assert row is not None
    assert row.suspensions == 2
