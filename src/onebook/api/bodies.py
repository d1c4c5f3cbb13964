"""The bodies of the REST API as the specification's tables name them; OpenAPI is made of these."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from onebook.errors import (
    ApiKeyDisabled,
    InvalidSession,
    MissingAuthorization,
    OnebookError,
    SessionExpired,
)
from onebook.model import Tier


class AnswerBody(BaseModel):
    """A body that we send: exactly these fields."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class Problem(BaseModel):
    """The error body. Some errors add fields of their own, such as `supported_exchanges`."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    error: str
    """A code for machines, in snake_case."""
    message: str
    """A sentence a person can act on."""
    timestamp: str
    """ISO 8601, UTC, milliseconds."""


class FailedProblem(Problem):
    """The error body of the transaction endpoints."""

    success: Literal[False]


class AuthenticateRequest(BaseModel):
    """The request of endpoint 1."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    api_key: str = Field(min_length=1, pattern=r"\S", examples=["ob_live_..."])
    """The API key that the operator issued."""


class Authenticated(AnswerBody):
    """The authentication result."""

    success: Literal[True] = True
    message: str
    session_token: str
    """Opaque; sent as `Authorization: Bearer <session_token>`."""
    user_id: str
    user_tier: Tier
    expires_at: int
    """Unix ms; exactly 24 hours after the session was made."""


class SessionStatus(AnswerBody):
    """A valid session."""

    authenticated: Literal[True] = True
    user_id: str
    user_tier: Tier
    expires_at: int
    """Unix ms."""
    created_at: int
    """Unix ms."""
    message: str


class NoSession(AnswerBody):
    """A session that is not valid, without the reason."""

    authenticated: Literal[False] = False
    message: str


class ExchangeEntry(AnswerBody):
    """One exchange of the transaction interface."""

    exchange_name: str
    """What the field `exchange` takes elsewhere."""
    display_name: str
    supported_transaction_types: list[str]
    requires_passphrase: bool
    testnet_available: bool
    documentation_url: str


class CredentialFacts(AnswerBody):
    """What one exchange needs of a caller."""

    has_internal_credentials: bool
    requires_user_credentials: bool
    can_use_without_api_keys: bool
    testnet_available: bool


class CredentialAvailability(AnswerBody):
    """Which exchanges the service holds credentials for."""

    exchanges_with_internal_credentials: list[str]
    exchanges_requiring_user_credentials: list[str]
    details: dict[str, CredentialFacts]


class TransactionTypes(AnswerBody):
    """The names that `transaction_types` takes."""

    unified_types: dict[str, str]
    exchange_specific: dict[str, list[str]]


class HealthReport(AnswerBody):
    """The state of the service."""

    status: Literal["healthy", "degraded", "draining"]
    unified_api: Literal["operational", "unavailable"]
    available_exchanges: list[str]
    """Exchanges whose transactions can be asked for now."""
    supported_exchanges: int
    """How many the transaction interface has."""
    timestamp: str
    websocket_endpoint: str
    active_exchanges: int
    """How many exchanges `get_exchanges` calls active: their books can be subscribed to."""
    version: str


class RootAuthentication(AnswerBody):
    """Authentication of a client."""

    required: Literal[True] = True
    method: str
    parameter: str


class Root(AnswerBody):
    """What this service is and how to begin."""

    message: str
    websocket_endpoint: str
    authentication: RootAuthentication
    connection_example: str
    features: list[str]
    documentation: str


Responses = dict[int | str, dict[str, Any]]

CODES = "x-error-codes"
_WORDS = {
    400: "The request is wrong; the message names the field.",
    401: "Not authenticated, or no longer.",
    404: "There is no such thing.",
    405: "The path does not answer this method.",
    413: "The body is over the limit, which the message names.",
    429: "Too many requests; Retry-After says when to ask again.",
    500: "Something went wrong on our side or at the exchange.",
    503: "The service cannot answer this now.",
}


def errors(*kinds: type[OnebookError], model: type[BaseModel] = Problem) -> Responses:
    """The error answers of a route by status, each with its codes, for its OpenAPI entry."""
    responses: Responses = {}
    for kind in kinds:
        new = {"model": model, "description": _WORDS[kind.status], CODES: []}
        responses.setdefault(kind.status, new)[CODES].append(kind.code)
    return responses


NO_SESSION: tuple[type[OnebookError], ...] = (
    MissingAuthorization,
    InvalidSession,
    SessionExpired,
    ApiKeyDisabled,
)
