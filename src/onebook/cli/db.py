"""`onebook db`: the database's schema."""

import typer

from onebook import config as settings
from onebook.cli.common import reported, run
from onebook.cli.operator import ConfigFile
from onebook.store import Store

db_app = typer.Typer(no_args_is_help=True, help="The database.")


@db_app.command("upgrade")
@reported
def upgrade(config: ConfigFile = None) -> None:
    """Bring the database to this release's schema; nodes do so at their start as well.

    Every other command refuses a database with the schema of another release.

    Example: onebook db upgrade
    """
    url = settings.load(config).store.url

    async def work() -> None:
        async with Store(url) as store:
            await store.database.upgrade()

    run(work())
    typer.echo("The database has this release's schema.")
