"""`onebook exchanges`: what can be connected to, and whether it answers."""

import time
from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec import Struct

from onebook import config
from onebook.cli.common import console, fitting, print_fields, print_table, reported, run
from onebook.cli.exchange_facts import COLUMNS, PROOF_COLUMNS, facts, proof, row
from onebook.cli.exchange_page import page
from onebook.cli.operator import AsJson, ConfigFile, print_json
from onebook.config import FeedSettings
from onebook.errors import OnebookError
from onebook.exchanges import EXCHANGES, resolve
from onebook.exchanges.contract import Exchange, ProtocolError
from onebook.exchanges.quality import docstring, quality
from onebook.feeds import enabled, read_list
from onebook.rest import Rest

exchanges_app = typer.Typer(no_args_is_help=True, help="The exchanges: list, show, check.")

CHECK_PAGE_S = 15.0  # one page of a list, with its waits and retries
EXIT_UNREACHABLE = 1
EXIT_UNKNOWN = 2


class Check(Struct, frozen=True):
    """Whether an exchange lists its instruments."""

    exchange: str
    pairs: int
    seconds: float
    problem: str


@exchanges_app.command("list")
@reported
def list_exchanges(
    find: Annotated[str, typer.Argument(help="Only names that contain this.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the exchanges whose books can be had, with what is known of their books.

    A terminal that is too narrow for all columns shows the first ones; `show` has the others.

    `quality` is how well the exchange is proven, from bronze to gold; docs/reference/exchanges has
    the rules. `depth` is levels a side. `lost frame` is what shows one. `heartbeat` is how long a
    connection may bring neither data nor a heartbeat that its exchange promises, `quiet` how long
    one book may. `times` is whether data names the exchange's own time.

    Example: onebook exchanges list
    """
    wanted = find.casefold()
    exchanges = [
        each for each in EXCHANGES.values() if wanted in f"{each.name} {each.display}".casefold()
    ]
    if as_json:
        print_json([_facts(each) for each in exchanges])
    else:
        rows = [row(each) for each in exchanges]
        count = fitting(COLUMNS, rows)
        print_table(COLUMNS[:count], [each[:count] for each in rows])


def _facts(exchange: Exchange) -> dict[str, str | float | bool | None]:
    return {
        "name": exchange.name,
        "display": exchange.display,
        "quality": quality(exchange).level,
        "depth": exchange.depth,
        "lost_frame": exchange.guard.name.lower(),
        "heartbeat_s": exchange.heartbeat_max_s,
        "quiet_s": exchange.quiet_max_s,
        "times": exchange.timed,
        "ws_url": exchange.ws_url,
    }


@exchanges_app.command("show")
@reported
def show(
    name: Annotated[str, typer.Argument(help="Its CCXT id, or a former name.")],
    as_page: Annotated[
        bool, typer.Option("--page", help="Its reference page, in Markdown.")
    ] = False,
) -> None:
    """Show what is known of one exchange: its limits, its protocol, the evidence and the doubts.

    Example: onebook exchanges show kraken
    """
    known = resolve(name)
    if known is None:
        names = ", ".join(EXCHANGES)
        console.print(f"There is no exchange {name!r}. Known are {names}.", markup=False)
        raise typer.Exit(EXIT_UNKNOWN)
    exchange = EXCHANGES[known]
    if as_page:
        typer.echo(page(exchange), nl=False)
        return
    print_fields([("display", exchange.display), ("quality", quality(exchange).level)])
    print_fields(facts(exchange))
    console.print()
    print_table(PROOF_COLUMNS, proof(exchange))
    console.print()
    console.print(docstring(exchange), markup=False, highlight=False, soft_wrap=True)


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
    checks = run(_check_all(list(enabled(EXCHANGES, feeds).values()), feeds))
    if as_json:
        print_json(checks)
    else:
        _print(checks)
    if any(each.problem for each in checks):
        raise typer.Exit(EXIT_UNREACHABLE)


async def _check_all(exchanges: Sequence[Exchange], settings: FeedSettings) -> list[Check]:
    checks = []
    async with Rest() as rest:
        for exchange in exchanges:
            with console.status(f"asking {exchange.display} ..."):
                checks.append(await check_list(rest, exchange, settings))
    return checks


async def check_list(rest: Rest, exchange: Exchange, settings: FeedSettings) -> Check:
    """Read the whole instrument list of an exchange."""
    began_s = time.monotonic()
    pairs, problem = 0, ""
    try:
        rest.budget(exchange.rest_url, exchange.limits.fetches)
        pairs = len(await read_list(exchange, rest=rest, settings=settings, page_s=CHECK_PAGE_S))
    except OnebookError as error:
        problem = error.message
    except ProtocolError as error:
        problem = error.reason
    return Check(exchange.name, pairs, round(time.monotonic() - began_s, 3), problem)


def _print(checks: Sequence[Check]) -> None:
    rows = [
        (each.exchange, f"{each.pairs:,}", f"{each.seconds:.2f}", each.problem or "none")
        for each in checks
    ]
    print_table(("exchange", "pairs", "seconds", "problem"), rows)
