"""`onebook billing`: usage of all keys per billing period, for invoices."""

import csv
import sys
from enum import StrEnum
from typing import Annotated, Final

import typer
from msgspec import to_builtins

from onebook.accounts.billing import BillingLine, Period, billing_lines, current_lines
from onebook.cli.common import fail, print_table, reported, run
from onebook.cli.dates import day_end_ms, day_ms, now_ms
from onebook.cli.operator import AsJson, ConfigFile, operator_store, print_json
from onebook.config import load
from onebook.model import DAY_MS

PERIOD_MAX_MS: Final = 31 * DAY_MS  # no billing period is longer


class Format(StrEnum):
    """Output format of a report."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


@reported
def billing_command(
    since: Annotated[
        str | None,
        typer.Option("--from", help="First day (UTC), such as 2026-10-01."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--to", help="Last day (UTC), inclusive, such as 2026-10-31; default: now."),
    ] = None,
    account: Annotated[str | None, typer.Option(help="Only keys of this user.")] = None,
    form: Annotated[Format, typer.Option("--format", help="table, csv or json.")] = Format.TABLE,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Report the usage of all keys per billing period.

    Without dates: the current billing period of each key. With dates, includes every billing
    period that starts in the range, so each period appears in exactly one monthly report.

    Example: onebook billing --from 2026-10-01 --to 2026-10-31 --format csv
    """
    at_ms = now_ms()
    if since is None and until is not None:
        fail("--to needs --from.")
    span = None
    if since is not None:
        span = Period(day_ms(since), at_ms if until is None else day_end_ms(until))
        if span.start_ms >= span.end_ms:
            fail("--from must not be after --to.")
    _print(run(_lines(span, account, at_ms, config)), Format.JSON if as_json else form)


async def _lines(
    span: Period | None, account: str | None, at_ms: int, config: ConfigFile
) -> list[BillingLine]:
    allowance_bytes = load(config).accounts.allowance_bytes
    async with operator_store(config) as (store, admin):
        keys = await admin.keys(account, at_ms)
        if span is None:
            used_bytes = await store.usage.between(at_ms - PERIOD_MAX_MS - DAY_MS, at_ms + 1)
            return current_lines(keys, used_bytes, at_ms, allowance_bytes=allowance_bytes)
        used_bytes = await store.usage.between(span.start_ms, span.end_ms)
        return billing_lines(keys, used_bytes, span, allowance_bytes=allowance_bytes)


def _print(lines: list[BillingLine], form: Format) -> None:
    if form is Format.JSON:
        print_json(lines)
        return
    columns = BillingLine.__struct_fields__
    rows = [[str(value) for value in to_builtins(line).values()] for line in lines]
    if form is Format.CSV:
        writer = csv.writer(sys.stdout)
        writer.writerow(columns)
        writer.writerows(rows)
    elif rows:
        _print_table(lines)
    else:
        typer.echo("No billing period begins in this range.")


def _print_table(lines: list[BillingLine]) -> None:
    """Print a table for the terminal, without account ids and with dates only."""
    columns = [name for name in BillingLine.__struct_fields__ if name != "user_id"]
    print_table(columns, ([_cell(line, name) for name in columns] for line in lines))


def _cell(line: BillingLine, name: str) -> str:
    value = str(getattr(line, name))
    return value.partition("T")[0] if name in ("period_start", "period_end") else value
