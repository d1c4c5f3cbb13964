"""What the REST API needs of the other parts; `app.py` fills it, tests fill it with less.

Nothing here acts: it names the facts and the callables that the routes use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from onebook.accounts import Accounts
from onebook.api.asyncapi import WebSocketFacts
from onebook.transactions.service import Transactions

BODY_BYTES_MAX = 64 * 1024


class ApiSettings(Struct, frozen=True):
    """How the API presents itself.

    Args:
        public_url: The address clients use; empty: taken from each request.
        cors_origins: Origins whose pages may call us from a browser; empty: none.
        query_key: Whether `?api_key=` is accepted on the WebSocket path.
        body_bytes_max: The largest request body.
    """

    public_url: str = ""
    cors_origins: tuple[str, ...] = ()
    query_key: bool = True
    body_bytes_max: int = BODY_BYTES_MAX


class HealthFacts(Struct, frozen=True):
    """The state of this node at one moment.

    Args:
        ready: Everything needed to serve is there (the store answers, feeds are running).
        draining: The node was told to stop and sends its clients away.
        active_exchanges: How many exchanges have a live book feed.
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
        now_ms: Wall clock, Unix ms.
        now_s: Monotonic clock, seconds.
    """

    accounts: Accounts
    transactions: Transactions
    health: Callable[[], HealthFacts]
    websocket: WebSocketFacts
    settings: ApiSettings
    now_ms: Callable[[], int]
    now_s: Callable[[], float]
