"""Rules for every response: sizes, headers, error format, no traceback, no leak.

Requests of routes are authenticated, counted and parsed, in this order.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, ConfigDict

from api.conftest import World, bearer, client_of
from api.sockets import serving
from api.test_sessions import is_problem
from onebook.api import create_app
from onebook.api.edge import Caller, body_schema, read_body
from onebook.config import ApiSettings
from onebook.errors import DataLimitReached, InvalidExchange, ServiceUnavailable

LIMIT = 64 * 1024
EVERY_PATH = ["/api/v1/", "/api/v1/health", "/api/v1/exchanges", "/nope", "/livez"]

TRANSACTION_PATHS = ("/api/v1/transactions", "/api/v1/transactions/validate-credentials")


@pytest.mark.parametrize("path", EVERY_PATH)
async def test_security_headers_are_on_every_answer(client: httpx.AsyncClient, path: str) -> None:
    headers = (await client.get(path)).headers
    assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "strict-transport-security" not in headers
    assert "server" not in headers


async def test_https_answers_ask_to_stay_with_https(app: FastAPI) -> None:
    async with client_of(app) as client:
        client.base_url = httpx.URL("https://books.example")
        headers = (await client.get("/livez")).headers
    assert headers["strict-transport-security"].startswith("max-age=")


@pytest.mark.parametrize(
    "path", ["/nope", "/api/v2/health", "/api/v1/exchanges//", "/docs/x", "//"]
)
async def test_404_not_found(client: httpx.AsyncClient, path: str) -> None:
    is_problem(await client.get(path), 404, "not_found")


@pytest.mark.parametrize("path", ["/api/v1/exchanges", "/api/v1/health", "/livez", "/metrics"])
async def test_one_trailing_slash_is_ignored_everywhere(app: FastAPI, path: str) -> None:
    client = client_of(app, address="127.0.0.1")
    assert (await client.get(path + "/")).status_code == (await client.get(path)).status_code == 200
    posted = await client.post("/api/v1/transactions/")
    is_problem(posted, 401, "missing_authorization")
    assert posted.json()["success"] is False


async def test_426_the_websocket_s_address_without_an_upgrade(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/ws")
    is_problem(answer, 426, "upgrade_required")
    assert answer.headers["upgrade"] == "websocket"
    assert answer.headers["sec-websocket-version"] == "13"


@pytest.mark.parametrize("secret", ["ob_live_" + "aB3" * 16 + "z", "obs_" + "aB3" * 14 + "z"])
@pytest.mark.parametrize(
    "body",
    [
        {"exchange": "SECRET"},
        {"exchange": "bybit", "SECRET": 1},
        {"exchange": "bybit", "transaction_types": ["SECRET"]},
        {"exchange": "bybit", "cursor": "SECRET"},
        {"exchange": "bybit", "limit": "SECRET"},
        {"exchange": {"SECRET": 1}},
    ],
)
async def test_keys_and_tokens_are_never_repeated(
    client: httpx.AsyncClient, key: str, body: dict[str, Any], secret: str
) -> None:
    content = json.dumps(body).replace("SECRET", secret)
    headers = await bearer(client, key)
    for path in TRANSACTION_PATHS:
        answer = await client.post(path, content=content, headers=headers)
        assert answer.status_code == 400
        assert secret[8:] not in answer.text
        assert secret[8:].lower() not in answer.text


async def test_times_in_every_body_are_iso_8601_with_milliseconds(
    client: httpx.AsyncClient, key: str
) -> None:
    session = await bearer(client, key)
    for path in (*EVERY_PATH, f"/api/v1/data-usage/{key}", "/api/v1/ws"):
        answer = await client.get(path, headers=session)
        for found in re.findall(r"\d{4}-\d\d-\d\dT[^\"]*", answer.text):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found), path


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/api/v1/authenticate", "POST"),
        ("PUT", "/api/v1/authenticate", "POST"),
        ("POST", "/api/v1/session-status", "GET, HEAD"),
        ("DELETE", "/api/v1/health", "GET, HEAD"),
        ("POST", "/api/v1/", "GET, HEAD"),
        ("OPTIONS", "/api/v1/exchanges", "GET, HEAD"),
        ("PATCH", "/metrics", "GET, HEAD"),
        ("TRACE", "/api/v1/transactions/types", "GET, HEAD"),
    ],
)
async def test_405_method_not_allowed_names_what_is(
    client: httpx.AsyncClient, method: str, path: str, allow: str
) -> None:
    answer = await client.request(method, path)
    is_problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize("path", EVERY_PATH)
async def test_head_is_get_without_a_body(client: httpx.AsyncClient, path: str) -> None:
    got, head = await client.get(path), await client.head(path)
    assert head.status_code == got.status_code
    assert head.content == b""
    assert head.headers["content-length"] == str(len(got.content))


async def test_413_a_body_over_64_kib_by_its_declared_length(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/v1/authenticate", content=b"x" * (LIMIT + 1))
    is_problem(answer, 413, "request_too_large")
    assert "65,536 bytes" in answer.json()["message"]


async def test_a_body_of_64_kib_is_read(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/v1/authenticate", content=b"x" * LIMIT)
    is_problem(answer, 400, "missing_api_key")


async def test_413_a_streamed_body_stops_where_it_is_too_large(client: httpx.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1024
            assert sent < 2 * LIMIT, "the rest of the body is read although it is too large"
            yield b"x" * 1024

    answer = await client.post("/api/v1/authenticate", content=endless())
    is_problem(answer, 413, "request_too_large")


async def test_chunked_with_a_content_length_is_refused_and_closes(app: FastAPI) -> None:
    """The rest could be a smuggled request, so it is not answered."""
    async with serving(app) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(
            b"POST /api/v1/authenticate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Length: 5\r\n\r\n0\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in answer.lower()
    assert answer.count(b"HTTP/1.1") == 1


@pytest.fixture
def strange(app: FastAPI) -> FastAPI:
    """The application with extra routes that misbehave."""

    class Order(BaseModel):
        model_config = ConfigDict(extra="forbid")
        name: str
        count: int = 0
        flag: bool = False

    @app.get("/test/broken/{secret}")
    async def broken(secret: str) -> None:
        raise ZeroDivisionError(f"sensitive {secret}")

    @app.get("/test/teapot")
    async def teapot() -> None:
        raise HTTPException(418, "framework words")

    @app.get("/test/number")
    async def number(n: int) -> int:
        return n

    @app.get("/test/error")
    async def error() -> None:
        raise InvalidExchange("No such exchange.", details={"supported_exchanges": ["bybit"]})

    @app.get("/test/away")
    async def away() -> None:
        raise ServiceUnavailable("The database does not answer.", retry_after_s=2.2)

    @app.get("/test/over")
    async def over() -> None:
        raise DataLimitReached("The allowance of this month is used up.")

    @app.post("/test/body")
    async def body(request: Request, session: Caller) -> dict[str, Any]:
        return (await read_body(request, Order)).model_dump()

    return app


async def test_500_internal_server_error_shows_no_trace_and_logs_it(
    strange: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(strange) as client:
        answer = await client.get("/test/broken/word")
    is_problem(answer, 500, "internal_server_error")
    assert set(answer.json()) == {"error", "message", "timestamp"}
    for leak in ("ZeroDivisionError", "Traceback", "sensitive", "test_edge"):
        assert leak not in answer.text
    record = next(record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.getMessage() == "Unhandled exception in /test/broken/{secret}"
    assert record.exc_info is not None


async def test_an_answer_that_breaks_half_way_breaks_the_connection(app: FastAPI) -> None:
    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise ConnectionResetError("gone")

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/livez",
        "raw_path": b"/livez",
        "query_string": b"",
        "headers": [],
        "scheme": "http",
        "server": ("books.example", 80),
        "client": None,
    }
    with pytest.raises(ConnectionResetError):
        await app(scope, receive, send)


async def test_a_client_that_leaves_while_it_sends_is_no_defect(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    async def send(message: Any) -> None:
        raise AssertionError("nobody is there")

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/authenticate",
        "raw_path": b"/api/v1/authenticate",
        "query_string": b"",
        "headers": [(b"content-length", b"10")],
        "scheme": "http",
        "server": ("books.example", 80),
        "client": None,
    }
    with caplog.at_level(logging.INFO):
        await app(scope, receive, send)
    assert [r.levelname for r in caplog.records if r.name.startswith("onebook")] == ["INFO"]
    assert "/api/v1/authenticate 499" in caplog.text


async def test_what_is_not_http_passes_through(app: FastAPI) -> None:
    sent = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/nope", "headers": [], "query_string": b""}
    await app(scope, receive, send)
    assert sent == ["websocket.close"]


async def test_the_frameworks_own_errors_are_in_our_words(strange: FastAPI) -> None:
    async with client_of(strange) as client:
        is_problem(await client.get("/test/number?n=x"), 400, "invalid_request")
        teapot = await client.get("/test/teapot")
    assert (teapot.status_code, teapot.json()["error"]) == (500, "internal_server_error")
    assert "framework words" not in teapot.text


async def test_an_errors_details_are_in_its_body(strange: FastAPI) -> None:
    async with client_of(strange) as client:
        answer = await client.get("/test/error")
    is_problem(answer, 400, "invalid_exchange")
    assert answer.json()["supported_exchanges"] == ["bybit"]


async def test_503_says_when_to_try_again(strange: FastAPI) -> None:
    async with client_of(strange) as client:
        answer = await client.get("/test/away")
    is_problem(answer, 503, "service_unavailable")
    assert answer.headers["retry-after"] == "3"


async def test_429_always_says_when_to_try_again(strange: FastAPI) -> None:
    async with client_of(strange) as client:
        answer = await client.get("/test/over")
    is_problem(answer, 429, "data_limit_exceeded")
    assert answer.headers["retry-after"] == "60"


@pytest.mark.parametrize("path", TRANSACTION_PATHS)
async def test_errors_of_the_transaction_endpoints_add_success_false(
    client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.post(path)
    is_problem(answer, 401, "missing_authorization")
    assert answer.json()["success"] is False


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "The body is not JSON."),
        (b"{", "The body is not JSON."),
        (b"\xff", "The body is not JSON."),
        (b'{"name": NaN}', "Field name must be text."),
        (b"[]", "The body must be a JSON object."),
        (b"{}", "Field name is required."),
        (b'{"name": "a", "more": 1}', "Unknown field more."),
        (b'{"name": "a", "count": "1"}', "Field count must be a whole number."),
        (b'{"name": "a", "count": 1.5}', "Field count must be a whole number."),
        (b'{"name": "a", "flag": "true"}', "Field flag must be true or false."),
        (b'{"name": "a", "flag": 1}', "Field flag must be true or false."),
    ],
)
async def test_400_invalid_request_names_the_field(
    strange: FastAPI, key: str, content: bytes, message: str
) -> None:
    async with client_of(strange) as client:
        headers = await bearer(client, key)
        answer = await client.post("/test/body", content=content, headers=headers)
    is_problem(answer, 400, "invalid_request")
    assert answer.json()["message"] == message


async def test_who_asks_is_settled_before_the_body_is_read(strange: FastAPI, key: str) -> None:
    async with client_of(strange) as client:
        is_problem(await client.post("/test/body", content=b"{"), 401, "missing_authorization")
        headers = await bearer(client, key)
        answer = await client.post("/test/body", json={"name": "a"}, headers=headers)
    assert answer.json() == {"name": "a", "count": 0, "flag": False}


ORIGIN = {"Origin": "https://desk.example"}


async def test_cors_is_off_unless_it_is_asked_for(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/", headers=ORIGIN)
    assert "access-control-allow-origin" not in answer.headers


async def test_cors_admits_the_origins_of_the_settings(world: World) -> None:
    settings = ApiSettings(cors_origins=("https://desk.example",))
    async with client_of(create_app(world.services(settings))) as client:
        answer = await client.get("/api/v1/", headers=ORIGIN)
        assert answer.headers["access-control-allow-origin"] == "https://desk.example"
        assert "RateLimit" in answer.headers["access-control-expose-headers"]
        asked = ORIGIN | {"Access-Control-Request-Method": "POST"}
        preflight = await client.options("/api/v1/authenticate", headers=asked)
        assert preflight.status_code == 200
        for header, value in (
            ("Origin", "https://evil.example"),
            ("Access-Control-Request-Method", "DELETE"),
            ("Access-Control-Request-Headers", "X-Secret"),
        ):
            refused = await client.options("/api/v1/authenticate", headers=asked | {header: value})
            is_problem(refused, 403, "origin_not_allowed")
            assert header.rpartition("-")[2].lower().rstrip("s") in refused.json()["message"]
            assert "Origin" in refused.headers["vary"]
        foreign = await client.get("/api/v1/", headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in foreign.headers


TRANSACTIONS = "/api/v1/transactions"


class Body(BaseModel):
    limit: int


def test_the_schema_of_a_body_refers_to_components() -> None:
    body = body_schema(Body)["requestBody"]
    assert isinstance(body, dict)
    schema = body["content"]["application/json"]["schema"]
    assert body["required"] is True
    assert schema["properties"]["limit"]["type"] == "integer"


async def test_two_authorization_headers_are_no_token(client: httpx.AsyncClient, key: str) -> None:
    token = (await bearer(client, key))["Authorization"]
    answer = await client.post(
        TRANSACTIONS, headers=[("Authorization", token), ("Authorization", token)]
    )
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_session")


@pytest.mark.parametrize("content", [b"{", b'{"exchange": "bybit", "what": 1}'])
async def test_a_body_costs_nothing_before_the_session_and_a_token_of_the_rate_after_it(
    client: httpx.AsyncClient, key: str, content: bytes
) -> None:
    answer = await client.post(TRANSACTIONS, content=content)
    assert answer.status_code == 401
    assert "X-RateLimit-Remaining" not in answer.headers
    headers = await bearer(client, key)
    remaining = []
    for _ in range(2):
        answer = await client.post(TRANSACTIONS, content=content, headers=headers)
        assert answer.status_code == 400
        remaining.append(int(answer.headers["X-RateLimit-Remaining"]))
    assert remaining[0] - remaining[1] == 1


async def test_a_public_request_counts_for_its_address(client: httpx.AsyncClient) -> None:
    remaining = [
        int((await client.get("/api/v1/exchanges")).headers["X-RateLimit-Remaining"])
        for _ in range(2)
    ]
    assert remaining[0] - remaining[1] == 1
