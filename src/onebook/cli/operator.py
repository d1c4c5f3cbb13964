"""Helpers of operator commands: opening the store, operator name, sizes and tables.

Used by commands only; the rules are in `onebook.accounts`.
"""

import logging
import os
import pwd
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from msgspec import to_builtins

from onebook import config
from onebook.accounts.admin import Admin
from onebook.accounts.keys import fees_from
from onebook.accounts.pepper import load_pepper, require_same_pepper
from onebook.cli.common import print_table
from onebook.cli.dates import now_ms
from onebook.cli.options import AsJson as AsJson
from onebook.cli.options import ConfigFile as ConfigFile
from onebook.cli.options import print_json as print_json
from onebook.clock import iso_ms
from onebook.errors import ConfigError, InvalidRequest
from onebook.store import AccountRow, AuditedChange, KeyRow, Store

# REST names of columns with another name in the database.
ACCOUNT_NAMES: Final = {"account_id": "user_id", "status": "account_status"}
KEY_NAMES: Final = {"account_id": "user_id", "tier": "billing_tier", "status": "api_key_status"}
ACCOUNT_COLUMNS: Final = (
    "user_id",
    "username",
    "account_status",
    "created_at",
    "changed_by",
    "reason",
)
KEY_COLUMNS: Final = (
    "key_id",
    "prefix",
    "username",
    "billing_tier",
    "api_key_status",
    "allowance_bytes",
    "created_at",
    "expires_at",
    "last_used_at",
    "changed_by",
    "reason",
)

SIZE_UNITS_BYTES: Final = {"": 1, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"(\d{1,19})(|MiB|GiB|TiB)", re.ASCII)

Reason = Annotated[str, typer.Option(help="Reason for the change, for the audit log.")]


class OperatorStore(NamedTuple):
    """An open store and the operator's operations."""

    store: Store
    admin: Admin


# The store logs outages for nodes; a command reports them as its own error.
logging.getLogger("onebook.store").addHandler(logging.NullHandler())


async def require_database(store: Store, pepper_file: Path, *, create: bool) -> None:
    """Require a database with the schema of this release.

    Only the command that creates the first account may create a file; for any other, a missing file
    means a wrong path. A pepper without a database means that the database was deleted or moved.
    """
    path = store.database.path
    missing = _missing(path)
    if missing and not _missing(pepper_file):
        raise ConfigError(
            f"Database {path} not found, although its pepper {pepper_file} exists: "
            "restore it (`onebook restore`), or correct store.url."
        )
    if missing and not create:
        raise ConfigError(
            f"Database {path} not found: create it with `onebook accounts create`, or "
            "correct store.url."
        )
    if missing:
        await store.database.upgrade()
        typer.echo(f"Created the database {path}.", err=True)
    else:
        await store.database.require_schema()


def _missing(path: Path | None) -> bool:
    return path is not None and not path.exists()


@asynccontextmanager
async def operator_store(
    file: Path | None, *, create: bool = False
) -> AsyncIterator[OperatorStore]:
    """Open the configured store."""
    settings = config.load(file).store
    async with Store(settings.url) as store:
        await require_database(store, settings.pepper_file, create=create)
        pepper = load_pepper(settings.pepper_file)
        await require_same_pepper(store, pepper)
        yield OperatorStore(store, Admin(store, pepper))


def change(reason: str) -> AuditedChange:
    """Describe a change made now by the person at this terminal."""
    return AuditedChange(now_ms(), _who(), reason)


def _who() -> str:
    """The login account, also under sudo; otherwise the account of the process."""
    with suppress(OSError):  # commands of timers and containers have no login
        return os.getlogin()
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have a number but no name
        return str(os.getuid())


def size_bytes(text: str) -> int:
    """Parse a size such as 200GiB, 500MiB or 1000000 (bytes).

    Raises:
        InvalidRequest: The text is not a size.
    """
    size = _SIZE.fullmatch(text)
    if size is None:
        raise InvalidRequest(
            f"{text!r} is not a size; use for example 200GiB, 500MiB or a number of bytes."
        )
    return int(size[1]) * SIZE_UNITS_BYTES[size[2]]


def fields(row: AccountRow | KeyRow) -> dict[str, Any]:
    """Return an account or key with the member names of the REST API."""
    names = KEY_NAMES if isinstance(row, KeyRow) else ACCOUNT_NAMES
    found = {names.get(name, name): value for name, value in to_builtins(row).items()}
    if isinstance(row, KeyRow):
        found["fees"] = fees_from(row.fees)
    return found


def print_accounts(accounts: Sequence[AccountRow]) -> None:
    """Print accounts as a table."""
    _print_rows(ACCOUNT_COLUMNS, accounts)


def print_keys(keys: Sequence[KeyRow]) -> None:
    """Print keys as a table, with only the first characters of each."""
    _print_rows(KEY_COLUMNS, keys)


def _print_rows(columns: Sequence[str], rows: Sequence[AccountRow | KeyRow]) -> None:
    print_table(columns, ([_cell(fields(row), name) for name in columns] for row in rows))


def _cell(row: dict[str, Any], name: str) -> str:
    """Format a field: times as dates, the last use to the minute."""
    value = row[name if name in row else f"{name}_ms"]
    if value is None:
        return ""
    if not name.endswith("_at"):
        return str(value)
    at = iso_ms(value)
    return at[:16].replace("T", " ") if name == "last_used_at" else at[:10]
