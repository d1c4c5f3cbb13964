"""`onebook demo`: the whole service on simulated exchanges."""

import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from onebook import app, config, http
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.cli.common import console, reported, run
from onebook.errors import ConfigError
from onebook.model import Tier
from onebook.simulator import DIALECTS, SimulatedExchanges
from onebook.simulator.accounts import DEMO_ACCOUNTS
from onebook.store import AuditedChange
from onebook.transactions.credentials import Credentials, Vault, master_keys
from onebook.transactions.registry import offered

USERNAME: Final = "demo"
# Taker fees of the demo's key in percent; invented.
FEES: Final = {"binance": "0.075", "kraken": "0.26", "okx": "0.08", "*": "0.1"}
COLLECT_EVERY_S: Final = 60.0
# These simulated accounts have no rate limits, so that the demo is quick to read.
LIMIT_FACTORS: Final = {"kraken": 20.0, "okx": 20.0}
DRAIN_S: Final = 0.5
PORTS_TRIED: Final = 20


@reported
def demo_command(
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; if taken, the next free one.")
    ] = 8000,
    rate: Annotated[
        float, typer.Option(min=0.1, max=1_000, help="Frames per second of each simulated book.")
    ] = 10.0,
    seed: Annotated[
        int, typer.Option(help="Random seed; the same seed produces the same market.")
    ] = 1,
) -> None:
    """Run the service on simulated exchanges, with a ready-to-use key.

    It simulates the exchanges that feeds.exchanges and transactions.exchanges name, by default all.
    No external connections are made, and the database is deleted when the demo ends.

    Example: onebook demo --port 8080
    """
    with tempfile.TemporaryDirectory(prefix="onebook-demo-") as folder:
        run(_demo(Path(folder), port=port, rate_hz=rate, seed=seed))


async def _demo(folder: Path, *, port: int, rate_hz: float, seed: int) -> None:
    given = config.load()
    # An unknown name is reported when the node starts.
    names = [name for name in given.feeds.exchanges if name in DIALECTS] or DIALECTS
    async with AsyncExitStack() as stack:
        simulated = await stack.enter_async_context(
            SimulatedExchanges(names, seed=seed, rate_hz=rate_hz)
        )
        accounts = {
            name: await stack.enter_async_context(DEMO_ACCOUNTS[name]())
            for name in offered(given.transactions)
        }
        free = _free_port(given.server.host, port)
        if free != port:
            console.print(f"Port {port} is in use; the demo listens on port {free}.")
        settings = config.load(
            overrides={
                "server": {"port": free},
                "api": {"cors_origins": ["*"]},  # a page under development has its own origin
                "store": {
                    "url": f"sqlite+aiosqlite:///{folder / 'demo.db'}",
                    "pepper_file": str(folder / "pepper"),
                },
                "transactions": {
                    "overrides": {
                        name: {
                            "mainnet_url": account.url,
                            "testnet_url": account.url,
                            "hosts": account.hosts,
                            "limit_factor": LIMIT_FACTORS.get(name, 1.0),
                        }
                        for name, account in accounts.items()
                    },
                    "master_key_file": str(folder / "master_key"),
                    "collect_every": COLLECT_EVERY_S,
                },
                "gateway": {"drain_s": DRAIN_S},
                "log": {"level": "warning"},
            }
        )
        places = {
            name: config.ExchangeSettings(ws_url=urls.ws, rest_url=urls.rest)
            for name, urls in simulated.urls.items()
        }
        credentials = {name: Credentials(**account.fields) for name, account in accounts.items()}
        introduce = partial(_introduce, credentials=credentials)
        await app.serve(settings, overrides=places, on_started=introduce)


def _free_port(host: str, port: int) -> int:
    """Return the first free port from `port` on; `port` itself if none is free nearby."""
    for candidate in range(port, min(port + PORTS_TRIED, 65_536)):
        with suppress(ConfigError), http.listening(host, candidate):
            return candidate
    return port


async def _introduce(node: app.Node, *, credentials: Mapping[str, Credentials]) -> None:
    """Create the key, store the simulated accounts' credentials, and print the first steps."""
    await node.catalogue.first_read()  # the printed commands need the list of pairs
    vault = Vault(node.store.credentials, master_keys(node.settings.transactions))
    now_ms = time.time_ns() // 1_000_000
    for exchange, each in credentials.items():
        await vault.put(exchange, "mainnet", each, now_ms=now_ms)
    admin = Admin(node.store, load_pepper(node.settings.store.pepper_file))
    change = AuditedChange(time.time_ns() // 1_000_000, "demo", "the demo's key")
    await admin.create_account(USERNAME, change)
    made = await admin.create_key(USERNAME, Tier.PREMIUM, change)
    await admin.change_fees(made.row.key_id, FEES, change)
    key = made.text
    exchanges, accounts = ", ".join(node.supervisor.stats), ", ".join(credentials)
    console.print(
        f"""
[bold]Onebook[/] runs on simulated exchanges ({exchanges}).

  the live page   [link]{node.url}/#key={key}[/link]
  the docs        {node.url}/docs
  the API         {node.url}/api/v1/
  a premium key   {key}

Paste this into another terminal for a live ladder; add --net --fees key for prices after fees:

  {_command(node, key, "watch BTC/USDT")}

And this for the transactions of the simulated accounts ({accounts}) in one file:

  {_command(node, key, "transactions fetch --exchange all -o history.jsonl")}

Press Ctrl-C to stop.
""",
        soft_wrap=True,
        highlight=False,
    )


def _command(node: app.Node, key: str, words: str) -> str:
    """Return a client command to paste, with the path of this program."""
    return f"ONEBOOK_KEY={key} {Path(sys.argv[0])} {words} --url {node.url}"
