"""`onebook db`: upgrade the database schema."""

import typer

from onebook import config as settings
from onebook.cli.common import reported, run
from onebook.cli.operator import ConfigFile
from onebook.store import Store

db_app = typer.Typer(no_args_is_help=True, help="Database: upgrade.")


@db_app.command("upgrade")
@reported
def upgrade(config: ConfigFile = None) -> None:
    """Migrate the database to the schema of this release; nodes also do so when they start.

    All other commands reject a database with the schema of another release.

    Example: onebook db upgrade
    """
    url = settings.load(config).store.url

    async def work() -> None:
        async with Store(url) as store:
            await store.database.upgrade()

    run(work())
    typer.echo("The database schema is up to date.")
