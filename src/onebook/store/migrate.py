"""Schema migrations, safe when several nodes start together.

Runs Alembic without alembic.ini and env.py, because a node has its connection and only one target:
https://alembic.sqlalchemy.org/en/latest/api/runtime.html
"""

from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from onebook.errors import ConfigError

MIGRATIONS = Path(__file__).parent / "migrations"
# An arbitrary number that must not change between releases.
ADVISORY_LOCK = 0x6F6E65626F6F6B


def upgrade(connection: Connection) -> None:
    """Apply missing migrations inside the caller's transaction.

    Other nodes are locked out by the caller's BEGIN IMMEDIATE on SQLite, and by an advisory lock on
    PostgreSQL.

    Raises:
        ConfigError: A newer release migrated this database.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:id)"), {"id": ADVISORY_LOCK})
    config, script = _scripts()
    _refuse_newer(MigrationContext.configure(connection).get_current_revision(), script)

    def missing(revision: Any, _context: MigrationContext) -> Any:
        return script._upgrade_revs("head", revision)

    with EnvironmentContext(config, script, fn=missing) as environment:
        environment.configure(connection=connection)
        environment.run_migrations()


def require_current(connection: Connection) -> bool:
    """Require the schema of this release; returns False if the database is empty.

    Raises:
        ConfigError: The schema is from another release.
    """
    script = _scripts()[1]
    found = MigrationContext.configure(connection).get_current_revision()
    _refuse_newer(found, script)
    newest = script.get_current_head()
    if found not in (None, newest):
        raise ConfigError(
            f"The database has schema {found}, older than {newest} of this release: make a backup, "
            "then run `onebook db upgrade` or start a node."
        )
    return found is not None


def revisions(connection: Connection) -> tuple[str | None, str]:
    """Return the revision of the database (None: empty database) and that of this release."""
    head = _scripts()[1].get_current_head()
    return MigrationContext.configure(connection).get_current_revision(), str(head)


def _scripts() -> tuple[Config, ScriptDirectory]:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    return config, ScriptDirectory.from_config(config)


def _refuse_newer(revision: str | None, script: ScriptDirectory) -> None:
    known = [step.revision for step in script.walk_revisions()]
    if revision is not None and revision not in known:
        raise ConfigError(
            f"The database has schema {revision}, newer than {known[0]} of this release: "
            "install the newer Onebook."
        )
