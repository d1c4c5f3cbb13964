"""The WebSocket side: clients, what they may say, and who listens to which stream."""

from onebook.gateway.codes import CLOSE_CODES, ERRORS
from onebook.gateway.gateway import Gateway
from onebook.gateway.messages import MESSAGES

__all__ = [
    "CLOSE_CODES",
    "ERRORS",
    "MESSAGES",
    "Gateway",
]
