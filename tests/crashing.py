"""A whole node in its own process that serves until it is killed."""

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from e2e.service import pointed_at, settings_in
from onebook import app


def serve(folder: Path, urls: dict, parent: Connection, tables: dict) -> None:
    """Serve simulated exchanges from a folder's database; send the address once it listens."""

    async def started(node: app.Node) -> None:
        await node.catalogue.first_read()
        await asyncio.to_thread(parent.send, node.address)

    settings = settings_in(folder, log={"level": "error"}, **tables)
    uvloop.run(app.serve(settings, overrides=pointed_at(urls), on_started=started))
