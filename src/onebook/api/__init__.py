"""The REST API: routes, bodies, errors, and the OpenAPI and AsyncAPI documents.

It does not access exchanges, books or the database directly; `services.py` defines its interface to
them.
"""

from onebook.api.app import create_app
from onebook.api.services import HealthFacts, Services, WebSocketFacts

__all__ = [
    "HealthFacts",
    "Services",
    "WebSocketFacts",
    "create_app",
]
