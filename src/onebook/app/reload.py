"""SIGHUP: applies the settings that can change while a node runs.

Each node has its own copy of the settings, and its parts read a limit each time they apply it. So a
reload writes new values into the sections in use; `LIVE` names the settings that take effect this
way, all others need a restart. The TLS certificate is read again too.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from onebook import feeds, http, logs
from onebook.app import feeder
from onebook.app.node import Node
from onebook.config import ExchangeSettings, Settings
from onebook.config.settings import Section
from onebook.errors import ConfigError
from onebook.exchanges.kit import Exchange
from onebook.ops import preflight

log = logging.getLogger("onebook.app")

# A name, or a prefix of names if it ends in a dot.
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
FIXED: Final = ("feeds.ccxt.",)  # of these
TLS_FILES: Final = ("server.tls_cert_file", "server.tls_key_file")


class SettingsDiff(NamedTuple):
    """The changed settings: those now in effect, and those that need a restart."""

    applied: list[str]
    restart: list[str]


def is_live(name: str) -> bool:
    """Return whether a setting takes effect at SIGHUP; TLS files do if TLS is in use."""
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
            # Sections are frozen; only this function changes them, between two events.
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
    node: Node | feeder.Feeder,
    reread: Callable[[], Settings] | None,
    overrides: Mapping[str, ExchangeSettings] | None,
) -> None:
    """Apply the settings that can change while the node runs, or none if there is an error."""
    settings = node.settings
    tls = node.tls if isinstance(node, Node) else None
    try:
        new = settings
        if reread is not None:
            new = reread()
            preflight.require(new)
            new = feeder.own_settings(new, overrides)
        if isinstance(node, feeder.Feeder):
            logs.configure(new.log.level, new.log.format, access=new.log.access)
            log.info(
                "SIGHUP: a feeds node reloads only its log settings; other settings need a restart."
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
        "SIGHUP: the settings and the TLS certificate were read again; changed: %s.",
        ", ".join(changes.applied) or "no setting",
    )
    if changes.restart:
        log.warning("SIGHUP: these take effect at a restart: %s.", ", ".join(changes.restart))


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
