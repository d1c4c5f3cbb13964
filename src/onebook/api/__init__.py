"""The REST API: routes, bodies, errors and the documents that describe them.

It knows HTTP and nothing of exchanges, books or the database; what it needs of them is named in
`services.py`.
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
