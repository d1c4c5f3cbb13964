"""`onebook doctor`: is this installation well, and what to do where it is not."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from onebook import config, doctor
from onebook.cli.common import console, reported, run
from onebook.cli.operator import AsJson, print_json
from onebook.doctor import Finding, State

EXIT_FAULT: Final = 1
STYLES: Final = {State.OK: "green", State.WARNING: "yellow", State.FAULT: "bold red"}
STATE_WIDTH: Final = max(map(len, State))


@reported
def doctor_command(
    file: Annotated[
        Path | None,
        typer.Option("--config", help="The settings file; onebook.toml if not given."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not connect to exchanges.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Examine settings, permissions, clock, database, key files, versions and reachability.

    Run it as the account that runs the service, before a start or beside a running node. Each
    finding has one advice. Exit status 1 if there is a fault, else 0.

    Example: onebook doctor --config onebook.toml
    """
    settings, faults = config.examine(file)
    findings = [
        *doctor.local_findings(settings, faults, file),
        *run(doctor.database_findings(settings)),
        *run(doctor.network_findings(settings, exchanges_too=not offline)),
    ]
    if as_json:
        print_json(findings)
    else:
        _print(findings)
    if any(each.state is State.FAULT for each in findings):
        raise typer.Exit(EXIT_FAULT)


def _print(findings: list[Finding]) -> None:
    check_width = max(len(each.check) for each in findings)
    indent = " " * (STATE_WIDTH + check_width + 4)
    for each in findings:
        line = Text.assemble(
            (each.state.ljust(STATE_WIDTH), STYLES[each.state]),
            f"  {each.check.ljust(check_width)}  {each.message}",
        )
        console.print(line, soft_wrap=True, highlight=False)
        if each.advice:
            console.print(Text(f"{indent}-> {each.advice}"), soft_wrap=True, highlight=False)
    counts = [(sum(each.state is state for each in findings), state) for state in State]
    faults, warnings = counts[2][0], counts[1][0]
    console.print(
        f"{faults} fault{'' if faults == 1 else 's'}, "
        f"{warnings} warning{'' if warnings == 1 else 's'}.",
        highlight=False,
    )
