"""`onebook doctor`: diagnose an installation, with a suggested fix for each finding."""

from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from onebook import config
from onebook.cli.common import console, reported, run
from onebook.cli.operator import AsJson, ConfigFile, print_json
from onebook.ops import doctor
from onebook.ops.doctor import Finding, Severity

EXIT_FAULT: Final = 1
STYLES: Final = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.FAULT: "bold red"}


@reported
def doctor_command(
    file: ConfigFile = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not connect to the exchanges.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check settings, permissions, clock, database, key files, versions and network access.

    Run it as the operating system user of the service, before a start or while a node runs. Each
    finding has a suggested fix. Exit status 1 if there is a fault, otherwise 0.

    Example: onebook doctor --config onebook.toml
    """
    settings, faults = config.examine(file)
    findings = [
        *doctor.local_findings(settings, faults, file),
        *run(doctor.database_findings(settings)),
        *run(doctor.cluster_findings(settings)),
        *run(doctor.network_findings(settings, exchanges_too=not offline)),
    ]
    if as_json:
        print_json(findings)
    else:
        _print(findings)
    if any(each.state is Severity.FAULT for each in findings):
        raise typer.Exit(EXIT_FAULT)


def _print(findings: list[Finding]) -> None:
    if console.is_terminal:
        console.print(_grid(findings), highlight=False)
    else:  # one per line, for grep
        for each in findings:
            advice = f" -> {each.advice}" if each.advice else ""
            line = f"{each.state}  {each.check}  {each.message}{advice}"
            console.print(Text(line), soft_wrap=True, highlight=False)
    counts = [(sum(each.state is state for each in findings), state) for state in Severity]
    faults, warnings = counts[2][0], counts[1][0]
    console.print(
        f"{faults} fault{'' if faults == 1 else 's'}, "
        f"{warnings} warning{'' if warnings == 1 else 's'}.",
        highlight=False,
    )


def _grid(findings: list[Finding]) -> Table:
    """Lay the findings out as a table whose sentences wrap between words."""
    grid = Table.grid(padding=(0, 2))
    for _ in range(2):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for each in findings:
        text = Text(each.message)
        if each.advice:
            text.append(f"\n-> {each.advice}")
        grid.add_row(Text(each.state, STYLES[each.state]), each.check, text)
    return grid
