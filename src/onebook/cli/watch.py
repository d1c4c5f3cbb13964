"""`onebook watch`: a live ladder in the terminal, through the public WebSocket."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from onebook import client
from onebook.cli.common import console, errors, fail, reported, run
from onebook.cli.ladder import (
    LINES_BESIDE,
    Ladder,
    Transit,
    joined,
    market_lines,
    problem_text,
    read_fees,
    rows,
    transits_of,
)
from onebook.client import BookView, Refused, ServiceError, ViewUpdates, watch
from onebook.fees import KEY_TABLE, PUBLISHED

REFRESH_PER_S: Final = 10
DEPTH_MAX: Final = 500
PIPE_DEPTH: Final = 10
TIMES_EVERY_S: Final = 10.0
TIMES_KEPT_S: Final = 60.0  # without an answer

Open = Callable[[int], ViewUpdates]


@reported
def watch_command(
    symbol: Annotated[str, typer.Argument(help="Pair, such as BTC/USDT.")],
    key: Annotated[
        str,
        typer.Option(
            envvar="ONEBOOK_KEY", help="API key; preferably set in the variable ONEBOOK_KEY."
        ),
    ],
    exchanges: Annotated[
        str, typer.Option("--exchanges", "-e", help="Exchange names, comma separated, or all.")
    ] = "all",
    depth: Annotated[
        int | None,
        typer.Option(min=1, max=DEPTH_MAX, help="Levels per side; default: as many as fit."),
    ] = None,
    group: Annotated[str, typer.Option(help="Price step for binning, such as 10.")] = "",
    amount: Annotated[
        list[str] | None,
        typer.Option(help="Show the cost of buying and selling this amount of the base currency."),
    ] = None,
    notional: Annotated[
        list[str] | None,
        typer.Option(
            help="Show the cost of buying and selling for this amount of the quote currency."
        ),
    ] = None,
    fees: Annotated[
        str,
        typer.Option(
            help="Taker fees, to show the best route of each size and the crossings after fees: "
            "a TOML file in percent (okx = 0.08, others = 0.1), `key` for the API key's table, or "
            "`published` for the base fees that the exchanges state themselves."
        ),
    ] = "",
    exclude: Annotated[
        str, typer.Option(help="With --fees: exchanges, comma separated, to leave out of routes.")
    ] = "",
    max_exchanges: Annotated[
        int, typer.Option(min=0, help="With --fees: maximum exchanges of a route; 0: any number.")
    ] = 0,
    net: Annotated[
        bool,
        typer.Option("--net", help="Order the book by prices after --fees."),
    ] = False,
    quotes: Annotated[
        str,
        typer.Option(
            help="Further quote currencies, comma separated, whose books are converted and shown "
            "as exchange:quote."
        ),
    ] = "",
    url: Annotated[
        str, typer.Option(help="URL of the service or of its WebSocket.")
    ] = "http://127.0.0.1:8000",
    updates: Annotated[int, typer.Option(min=0, help="Stop after N updates; 0: never.")] = 0,
) -> None:
    """Show the merged book of one pair, live: price, amount, and the exchanges at each level.

    In the middle: the age of the best prices by the clocks of their exchanges, with its error, or a
    lower bound (≥) if the transit time from an exchange is unknown. Below the ladder: the cost of
    each size, crossed markets with the age of each quote, and the oldest data. In a pipe or file,
    each update is a block of plain text and problems go to standard error.

    Example: onebook watch BTC/USDT --exchanges okx,kraken --depth 15 --amount 2.5
    """
    names = exchanges if exchanges == "all" else [name.strip() for name in exchanges.split(",")]
    options: dict[str, Any] = {"split": True, "mode": "delta", "ages": True}
    if group:
        options["group"] = group
    if quotes:
        options["quotes"] = [name.strip() for name in quotes.split(",")]
    sizes: dict[str, Any] = {"amounts": amount or [], "notionals": notional or []}
    below = 2 * sum(map(len, sizes.values())) + 2
    if exclude or max_exchanges:
        if not fees or below == 2:
            fail("--exclude and --max-exchanges need --fees, and --amount or --notional.")
        sizes |= {"exclude": [name.strip() for name in exclude.split(",")]} if exclude else {}
        sizes |= {"max_exchanges": max_exchanges} if max_exchanges else {}
    if below > 2:
        options["fill"] = sizes
    try:
        named = fees in ("", KEY_TABLE, PUBLISHED)
        table = fees or None if named else read_fees(Path(fees))
    except ValueError as error:
        fail(str(error))
    if net and not fees:
        fail("--net needs --fees.")
    if table is not None:
        options |= {"net": net, "fees": table, "crossings": "0"}
    start = partial(watch, url, key, [symbol.upper()], exchanges=names, **options)
    times = partial(_times, url, key, symbol.upper(), names)
    with_fees = table is not None
    shown = (
        _Screen(url, depth, below, with_fees=with_fees)
        if console.is_terminal
        else _Lines(depth, with_fees=with_fees)
    )
    logging.getLogger("onebook.client").addHandler(logging.NullHandler())  # shown here instead
    try:
        run(_follow(shown, lambda levels: start(depth=levels), times, updates))
    except Refused as refused:
        near = ", ".join(refused.details.get("suggested_symbols", ()))
        fail(f"{refused} Did you mean {near}?" if near else str(refused))


class _Screen:
    """A ladder that fills the terminal and adapts to its size."""

    def __init__(self, url: str, depth: int | None, lines_below: int, *, with_fees: bool) -> None:
        self._with_fees = with_fees
        self._lines_below = lines_below
        self._depth_max = depth or DEPTH_MAX
        self._ladder = Ladder(console.width)
        self._transits: Mapping[str, Transit] = {}
        self._last: Text | None = None
        start = Text(f"connecting to {url} ...")
        self._live = Live(start, console=console, screen=True, refresh_per_second=REFRESH_PER_S)

    def __enter__(self) -> "_Screen":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Keep the last book on the terminal."""
        self._live.stop()
        if self._last is not None:
            _print(console, self._last)

    @property
    def depth(self) -> int:
        return min(self._depth_max, rows(console.height - self._room_below))

    @property
    def _room_below(self) -> int:
        """Number of market lines that leave room for the best level of each side."""
        return max(0, min(self._lines_below, console.height - LINES_BESIDE - 2))

    def show(self, view: BookView) -> None:
        if self._ladder.width != console.width:
            self._ladder = Ladder(console.width)
        self._ladder.transits = self._transits
        lines = market_lines(view, with_fees=self._with_fees, width=console.width)
        below = lines[: self._room_below]
        self._last = joined([*self._ladder.lines(view, self.depth), *below])
        self._live.update(self._last)

    def transits(self, known: Mapping[str, Transit]) -> None:
        self._transits = known


