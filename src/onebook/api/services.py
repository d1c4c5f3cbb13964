"""Dependencies of the REST API's routes, as values and callables; `app` fills them in."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from onebook.accounts import Accounts
from onebook.api.asyncapi import WebSocketFacts
from onebook.config import ApiSettings
from onebook.metrics import Exposition
from onebook.transactions.service import Transactions


class HealthFacts(Struct, frozen=True):
    """The state of this node at one moment.

    Args:
        ready: Everything needed to serve is there (the store answers, feeds are running). A node
            that drains still serves its open connections.
        draining: The node is shutting down and drains its clients.
        active_exchanges: How many exchanges `get_exchanges` calls active.
        problems: One sentence for each thing that is not as it should be; empty is healthy.
    """

    ready: bool
    draining: bool = False
    active_exchanges: int = 0
    problems: tuple[str, ...] = ()

    @property
    def status(self) -> Literal["healthy", "degraded", "draining"]:
        """The word for it in `/api/v1/health`."""
        if self.draining:
            return "draining"
        return "healthy" if self.ready and not self.problems else "degraded"


@dataclass(frozen=True, kw_only=True)
class Services:
    """The parts behind the routes.

    Args:
        accounts: Keys, sessions, limits and usage.
        transactions: The service behind endpoints 4 to 7 and 10.
        health: The state of this node now; must not block.
        websocket: The gateway's description of its messages, for `/asyncapi.json`.
        settings: How the API presents itself.
        query_key_allowed: Whether `?api_key=` is accepted on the WebSocket path.
        metrics_port: The port of `/metrics` and of nothing else; None: the public one.
        metrics_token: What a request for `/metrics` must carry; "": no token is set.
        exposition: The text of `/metrics`.
        now_ms: Wall clock, Unix ms.
        now_s: Monotonic clock, seconds.
    """

    accounts: Accounts
    transactions: Transactions
    health: Callable[[], HealthFacts]
    websocket: WebSocketFacts
    settings: ApiSettings
    query_key_allowed: bool = True
    metrics_port: int | None = None
    metrics_token: str = ""
    exposition: Exposition = field(default_factory=Exposition)
    now_ms: Callable[[], int]
    now_s: Callable[[], float]
