"""Helpers of operator commands: opening the store, the operator's name, dates and spans, tables.


Imported by the commands only; the rules themselves are in `onebook.accounts`.
"""

import os
import pwd
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from onebook import config
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper, require_same_pepper
from onebook.cli.common import print_table
from onebook.cli.options import AsJson as AsJson
from onebook.cli.options import ConfigFile as ConfigFile
from onebook.cli.options import print_json as print_json
from onebook.errors import InvalidRequest
from onebook.model import DAY_MS, MINUTE_MS, SECOND_MS
from onebook.store import AccountRow, AuditedChange, KeyRow, Store
from onebook.times import iso_ms, ms_of_iso

SPAN_UNITS_MS: Final = {"s": SECOND_MS, "m": MINUTE_MS, "h": 60 * MINUTE_MS, "d": DAY_MS}
SIZE_UNITS_BYTES: Final = {"": 1, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"(\d{1,19})(|MiB|GiB|TiB)", re.ASCII)
_SPAN = re.compile(r"(\d{1,6})([smhd])", re.ASCII)

Reason = Annotated[str, typer.Option(help="The reason, for the audit log.")]


class Desk(NamedTuple):
    """An opened store, and what an operator may do with it."""

    store: Store
    admin: Admin


@asynccontextmanager
async def desk(file: Path | None) -> AsyncIterator[Desk]:
    """Open the store that the settings name, brought to this release's schema."""
    settings = config.load(file).store
    async with Store(settings.url) as store:
        await store.upgrade(create=not settings.pepper_file.exists())
        pepper = load_pepper(settings.pepper_file)
        await require_same_pepper(store, pepper)
        yield Desk(store, Admin(store, pepper))


def now_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def change(reason: str) -> AuditedChange:
    """A change that the person at this terminal makes now."""
    return AuditedChange(now_ms(), _who(), reason)


def _who() -> str:
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
        raise InvalidRequest(f"{text!r} is no span of time; write 30m, 24h or 7d.")
    return int(span[1]) * SPAN_UNITS_MS[span[2]]


def size_bytes(text: str) -> int:
    """Read a size such as 200GiB, 500MiB or 1000000 (bytes).

    Raises:
        InvalidRequest: It is none.
    """
    size = _SIZE.fullmatch(text)
    if size is None:
        raise InvalidRequest(f"{text!r} is no size; write 200GiB, 500MiB or a number of bytes.")
    return int(size[1]) * SIZE_UNITS_BYTES[size[2]]


def moment_ms(text: str, since_ms: int) -> int:
    """Read a moment: a span from now such as 90d, or a date in UTC such as 2027-01-31.

    Raises:
        InvalidRequest: It is neither.
    """
    if _SPAN.fullmatch(text):
        return since_ms + span_ms(text)
    try:
        return ms_of_iso(text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is no moment; write 90d or 2027-01-31.") from None


def print_accounts(accounts: Sequence[AccountRow]) -> None:
    """Print accounts as a table."""
    rows = (
        (row.account_id, row.username, row.status, _day(row.created_at_ms), *_change(row))
        for row in accounts
    )
    columns = ("account_id", "username", "status", "created_at", "changed_by", "reason")
    print_table(columns, rows)


def print_keys(keys: Sequence[KeyRow]) -> None:
    """Print keys as a table; of each no more than its first characters."""
    rows = (
        (
            row.key_id,
            row.prefix,
            row.username,
            row.tier,
            row.status,
            "" if row.allowance_bytes is None else str(row.allowance_bytes),
            _day(row.created_at_ms),
            _day(row.expires_at_ms),
            _moment(row.last_used_at_ms),
            *_change(row),
        )
        for row in keys
    )
    columns = ("key_id", "prefix", "username", "tier", "status", "allowance_bytes")
    moments = ("created_at", "expires_at", "last_used_at")
    print_table((*columns, *moments, "changed_by", "reason"), rows)


def _change(row: AccountRow | KeyRow) -> tuple[str, str]:
    return row.changed_by, row.reason


def _day(at_ms: int | None) -> str:
    return "" if at_ms is None else iso_ms(at_ms)[:10]


def _moment(at_ms: int | None) -> str:
    return "" if at_ms is None else iso_ms(at_ms)[:16].replace("T", " ")
