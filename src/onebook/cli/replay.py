"""`onebook replay`: run the service on recorded data through its normal feeds."""

import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from onebook import app, config
from onebook.cli.common import fail, print_table, reported, run
from onebook.cli.operator import ConfigFile
from onebook.config import ExchangeSettings
from onebook.feeds.recording import RecordingError
from onebook.simulator.kit.replay import Replay, Script

Serve = Callable[[dict[str, ExchangeSettings]], Awaitable[None]]


@reported
def replay_command(
    files: Annotated[list[Path], typer.Argument(help="Recordings of WebSocket and REST traffic.")],
    speed: Annotated[
        str,
        typer.Option(help="Speed: 1 as recorded, 10 ten times faster, max as fast as possible."),
    ] = "1",
    loop: Annotated[
        bool, typer.Option("--loop", help="Repeat the recording when it ends.")
    ] = False,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    settings: ConfigFile = None,
) -> None:
    """Run the service on recorded exchange data.

    Example: onebook replay OKX.ws.1.0 BINANCE.ws.1.0 BINANCE.http.0.0 --speed 10 --loop
    """
    try:
        run(play(files, speed=speed_of(speed), loop=loop, serve=service(port, settings)))
    except RecordingError as error:
        fail(str(error))


async def play(files: list[Path], *, speed: float | None, loop: bool, serve: Serve) -> None:
    """Replay recordings while `serve` runs."""
    async with Replay(files, speed=speed, loop=loop) as replay:
        print_table(("exchange", "frames", "seconds", "pairs"), rows(list(replay.scripts.values())))
        await serve(
            {
                name: ExchangeSettings(ws_url=urls.ws, rest_url=urls.rest, recorded=True)
                for name, urls in replay.urls.items()
            }
        )


def service(port: int | None, file: Path | None) -> Serve:
    """The service with the operator's settings, connected to the replay."""

    async def serve(exchanges: dict[str, ExchangeSettings]) -> None:
        settings = config.load(file, overrides={"server": {"port": port}})
        await app.serve(settings, overrides=exchanges)

    return serve


def speed_of(text: str) -> float | None:
    """Parse a speed; None means as fast as possible."""
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not (math.isfinite(speed) and speed > 0):
        fail(f"--speed must be a number above 0 or max, not {text!r}.")
    return speed


def rows(scripts: list[Script]) -> list[tuple[str, ...]]:
    """Table rows of the recordings."""
    return [
        (
            script.name,
            f"{len(script.lines):,}",
            f"{script.lines[-1].at - script.lines[0].at:.1f}",
            ", ".join(listing.symbol for listing in script.listings),
        )
        for script in scripts
    ]
