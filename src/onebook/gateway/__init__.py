"""The WebSocket side: clients, what they may say, and who listens to which stream."""

from onebook.gateway.directory import Directory
from onebook.gateway.hub import Hub
from onebook.gateway.keeper import Keeper
from onebook.gateway.messages import CLOSE_CODES, ERRORS, MESSAGES
from onebook.gateway.settings import GatewaySettings

__all__ = [
    "CLOSE_CODES",
    "ERRORS",
    "MESSAGES",
    "Directory",
    "GatewaySettings",
    "Hub",
    "Keeper",
]
