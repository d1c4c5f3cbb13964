"""`onebook audit`: the log of changes to accounts, keys and credentials."""

from contextlib import suppress
from typing import Annotated, Final

import typer
from msgspec.structs import astuple

from onebook.accounts.admin import Admin
from onebook.cli.common import print_table, reported, run
from onebook.cli.dates import now_ms, past_ms
from onebook.cli.operator import AsJson, ConfigFile, operator_store, print_json
from onebook.clock import iso_ms
from onebook.errors import NotFound
from onebook.model import DAY_MS
from onebook.store import ChangeRow

ROWS_MAX: Final = 100_000
CREDENTIALS_SEPARATOR: Final = "/"


@reported
def audit_command(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[SUBJECT]",
            help="Username, account id, key id or EXCHANGE/ENVIRONMENT; default: all.",
        ),
    ] = None,
    since: Annotated[
        str, typer.Option(help="Start: a duration before now such as 90d, or a date (UTC).")
    ] = "3650d",
    limit: Annotated[
        int,
        typer.Option(min=1, max=ROWS_MAX, help="Maximum number of entries; the newest are shown."),
    ] = 1_000,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Show the changes made by operators, newest first.

    Example: onebook audit alice --since 90d
    """
    since_ms = max(0, past_ms(since, now_ms()))

    async def work() -> list[ChangeRow]:
        async with operator_store(config) as (store, admin):
            found = None if subject is None else await _subject(admin, subject)
            return await store.audit.changes(
                found, since_ms=since_ms, until_ms=now_ms() + DAY_MS, rows_max=limit
            )

    rows = run(work())
    if as_json:
        print_json(rows)
        return
    if not rows:
        typer.echo("No changes in this period.")
        return
    columns = ("changed_at", *ChangeRow.__struct_fields__[1:])
    print_table(columns, ((iso_ms(row.changed_at_ms), *astuple(row)[1:]) for row in rows))


async def _subject(admin: Admin, name: str) -> str:
    """Return the id under which changes of a user, key or credential are logged."""
    if CREDENTIALS_SEPARATOR in name:
        return name
    with suppress(NotFound):
        return (await admin.key(name, now_ms())).key_id
    return (await admin.account(name)).account_id
