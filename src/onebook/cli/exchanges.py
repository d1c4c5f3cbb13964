"""`onebook exchanges`: what can be connected to, and whether it answers."""

import time
from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec import Struct
from rich.table import Table

from onebook import config
from onebook.cli.common import console, reported, run
from onebook.cli.operator import AsJson, ConfigFile, print_json
from onebook.errors import OnebookError
from onebook.exchanges import EXCHANGES
from onebook.exchanges.contract import Exchange, ProtocolError
from onebook.feeds import enabled
from onebook.rest import Rest

exchanges_app = typer.Typer(no_args_is_help=True, help="The exchanges: list, check.")

CHECK_TOTAL_S = 15.0
EXIT_UNREACHABLE = 1


class Check(Struct, frozen=True):
    """Whether an exchange lists its instruments."""

    exchange: str
    pairs: int
    seconds: float
    problem: str


@exchanges_app.command("list")
@reported
def list_exchanges(as_json: AsJson = False) -> None:
    """List the exchanges whose books can be had.

    Example: onebook exchanges list
    """
    rows = [(each.name, each.display, each.depth, each.ws_url) for each in EXCHANGES.values()]
    if as_json:
        names = ("name", "display", "depth", "ws_url")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    table = Table("name", "exchange", "levels a side", "address", box=None, pad_edge=False)
    for name, display, depth, url in rows:
        table.add_row(name, display, str(depth or "all"), url)
    console.print(table)


@exchanges_app.command("check")
@reported
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Which; all if none.")] = None,
    settings: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask exchanges for their instruments; exit status 1 if one does not answer.

    Example: onebook exchanges check okx kraken
    """
    feeds = config.load(settings).feeds
    if names:
        feeds = feeds.model_copy(update={"exchanges": tuple(names)})
    checks = run(_check_all(list(enabled(EXCHANGES, feeds).values())))
    if as_json:
        print_json(checks)
    else:
        _print(checks)
    if any(each.problem for each in checks):
        raise typer.Exit(EXIT_UNREACHABLE)


async def _check_all(exchanges: Sequence[Exchange]) -> list[Check]:
    checks = []
    async with Rest() as rest:
        for exchange in exchanges:
            with console.status(f"asking {exchange.display} ..."):
                checks.append(await _check(rest, exchange))
    return checks


async def _check(rest: Rest, exchange: Exchange) -> Check:
    began_s = time.monotonic()
    pairs, problem = 0, ""
    try:
        url = exchange.rest_url + exchange.instruments_path
        pairs = len(exchange.parse_instruments(await rest.get(url, total_s=CHECK_TOTAL_S)))
    except OnebookError as error:
        problem = error.message
    except ProtocolError as error:
        problem = error.reason
    return Check(exchange.name, pairs, round(time.monotonic() - began_s, 3), problem)


def _print(checks: Sequence[Check]) -> None:
    table = Table("exchange", "pairs", "seconds", "answer", box=None, pad_edge=False)
    for check in checks:
        answer = f"[red]{check.problem}[/]" if check.problem else "[green]answers[/]"
        table.add_row(check.exchange, f"{check.pairs:,}", f"{check.seconds:.2f}", answer)
    console.print(table)
