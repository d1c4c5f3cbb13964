"""`onebook watch`: a live ladder in the terminal, through the public WebSocket."""

from collections.abc import Iterable
from contextlib import aclosing
from decimal import Decimal
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onebook.cli.common import console, fail, reported, run
from onebook.client import Level, Refused, View, watch

REFRESH_PER_S = 10
BAR_CELLS = 18
_ROW_LINES_SPARE = 8


@reported
def watch_command(
    symbol: Annotated[str, typer.Argument(help="The pair, such as BTC/USDT.")],
    key: Annotated[
        str,
        typer.Option(envvar="ONEBOOK_KEY", help="API key; better in the variable ONEBOOK_KEY."),
    ],
    exchanges: Annotated[
        str, typer.Option("--exchanges", "-e", help="Names with commas, or all.")
    ] = "all",
    depth: Annotated[int, typer.Option(min=1, max=500, help="Levels a side.")] = 10,
    group: Annotated[str, typer.Option(help="Price step to bin to, such as 10.")] = "",
    url: Annotated[str, typer.Option(help="WebSocket address.")] = "ws://127.0.0.1:8000/api/v1/ws",
    updates: Annotated[int, typer.Option(min=0, help="Stop after so many; 0 never stops.")] = 0,
) -> None:
    """Show the merged book of one pair, live: price, amount, and who stands at each level.

    Example: onebook watch BTC/USDT --exchanges okx,kraken --depth 15
    """
    names = exchanges if exchanges == "all" else [name.strip() for name in exchanges.split(",")]
    options = {"group": group} if group else {}
    try:
        run(_watch(symbol.upper(), key, url, names, depth, updates, options))
    except Refused as refused:
        fail(str(refused))


async def _watch(
    symbol: str,
    key: str,
    url: str,
    names: list[str] | str,
    depth: int,
    updates: int,
    options: dict[str, str],
) -> None:
    stream = watch(
        url, key, [symbol], exchanges=names, depth=depth, split=True, mode="delta", **options
    )
    seen = 0
    with Live(Text("connecting ..."), console=console, refresh_per_second=REFRESH_PER_S) as live:
        async with aclosing(stream) as views:
            async for view in views:
                live.update(ladder(view, rows(depth, console.height)))
                seen += 1
                if seen == updates:
                    return


def rows(depth: int, height: int) -> int:
    """Levels a side that fit the screen."""
    return max(1, min(depth, (height - _ROW_LINES_SPARE) // 2))


def ladder(view: View, count: int) -> RenderableType:
    """Draw asks above bids, the best in the middle, with a bar for the amount."""
    asks, bids = view.asks[:count], view.bids[:count]
    shown = (*asks, *bids)
    most = max((level.amount for level in shown), default=Decimal(1))
    table = Table(box=None, pad_edge=False, header_style="dim")
    # Widths of their own: a price or an amount is never cut, who stands there may be.
    table.add_column("price", justify="right", min_width=_width(level.price for level in shown))
    table.add_column("amount", justify="right", min_width=_width(level.amount for level in shown))
    table.add_column("", min_width=BAR_CELLS, max_width=BAR_CELLS)
    table.add_column("who", style="dim", no_wrap=True, overflow="ellipsis")
    _add_side(table, reversed(asks), "red", most)
    table.add_row(*_middle(view))
    _add_side(table, bids, "green", most)
    return Group(_title(view), table)


def _width(numbers: Iterable[Decimal]) -> int:
    return max((len(f"{number:f}") for number in numbers), default=1)


def _add_side(table: Table, levels: Iterable[Level], color: str, most: Decimal) -> None:
    for level in levels:
        bar = "█" * max(1, int(level.amount / most * BAR_CELLS))
        who = " ".join(
            f"{name} {amount:f}"
            for name, amount in zip(level.exchanges, level.amounts, strict=True)
        )
        table.add_row(
            f"[{color}]{level.price:f}[/]", f"{level.amount:f}", f"[{color}]{bar}[/]", who
        )


def _middle(view: View) -> tuple[str, str, str, str]:
    stats = view.market_stats
    if not stats or stats["spread"] is None:
        return "", "", "", ""
    crossed = "  [yellow]crossed[/]" if stats["crossed"] else ""
    return f"[bold]{stats['mid_price']}[/]", "", "", f"spread {stats['spread']}{crossed}"


def _title(view: View) -> Text:
    if not view.live:
        return Text.from_markup(f"[bold]{view.symbol}[/]  [red]not live: reconnecting[/]")
    text = f"[bold]{view.symbol}[/]  update {view.update_number}  {view.timestamp[11:23]}"
    if view.stale_exchanges:
        text += f"  [yellow]not live: {', '.join(view.stale_exchanges)}[/]"
    return Text.from_markup(text)
