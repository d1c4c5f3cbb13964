"""Error responses: the members of each body, and the routes that add some."""

import httpx
import pytest
from msgspec import json
from pydantic import BaseModel, ConfigDict, ValidationError

from onebook.api.problems import NAME_SHOWN_MAX, from_status, from_validation, problem
from onebook.errors import CREDENTIALS_HELD, InvalidExchange, InvalidSession, RateLimitExceeded

PATHS = ("/api/v1/transactions", "/api/v1/transactions/validate-credentials")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 405),
        ("POST", {}, 401),
        ("POST", {"Content-Length": "999999999"}, 413),
        ("POST", {"Content-Length": "2", "Transfer-Encoding": "chunked"}, 400),
    ],
)
async def test_a_transaction_route_adds_success_false_also_to_what_is_refused_before_it(
    client: httpx.AsyncClient, path: str, method: str, headers: dict[str, str], status: int
) -> None:
    answer = await client.request(method, path, headers=headers)
    assert answer.status_code == status
    assert list(answer.json()) == ["success", "error", "message", "timestamp"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/v1/transactions/nothing"), ("POST", "/api/v1/transactions/types")],
)
async def test_other_paths_beside_them_add_nothing(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    answer = await client.request(method, path)
    assert answer.status_code in (404, 405)
    assert list(answer.json()) == ["error", "message", "timestamp"]


def test_details_of_an_error_follow_its_message_and_secrets_are_masked() -> None:
    error = InvalidExchange("No obs_" + "a" * 43, details={"supported_exchanges": ["bybit"]})
    answer = problem(error, now_ms=0)
    assert answer.status_code == 400
    body = json.decode(bytes(answer.body))
    assert list(body) == ["error", "message", "timestamp", "supported_exchanges"]
    assert body["timestamp"] == "1970-01-01T00:00:00.000Z"
    assert "aaaa" not in body["message"]


def test_headers_that_a_status_asks_for() -> None:
    assert problem(InvalidSession("no"), now_ms=0).headers["WWW-Authenticate"] == "Bearer"
    assert problem(RateLimitExceeded("no"), now_ms=0).headers["Retry-After"] == "60"
    soon = RateLimitExceeded("no", retry_after_s=0.2)
    assert problem(soon, now_ms=0).headers["Retry-After"] == "1"


def test_a_status_of_the_framework_that_is_not_known_is_a_defect() -> None:
    assert from_status(404).code == "not_found"
    assert (from_status(418).code, from_status(418).status) == ("internal_server_error", 500)


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")
    limit: int


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "The body is not JSON."),
        ("[]", "The body must be a JSON object."),
        ("{}", "Field limit is required."),
        ('{"limit": "x"}', "Field limit must be a whole number."),
        ('{"limit": 1, "credentials": {}}', CREDENTIALS_HELD),
        ('{"limit": 1, "%s": 2}' % ("n" * 99), f"Unknown field {'n' * NAME_SHOWN_MAX}."),
    ],
)
def test_the_first_field_at_fault_is_named_and_its_value_is_not(content: str, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Body.model_validate_json(content, strict=True)
    assert from_validation(refused.value).message == message
