"""The WebSocket server: connections, commands, and subscriptions."""

from onebook.gateway.codes import ACTION_ERRORS, CLOSE_CODES, ERRORS
from onebook.gateway.gateway import Gateway
from onebook.gateway.limits import LIMITS, GatewayLimits
from onebook.gateway.messages import MESSAGES

__all__ = [
    "ACTION_ERRORS",
    "CLOSE_CODES",
    "ERRORS",
    "LIMITS",
    "MESSAGES",
    "Gateway",
    "GatewayLimits",
]
