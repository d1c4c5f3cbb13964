"""`onebook replay`: run the service on recorded data through its normal feeds."""

import math
import shlex
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from onebook import app, config
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.cli.common import console, fail, print_table, reported, run
from onebook.cli.dates import now_ms
from onebook.cli.operator import ConfigFile
from onebook.config import ExchangeSettings
from onebook.feeds.recording import RecordingError
from onebook.model import KeyStatus
from onebook.simulator.kit.replay import Replay, Script

KEYS_SHOWN: Final = 5

Serve = Callable[[dict[str, ExchangeSettings]], Awaitable[None]]


@reported
def replay_command(
    files: Annotated[list[Path], typer.Argument(help="Recordings of WebSocket and REST traffic.")],
    speed: Annotated[
        str,
        typer.Option(
            help="Playback speed: 1 is as recorded, 10 is ten times as fast, max does not wait."
        ),
    ] = "1",
    loop: Annotated[
        bool, typer.Option("--loop", help="Repeat the recording when it ends.")
    ] = False,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    settings: ConfigFile = None,
) -> None:
    """Run the service on recorded exchange data.

    Clients need an API key from the service's database; the keys are listed at the start.

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
    """Return the service with the operator's settings, connected to the replay."""

    async def serve(exchanges: dict[str, ExchangeSettings]) -> None:
        settings = config.load(file, overrides={"server": {"port": port}})
        await app.serve(settings, overrides=exchanges, on_started=partial(_print_access, file=file))

    return serve


async def _print_access(node: app.Node, *, file: Path | None) -> None:
    """Print the address and the accepted keys, or how to create one."""
    await node.catalogue.first_read()  # the printed command needs the list of pairs
    admin = Admin(node.store, load_pepper(node.settings.store.pepper_file))
    keys = [key for key in await admin.keys(None, now_ms()) if key.status is KeyStatus.ACTIVE]
    program = shlex.quote(sys.argv[0])
    symbol = next(iter(node.catalogue.symbols()), "BTC/USDT")
    if keys:
        steps = [f"  {key.prefix}...  {key.username}" for key in keys[:KEYS_SHOWN]]
        if len(keys) > KEYS_SHOWN:
            steps.append(f"  and {len(keys) - KEYS_SHOWN} more: {program} keys list")
        access, key = "with an API key of its database:", "ONEBOOK_KEY=... "
    else:
        option = "" if file is None else f" --config {shlex.quote(str(file))}"
        steps = [
            f"  {program} accounts create me{option}",
            f"  export ONEBOOK_KEY=$({program} keys create me{option})",
        ]
        access, key = (
            "with an API key. Its database has none yet; create one in another terminal:",
            "",
        )
    steps.append(f"  {key}{program} watch {symbol} --url {node.url}")
    text = "\n".join([f"\nThe replay is served at {node.url} {access}\n", *steps, ""])
    console.print(text, soft_wrap=True, highlight=False, markup=False)


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
