"""`onebook exchanges`: list, show and check the exchanges."""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from onebook import config
from onebook.cli import exchanges_live
from onebook.cli.common import console, fail, fitting, print_fields, print_table, reported, run
from onebook.cli.exchange_facts import (
    COLUMNS,
    PROOF_COLUMNS,
    detailed,
    facts,
    listed,
    page,
    proof,
    row,
)
from onebook.cli.exchange_quality import quality_command
from onebook.cli.options import AsJson, ConfigFile, print_json
from onebook.config import FeedSettings
from onebook.errors import OnebookError
from onebook.exchanges import EXCHANGES, resolve
from onebook.exchanges.kit import Exchange, ProtocolError
from onebook.exchanges.kit.quality import docstring, quality
from onebook.feeds import Library, ccxt, enabled, read_list
from onebook.feeds.recording import RecordingError
from onebook.orderbook import meant
from onebook.rest import Rest

exchanges_app = typer.Typer(no_args_is_help=True, help="Exchanges: list, show, check, quality.")
exchanges_app.command("quality")(quality_command)

CHECK_PAGE_S = 15.0  # timeout of one page of a list, including waits and retries
EXIT_UNREACHABLE = 1
SECONDS_MIN = 5.0  # enough for two subscriptions and two comparisons
SECONDS_MAX = 86_400.0


class Check(Struct, frozen=True):
    """Result of reading an exchange's instrument list."""

    exchange: str
    pairs: int
    seconds: float
    problem: str


@exchanges_app.command("list")
@reported
def list_exchanges(
    find: Annotated[str, typer.Argument(help="Only exchanges whose name contains this text.")] = "",
    as_json: AsJson = False,
    settings: ConfigFile = None,
) -> None:
    """List the supported exchanges and their feed properties.

    A narrow terminal shows only the first columns; `show` prints all of them.

    `quality`: evidence for the connector, from bronze to gold; see docs/reference/exchanges for the
    rules. `via`: "own", or "ccxt" for exchanges in feeds.ccxt.exchanges, which are only as exact as
    ccxt. `depth`: levels per side. `lost_frame`: how a lost frame is detected. `heartbeat_s`:
    seconds without data or heartbeat before a connection is considered dead. `quiet_s`: seconds
    without data before a book is stale. `times`: whether the data contains the exchange's
    timestamps.

    Example: onebook exchanges list
    """
    wanted = find.casefold()
    exchanges = [
        each
        for each in _known(settings).values()
        if wanted in f"{each.name} {each.display}".casefold()
    ]
    if as_json:
        print_json([listed(each) for each in exchanges])
    else:
        rows = [row(each) for each in exchanges]
        count = fitting(COLUMNS, rows)
        print_table(COLUMNS[:count], [each[:count] for each in rows])


def _known(settings: Path | None) -> dict[str, Exchange]:
    """Return all exchanges with a connector, and those that the settings add through ccxt."""
    return EXCHANGES | ccxt.enabled(config.load(settings).feeds)


@exchanges_app.command("show")
@reported
def show(
    name: Annotated[str, typer.Argument(help="ccxt id, or a former name.")],
    as_page: Annotated[
        bool, typer.Option("--page", help="Print the reference page in Markdown.")
    ] = False,
    as_json: AsJson = False,
    settings: ConfigFile = None,
) -> None:
    """Show one exchange: limits, protocol, evidence and unconfirmed facts.

    Example: onebook exchanges show kraken
    """
    exchanges = _known(settings)
    known = resolve(name) or name.strip().lower()
    if known not in exchanges:
        known_names = ", ".join(exchanges)
        fail(f"Unknown exchange {name!r}; known: {known_names}.{meant(name, exchanges)}")
    exchange = exchanges[known]
    if as_page:
        typer.echo(page(exchange), nl=False)
        return
    if as_json:
        print_json(detailed(exchange))
        return
    print_fields([("display_name", exchange.display), ("quality", quality(exchange).level)])
    print_fields(facts(exchange))
    console.print()
    print_table(PROOF_COLUMNS, proof(exchange))
    console.print()
    console.print(docstring(exchange), markup=False, highlight=False, soft_wrap=True)


@exchanges_app.command("check")
@reported
def check(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of exchanges; default: all.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Follow live books and report deviations.")
    ] = False,
    seconds: Annotated[
        float,
        typer.Option(
            min=SECONDS_MIN,
            max=SECONDS_MAX,
            help="With --live: seconds to follow each exchange.",
        ),
    ] = exchanges_live.SECONDS,
    symbol: Annotated[
        list[str] | None,
        typer.Option(
            "--symbol",
            "-s",
            help="With --live: pair to follow, such as BTC/USDT; repeatable.",
        ),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="With --live: folder for recordings of all frames.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="With --live: file of the report; it must not exist."),
    ] = None,
    settings: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Read the instrument lists of exchanges; with --live, follow books and report deviations.

    Exit status 1 if an exchange does not answer or --live finds a warning or fault. The report of
    --live contains no keys, addresses or paths, so it can be sent to the project; Ctrl-C ends the
    check early and still writes it. docs/guides/check-exchanges.md explains the findings.

    Example: onebook exchanges check --live okx kraken
    """
    feeds = config.load(settings).feeds
    if not live and (symbol or record or output):
        fail("--symbol, --record and --output need --live.")
    if names:
        through = tuple(each for each in names if each in feeds.ccxt.exchanges)
        chosen = {
            "exchanges": tuple(each for each in names if each not in through),
            "ccxt": feeds.ccxt.model_copy(update={"exchanges": through}),
        }
        feeds = feeds.model_copy(update=chosen)
    wanted = enabled(EXCHANGES, feeds)
    if live:
        direct = {each: wanted[each] for each in names or wanted if not wanted[each].via}
        if not direct:
            fail("--live supports only exchanges with a native connector, not those through ccxt.")
        try:
            status = exchanges_live.check_live(
                direct,
                feeds,
                seconds=seconds,
                symbols=[each.upper() for each in symbol or ()],
                record=record,
                output=output,
                as_json=as_json,
            )
        except RecordingError as error:
            fail(str(error))
        raise typer.Exit(status)
    checks = run(_check_all([wanted[each] for each in names or wanted], feeds))
    if as_json:
        print_json(checks)
    else:
        _print(checks)
    if any(each.problem for each in checks):
        raise typer.Exit(EXIT_UNREACHABLE)


async def _check_all(exchanges: Sequence[Exchange], settings: FeedSettings) -> list[Check]:
    checks = []
    async with AsyncExitStack() as stack:
        rest = await stack.enter_async_context(Rest(proxies=settings.proxies))
        library = None
        if any(each.via for each in exchanges):
            library = await stack.enter_async_context(Library(settings))
        for exchange in exchanges:
            with console.status(f"requesting {exchange.display} ..."):
                checks.append(await check_list(rest, exchange, settings, library))
    return checks


async def check_list(
    rest: Rest, exchange: Exchange, settings: FeedSettings, library: Library | None = None
) -> Check:
    """Read the complete instrument list of an exchange."""
    began_s = time.monotonic()
    pairs, problem = 0, ""
    try:
        if not exchange.via:
            rest.budget(exchange.rest_url, exchange.limits.fetches, exchange.holds)
        found = await read_list(
            exchange, rest=rest, settings=settings, page_s=CHECK_PAGE_S, library=library
        )
        pairs = len(found)
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
