"""Builds the part of a node that connects to exchanges, and feeds nodes.

A feeds node has no clients, accounts or database; one HTTP port serves `/livez`, `/readyz` and
`/metrics`. At SIGTERM, other feeds nodes take over its books before it stops.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from msgspec.structs import replace

from onebook import __version__, exchanges, feeds, http
from onebook.app.probes import ProbedNode, probed
from onebook.books import Books
from onebook.config import ExchangeSettings, FeedSettings, Settings
from onebook.exchanges.kit.contract import Exchange
from onebook.feeds.limits import LIMITS
from onebook.feeds.transfers import TransferReader
from onebook.nodes.feeds_node import FeedsNode
from onebook.nodes.nats import NatsBus
from onebook.nodes.presence import new_node_id
from onebook.nodes.publisher import PublishedBooks
from onebook.nodes.subjects import Subjects
from onebook.rest import Rest

log = logging.getLogger("onebook.app")


@dataclass(frozen=True)
class Feeding:
    """The parts that connect to exchanges: catalogue, supervisor and REST client."""

    exchanges: Mapping[str, Exchange]
    catalogue: feeds.Catalogue
    supervisor: feeds.Supervisor


@dataclass(frozen=True)
class Feeder(ProbedNode):
    """A running feeds node."""

    settings: Settings
    books: PublishedBooks
    catalogue: feeds.Catalogue
    supervisor: feeds.Supervisor
    node: FeedsNode
    bus: NatsBus

    async def drain(self) -> None:
        """Hand over all books to other feeds nodes."""
        await self.node.drain(self.settings.gateway.drain_s)


async def feeding(
    stack: AsyncExitStack,
    settings: Settings,
    overrides: Mapping[str, ExchangeSettings] | None,
    *,
    rest: Rest,
    books: Books,
) -> Feeding:
    """Start the connections to exchanges, until the stack is closed.

    Raises:
        ConfigError: An exchange is unknown.
    """
    wanted = settings.feeds
    known = exchanges_in_use(wanted, overrides)
    library = None
    if wanted.ccxt.transfers or any(each.via for each in known.values()):
        library = await stack.enter_async_context(feeds.Library(wanted))
    catalogue = feeds.Catalogue(known, rest=rest, settings=wanted, library=library)
    supervisor = feeds.Supervisor(
        known,
        books=books,
        rest=rest,
        catalogue=catalogue,
        settings=wanted,
        limits=replace(LIMITS, audits=wanted.audits),
        library=library,
    )
    await stack.enter_async_context(catalogue)
    await stack.enter_async_context(supervisor)
    if library is not None and wanted.ccxt.transfers:
        await stack.enter_async_context(TransferReader(catalogue, library, known))
    return Feeding(known, catalogue, supervisor)


def own_settings(settings: Settings, overrides: Mapping[str, ExchangeSettings] | None) -> Settings:
    """Return a node's own copy of the settings, because a reload changes them in place."""
    update = {} if overrides is None else {"feeds": _simulated(settings, overrides)}
    return settings.model_copy(update=update).model_copy(deep=True)


def exchanges_in_use(
    settings: FeedSettings, overrides: Mapping[str, ExchangeSettings] | None
) -> dict[str, Exchange]:
    """Return the exchanges enabled by a node's settings, by name."""
    pool = exchanges.EXCHANGES
    if overrides is not None:  # an empty list would mean all exchanges
        pool = {name: each for name, each in pool.items() if name in overrides}
    return feeds.enabled(pool, settings)


def _simulated(settings: Settings, overrides: Mapping[str, ExchangeSettings]) -> FeedSettings:
    """Return the feed settings, limited to the exchanges in `overrides`."""
    wanted = settings.feeds.ccxt.exchanges
    through = tuple(name for name in wanted if name in overrides)
    if absent := sorted(set(wanted) - set(through)):
        log.warning(
            "These exchanges have no simulator and stay unconnected: %s.", ", ".join(absent)
        )
    return settings.feeds.model_copy(
        update={
            "exchanges": tuple(name for name in overrides if name not in through),
            "overrides": dict(overrides),
            "ccxt": settings.feeds.ccxt.model_copy(update={"exchanges": through}),
        }
    )


@asynccontextmanager
async def running(
    settings: Settings, *, overrides: Mapping[str, ExchangeSettings] | None = None
) -> AsyncIterator[Feeder]:
    """Run a feeds node within the context.

    Args:
        settings: The operator's settings.
        overrides: Addresses of simulated or replayed exchanges, as in `app.running`.

    Raises:
        ConfigError: The node cannot start with these settings.
    """
    settings = own_settings(settings, overrides)
    async with AsyncExitStack() as stack:
        server = settings.server
        listener = stack.enter_context(http.listening(server.host, server.port))
        bus = await stack.enter_async_context(NatsBus(settings.nats, name="onebook feeds"))
        rest = await stack.enter_async_context(Rest(proxies=settings.feeds.proxies))
        identity = new_node_id()
        books = PublishedBooks(
            identity, publish=bus.publish, subject_of=Subjects(settings.node.cluster).book
        )
        parts = await feeding(stack, settings, overrides, rest=rest, books=books)
        node = FeedsNode(
            identity,
            parts.exchanges,
            bus=bus,
            books=books,
            catalogue=parts.catalogue,
            supervisor=parts.supervisor,
            settings=settings.node,
            feeds=settings.feeds,
        )
        feeder = Feeder(
            listener.getsockname()[:2],
            node.presence,
            settings,
            books,
            parts.catalogue,
            parts.supervisor,
            node,
            bus,
        )
        node.presence.set_url(feeder.url)
        await stack.enter_async_context(node)
        await stack.enter_async_context(probed(settings.server, listener, ready=feeder.ready))
        log.info("Onebook %s listens on %s.", __version__, feeder.url)
        log.info("Feeds node %s serves gateways over NATS.", node.presence.name)
        yield feeder
