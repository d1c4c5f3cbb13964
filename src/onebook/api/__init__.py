"""The REST API: routes, bodies, errors and the documents that describe them.

It has no access to exchanges, books or the database; `services.py` names what it needs of them.
"""

from onebook.api.app import create_app
from onebook.api.asyncapi import WebSocketFacts
from onebook.api.services import HealthFacts, Services

__all__ = [
    "HealthFacts",
    "Services",
    "WebSocketFacts",
    "create_app",
]
