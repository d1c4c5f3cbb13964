"""The API page: one HTML document from the OpenAPI and AsyncAPI documents.

Rendered on the server, so that it works offline, without scripts, and with the browser's own
search. Fields, limits, errors and close codes are generated from the code.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from onebook.errors import ConfigError, OnebookError
from onebook.web import books
from onebook.web.frame import ContentsEntry, document
from onebook.web.markup import Content, Html, inline, join, prose, table, tag
from onebook.web.samples import SAMPLES
from onebook.web.schema import Schemas

Document = dict[str, Any]
METHODS = ("get", "post", "put", "patch", "delete")
FIELDS = ("Field", "Type", "", "Meaning")


class DocumentedLimit(NamedTuple):
    """A limit or setting of the service."""

    name: str
    default: str
    meaning: str


class TransactionSection(NamedTuple):
    """The page's section on one exchange of the transaction interface.

    Args:
        advice: The permissions that the operator's key needs.
        credentials: The fields of the credentials.
        hosts: Environment, region or product, and base URL.
        omitted: Type, and the sentence about events that its answers never contain.
        unproven: Type, what `verify` cannot prove of it, and why.
        reference: The page of the reference documentation.
    """

    name: str
    display: str
    types: tuple[str, ...]
    advice: str
    credentials: tuple[str, ...]
    hosts: tuple[tuple[str, str, str], ...]
    omitted: tuple[tuple[str, str], ...]
    unproven: tuple[tuple[str, str, str], ...]
    reference: str


class Part(NamedTuple):
    """A part of the page: anchor, title and entries of the table of contents."""

    anchor: str
    title: str
    entries: list[tuple[str, str]]
    content: Html


def render(
    openapi: Document,
    asyncapi: Document,
    *,
    exchanges: Sequence[TransactionSection],
    limits: Sequence[DocumentedLimit],
    guides: Iterable[ContentsEntry] = (),
) -> str:
    """Render the page; `guides` come first in the table of contents."""
    parts = [
        _beginning(),
        *_rest(openapi),
        _exchanges(exchanges),
        _websocket("client", "Client messages", asyncapi),
        _websocket("server", "Server messages", asyncapi),
        _books(),
        _errors(asyncapi),
        _close_codes(asyncapi),
        _limits(limits),
    ]
    return _page(parts, guides, version=str(openapi["info"]["version"]))


def _page(parts: list[Part], guides: Iterable[ContentsEntry], *, version: str) -> str:
    sections = [
        tag("section", tag("h2", part.title), part.content, id=part.anchor) for part in parts
    ]
    title = tag("h1", "Onebook ", tag("small", f"version {version}"))
    here = [ContentsEntry(part.title, f"#{part.anchor}", _entries(part)) for part in parts]
    return document("API", contents=[*guides, *here], main=[title, *sections])


def _entries(part: Part) -> list[ContentsEntry]:
    return [ContentsEntry(text, f"#{anchor}") for anchor, text in part.entries]


def _beginning() -> Part:
    blocks = [
        join(tag("h3", title, id=anchor), prose(text), code(sample))
        for anchor, title, text, sample in SAMPLES
    ]
    entries = [(anchor, title) for anchor, title, _, _ in SAMPLES]
    return Part("begin", "Getting started", entries, join(*blocks))


# REST


def _rest(openapi: Document) -> Iterator[Part]:
    """A part for each tag of the OpenAPI document."""
    for group in openapi.get("tags", []):
        found = list(_operations(openapi, group["name"]))
        if found:
            blocks = [_operation(openapi, *each) for each in found]
            entries = [(each[2]["operationId"], each[2]["summary"]) for each in found]
            title = f"REST: {group['name']}"
            content = join(prose(group["description"]), *blocks)
            yield Part(f"rest-{group['name']}", title, entries, content)


def _operations(openapi: Document, group: str) -> Iterator[tuple[str, str, Document]]:
    for path, item in openapi["paths"].items():
        for method in METHODS:
            if group in item.get(method, {}).get("tags", []):
                yield method, path, item[method]


def _operation(openapi: Document, method: str, path: str, operation: Document) -> Html:
    schemas = Schemas(openapi)
    needs = "Requires a session: `Authorization: Bearer <session_token>`."
    line = tag("p", tag("b", method.upper(), class_="method"), " ", tag("code", path))
    return tag(
        "article",
        tag("h3", operation["summary"]),
        line,
        prose(operation.get("description", "")),
        prose(needs) if operation.get("security") else None,
        _parameters(operation, schemas),
        _request(operation, schemas),
        *(_response(status, each, schemas) for status, each in operation["responses"].items()),
        id=operation["operationId"],
    )


def _parameters(operation: Document, schemas: Schemas) -> Content:
    rows: list[tuple[Content, ...]] = [
        (
            tag("code", parameter["name"]),
            schemas.kind(parameter["schema"]),
            f"in the {parameter['in']}",
            inline(parameter.get("description", "")),
        )
        for parameter in operation.get("parameters", [])
    ]
    return table(FIELDS, rows) if rows else None


def _request(operation: Document, schemas: Schemas) -> Content:
    if "requestBody" not in operation:
        return None
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    example = code(_json(schemas.example(schema)))
    return join(tag("h4", "Request"), fields_table(schema, schemas), example)


def _response(status: str, response: Document, schemas: Schemas) -> Html:
    content: Document = next(iter(response.get("content", {}).values()), {})
    schema = content.get("schema", {})
    words = "The answer." if status == "200" else response["description"]
    summary = tag("summary", tag("b", status, class_=f"status s{status[0]}"), " ", inline(words))
    codes = _codes(schema)
    inside = join(codes, *(fields_table(each, schemas) for each in _choices(schema, schemas)))
    return tag("details", summary, inside, class_="response")


def _choices(schema: Document, schemas: Schemas) -> list[Document]:
    """The possible bodies of a response; for a list, the type of its entries."""
    schema = schemas.resolve(schema)
    if schema.get("type") == "array":
        return _choices(schema["items"], schemas)
    choices: list[Document] = schema.get("anyOf", [schema])
    return choices


def _codes(schema: Document) -> Content:
    """The error codes of a status of an operation, from its schema."""
    parts = [part for each in schema.get("anyOf", [schema]) for part in each.get("allOf", [])]
    fields = [
        part["properties"]["error"] for part in parts if "error" in part.get("properties", {})
    ]
    names = [name for field in fields for name in field.get("enum", [])]
    listed = join(*(join(tag("code", name), " ") for name in names))
    return tag("p", "Possible codes: ", listed, class_="codes") if names else None


def fields_table(schema: Document, schemas: Schemas) -> Content:
    """The fields of an object as a table."""
    rows: list[tuple[Content, ...]] = [
        (
            tag("code", field.name),
            field.kind,
            "required" if field.required else "optional",
            inline(field.meaning),
        )
        for field in schemas.fields(schema)
    ]
    return table(FIELDS, rows) if rows else None


# The transaction interface


def _exchanges(exchanges: Sequence[TransactionSection]) -> Part:
    """One section for each exchange; `documentation_url` points to its anchor."""
    blocks = [_exchange(exchange) for exchange in exchanges]
    entries = [(f"tag-{exchange.name}", exchange.display) for exchange in exchanges]
    return Part("transaction-exchanges", "Exchanges with transactions", entries, join(*blocks))


def _exchange(exchange: TransactionSection) -> Html:
    types = (join(tag("code", name), " ") for name in exchange.types)
    hosts: list[tuple[Content, ...]] = [
        (environment, name, tag("code", url)) for environment, name, url in exchange.hosts
    ]
    omitted: list[tuple[Content, ...]] = [
        (tag("code", kind), why) for kind, why in exchange.omitted
    ]
    unproven: list[tuple[Content, ...]] = [
        (tag("code", kind), inline(what), why) for kind, what, why in exchange.unproven
    ]
    return tag(
        "article",
        tag("h3", exchange.display),
        prose(
            f"Use `{exchange.name}` as `exchange`, or `{exchange.name}:label` for a named account. "
            "Do not send credentials; the operator configures them. These are the exchange's own "
            "transaction types; they may be mixed with the unified names of "
            "`GET /api/v1/transactions/types`."
        ),
        tag("p", *types),
        tag("h4", "Credentials"),
        prose(f"{exchange.advice}\n\nFields: {', '.join(exchange.credentials)}."),
        table(("environment", "region or product", "address"), hosts),
        join(tag("h4", "Omitted from answers"), table(("type", "events"), omitted))
        if omitted
        else None,
        join(tag("h4", "Not provable by verify"), table(("type", "what", "reason"), unproven))
        if unproven
        else None,
        tag(
            "p", tag("a", f"Rows of {exchange.display} and their mapping", href=exchange.reference)
        ),
        id=f"tag-{exchange.name}",
    )


# WebSocket


def _websocket(side: str, title: str, asyncapi: Document) -> Part:
    """The messages sent by one side."""
    operations = asyncapi["operations"]
    clients = {name for name, each in operations.items() if each["action"] == "receive"}
    schemas = Schemas(asyncapi)
    messages = asyncapi["components"]["messages"]
    names = [name for name in messages if (name in clients) is (side == "client")]
    blocks = [_message(name, asyncapi, schemas) for name in names]
    entries = [(f"ws-{name}", messages[name]["name"]) for name in names]
    intro = prose(asyncapi["info"]["description"]) if side == "client" else None
    return Part(f"websocket-{side}", f"WebSocket: {title.lower()}", entries, join(intro, *blocks))


def _message(name: str, asyncapi: Document, schemas: Schemas) -> Html:
    message = asyncapi["components"]["messages"][name]
    operation = asyncapi["operations"].get(name, {})
    # Client messages are shown with every option, server messages with the fields always present.
    whole = operation.get("action") == "receive"
    example = _json(schemas.example(message["payload"], whole=whole))
    return tag(
        "article",
        tag("h3", tag("code", message["name"])),
        prose(message["summary"]),
        prose(message.get("description", "")),
        fields_table(message["payload"], schemas),
        code(example),
        _replies(operation),
        id=f"ws-{name}",
    )


def _replies(operation: Document) -> Content:
    if "reply" not in operation:
        return None
    names = [each["$ref"].rpartition("/")[2] for each in operation["reply"]["messages"]]
    links = [
        join(tag("a", tag("code", name.partition(".")[0]), href=f"#ws-{name}"), " ")
        for name in names
    ]
    return tag("p", "Answered by: ", *links)


def _books() -> Part:
    """The forms of a book, and how to maintain one from deltas."""
    forms = [join(tag("h3", title), code(example)) for title, example in books.forms()]
    before, delta, after = books.delta()
    content = join(
        prose(books.FORMS),
        *forms,
        tag("h3", "From deltas to a book", id="book-deltas"),
        prose(books.DELTAS),
        tag("h4", "The book"),
        code(before),
        tag("h4", "The delta"),
        code(delta),
        tag("h4", "The book after it"),
        code(after),
        tag("h3", "The checksum", id="book-checksum"),
        prose(books.CHECKSUM),
        code(books.checksum()),
        code(books.CHECKSUM_CODE),
    )
    entries = [("book-deltas", "From deltas to a book"), ("book-checksum", "The checksum")]
    return Part("books", "WebSocket: books", entries, content)


# Errors, close codes, limits


def _error_kinds() -> list[type[OnebookError]]:
    kinds = [kind for kind in OnebookError.__subclasses__() if kind is not ConfigError]
    return [kind for kind in kinds if kind.__module__ == OnebookError.__module__]


def _errors(asyncapi: Document) -> Part:
    rest: list[tuple[Content, ...]] = [
        (tag("code", kind.code), str(kind.status), inline(_first_line(kind)))
        for kind in sorted(_error_kinds(), key=lambda kind: (kind.status, kind.code))
    ]
    socket: list[tuple[Content, ...]] = [
        (tag("code", name), ", ".join(each["types"]), inline(each["when"]))
        for name, each in asyncapi["x-errors"].items()
    ]
    content = join(
        tag("h3", "Over REST", id="errors-rest"),
        prose("Every error body has `error`, `message` and `timestamp`; some have more."),
        table(("Code", "Status", "When"), rest),
        tag("h3", "Over WebSocket", id="errors-websocket"),
        prose("An error repeats the `id` of the message that it answers."),
        table(("Code", "Message type", "When"), socket),
    )
    entries = [("errors-rest", "Over REST"), ("errors-websocket", "Over WebSocket")]
    return Part("errors", "Errors", entries, content)


def _first_line(kind: type[OnebookError]) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]


def _close_codes(asyncapi: Document) -> Part:
    rows: list[tuple[Content, ...]] = [
        (tag("code", code), each["why"], each["client"])
        for code, each in asyncapi["x-close-codes"].items()
    ]
    rule = prose(
        "40xx: do not reconnect unchanged. 41xx: reconnect with backoff. 42xx: reconnect at the "
        "given time."
    )
    content = join(rule, table(("Code", "Why", "What to do"), rows))
    return Part("close-codes", "Close codes", [], content)


def _limits(limits: Sequence[DocumentedLimit]) -> Part:
    rows: list[tuple[Content, ...]] = [
        (tag("code", limit.name), tag("code", limit.default), inline(limit.meaning))
        for limit in limits
    ]
    content = table(("Name", "Default", "Meaning"), rows)
    return Part("limits", "Limits and settings", [], content)


def code(text: str) -> Html:
    """A block of code."""
    return tag("pre", tag("code", text), tabindex="0")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
