"""`onebook nodes`: which nodes are alive, and what they serve."""

import asyncio
import time
from typing import Annotated, Final

import msgspec
import typer
from msgspec import msgpack

from onebook import config
from onebook.cli.common import console, print_table, reported, run
from onebook.cli.operator import ConfigFile
from onebook.nodes import wire
from onebook.nodes.bus import NatsBus
from onebook.nodes.demand import PAGE_KEYS
from onebook.nodes.members import Heartbeat, NodeRole, heartbeat_of
from onebook.nodes.subjects import BOOKS, Subjects

INCOMPATIBLE: Final = "incompatible"
Row = tuple[str, str, str, str]


@reported
def nodes_command(
    settings: ConfigFile = None,
    books: Annotated[bool, typer.Option("--books", help="Every book of every feeds node.")] = False,
) -> None:
    """Show the nodes of this cluster, as their heartbeats tell.

    Example: onebook nodes --config onebook.toml --books
    """
    run(_show(config.load(settings), with_books=books))


async def _show(settings: config.Settings, *, with_books: bool) -> None:
    node = settings.node
    subjects = Subjects(node.cluster)
    heard: dict[int, Heartbeat] = {}

    def received(payload: bytes, reply: str) -> None:
        heartbeat = heartbeat_of(payload)
        if heartbeat is not None:
            heard[heartbeat.node] = heartbeat

    async with NatsBus(settings.nats, name="onebook nodes") as bus:
        bus.subscribe(subjects.heartbeats, received)
        await asyncio.sleep(node.heartbeat_timeout_s)
        if not heard:
            console.print(f"No node of the cluster {node.cluster} is alive.")
            return
        nodes = sorted(heard.values(), key=lambda each: (each.role, each.name))
        _print_nodes(nodes)
        if with_books:
            for each in nodes:
                if each.role is NodeRole.FEEDS and each.wire == wire.VERSION:
                    subject = subjects.request(each.node, BOOKS)
                    rows = await _books_of(bus, subject, node.request_timeout_s)
                    console.print()
                    columns = ("NODE", "EXCHANGE", "SYMBOL", "HEALTH", "REASON")
                    print_table(columns, [(each.name, *row) for row in rows])


def _print_nodes(nodes: list[Heartbeat]) -> None:
    now_ms = time.time_ns() // 1_000_000
    print_table(
        ("NODE", "ROLE", "STATE", "VERSION", "UP", "BOOKS", "LIVE", "EXCHANGES", "ADDRESS"),
        [
            (
                each.name,
                each.role,
                each.state if each.wire == wire.VERSION else INCOMPATIBLE,
                each.version,
                f"{max(0, now_ms - each.started_ms) // 1_000} s",
                str(each.books),
                str(each.live),
                str(len(each.states)) if each.role is NodeRole.FEEDS else "",
                each.url,
            )
            for each in nodes
        ],
    )


async def _books_of(bus: NatsBus, subject: str, timeout_s: float) -> list[Row]:
    """Every book of a node, page by page."""
    rows: list[Row] = []
    page = 0
    while True:
        payload = await bus.request(subject, str(page).encode(), timeout_s)
        try:
            some = msgpack.decode(payload or b"", type=list[Row])
        except msgspec.MsgspecError:
            return rows
        rows += some
        page += 1
        if len(some) < PAGE_KEYS:
            return rows
