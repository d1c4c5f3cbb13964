"""The API descriptions `/openapi.json` and `/asyncapi.json`.

OpenAPI is FastAPI's, corrected; AsyncAPI is built from the gateway's description of its messages.
https://www.asyncapi.com/docs/reference/specification/v3.0.0 - actions are named from the server's
side, so client messages are `receive`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, JSONResponse
from msgspec import Raw, Struct

from onebook import __version__
from onebook.api.bodies import CODES
from onebook.api.services import MessageDescription, Services, WebSocketFacts
from onebook.api.status import base_url, websocket_url
from onebook.transactions.accounts import ACCOUNTS_MAX, ALL, LABEL
from onebook.updates import SCHEMA, SCHEMA_FILE

SUMMARY = "One live order book across exchanges, one ledger across accounts."
DESCRIPTION = """\
Live order books merged from many exchanges are streamed over WebSocket (see `/asyncapi.json`);
sessions, usage and transactions are served over REST, which this document describes.

Times in `*_at`, `*_time` and transaction records are Unix milliseconds; all others are
ISO 8601, UTC, with milliseconds. Every error has one body: `error`, `message`, `timestamp`.
"""
TAGS = (
    {"name": "sessions", "description": "Exchange an API key for a session of 24 hours."},
    {"name": "fees", "description": "The taker fees of a key."},
    {"name": "usage", "description": "Usage of a key in this billing period."},
    {"name": "orderbooks", "description": "Recorded order books; live ones are on the WebSocket."},
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
        "Seconds until the full limit is available again; after a refusal, until one request is "
        "allowed."
    ),
}

SCHEMAS = "#/components/schemas/{name}"
ACTION_FIELD = "action"
ASYNCAPI_DESCRIPTION = """\
Text frames, one JSON object each. The first message of a client is `authenticate`; a connection
without it is closed after ten seconds. Every client message may have an `id`, which is repeated in
its reply or error.

Messages with `action` instead of `type` belong to the transaction interface and use the operator's
credentials.

A level is an object (`price`, `amount`, `exchanges`, `exchange_count`, `value`; with `split` also
`amounts`, parallel to `exchanges`) or, with `levels: array`, `[price, amount]`; with `split` then
`[price, amount, [[exchange, amount], ...]]`. In a delta, amount 0 removes the level.
"""
_ADVICE = {
    40: "Do not reconnect unchanged.",
    41: "Reconnect with backoff.",
    42: "Reconnect at the given time.",
}


def describe(app: FastAPI, services: Services) -> None:
    """Add the documents and their routes to an app."""

    @cache
    def openapi() -> dict[str, Any]:
        return _openapi(app, services)

    app.openapi = openapi  # type: ignore[method-assign]  # how FastAPI replaces its document

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi_document(request: Request) -> JSONResponse:
        servers = [{"url": base_url(request, services)}]
        return JSONResponse(openapi() | {"servers": servers})

    @app.get(f"/{SCHEMA}", include_in_schema=False)
    async def schema() -> FileResponse:
        return FileResponse(SCHEMA_FILE, media_type="text/plain; charset=utf-8")

    @app.get("/asyncapi.json", include_in_schema=False)
    async def asyncapi(request: Request) -> JSONResponse:
        return JSONResponse(asyncapi_of(services, base_url(request, services)))


def asyncapi_of(services: Services, url: str) -> dict[str, Any]:
    """Return the AsyncAPI document of a node with this public URL."""
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
        names = [each.name for each in exchanges]
        one = {"type": "string", "pattern": f"^({'|'.join(names)})(:{LABEL.pattern})?$"}
        several = fields["exchange"].pop("anyOf", None)
        if several is None:
            fields["exchange"] |= one
        else:
            array = {"type": "array", "items": one, "minItems": 1, "maxItems": ACCOUNTS_MAX}
            fields["exchange"]["anyOf"] = [one, {"type": "string", "enum": [ALL]}, array]
    if "transaction_types" in fields:
        words = dict.fromkeys(word for each in exchanges for word in each.sources_by_type)
        fields["transaction_types"]["anyOf"][0]["items"]["enum"] = list(words)


def _header(description: str, *, required: bool = False) -> dict[str, Any]:
    return {"description": description, "required": required, "schema": {"type": "string"}}


def asyncapi_document(
    facts: WebSocketFacts, *, version: str, websocket_url: str, query_key: bool
) -> dict[str, Any]:
    """Return the document."""
    messages = _by_id(facts.messages)
    at = urlsplit(websocket_url)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Onebook order books",
            "version": version,
            "description": ASYNCAPI_DESCRIPTION,
            "license": {"name": "MIT"},
        },
        "servers": {"node": {"host": at.netloc, "protocol": at.scheme}},
        "channels": {"socket": _channel(at.path, messages, query_key=query_key)},
        "operations": _operations(messages),
        "components": {
            "messages": {name: _message(message) for name, message in messages.items()},
            "schemas": _schemas(message.body for message in messages.values()),
        },
        "x-errors": {
            code: {"types": list(types), "when": when}
            for code, (types, when) in facts.errors.items()
        },
        "x-action-errors": {
            error: {"code": number, "when": when}
            for error, (number, when) in facts.action_errors.items()
        },
        "x-close-codes": {
            str(code): {"why": why, "client": advice(code)}
            for code, why in facts.close_codes.items()
        },
    }


def advice(code: int) -> str:
    """Return the recommended reaction to a close code, by its first two digits."""
    return _ADVICE.get(code // 100, "Fix the client, then reconnect.")


def _by_id(messages: Sequence[MessageDescription]) -> dict[str, MessageDescription]:
    """Return messages by unique name; the two welcomes and all actions are named by body."""
    names = [message.name for message in messages if not _is_action(message)]
    return {
        m.name
        if names.count(m.name) == 1 and not _is_action(m)
        else f"{m.name}.{m.body.__name__}": m
        for m in messages
    }


def _is_action(message: MessageDescription) -> bool:
    """Return whether this is a client message with `action` instead of `type`."""
    return message.body.__struct_config__.tag_field == ACTION_FIELD


def _channel(path: str, messages: Iterable[str], *, query_key: bool) -> dict[str, Any]:
    channel: dict[str, Any] = {
        "address": path,
        "description": "One connection; many subscriptions.",
        "messages": {name: _reference("components/messages", name) for name in messages},
    }
    if query_key:
        key = {
            "type": "string",
            "description": "The older way to send the key; prefer the `authenticate` message.",
        }
        query = {"type": "object", "properties": {"api_key": key}}
        channel["bindings"] = {"ws": {"query": query}}
    return channel


def _operations(messages: Mapping[str, MessageDescription]) -> dict[str, Any]:
    """Return every client message with its replies, then the server's own messages."""
    answered = {name for message in messages.values() for name in message.replies}
    operations = {}
    for name, message in messages.items():
        if message.direction == "client":
            operations[name] = _operation("receive", [name]) | _reply(message, messages)
        elif message.name not in answered:
            operations[name] = _operation("send", [name])
    return operations


