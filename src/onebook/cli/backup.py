"""`onebook backup` and `onebook restore`: the whole state of a service in one archive."""

from pathlib import Path
from typing import Annotated

import typer

from onebook import config
from onebook.cli.common import fail, reported, run
from onebook.cli.dates import now_ms
from onebook.cli.operator import ConfigFile
from onebook.config.sources import FILE_NAME
from onebook.ops import backup

Timeout = Annotated[
    float,
    typer.Option(min=1, max=86_400, help="Timeout of pg_dump or pg_restore, in seconds."),
]


@reported
def backup_command(
    folder: Annotated[Path, typer.Argument(help="Folder of the new archive.")],
    timeout: Timeout = 3_600.0,
    file: ConfigFile = None,
) -> None:
    """Back up database, pepper, master key and settings file into one archive, while nodes run.

    Only the path of the archive is printed to standard output. The archive contains secrets: it has
    mode 0600 and should be encrypted before it leaves this machine.

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
        typer.echo(f"Not in the backup: {each}.", err=True)


@reported
def restore_command(
    archive: Annotated[Path, typer.Argument(help="Archive written by `onebook backup`.")],
    timeout: Timeout = 3_600.0,
    config_file: ConfigFile = None,
) -> None:
    """Restore a backup to the paths in the settings; existing files are never overwritten.

    The settings file is not restored: extract it with tar -xOf ARCHIVE onebook.toml and check its
    paths.

    Example: onebook restore /var/backups/onebook/onebook-20261122T030000Z.tar
    """
    if not archive.is_file():
        fail(f"Backup {archive} not found.")
    restored = run(backup.restore(config.load(config_file), archive, timeout_s=timeout))
    manifest = restored.manifest
    typer.echo(
        f"Restored: the {manifest.database} database of {manifest.created_at} "
        f"(Onebook {manifest.version}), its pepper"
        f"{' and master key' if 'master_key' in manifest.members else ''}. "
        "Keys, accounts and credentials were checked."
    )
