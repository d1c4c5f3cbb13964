"""Request and response bodies of the REST API, named as in the specification."""

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
    """Base of response bodies: exactly the declared fields."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class Problem(BaseModel):
    """The error body. Some errors have further fields, such as `supported_exchanges`."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    error: str
    """Machine-readable code, in snake_case."""
    message: str
    """Human-readable message."""
    timestamp: str
    """ISO 8601, UTC, milliseconds."""


class FailedProblem(Problem):
    """The error body of the transaction endpoints."""

    success: Literal[False]


class AuthenticateRequest(BaseModel):
    """Request body of endpoint 1."""

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
    """Unix ms; exactly 24 hours after the session was created."""


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
    """An invalid session; the reason is not disclosed."""

    authenticated: Literal[False] = False
    message: str


class ExchangeEntry(AnswerBody):
    """One exchange of the transaction interface."""

    exchange_name: str
    """Value for the field `exchange` in requests."""
    display_name: str
    supported_transaction_types: list[str]
    requires_passphrase: bool
    testnet_available: bool
    documentation_url: str
    demo_available: bool = False
    """True if the exchange has demo accounts; otherwise absent."""


class CredentialFacts(AnswerBody):
    """Credential requirements of one exchange."""

    has_internal_credentials: bool
    requires_user_credentials: bool
    can_use_without_api_keys: bool
    testnet_available: bool


class CredentialAvailability(AnswerBody):
    """The exchanges whose credentials are configured."""

    exchanges_with_internal_credentials: list[str]
    exchanges_requiring_user_credentials: list[str]
    details: dict[str, CredentialFacts]


class TransactionTypes(AnswerBody):
    """Accepted values of `transaction_types`."""

    unified_types: dict[str, str]
    exchange_specific: dict[str, list[str]]


class HealthReport(AnswerBody):
    """The state of the service."""

    status: Literal["healthy", "degraded", "draining"]
    unified_api: Literal["operational", "unavailable"]
    available_exchanges: list[str]
    """Exchanges whose transactions are available."""
    supported_exchanges: int
    """Number of exchanges in the transaction interface."""
    timestamp: str
    websocket_endpoint: str
    active_exchanges: int
    """Number of exchanges reported as active by `get_exchanges`, whose books can be subscribed
    to."""
    version: str


class RootAuthentication(AnswerBody):
    """Authentication of a client."""

    required: Literal[True] = True
    method: str
    parameter: str


class Root(AnswerBody):
    """Description of the service, with links to start from."""

    message: str
    websocket_endpoint: str
    authentication: RootAuthentication
    connection_example: str
    features: list[str]
    documentation: str


Responses = dict[int | str, dict[str, Any]]

CODES = "x-error-codes"
_WORDS = {
    400: "Invalid request; the message names the field.",
    401: "Not authenticated, or the session has expired.",
    404: "Not found.",
    405: "Method not allowed.",
    413: "The body exceeds the limit given in the message.",
    429: "Too many requests; retry after the time in Retry-After.",
    500: "Internal error, or an error of the exchange.",
    503: "The service cannot answer at the moment.",
}


def errors(*kinds: type[OnebookError], model: type[BaseModel] = Problem) -> Responses:
    """Return the error responses of a route by status, with their codes, for OpenAPI."""
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
