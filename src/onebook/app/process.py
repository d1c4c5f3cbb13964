"""A node as a process: runs until SIGTERM or SIGINT, drains its clients, and stops.

A second signal stops without waiting. SIGHUP applies the settings that can change at runtime: each
node has its own copy of the settings, and its parts read a limit each time they apply it, so a
reload writes new values into the sections in use. `LIVE` names the settings that take effect this
way; all others need a restart. The TLS certificate is reloaded too.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from onebook import feeds, http, logs
from onebook.app import feeder, recording
from onebook.app.node import Node, running
from onebook.config import ExchangeSettings, Settings
from onebook.config.settings import Section
from onebook.errors import ConfigError
from onebook.exchanges.kit import Exchange
from onebook.ops import preflight

log = logging.getLogger("onebook.app")

# Each entry is a name, or a prefix of names if it ends with a dot.
LIVE: Final = (
    "accounts.allowance_bytes",
    "accounts.tiers.",
    "api.public_url",
    "feeds.",
    "gateway.connections_max",
    "gateway.connects_per_minute",
    "gateway.drain_s",
    "gateway.sockets_per_address_max",
    "gateway.subscriptions_max",
    "log.",
)
FIXED: Final = ("feeds.ccxt.",)  # exceptions, which need a restart
TLS_FILES: Final = ("server.tls_cert_file", "server.tls_key_file")


AnyNode = Node | feeder.Feeder | recording.RecorderNode


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
        reread: Reads the settings again at SIGHUP; without it, only the certificate is reloaded.

    Returns:
        The bytes of usage that could not be written and are lost.
    """
    logs.configure(settings.log.level, settings.log.format, access=settings.log.access)
    logs.capture()
    loop = asyncio.get_running_loop()
    asked, hurried = asyncio.Event(), asyncio.Event()
    started: list[AnyNode] = []

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
) -> AbstractAsyncContextManager[AnyNode]:
    """Run a node of the role in the settings."""
    if settings.node.role == "feeds":
        return feeder.running(settings, overrides=overrides)
    if settings.node.role == "recorder":
        return recording.running(settings)
    return running(settings, overrides=overrides, port_shared=port_shared)


async def _first(*waits: Awaitable[object]) -> None:
    """Wait for the first one to end and cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SettingsDiff(NamedTuple):
    """The changed settings: those in effect now, and those that need a restart."""

    applied: list[str]
    restart: list[str]


def is_live(name: str) -> bool:
    """Return whether SIGHUP applies a setting; TLS files are reloaded if TLS is in use."""
    return any(_within(name, each) for each in LIVE) and not any(
        _within(name, each) for each in FIXED
    )


def apply(current: Settings, new: Settings) -> SettingsDiff:
    """Write the values of live settings into the sections in use."""
    both = current.server.tls_cert_file is not None and new.server.tls_cert_file is not None
    changes = SettingsDiff([], [])
    for name, section, field in list(_leaves(current)):
        value = _value(new, name)
        if getattr(section, field) == value:
            continue
        if is_live(name) or (both and name in TLS_FILES):
            # Sections are frozen; only this function changes them.
            object.__setattr__(section, field, value)
            changes.applied.append(name)
        else:
            changes.restart.append(name)
    return changes


def _within(name: str, pattern: str) -> bool:
    return name.startswith(pattern) if pattern.endswith(".") else name == pattern


def _leaves(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, BaseModel, str]]:
    for field in type(section).model_fields:
        value: Any = getattr(section, field)
        if isinstance(value, Section):
            yield from _leaves(value, f"{prefix}{field}.")
        else:
            yield f"{prefix}{field}", section, field


def _value(settings: Settings, name: str) -> Any:
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def reload_node(
    node: AnyNode,
    reread: Callable[[], Settings] | None,
    overrides: Mapping[str, ExchangeSettings] | None,
) -> None:
    """Apply the settings that can change at runtime, or none if there is an error."""
    settings = node.settings
    tls = node.tls if isinstance(node, Node) else None
    try:
        new = settings
        if reread is not None:
            new = reread()
            preflight.require(new)
            new = feeder.own_settings(new, overrides)
        if not isinstance(node, Node):
            logs.configure(new.log.level, new.log.format, access=new.log.access)
            log.info(
                "SIGHUP: a node without clients reloads only its log settings; other settings "
                "need a restart."
            )
            return
        ccxt_as_now = {"ccxt": settings.feeds.ccxt}
        wanted = feeder.exchanges_in_use(new.feeds.model_copy(update=ccxt_as_now), overrides)
        http.reserve_files(settings.server, new.gateway.connections_max)
        if tls is not None and new.server.tls_cert_file is not None:
            tls.load_cert_chain(new.server.tls_cert_file, new.server.tls_key_file)
    except (ConfigError, OSError) as error:
        log.error("SIGHUP: nothing was changed: %s", error)
        return
    before = feeder.exchanges_in_use(settings.feeds, overrides)
    changes = apply(settings, new)
    logs.configure(settings.log.level, settings.log.format, access=settings.log.access)
    node.accounts.limits_changed()
    node.gateway.limits_changed()
    if isinstance(node.supervisor, feeds.Supervisor):
        _use(node.catalogue, node.supervisor, before, wanted)
    log.info(
        "SIGHUP: the settings and the TLS certificate were reloaded; changed: %s.",
        ", ".join(changes.applied) or "no setting",
    )
    if changes.restart:
        log.warning("SIGHUP: these settings need a restart: %s.", ", ".join(changes.restart))


def _use(
    listed: feeds.Catalogue,
    supervisor: feeds.Supervisor,
    before: Mapping[str, Exchange],
    wanted: Mapping[str, Exchange],
) -> None:
    """Remove exchanges that were disabled; add those that are new or changed."""
    for name in [each for each in before if before[each] != wanted.get(each)]:
        listed.drop(name)
        supervisor.drop(name)
    for name in [each for each in wanted if wanted[each] != before.get(each)]:
        supervisor.add(wanted[name])
        listed.add(wanted[name])
