"""`onebook history`: books of a past moment, from the files that `onebook serve` records."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from onebook.cli.common import console, fail, reported
from onebook.library.history import history
from onebook.orderbook import MissingPackage

history_app = typer.Typer(no_args_is_help=True, help="Recorded order books: show a past moment.")


@history_app.callback()
def history_group() -> None:
    """Recorded order books: show a past moment."""


@history_app.command("show")
@reported
def show(
    folder: Annotated[Path, typer.Argument(help="Folder of the history (`history.dir`).")],
    symbol: Annotated[str, typer.Argument(help="Pair, such as BTC/USDT.")],
    at: Annotated[str, typer.Option("--at", help="Time in ISO 8601; UTC if without a zone.")],
    exchange: Annotated[
        list[str] | None,
        typer.Option("--exchange", "-e", help="Exchange to merge; repeatable. Default: all."),
    ] = None,
    depth: Annotated[int, typer.Option(min=1, max=500, help="Levels per side.")] = 10,
) -> None:
    """Show the merged book of a pair at a past moment, and the state of each exchange then.

    Example: onebook history show /var/lib/onebook/history BTC/USDT --at 2026-11-27T14:03:00
    """
    try:
        update = history(folder, symbol.upper(), at=at, exchanges=exchange or None, depth=depth)
    except (LookupError, ValueError, MissingPackage) as error:
        fail(str(error))
    for side, levels in (("ask", [*update.asks][::-1]), ("bid", [*update.bids])):
        table = Table("price", "amount", "exchanges", title=f"{update.symbol} {side}s")
        for level in levels:
            table.add_row(f"{level.price:f}", f"{level.amount:f}", ", ".join(level.exchanges))
        console.print(table)
    states = Table("exchange", "state", "age", "reason")
    for name, health in update.exchanges.items():
        age = "" if health.age_s is None else f"{health.age_s:.3f} s"
        why = ": ".join(filter(None, (health.reason, health.detail)))
        states.add_row(name, health.state, age, why)
    console.print(states)
