"""SIGHUP: reads the settings and the TLS certificate again and applies what can change at run time.

What can change is decided in `onebook.reload`.
"""

import logging
from collections.abc import Callable, Mapping

from onebook import feeder, feeds, http, logs, preflight, reload
from onebook.app.node import Node
from onebook.config import ExchangeSettings, Settings
from onebook.errors import ConfigError
from onebook.exchanges.kit import Exchange

log = logging.getLogger("onebook.app")


def reload_node(
    node: Node | feeder.Feeder,
    reread: Callable[[], Settings] | None,
    overrides: Mapping[str, ExchangeSettings] | None,
) -> None:
    """Apply what can change while the node runs, or nothing if there is an error."""
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
            log.info("SIGHUP: a feeds node reads its log settings again, others at a restart.")
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
    changes = reload.apply(settings, new)
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
    """Remove the exchanges that were switched off; add those that are new or changed."""
    for name in [each for each in before if before[each] != wanted.get(each)]:
        listed.drop(name)
        supervisor.drop(name)
    for name in [each for each in wanted if wanted[each] != before.get(each)]:
        supervisor.add(wanted[name])
        listed.add(wanted[name])
