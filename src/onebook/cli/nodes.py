"""`onebook nodes`: the live nodes of a cluster and what they serve."""

import time
from typing import Annotated, Any, Final

import typer

from onebook import config
from onebook.cli.common import console, print_table, reported, run
from onebook.cli.operator import AsJson, ConfigFile, print_json
from onebook.nodes import wire
from onebook.nodes.interest import PAGE_KEYS, PAGES_MAX
from onebook.nodes.membership import NodeHeartbeat, NodeRole
from onebook.nodes.nats import COMMAND_CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, NatsBus
from onebook.nodes.payloads import PayloadReader, WireError
from onebook.nodes.presence import listen
from onebook.nodes.subjects import BOOKS, Subjects

INCOMPATIBLE: Final = "incompatible"
COLUMNS: Final = (
    "node",
    "role",
    "state",
    "version",
    "up_s",
    "books",
    "live",
    "exchanges",
    "address",
)
BOOK_COLUMNS: Final = ("node", "exchange", "symbol", "health", "reason")
Row = tuple[str, str, str, str]

_rows = PayloadReader(list[Row])


@reported
def nodes_command(
    settings: ConfigFile = None,
    books: Annotated[
        bool, typer.Option("--books", help="Include all books of all feeds nodes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the live nodes of this cluster.

    With `--json`, each node is an object; with `--books`, feeds nodes have the member `open_books`.

    Example: onebook nodes --config onebook.toml --books
    """
    loaded = config.load(settings)
    found = run(_nodes(loaded, with_books=books))
    if as_json:
        print_json([_object(each, rows, with_books=books) for each, rows in found])
    elif not found:
        console.print(f"No live node in the cluster {loaded.node.cluster}.")
    else:
        print_table(COLUMNS, [tuple(map(_cell, _facts(each).values())) for each, _ in found])
        for each, rows in found:
            if rows is not None:
                console.print()
                print_table(BOOK_COLUMNS, [(each.name, *row) for row in rows])


async def _nodes(
    settings: config.Settings, *, with_books: bool
) -> list[tuple[NodeHeartbeat, list[Row] | None]]:
    """Return the live nodes by role and name, optionally with the books of feeds nodes."""
    node = settings.node
    subjects = Subjects(node.cluster)
    async with NatsBus(
        settings.nats, name="onebook nodes", connect_timeout_s=COMMAND_CONNECT_TIMEOUT_S
    ) as bus:
        found: list[tuple[NodeHeartbeat, list[Row] | None]] = []
        for each in await listen(bus, node):
            rows = None
            if with_books and each.role is NodeRole.FEEDS and each.wire == wire.VERSION:
                subject = subjects.request(each.node, BOOKS)
                rows = await _books_of(bus, subject, REQUEST_TIMEOUT_S)
            found.append((each, rows))
        return found


def _facts(node: NodeHeartbeat) -> dict[str, str | int | None]:
    """The printed facts of a node, by column."""
    now_ms = time.time_ns() // 1_000_000
    values = (
        node.name,
        str(node.role),
        str(node.state) if node.wire == wire.VERSION else INCOMPATIBLE,
        node.version,
        max(0, now_ms - node.started_ms) // 1_000,
        node.books,
        node.live,
        len(node.states) if node.role is NodeRole.FEEDS else None,
        node.url,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _cell(value: str | int | None) -> str:
    return "" if value is None else str(value)


def _object(node: NodeHeartbeat, rows: list[Row] | None, *, with_books: bool) -> dict[str, Any]:
    if not with_books:
        return _facts(node)
    books = None
    if rows is not None:
        books = [dict(zip(BOOK_COLUMNS[1:], row, strict=True)) for row in rows]
    return {**_facts(node), "open_books": books}


async def _books_of(bus: NatsBus, subject: str, timeout_s: float) -> list[Row]:
    """All books of a node, requested page by page."""
    rows: list[Row] = []
    for page in range(PAGES_MAX):
        payload = await bus.request(subject, str(page).encode(), timeout_s)
        try:
            some = _rows.read(payload or b"")
        except WireError:
            break
        rows += some
        if len(some) < PAGE_KEYS:
            break
    return rows