def _operation(action: str, names: list[str]) -> dict[str, Any]:
    return {"action": action, "channel": {"$ref": "#/channels/socket"}} | _messages(names)


def _reply(
    message: MessageDescription, messages: Mapping[str, MessageDescription]
) -> dict[str, Any]:
    wanted = [*message.replies, "error"]
    names = [n for n, m in messages.items() if m.direction == "server" and m.name in wanted]
    return {"reply": {"channel": {"$ref": "#/channels/socket"}} | _messages(names)}


def _messages(names: list[str]) -> dict[str, Any]:
    return {"messages": [_reference("channels/socket/messages", name) for name in names]}


def _reference(where: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/{where}/{name}"}


def _message(message: MessageDescription) -> dict[str, Any]:
    schema: dict[str, Any] = {"$ref": SCHEMAS.format(name=message.body.__name__)}
    if message.body.__struct_config__.tag is None:  # a body of several types
        only = {"properties": {"type": {"const": message.name}}}
        schema = {"allOf": [schema, only]}
    described = {"description": details(message.body)} if details(message.body) else {}
    return {
        "name": message.name,
        "title": message.name,
        "summary": summary(message.body),
        **described,
        "contentType": "application/json",
        "payload": schema,
    }


def summary(body: type[Struct]) -> str:
    """Return the first line of a body's docstring."""
    return (body.__doc__ or "").strip().partition("\n")[0]


def details(body: type[Struct]) -> str:
    """Return the rest of a body's docstring on one line."""
    return " ".join((body.__doc__ or "").partition("\n")[2].split())


def _schemas(bodies: Iterable[type[Struct]]) -> dict[str, Any]:
    """Return JSON Schemas of the bodies and their pre-encoded members (`Annotated[Raw, T]`)."""
    kinds = list(dict.fromkeys(bodies))
    held = {(body, name): parts for body in kinds for name, parts in _encoded_fields(body)}
    inner = [part for parts in held.values() for part in parts]
    _, components = msgspec.json.schema_components([*kinds, *inner], ref_template=SCHEMAS)
    for (body, name), parts in held.items():
        choices = [{"$ref": SCHEMAS.format(name=part.__name__)} for part in parts]
        components[body.__name__]["properties"][name] = {"anyOf": choices}
    return components


def _encoded_fields(body: type[Struct]) -> Iterable[tuple[str, tuple[type[Struct], ...]]]:
    for name, hint in get_type_hints(body, include_extras=True).items():
        if get_origin(hint) is Annotated and get_args(hint)[0] is Raw:
            kind = get_args(hint)[1]
            yield name, get_args(kind) or (kind,)
