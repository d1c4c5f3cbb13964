"""`onebook exchanges`: list the exchanges, show their facts, check that they answer."""

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
from onebook.cli.exchange_facts import COLUMNS, PROOF_COLUMNS, detailed, facts, listed, proof, row
from onebook.cli.exchange_page import page
from onebook.cli.options import AsJson, ConfigFile, print_json
from onebook.config import FeedSettings
from onebook.errors import OnebookError
from onebook.exchanges import EXCHANGES, resolve
from onebook.exchanges.kit import Exchange, ProtocolError
from onebook.exchanges.kit.quality import docstring, quality
from onebook.feeds import Library, ccxt, enabled, read_list
from onebook.feeds.recording import RecordingError
from onebook.rest import Rest

exchanges_app = typer.Typer(no_args_is_help=True, help="The exchanges: list, show, check.")

CHECK_PAGE_S = 15.0  # one page of a list, with its waits and retries
EXIT_UNREACHABLE = 1
SECONDS_MIN = 5.0  # a subscription, a second one and two comparisons
SECONDS_MAX = 86_400.0


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
    settings: ConfigFile = None,
) -> None:
    """List the exchanges whose books can be had, with what is known of their books.

    A terminal that is too narrow for all columns shows the first ones; `show` has the others.

    `code` is what a narrow `onebook watch` shows. `quality` is how well the exchange is proven,
    from bronze to gold; docs/reference/exchanges has the rules. `via` is "ccxt" for those of the
    setting feeds.ccxt.exchanges, which are only as exact as ccxt, and "own" for the others. `depth`
    is levels a side. `lost_frame` is what shows one. `heartbeat_s` is how long a connection may
    bring neither data nor a heartbeat that its exchange promises, `quiet_s` how long one book may.
    `times` is whether data names the exchange's own time.

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
    """Return every exchange with a connector, and those that the operator has through ccxt."""
    return EXCHANGES | ccxt.enabled(config.load(settings).feeds)


@exchanges_app.command("show")
@reported
def show(
    name: Annotated[str, typer.Argument(help="Its CCXT id, or a former name.")],
    as_page: Annotated[
        bool, typer.Option("--page", help="Its reference page, in Markdown.")
    ] = False,
    as_json: AsJson = False,
    settings: ConfigFile = None,
) -> None:
    """Show what is known of one exchange: its limits, its protocol, the evidence and the doubts.

    Example: onebook exchanges show kraken
    """
    exchanges = _known(settings)
    known = resolve(name) or name.strip().lower()
    if known not in exchanges:
        fail(f"There is no exchange {name!r}; known are {', '.join(exchanges)}.")
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
    names: Annotated[list[str] | None, typer.Argument(help="Which; all if none.")] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Follow books and report what differs.")
    ] = False,
    seconds: Annotated[
        float,
        typer.Option(
            min=SECONDS_MIN,
            max=SECONDS_MAX,
            help="With --live: how long each exchange is followed.",
        ),
    ] = exchanges_live.SECONDS,
    symbol: Annotated[
        list[str] | None,
        typer.Option(
            "--symbol",
            "-s",
            help="With --live: a pair to follow, such as BTC/USDT; may be repeated.",
        ),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="With --live: record all frames into this folder.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="With --live: where the report goes; a new file."),
    ] = None,
    settings: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Read the instrument lists of exchanges; with --live, follow books and report what differs.

    Exit status 1 if an exchange does not answer, or if --live finds a warning or a fault. --live
    writes a report without keys, addresses and paths, to be sent to the project; Ctrl-C ends it
    with what it has. docs/guides/check-exchanges.md explains the findings.

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
            fail("--live checks connectors: these exchanges come through ccxt.")
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
        rest = await stack.enter_async_context(Rest())
        library = None
        if any(each.via for each in exchanges):
            library = await stack.enter_async_context(Library(settings))
        for exchange in exchanges:
            with console.status(f"asking {exchange.display} ..."):
                checks.append(await check_list(rest, exchange, settings, library))
    return checks


async def check_list(
    rest: Rest, exchange: Exchange, settings: FeedSettings, library: Library | None = None
) -> Check:
    """Read the whole instrument list of an exchange."""
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
