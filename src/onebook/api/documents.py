"""The API descriptions `/openapi.json` and `/asyncapi.json`."""

from functools import cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse

from onebook import __version__
from onebook.api.asyncapi import asyncapi_document
from onebook.api.bodies import CODES
from onebook.api.services import Services
from onebook.api.status import base_url, websocket_url

SUMMARY = "One live order book across exchanges, one ledger across accounts."
DESCRIPTION = """\
Live order books merged from many exchanges are streamed over WebSocket (see `/asyncapi.json`);
sessions, usage and transactions are served over REST, which this document describes.

Times in `*_at`, `*_time` and transaction records are Unix milliseconds; all others are
ISO 8601, UTC, with milliseconds. Every error has one body: `error`, `message`, `timestamp`.
"""
TAGS = (
    {"name": "sessions", "description": "Exchange an API key for a session of 24 hours."},
    {"name": "usage", "description": "Usage of a key in this billing period."},
    {"name": "exchanges", "description": "Capabilities of the transaction interface."},
    {"name": "transactions", "description": "Transactions of exchange accounts in one format."},
    {"name": "service", "description": "Health and entry points."},
)
RATE_HEADERS = {
    "RateLimit-Policy": "The limit: q requests in w seconds (IETF draft).",
    "RateLimit": (
        "Remaining: r requests, reset in t seconds; if refused, t is the wait for one request "
        "(IETF draft)."
    ),
    "X-RateLimit-Limit": "Requests per minute.",
    "X-RateLimit-Remaining": "Remaining requests.",
    "X-RateLimit-Reset": (
        "Seconds until the full limit is available again; if refused, until one request is, "
        "like Retry-After."
    ),
}


def describe(app: FastAPI, services: Services) -> None:
    """Add the documents and their routes to an app."""

    @cache
    def openapi() -> dict[str, Any]:
        return _openapi(app, services)

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to replace it

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi_document(request: Request) -> JSONResponse:
        servers = [{"url": base_url(request, services)}]
        return JSONResponse(openapi() | {"servers": servers})

    @app.get("/asyncapi.json", include_in_schema=False)
    async def asyncapi(request: Request) -> JSONResponse:
        return JSONResponse(asyncapi_of(services, base_url(request, services)))


def asyncapi_of(services: Services, url: str) -> dict[str, Any]:
    """The AsyncAPI document of a node with a public address."""
    return asyncapi_document(
        services.websocket,
        version=__version__,
        websocket_url=websocket_url(url),
        query_key=services.query_key_allowed,
    )


def _openapi(app: FastAPI, services: Services) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=SUMMARY,
        description=DESCRIPTION,
        routes=app.routes,
        tags=list(TAGS),
        license_info={"name": "MIT", "identifier": "MIT"},
    )
    for path in document["paths"].values():
        for operation in path.values():
            _tidy(operation["responses"])
            _name_choices(operation, services)
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    return document


def _tidy(responses: dict[str, Any]) -> None:
    """Correct the generated document: remove 422 responses and add response headers."""
    responses.pop("422", None)
    for response in responses.values():
        codes = response.pop(CODES, None)
        if codes:
            _name_codes(response["content"]["application/json"], codes)
    if "401" in responses:
        responses["401"]["headers"] = {"WWW-Authenticate": _header("Always `Bearer`.")}
    if "429" in responses:
        responses["429"]["headers"] = {
            "Retry-After": _header("Seconds until a retry is useful.", required=True)
        } | {name: _header(text) for name, text in RATE_HEADERS.items()}


def _name_codes(content: dict[str, Any], codes: list[str]) -> None:
    """Add the error codes of each status to an operation."""
    choices = content["schema"].get("anyOf", [content["schema"]])
    for at, choice in enumerate(choices):
        if choice["$ref"].endswith("Problem"):
            named = {"type": "object", "properties": {"error": {"enum": sorted(codes)}}}
            choices[at] = {"allOf": [choice, named]}
    content["schema"] = {"anyOf": choices} if len(choices) > 1 else choices[0]


def _name_choices(operation: dict[str, Any], services: Services) -> None:
    """Add the valid exchanges and transaction types to the request schemas."""
    content = operation.get("requestBody", {}).get("content", {})
    fields = content.get("application/json", {}).get("schema", {}).get("properties", {})
    exchanges = services.transactions.exchanges
    if "exchange" in fields:
        fields["exchange"]["enum"] = [each.name for each in exchanges]
    if "transaction_types" in fields:
        words = dict.fromkeys(word for each in exchanges for word in each.words)
        fields["transaction_types"]["anyOf"][0]["items"]["enum"] = list(words)


def _header(description: str, *, required: bool = False) -> dict[str, Any]:
    return {"description": description, "required": required, "schema": {"type": "string"}}
