"""`onebook demo`: the whole service with simulated exchanges, in one command."""

import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from onebook import app, config
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.cli.common import console, reported, run
from onebook.model import Tier
from onebook.simulator.server import SimulatedExchanges
from onebook.store import Change

USERNAME: Final = "demo"
DRAIN_S: Final = 0.5


@reported
def demo_command(
    port: Annotated[int, typer.Option(help="Where the service listens.")] = 8000,
    rate: Annotated[float, typer.Option(help="Frames a second of each simulated book.")] = 10.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same market.")] = 1,
) -> None:
    """Run the service on simulated exchanges, with a key that is ready to use.

    Nothing leaves this machine and nothing is kept: the database is gone with the demo.

    Example: onebook demo --port 8080
    """
    with tempfile.TemporaryDirectory(prefix="onebook-demo-") as folder:
        run(_demo(Path(folder), port=port, rate_hz=rate, seed=seed))


async def _demo(folder: Path, *, port: int, rate_hz: float, seed: int) -> None:
    settings = config.load(
        overrides={
            "server": {"port": port},
            "store": {
                "url": f"sqlite+aiosqlite:///{folder / 'demo.db'}",
                "pepper_file": str(folder / "pepper"),
            },
            "gateway": {"drain_s": DRAIN_S},
            "log": {"level": "warning"},
        }
    )
    async with SimulatedExchanges(seed=seed, rate_hz=rate_hz) as simulated:
        places = {
            name: config.ExchangeSettings(ws_url=urls.ws, rest_url=urls.rest)
            for name, urls in simulated.urls.items()
        }
        await app.serve(settings, overrides=places, on_started=_introduce)


async def _introduce(node: app.Node) -> None:
    """Create the key and say what can be done now."""
    admin = Admin(node.store, load_pepper(node.settings.store.pepper_file))
    change = Change(time.time_ns() // 1_000_000, "demo", "the demo's key")
    await admin.create_account(USERNAME, change)
    key = (await admin.create_key(USERNAME, Tier.PREMIUM, change)).text
    exchanges = ", ".join(node.supervisor.stats)
    console.print(
        f"""
[bold]Onebook[/] runs on simulated exchanges ({exchanges}).

  the live page   [link]{node.url}/#key={key}[/link]
  the docs        {node.url}/docs
  the API         {node.url}/api/v1/
  a premium key   {key}

Paste this into another terminal for a live ladder:

  {_command(node, key)}

Ctrl-C ends it.
""",
        soft_wrap=True,
        highlight=False,
    )


def _command(node: app.Node, key: str) -> str:
    """The ready-to-paste client line, with the program that runs now."""
    program = Path(sys.argv[0])
    ws_url = node.url.replace("http", "ws", 1) + node.settings.gateway.path
    return f"ONEBOOK_KEY={key} {program} watch BTC/USDT --url {ws_url}"
