"""`onebook record`: record the frames of an exchange with the service's own feeds."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from onebook import config
from onebook.books import Books
from onebook.cli.common import console, fail, reported, run
from onebook.cli.options import ConfigFile
from onebook.config import FeedSettings
from onebook.errors import ExchangeFailed, InvalidExchange, InvalidRequest
from onebook.exchanges import EXCHANGES, resolve
from onebook.exchanges.kit import Exchange
from onebook.feeds import Catalogue, Supervisor, enabled
from onebook.feeds.recording import RECORDING_BYTES_MAX, Recorder, RecordingError
from onebook.library.recorders import require_recordable
from onebook.model import Instrument
from onebook.orderbook import meant
from onebook.rest import Rest
from onebook.simulator import SimulatedExchanges

LOOK_S: Final = 0.1  # interval of drawing the progress and checking whether the file is full
SECONDS_MAX: Final = 86_400.0


@reported
def record_command(
    exchange: Annotated[str, typer.Option("--exchange", "-e", help="Exchange, such as okx.")],
    symbol: Annotated[
        list[str], typer.Option("--symbol", "-s", help="Pair, such as BTC/USDT; repeatable.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file; it must not exist.")],
    seconds: Annotated[
        float, typer.Option(min=0.1, max=SECONDS_MAX, help="Duration of the recording.")
    ] = 30.0,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Record the simulated exchange instead.")
    ] = False,
    settings: ConfigFile = None,
) -> None:
    """Record the order book frames of an exchange into a file for `onebook replay`.

    Example: onebook record --exchange okx --symbol BTC/USDT --seconds 30 -o okx.rec
    """
    name = resolve(exchange)
    if name is None:
        raise InvalidExchange(
            f"Unknown exchange {exchange!r}; known: {', '.join(EXCHANGES)}."
            f"{meant(exchange, EXCHANGES)}"
        )
    symbols = list(dict.fromkeys(each.upper() for each in symbol))
    feeds = config.load(settings).feeds.model_copy(update={"exchanges": (name,)})
    try:
        recorder = run(_record(name, symbols, output, seconds, feeds=feeds, simulated=simulated))
    except RecordingError as error:
        fail(str(error))
    if recorder.problem:
        fail(f"The recording ended early: {recorder.problem}")
    console.print(
        f"{output}: {recorder.frames:,} frames, {recorder.bytes:,} bytes"
        + ("; the recording was full" if recorder.full else "")
    )


async def _record(
    name: str,
    symbols: Sequence[str],
    output: Path,
    seconds: float,
    *,
    feeds: FeedSettings,
    simulated: bool,
) -> Recorder:
    async with AsyncExitStack() as stack:
        exchange = enabled(EXCHANGES, feeds)[name]
        if simulated:
            sim = await stack.enter_async_context(SimulatedExchanges([name]))
            exchange = sim.exchanges()[name]
        return await record(exchange, symbols, output, seconds=seconds, settings=feeds)


async def record(
    exchange: Exchange,
    symbols: Sequence[str],
    output: Path,
    *,
    seconds: float,
    settings: FeedSettings = FeedSettings(),  # noqa: B008 - frozen
    bytes_max: int = RECORDING_BYTES_MAX,
) -> Recorder:
    """Record the books of some symbols of one exchange for some time, or until the file is full.

    Raises:
        ExchangeFailed: The instrument list is unavailable. InvalidRequest: The exchange does not
        list a symbol.
        RecordingError: The file cannot be written, or the symbols need more than one connection.
    """
    require_recordable([exchange], len(symbols))
    exchanges = {exchange.name: exchange}
    books = Books()
    async with (
        Rest(proxies=settings.proxies) as rest,
        Catalogue(exchanges, rest=rest, settings=settings) as catalogue,
    ):
        await catalogue.first_read()
        instruments = [_instrument(catalogue, exchange, symbol) for symbol in symbols]
        # Feeds use monotonic seconds; recordings use Unix seconds.
        epoch_s = time.time() - time.monotonic()
        with Recorder(output, bytes_max=bytes_max, epoch_s=epoch_s) as recorder:
            async with Supervisor(
                exchanges,
                books=books,
                rest=rest,
                catalogue=catalogue,
                settings=settings,
                recorders={exchange.name: recorder},
            ) as supervisor:
                for instrument in instruments:
                    supervisor.acquire(instrument)
                await _listen(recorder, books, exchange.name, seconds)
    return recorder


def _instrument(catalogue: Catalogue, exchange: Exchange, symbol: str) -> Instrument:
    if not catalogue.loaded(exchange.name):
        raise ExchangeFailed(f"The instrument list of {exchange.display} is unavailable.")
    instrument = catalogue.instrument(exchange.name, symbol)
    if instrument is None:
        near = ", ".join(catalogue.suggest(symbol)) or "nothing like it"
        raise InvalidRequest(f"{exchange.display} does not list {symbol}; it lists {near}.")
    return instrument


async def _listen(recorder: Recorder, books: Books, name: str, seconds: float) -> None:
    """Show the progress until the time is over or the file is full."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )
    start_s = time.monotonic()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(f"recording {name}", total=seconds, state="connecting")
        while not recorder.ended and (passed_s := time.monotonic() - start_s) < seconds:
            progress.update(task, completed=passed_s, state=_state(recorder, books))
            await asyncio.sleep(min(LOOK_S, seconds - passed_s))
        progress.update(task, completed=seconds, state=_state(recorder, books))


def _state(recorder: Recorder, books: Books) -> str:
    live = sum(1 for _ in books.live())
    return f"{recorder.frames:,} frames, {live} books live"
