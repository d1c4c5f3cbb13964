"""A node as a process: runs until SIGTERM or SIGINT, drains its clients, and stops.

A second signal stops without waiting. SIGHUP reads the settings again (`reloading`).
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from onebook import logs
from onebook.app import feeder
from onebook.app.node import Node, running
from onebook.app.reload import reload_node
from onebook.config import ExchangeSettings, Settings

log = logging.getLogger("onebook.app")


async def serve(
    settings: Settings,
    *,
    overrides: Mapping[str, ExchangeSettings] | None = None,
    port_shared: bool = False,
    on_started: Callable[[Node], Awaitable[None]] | None = None,
    on_listening: Callable[[], None] | None = None,
    reread: Callable[[], Settings] | None = None,
) -> int:
    """Run a node until SIGTERM or SIGINT, then drain its clients and stop.

    Args:
        settings: The operator's settings.
        overrides: See `running`.
        port_shared: See `running`.
        on_started: Called when a node with clients listens.
        on_listening: Called when a node of any role listens.
        reread: Reads the settings again at SIGHUP; without it only the certificate is.

    Returns:
        The bytes of usage that could not be written and are lost.
    """
    logs.configure(settings.log.level, settings.log.format, access=settings.log.access)
    logs.capture()
    loop = asyncio.get_running_loop()
    asked, hurried = asyncio.Event(), asyncio.Event()
    started: list[Node | feeder.Feeder] = []

    def signalled() -> None:
        (hurried if asked.is_set() else asked).set()

    def hung_up() -> None:
        if started:
            reload_node(started[0], reread, overrides)

    actions = {signal.SIGTERM: signalled, signal.SIGINT: signalled, signal.SIGHUP: hung_up}
    for number, action in actions.items():
        loop.add_signal_handler(number, action)
    try:
        async with _node(settings, overrides, port_shared=port_shared) as node:
            started.append(node)
            if on_listening is not None:
                on_listening()
            if on_started is not None and isinstance(node, Node):
                await on_started(node)
            await asked.wait()
            log.info("Stopping: draining clients for up to %g s.", settings.gateway.drain_s)
            await _first(node.drain(), hurried.wait())
    finally:
        for number in actions:
            loop.remove_signal_handler(number)
    log.info("Stopped.")
    return node.lost_bytes


def _node(
    settings: Settings, overrides: Mapping[str, ExchangeSettings] | None, *, port_shared: bool
) -> AbstractAsyncContextManager[Node | feeder.Feeder]:
    """Run a node of the role in the settings."""
    if settings.node.role == "feeds":
        return feeder.running(settings, overrides=overrides)
    return running(settings, overrides=overrides, port_shared=port_shared)


async def _first(*waits: Awaitable[object]) -> None:
    """Wait for the first to end, and cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
