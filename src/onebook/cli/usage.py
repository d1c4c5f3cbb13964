"""`onebook usage`: usage and allowance of a key."""

from typing import Annotated

import typer
from rich.progress_bar import ProgressBar

from onebook.accounts.keys import key_of
from onebook.accounts.usage import (
    UsageReport,
    stored_usage,
    usage_report,
)
from onebook.cli.common import console, print_fields, reported, run, size
from onebook.cli.dates import now_ms
from onebook.cli.operator import AsJson, ConfigFile, operator_store, print_json
from onebook.config import load

BAR_WIDTH = 40


@reported
def usage(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY_OR_ID",
            help="Key id. The key itself works too, but is then saved in the shell history.",
        ),
    ],
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Show the usage of a key in its billing period, and its allowance.

    Example: onebook usage key_0f3a5c7e9b1d --json
    """
    report = run(_report(key, config))
    if as_json:
        print_json(report)
    else:
        _print(report)


async def _report(name: str, config: ConfigFile) -> UsageReport:
    at_ms = now_ms()
    allowance_bytes = load(config).accounts.allowance_bytes
    async with operator_store(config) as (store, admin):
        key = key_of(await admin.key(name, at_ms))
        used_bytes = await stored_usage(store, key, at_ms)
    return usage_report(key, used_bytes, allowance_bytes=allowance_bytes, now_ms=at_ms)


def _print(report: UsageReport) -> None:
    used, period = report.data_usage, report.billing_period
    rounded = used.usage_percentage == 0 < used.bytes_used
    percent = "under 0.01 %" if rounded else f"{used.usage_percentage:.2f} %"
    shown = f"{size(used.bytes_used, digits=2)} of {size(used.bytes_limit, digits=2)}"
    rows = (
        ("username", report.username),
        ("billing_tier", report.billing_tier),
        ("api_key_status", report.status.api_key_status),
        ("data_usage", f"{shown} ({percent})"),
        ("reset_date", f"{period.reset_date[:10]}, {_in_days(period.days_until_reset)}"),
    )
    print_fields(rows)
    console.print(ProgressBar(total=used.bytes_limit, completed=used.bytes_used, width=BAR_WIDTH))


def _in_days(days: int) -> str:
    if days > 1:
        return f"in {days} days"
    return "in 1 day" if days else "in less than a day"
