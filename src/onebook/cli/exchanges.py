"""`onebook exchanges`: what can be connected to, and whether it answers."""

import inspect
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated

import typer
from msgspec import Struct

from onebook import config
from onebook.cli.common import console, print_table, reported, run
from onebook.cli.operator import AsJson, ConfigFile, print_json
from onebook.config import FeedSettings
from onebook.errors import OnebookError
from onebook.exchanges import EXCHANGES, resolve
from onebook.exchanges.contract import Exchange, ProtocolError
from onebook.exchanges.limits import Limit, Scope
from onebook.feeds import enabled, read_list
from onebook.rest import Rest

exchanges_app = typer.Typer(no_args_is_help=True, help="The exchanges: list, show, check.")

CHECK_PAGE_S = 15.0  # one page of a list, with its waits and retries
EXIT_UNREACHABLE = 1
EXIT_UNKNOWN = 2
WINDOWS = {1.0: "1 s", 60.0: "1 min", 3_600.0: "1 h"}
COLUMNS = ("name", "display", "depth", "lost frame", "heartbeat", "quiet", "times", "ws_url")


class Check(Struct, frozen=True):
    """Whether an exchange lists its instruments."""

    exchange: str
    pairs: int
    seconds: float
    problem: str


@exchanges_app.command("list")
@reported
def list_exchanges(as_json: AsJson = False) -> None:
    """List the exchanges whose books can be had, with what is known of their books.

    `depth` is levels a side. `lost frame` is what shows one. `heartbeat` is how long a connection
    may bring neither data nor a heartbeat that its exchange promises, `quiet` how long one book
    may. `times` is whether data names the exchange's own time.

    Example: onebook exchanges list
    """
    exchanges = EXCHANGES.values()
    if as_json:
        print_json([_facts(each) for each in exchanges])
    else:
        print_table(COLUMNS, [_row(each) for each in exchanges])


def _facts(exchange: Exchange) -> dict[str, str | float | bool | None]:
    return {
        "name": exchange.name,
        "display": exchange.display,
        "depth": exchange.depth,
        "lost_frame": exchange.guard.name.lower(),
        "heartbeat_s": exchange.heartbeat_max_s,
        "quiet_s": exchange.quiet_max_s,
        "times": exchange.timed,
        "ws_url": exchange.ws_url,
    }


def _row(exchange: Exchange) -> tuple[str, ...]:
    heartbeat_s = exchange.heartbeat_max_s
    return (
        exchange.name,
        exchange.display,
        str(exchange.depth or "all"),
        exchange.guard.name.lower(),
        "none" if heartbeat_s is None else f"{heartbeat_s:g} s",
        f"{exchange.quiet_max_s:g} s",
        "yes" if exchange.timed else "no",
        exchange.ws_url,
    )


@exchanges_app.command("show")
@reported
def show(name: Annotated[str, typer.Argument(help="Its CCXT id, or a former name.")]) -> None:
    """Show what is known of one exchange: its limits, its protocol, the evidence and the doubts.

    Example: onebook exchanges show kraken
    """
    known = resolve(name)
    if known is None:
        names = ", ".join(EXCHANGES)
        console.print(f"There is no exchange {name!r}. Known are {names}.", markup=False)
        raise typer.Exit(EXIT_UNKNOWN)
    print_table(("fact", "value"), page(EXCHANGES[known]))
    evidence = inspect.getdoc(import_module(f"onebook.exchanges.{known}")) or ""
    console.print(evidence, markup=False, highlight=False, soft_wrap=True)


def page(exchange: Exchange) -> list[tuple[str, str]]:
    """Write the facts of an exchange for a reader."""
    limits = exchange.limits
    facts = dict(zip(COLUMNS, _row(exchange), strict=True))
    return [
        *facts.items(),
        ("former names", ", ".join(exchange.former_names) or "-"),
        ("instruments on a connection", f"{limits.topics:,}"),
        ("messages", words(limits.messages)),
        ("subscription requests", words(limits.requests)),
        ("connection attempts", words(limits.connects)),
        ("REST weight", words(limits.fetches)),
        ("connections", f"{limits.connections:,}" if limits.connections else "-"),
        ("shut out by", held(exchange.holds)),
    ]


def held(holds: Mapping[int, float]) -> str:
    """Write which HTTP statuses shut an address out, and for how long we send nothing then."""
    return "; ".join(f"{status} for {hold_s:g} s" for status, hold_s in holds.items()) or "-"


def words(limits: Sequence[Limit]) -> str:
    """Write limits of one kind: all of them hold at once."""
    texts = [
        f"{each.count:,} in {WINDOWS.get(each.per_s, f'{each.per_s:g} s')}"
        + (" of the address" if each.scope is Scope.ADDRESS else "")
        for each in limits
    ]
    return "; ".join(texts) or "-"


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
        rest.budget(exchange.rest_url, exchange.limits.fetches, exchange.holds)
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
