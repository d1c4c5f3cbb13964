"""Helpers of operator commands: opening the store, operator name, dates, spans and tables.

Used by commands only; the rules are in `onebook.accounts`.
"""

import logging
import os
import pwd
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from msgspec import to_builtins

from onebook import config
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper, require_same_pepper
from onebook.cli.common import print_table
from onebook.cli.options import AsJson as AsJson
from onebook.cli.options import ConfigFile as ConfigFile
from onebook.cli.options import print_json as print_json
from onebook.clock import iso_ms, ms_of_iso
from onebook.errors import ConfigError, InvalidRequest
from onebook.model import DAY_MS, MINUTE_MS, SECOND_MS
from onebook.store import AccountRow, AuditedChange, KeyRow, Store

# The names of the REST bodies, where the database has others.
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

SPAN_UNITS_MS: Final = {"s": SECOND_MS, "m": MINUTE_MS, "h": 60 * MINUTE_MS, "d": DAY_MS}
SIZE_UNITS_BYTES: Final = {"": 1, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"(\d{1,19})(|MiB|GiB|TiB)", re.ASCII)
_SPAN = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_DATE = re.compile(r"\d{4}-?\d{2}-?\d{2}", re.ASCII)
_MOMENT: Final = "time; use for example 90d or 2027-01-31"
NOW: Final = "now"

Reason = Annotated[str, typer.Option(help="Reason for the change, for the audit log.")]


class Desk(NamedTuple):
    """An opened store and the operations of an operator."""

    store: Store
    admin: Admin


# The store logs an outage for nodes; a command reports it as its error.
logging.getLogger("onebook.store").addHandler(logging.NullHandler())


async def require_database(store: Store, pepper_file: Path, *, create: bool) -> None:
    """Require a database with this release's schema.

    Only the command that creates the first account creates a new file; for any other, a missing
    file means a wrong path. A pepper without a database means that the database was deleted or
    moved.
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
async def desk(file: Path | None, *, create: bool = False) -> AsyncIterator[Desk]:
    """Open the configured store."""
    settings = config.load(file).store
    async with Store(settings.url) as store:
        await require_database(store, settings.pepper_file, create=create)
        pepper = load_pepper(settings.pepper_file)
        await require_same_pepper(store, pepper)
        yield Desk(store, Admin(store, pepper))


def now_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def change(reason: str) -> AuditedChange:
    """A change made now by the person at this terminal."""
    return AuditedChange(now_ms(), _who(), reason)


def _who() -> str:
    """The login account, also under sudo; otherwise the account of the process."""
    with suppress(OSError):  # a timer's and a container's commands have no login
        return os.getlogin()
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number without a name
        return str(os.getuid())


def span_ms(text: str) -> int:
    """Read a span such as 30m, 24h or 7d.

    Raises:
        InvalidRequest: It is none.
    """
    span = _SPAN.fullmatch(text)
    if span is None:
        raise InvalidRequest(f"{text!r} is not a time span; use for example 30m, 24h or 7d.")
    return int(span[1]) * SPAN_UNITS_MS[span[2]]


def size_bytes(text: str) -> int:
    """Read a size such as 200GiB, 500MiB or 1000000 (bytes).

    Raises:
        InvalidRequest: It is none.
    """
    size = _SIZE.fullmatch(text)
    if size is None:
        raise InvalidRequest(
            f"{text!r} is not a size; use for example 200GiB, 500MiB or a number of bytes."
        )
    return int(size[1]) * SIZE_UNITS_BYTES[size[2]]


def day_ms(text: str) -> int:
    """Parse a date in UTC such as 2027-01-31 (its first millisecond), or a time.

    Raises:
        InvalidRequest: The text is neither.
    """
    return _date_ms(text, "date; use for example 2027-01-31")


def day_end_ms(text: str) -> int:
    """Parse a date in UTC (the first millisecond after it), or a time.

    Raises:
        InvalidRequest: The text is neither.
    """
    return day_ms(text) + (DAY_MS if _is_date(text) else 0)


def until_ms(text: str, now_ms: int) -> int:
    """Parse the end of a validity: a span such as 90d, a date in UTC (inclusive), or a time.

    Raises:
        InvalidRequest: The text is none of these.
    """
    if _SPAN.fullmatch(text):
        return now_ms + span_ms(text)
    return _last_ms(text)


def past_ms(text: str, now_ms: int) -> int:
    """Parse the start of a range: now, a span back such as 90d, a date in UTC, or a time.

    Raises:
        InvalidRequest: The text is none of these.
    """
    if text == NOW:
        return now_ms
    if _SPAN.fullmatch(text):
        return now_ms - span_ms(text)
    return _date_ms(text, _MOMENT)


def past_end_ms(text: str, now_ms: int) -> int:
    """Parse the inclusive end of a range: like `past_ms`, but a date means its last millisecond.

    Raises:
        InvalidRequest: The text is none of these.
    """
    return _last_ms(text) if _is_date(text) else past_ms(text, now_ms)


def _last_ms(text: str) -> int:
    return _date_ms(text, _MOMENT) + (DAY_MS - 1 if _is_date(text) else 0)


def _is_date(text: str) -> bool:
    return _DATE.fullmatch(text) is not None


def _date_ms(text: str, wanted: str) -> int:
    """Parse a date or time; weeks such as 2027-W05, which ISO 8601 allows, are refused."""
    try:
        if "W" in text:
            raise ValueError
        return ms_of_iso(text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is not a {wanted}.") from None


def fields(row: AccountRow | KeyRow) -> dict[str, Any]:
    """An account or key with the member names of the REST API."""
    names = KEY_NAMES if isinstance(row, KeyRow) else ACCOUNT_NAMES
    return {names.get(name, name): value for name, value in to_builtins(row).items()}


def print_accounts(accounts: Sequence[AccountRow]) -> None:
    """Print accounts as a table."""
    _print_rows(ACCOUNT_COLUMNS, accounts)


def print_keys(keys: Sequence[KeyRow]) -> None:
    """Print keys as a table, with only the first characters of each."""
    _print_rows(KEY_COLUMNS, keys)


def _print_rows(columns: Sequence[str], rows: Sequence[AccountRow | KeyRow]) -> None:
    print_table(columns, ([_cell(fields(row), name) for name in columns] for row in rows))


def _cell(row: dict[str, Any], name: str) -> str:
    """A field as text: times as dates, the last use to the minute."""
    value = row[name if name in row else f"{name}_ms"]
    if value is None:
        return ""
    if not name.endswith("_at"):
        return str(value)
    at = iso_ms(value)
    return at[:16].replace("T", " ") if name == "last_used_at" else at[:10]
