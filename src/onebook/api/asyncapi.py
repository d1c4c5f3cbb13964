"""The AsyncAPI document of the WebSocket interface, built from the gateway's description.

The gateway and the API do not import each other: `app` passes the description.
https://www.asyncapi.com/docs/reference/specification/v3.0.0 - actions are from the server's side,
so a client's messages are `receive`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Protocol, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct

SCHEMAS = "#/components/schemas/{name}"
ACTION_FIELD = "action"
DESCRIPTION = """\
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


class MessageDescription(Protocol):
    """Description of one message by the gateway."""

    @property
    def name(self) -> str:
        """Its `type`."""

    @property
    def direction(self) -> str:
        """Its sender: `client` or `server`."""

    @property
    def body(self) -> type[Struct]:
        """Its fields."""

    @property
    def replies(self) -> tuple[str, ...]:
        """The types that answer it."""


class WebSocketFacts(Struct, frozen=True):
    """The gateway's description of its protocol.

    Args:
        messages: Every message.
        errors: Every error code: its message types, and its meaning.
        action_errors: Error codes of actions only: number and meaning.
        close_codes: Every close code and its meaning.
    """

    messages: Sequence[MessageDescription]
    errors: Mapping[str, tuple[tuple[str, ...], str]]
    action_errors: Mapping[str, tuple[int, str]]
    close_codes: Mapping[int, str]


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
            "description": DESCRIPTION,
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
    """The recommended reaction to a close code, by its first two digits."""
    return _ADVICE.get(code // 100, "Fix the client, then reconnect.")


def _by_id(messages: Sequence[MessageDescription]) -> dict[str, MessageDescription]:
    """Messages by unique name; the two welcomes and all actions are named by their bodies."""
    names = [message.name for message in messages if not _is_action(message)]
    return {
        m.name
        if names.count(m.name) == 1 and not _is_action(m)
        else f"{m.name}.{m.body.__name__}": m
        for m in messages
    }


def _is_action(message: MessageDescription) -> bool:
    """Whether it is a client message with `action` instead of `type`."""
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
    """Every client message with its replies, then the server's own messages."""
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
    if message.body.__struct_config__.tag is None:  # one body for several types
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
    """The first line of a body's docstring."""
    return (body.__doc__ or "").strip().partition("\n")[0]


def details(body: type[Struct]) -> str:
    """The rest of a body's docstring, in one line."""
    return " ".join((body.__doc__ or "").partition("\n")[2].split())


def _schemas(bodies: Iterable[type[Struct]]) -> dict[str, Any]:
    """JSON Schemas of the bodies and of their pre-encoded members (`Annotated[Raw, T]`)."""
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
