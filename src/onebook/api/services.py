"""Dependencies of the API's routes, as values and callables set by `app`.

The gateway and the API do not import each other: `app` passes the gateway's description.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from msgspec import Struct

from onebook.accounts import Accounts
from onebook.clock import Clock
from onebook.config import ApiSettings
from onebook.fees import PublishedFee, TakerFees
from onebook.metrics import Exposition
from onebook.streams.past import QualityQuery, RecordedTimes
from onebook.transactions.service import Transactions


class HealthFacts(Struct, frozen=True):
    """State of this node.

    Args:
        ready: Everything needed to serve is available (the store answers, feeds are running). A
            draining node still serves its open connections.
        draining: The node is shutting down and drains its clients.
        active_exchanges: Number of exchanges reported as active by `get_exchanges`.
        problems: One sentence per problem; empty if healthy.
    """

    ready: bool
    draining: bool = False
    active_exchanges: int = 0
    problems: tuple[str, ...] = ()

    @property
    def status(self) -> Literal["healthy", "degraded", "draining"]:
        """The status in `/api/v1/health`."""
        if self.draining:
            return "draining"
        return "healthy" if self.ready and not self.problems else "degraded"


class MessageDescription(Protocol):
    """Description of one message by the gateway."""

    @property
    def name(self) -> str:
        """The `type` of the message."""

    @property
    def direction(self) -> str:
        """The sender: `client` or `server`."""

    @property
    def body(self) -> type[Struct]:
        """The fields of the message."""

    @property
    def replies(self) -> tuple[str, ...]:
        """The types of its replies."""


class WebSocketFacts(Struct, frozen=True):
    """The gateway's description of its protocol.

    Args:
        messages: Every message.
        errors: Every error code, with its message types and its meaning.
        action_errors: Error codes of actions only: number and meaning.
        close_codes: Every close code and its meaning.
    """

    messages: Sequence[MessageDescription]
    errors: Mapping[str, tuple[tuple[str, ...], str]]
    action_errors: Mapping[str, tuple[int, str]]
    close_codes: Mapping[int, str]


BookAt = Callable[[str, Mapping[str, object], int, TakerFees], Awaitable[bytes]]
RecordedOf = Callable[[str, int, int], Awaitable[RecordedTimes]]
QualityOf = Callable[[QualityQuery], Awaitable[list[dict[str, Any]]]]


@dataclass(frozen=True, kw_only=True)
class Services:
    """The parts behind the routes.

    Args:
        accounts: Keys, sessions, limits and usage.
        transactions: The service behind endpoints 4 to 7 and 10.
        health: Returns the present state of this node; must not block.
        published_fees: Returns the published taker fees of a symbol, and the exchanges that trade
            it but have none.
        book_at: Returns the merged book of a moment as JSON: of a pair, with options of a view by
            name, at microseconds since 1970, with the fee table of the client's key.
        quality: Returns the recorded quality of exchanges by group.
        recorded: Returns when books of a pair were recorded, between two times in microseconds.
        websocket: The gateway's description of its messages, for `/asyncapi.json`.
        settings: The settings of the API.
        query_key_allowed: Whether `?api_key=` is accepted on the WebSocket path.
        metrics_port: The separate port of `/metrics`; None: the public port.
        metrics_token: The token required for `/metrics`; "" if none is set.
        exposition: The text of `/metrics`.
        clock: Returns the time for responses and limits.
    """

    accounts: Accounts
    transactions: Transactions
    health: Callable[[], HealthFacts]
    published_fees: Callable[[str], tuple[Sequence[PublishedFee], Sequence[str]]]
    book_at: BookAt
    quality: QualityOf
    recorded: RecordedOf
    websocket: WebSocketFacts
    settings: ApiSettings
    query_key_allowed: bool = True
    metrics_port: int | None = None
    metrics_token: str = ""
    exposition: Exposition = field(default_factory=Exposition)
    clock: Clock
