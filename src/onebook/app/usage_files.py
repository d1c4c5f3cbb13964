"""Usage files of a node: those of earlier runs are applied at the start, then a new one is made."""

import logging

from onebook.accounts.usage import UsageFile, apply_files, new_epoch, usage_place
from onebook.config import Settings
from onebook.errors import ConfigError, DatabaseUnavailable
from onebook.store import Store

log = logging.getLogger("onebook.app")


async def usage_file(settings: Settings, store: Store, now_ms: int) -> UsageFile | None:
    """Apply the usage files of earlier runs, and create the file of this run.

    Raises:
        ConfigError: The database does not take it.
    """
    folder, name = usage_place(settings.store, store)
    try:
        await apply_files(folder, name, store, now_ms)
    except DatabaseUnavailable as error:
        raise ConfigError(error.reason) from error
    try:
        return UsageFile.create(folder, name, new_epoch())
    except OSError as error:
        log.warning(
            "Cannot create the usage file in %s (%s); usage will be lost if the node crashes "
            "during a database outage. Set store.usage_dir.",
            folder,
            error.strerror or error,
        )
        return None
