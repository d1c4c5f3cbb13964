"""Every setting with its default, unit and meaning; the only reader of the environment.

Precedence, lowest first: defaults, `onebook.toml`, `ONEBOOK_*`, flags. A node with an unknown
setting does not start. `settings.py` defines the sections, `sources.py` reads them. `onebook config
doc` prints all settings.
"""

from onebook.config.settings import (
    AccountsSettings,
    AccountUrls,
    ApiSettings,
    CcxtSettings,
    ExchangeSettings,
    FeedSettings,
    GatewaySettings,
    HistorySettings,
    LogSettings,
    NatsSettings,
    NodeSettings,
    ServerSettings,
    Setting,
    Settings,
    StoreSettings,
    StreamSettings,
    TierLimits,
    TierSettings,
    TransactionSettings,
    catalogue,
    data_dir,
    variable_of,
)
from onebook.config.sources import examine, load

__all__ = [
    "AccountUrls",
    "AccountsSettings",
    "ApiSettings",
    "CcxtSettings",
    "ExchangeSettings",
    "FeedSettings",
    "GatewaySettings",
    "HistorySettings",
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
