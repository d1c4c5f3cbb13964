"""Every setting with its default, unit and meaning; the only reader of the environment.

Order, later wins: defaults < `onebook.toml` < `ONEBOOK_*` < flags. A node with an unknown setting
does not start. One file per group of sections; `settings.py` combines them, `sources.py` reads
them. `onebook config doc` prints all of it as a table.
"""

from onebook.config.accounts import AccountsSettings, StoreSettings, TierLimits, TierSettings
from onebook.config.feeds import CcxtSettings, ExchangeSettings, FeedSettings, StreamSettings
from onebook.config.gateway import GatewaySettings
from onebook.config.nodes import NatsSettings, NodeSettings
from onebook.config.section import data_dir
from onebook.config.server import ApiSettings, LogSettings, ServerSettings
from onebook.config.settings import Setting, Settings, catalogue, variable_of
from onebook.config.sources import examine, load
from onebook.config.transactions import TransactionSettings

__all__ = [
    "AccountsSettings",
    "ApiSettings",
    "CcxtSettings",
    "ExchangeSettings",
    "FeedSettings",
    "GatewaySettings",
    "LogSettings",
    "NatsSettings",
    "NodeSettings",
    "ServerSettings",
    "Setting",
    "Settings",
    "StoreSettings",
    "StreamSettings",
    "TierLimits",
    "TierSettings",
    "TransactionSettings",
    "catalogue",
    "data_dir",
    "examine",
    "load",
    "variable_of",
]