class _Lines:
    """Prints one block of text per update, and problems to standard error."""

    def __init__(self, depth: int | None, *, with_fees: bool) -> None:
        self._with_fees = with_fees
        self.depth = depth or PIPE_DEPTH
        self._ladder = Ladder(None)

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, view: BookView) -> None:
        if view.live:
            below = market_lines(view, with_fees=self._with_fees, width=None)
            _print(console, joined([*self._ladder.lines(view, self.depth), *below, Text()]))
        else:
            _print(errors, Text(f"{view.symbol} is not live: {problem_text(view)}"))

    def transits(self, known: Mapping[str, Transit]) -> None:
        self._ladder.transits = known


def _print(where: Console, text: Text) -> None:
    where.print(text, soft_wrap=True, highlight=False)


async def _times(
    url: str, key: str, symbol: str, exchanges: str | list[str], shown: _Screen | _Lines
) -> None:
    """Request the times of the exchanges once in a while, because they change slowly.

    In each update they would be most of it. While they are unavailable, ages are lower bounds.
    """
    unknown_at = 0.0
    async with client.AsyncOnebook(url, key) as service:
        while True:
            with suppress(ServiceError):
                view = await service.snapshot(
                    symbol, exchanges=exchanges, depth=1, times=True, ages=False, coverage=False
                )
                shown.transits(transits_of(view.times))
                unknown_at = monotonic() + TIMES_KEPT_S
            if monotonic() >= unknown_at:
                shown.transits({})
            await asyncio.sleep(TIMES_EVERY_S)


async def _follow(
    shown: _Screen | _Lines, start: Open, times: Callable[[Any], Awaitable[None]], updates: int
) -> None:
    """Show views and the ages of their best prices; resubscribe when the screen has grown."""
    seen = 0
    asking: asyncio.Future[None] | None = None
    try:
        with shown:
            while True:
                depth = shown.depth
                async with aclosing(start(depth)) as views:
                    async for view in views:
                        shown.show(view)
                        seen += view.live
                        if updates and seen >= updates:
                            return
                        if seen and asking is None:
                            asking = asyncio.ensure_future(times(shown))
                        if shown.depth > depth:
                            break
    finally:
        if asking is not None:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
