"""Records books into `history.dir`: as a part of a node, or as a node of its own.

A recorder node has no clients, accounts or database: it follows the books of `history.symbols` on
feeds nodes over NATS, as a gateway does. One HTTP port serves `/livez`, `/readyz` and `/metrics`.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from prometheus_client import Gauge

from onebook import __version__, feeds, http
from onebook.app.probes import ProbedNode, probed
from onebook.books import Books
from onebook.config import HistorySettings, Settings
from onebook.errors import ConfigError
from onebook.model import GIB_BYTES, Instrument
from onebook.nodes.gateway_node import RemoteCatalogue, RemoteSupervisor
from onebook.nodes.membership import NodeRole
from onebook.nodes.nats import NatsBus
from onebook.nodes.presence import new_node_id
from onebook.rest import Rest

log = logging.getLogger("onebook.app")

KEPT: Final = Gauge("onebook_history_kept_books", "Books kept open because of history.symbols.")


async def record_history(stack: AsyncExitStack, settings: Settings, books: Books) -> None:
    """Record the books of this node, if the settings have a folder for it.

    Raises:
        ConfigError: pyarrow is missing, or the store or the signing key cannot be used.
    """
    history = settings.history
    if history.dir is None:
        return
    try:
        from onebook.archive.proof import load_signing_key
        from onebook.archive.recorder import HistoryRecorder
        from onebook.archive.stores import FileStore
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("pyarrow"):
            raise
        raise ConfigError(
            f"{settings.origin('history.dir')}history.dir needs pyarrow: "
            'pip install "onebook[history]".'
        ) from None
    try:
        store = FileStore(history.store) if history.store else None
    except ValueError as error:
        raise ConfigError(f"{settings.origin('history.store')}history.store: {error}") from None
    key = None if history.signing_key_file is None else load_signing_key(history.signing_key_file)
    recorder = HistoryRecorder(
        books,
        history.dir,
        keep_days=history.keep_days,
        keep_bytes=history.keep_gb * GIB_BYTES,
        signing_key=key,
        store=store,
    )
    await stack.enter_async_context(recorder)


class KeptBooks:
    """Keeps the books of some symbols open on every exchange that lists them.

    Args:
        symbols: The symbols.
        catalogue: The lists; each read opens books, and replaces those of relisted instruments.
        supervisor: Opens the books.
    """

    def __init__(
        self,
        symbols: tuple[str, ...],
        catalogue: feeds.Catalogue,
        supervisor: feeds.Supervisor | RemoteSupervisor,
    ) -> None:
        self._symbols = symbols
        self._catalogue = catalogue
        self._supervisor = supervisor
        self.kept: dict[tuple[str, str], Instrument] = {}  # by exchange and symbol
        self._complete = False
        catalogue.on_read.subscribe(self._list_read)
        for exchange in [*supervisor.in_use()]:
            self._list_read(exchange)

    def _list_read(self, exchange: str) -> None:
        for symbol in self._symbols:
            listed = self._catalogue.instrument(exchange, symbol)
            kept = self.kept.get((exchange, symbol))
            if listed is None or listed is kept:
                continue  # a delisted book stays open, so that its return is recorded
            if kept is not None:
                self._supervisor.release(kept)
            self._supervisor.acquire(listed)
            self.kept[exchange, symbol] = listed
        KEPT.set(len(self.kept))
        if not self._complete and not self._catalogue.unread():
            self._complete = True
            self._report()

    def _report(self) -> None:
        """Log once, when all lists were read, what is kept open."""
        log.info(
            "Recording %d books of %s, whether clients follow them or not (history.symbols).",
            len(self.kept),
            ", ".join(self._symbols),
        )
        found = {symbol for _, symbol in self.kept}
        if absent := [each for each in self._symbols if each not in found]:
            log.warning("No exchange lists %s (history.symbols).", ", ".join(absent))


def keep_books(
    history: HistorySettings,
    catalogue: feeds.Catalogue,
    supervisor: feeds.Supervisor | RemoteSupervisor,
) -> None:
    """Keep the books of `history.symbols` open, if there are any."""
    if history.symbols:
        KeptBooks(history.symbols, catalogue, supervisor)


@dataclass(frozen=True)
class RecorderNode(ProbedNode):
    """A running recorder node."""

    settings: Settings
    books: Books
    supervisor: RemoteSupervisor

    async def drain(self) -> None:
        """Do nothing, because no client depends on this node."""


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[RecorderNode]:
    """Run a recorder node within the context.

    Raises:
        ConfigError: The node cannot start with these settings.
    """
    settings = settings.model_copy(deep=True)
    async with AsyncExitStack() as stack:
        server = settings.server
        listener = stack.enter_context(http.listening(server.host, server.port))
        bus = await stack.enter_async_context(NatsBus(settings.nats, name="onebook recorder"))
        rest = await stack.enter_async_context(Rest(proxies=settings.feeds.proxies))
        books = Books()
        await record_history(stack, settings, books)
        catalogue = RemoteCatalogue(rest=rest, settings=settings.feeds)
        supervisor = RemoteSupervisor(
            new_node_id(),
            bus=bus,
            books=books,
            catalogue=catalogue,
            settings=settings.node,
            role=NodeRole.RECORDER,
        )
        recorder = RecorderNode(
            listener.getsockname()[:2], supervisor.presence, settings, books, supervisor
        )
        supervisor.presence.set_url(recorder.url)
        keep_books(settings.history, catalogue, supervisor)
        await stack.enter_async_context(supervisor)
        await stack.enter_async_context(probed(server, listener, ready=recorder.ready))
        log.info("Onebook %s listens on %s.", __version__, recorder.url)
        log.info(
            "Recorder node %s records into %s.", supervisor.presence.name, settings.history.dir
        )
        yield recorder
