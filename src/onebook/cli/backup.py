"""`onebook backup` and `onebook restore`: everything that a service needs, in one file."""

from pathlib import Path
from typing import Annotated

import typer

from onebook import config
from onebook.cli.common import fail, reported, run
from onebook.cli.operator import ConfigFile, now_ms
from onebook.config.sources import FILE_NAME
from onebook.ops import backup

Timeout = Annotated[
    float,
    typer.Option(min=1, max=86_400, help="Seconds that pg_dump or pg_restore may take."),
]


@reported
def backup_command(
    folder: Annotated[Path, typer.Argument(help="The folder for the backup.")],
    timeout: Timeout = 3_600.0,
    file: ConfigFile = None,
) -> None:
    """Save database, pepper, master key and settings file in one archive, while nodes run.

    Its path is printed alone on standard output. It holds secrets: it is made with mode 0600, and
    should be encrypted before it leaves this machine.

    Example: onebook backup /var/backups/onebook
    """
    settings = config.load(file)
    found = file or Path(FILE_NAME)
    made = run(
        backup.back_up(
            settings,
            folder,
            file=found if found.is_file() else None,
            now_ms=now_ms(),
            timeout_s=timeout,
        )
    )
    typer.echo(str(made.path))
    for each in made.missing:
        typer.echo(f"Not in it: {each}.", err=True)


@reported
def restore_command(
    archive: Annotated[Path, typer.Argument(help="The archive that `onebook backup` made.")],
    timeout: Timeout = 3_600.0,
    config_file: ConfigFile = None,
) -> None:
    """Restore a backup to the places that the settings name; overwrites nothing.

    The settings file in the archive is not restored: take it out with tar -xOf ARCHIVE
    onebook.toml, and look at its paths.

    Example: onebook restore /var/backups/onebook/onebook-20261122T030000Z.tar
    """
    if not archive.is_file():
        fail(f"There is no backup {archive}.")
    restored = run(backup.restore(config.load(config_file), archive, timeout_s=timeout))
    manifest = restored.manifest
    typer.echo(
        f"Restored: the {manifest.database} database of {manifest.created_at} "
        f"(Onebook {manifest.version}), its pepper"
        f"{' and master key' if 'master_key' in manifest.members else ''}. "
        "Keys, accounts and credentials were checked."
    )
