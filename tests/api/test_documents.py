"""The OpenAPI and AsyncAPI documents say what the service does: checked from both sides."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings

from api.conftest import World, client_of, make_world
from onebook.api import create_app
from onebook.config import ApiSettings
from onebook.gateway import codes, messages
from onebook.model import Tier
from onebook.store import Store

requests = pytest.importorskip("requests", reason="schemathesis, a judge, is not installed")
schemathesis = pytest.importorskip("schemathesis", reason="schemathesis, a judge, is not installed")

EXAMPLES = 20
BASE_URL = "http://books.example"


class Node:
    """The API on an event loop of its own, so that a plain test can ask it."""

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        self._runner = self._stack.enter_context(asyncio.Runner())
        self._folder = folder
        self._run(self._start())

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)

    async def _start(self) -> None:
        self.store = Store(f"sqlite+aiosqlite:///{self._folder / 'onebook.db'}")
        await self.store.upgrade()
        self.world = make_world(self.store)
        self.app = create_app(self.world.services())
        self.client = client_of(self.app)
        change = self.world.change()
        await self.world.admin.create_account("judge", change)
        self.key = (await self.world.admin.create_key("judge", Tier.ENTERPRISE, change)).text
        answer = await self.client.post("/api/v1/authenticate", json={"api_key": self.key})
        self.bearer = {"Authorization": f"Bearer {answer.json()['session_token']}"}

    def ask(self, kwargs: dict[str, Any]) -> requests.Response:
        """Send what schemathesis made, and give the answer back as it knows answers."""
        self.world.clock.pass_ms(60_000)  # no limit is reached: 429 has tests of its own
        prepared = requests.Request(**kwargs).prepare()
        return self._run(
            self.client.request(
                prepared.method,
                prepared.url,
                headers=dict(prepared.headers),
                content=prepared.body,
            )
        )

    def close(self) -> None:
        self._run(self.client.aclose())
        self._run(self.store.__aexit__(None, None, None))
        self._stack.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("judge"))
    yield node
    node.close()


def operations(app: FastAPI) -> dict[str, Any]:
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.config.update(base_url=BASE_URL)
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


LABELS = [
    "POST /api/v1/authenticate",
    "GET /api/v1/session-status",
    "GET /api/v1/data-usage/{api_key}",
    "GET /api/v1/exchanges",
    "GET /api/v1/exchanges/credentials",
    "GET /api/v1/transactions/types",
    "GET /api/v1/health",
    "GET /api/v1/",
    "POST /api/v1/transactions/validate-credentials",
    "POST /api/v1/transactions",
]


POSITIVE, NEGATIVE = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
# Only a body can be wrong: any text is a key, though perhaps an unknown one.
JUDGED = [(label, POSITIVE) for label in LABELS] + [
    (label, NEGATIVE) for label in LABELS if label.startswith("POST")
]


@pytest.mark.parametrize(("label", "kind"), JUDGED)
def test_schemathesis_finds_no_answer_that_the_document_does_not_have(
    node: Node, label: str, kind: Any
) -> None:
    operation = operations(node.app)[label]

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=kind))
    def judged(case: Any) -> None:
        for headers in ({}, node.bearer):
            kwargs = case.as_transport_kwargs(base_url=BASE_URL, headers=headers)
            case.validate_response(node.ask(kwargs), excluded_checks=_beyond(label))

    judged()


def _beyond(label: str) -> list[Any]:
    """Checks that do not fit: one sends requests of its own (`test_sessions.py` has its cases),
    one cannot know that a text of the right type may still name no exchange.
    """
    from schemathesis.specs.openapi import checks

    if "/transactions" in label:
        return [checks.ignored_auth, checks.positive_data_acceptance]
    return [checks.ignored_auth]


def test_every_route_is_in_the_document_and_none_else(app: FastAPI) -> None:
    paths = {
        (method.upper(), path) for path, item in app.openapi()["paths"].items() for method in item
    }
    assert paths == {tuple(label.split(" ")) for label in LABELS}
    under = {path for _, path in paths if path.startswith("/api/v1/")}
    assert under == {path for _, path in paths}


async def test_openapi_is_answered_and_knows_no_422(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    for path in document["paths"].values():
        for operation in path.values():
            assert "422" not in operation["responses"]
            assert operation["summary"]
            assert operation["tags"]
    assert "HTTPValidationError" not in document["components"]["schemas"]
    session = document["components"]["securitySchemes"]["session"]
    assert (session["type"], session["scheme"]) == ("http", "bearer")
    assert document["paths"]["/api/v1/session-status"]["get"]["security"] == [{"session": []}]
    assert "security" not in document["paths"]["/api/v1/health"]["get"]


async def test_asyncapi_has_every_message_of_the_gateway(client: httpx.AsyncClient) -> None:
    document = (await client.get("/asyncapi.json")).json()
    assert document["asyncapi"] == "3.0.0"
    assert document["channels"]["socket"]["address"] == "/api/v1/ws"
    found = document["components"]["messages"]
    assert {message["name"] for message in found.values()} == {m.name for m in messages.MESSAGES}
    assert len(found) == len(messages.MESSAGES)
    received = {n for n, o in document["operations"].items() if o["action"] == "receive"}
    assert received == set(messages.CLIENT_MESSAGES)
    assert set(document["x-errors"]) == set(codes.ERRORS)
    assert {int(code) for code in document["x-close-codes"]} == set(codes.CLOSE_CODES)


async def test_asyncapi_replies_and_references_lead_somewhere(client: httpx.AsyncClient) -> None:
    document = (await client.get("/asyncapi.json")).json()
    assert list(_dangling(document, document)) == []
    reply = document["operations"]["authenticate"]["reply"]["messages"]
    names = {each["$ref"].rpartition("/")[2] for each in reply}
    assert names == {"welcome.Welcome", "welcome.WelcomeSession", "authentication_error", "error"}


def _dangling(value: Any, document: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _dangling(each, document)
    elif isinstance(value, dict):
        if isinstance(value.get("$ref"), str) and not _leads_somewhere(value["$ref"], document):
            yield value["$ref"]
        for each in value.values():
            yield from _dangling(each, document)


def _leads_somewhere(reference: str, document: Any) -> bool:
    for name in reference.removeprefix("#/").split("/"):
        if name not in document:
            return False
        document = document[name]
    return True


@pytest.mark.parametrize(
    ("code", "advice"),
    [(1009, "Mend"), (4002, "Do not return"), (4108, "Back off"), (4200, "Return at the time")],
)
async def test_asyncapi_says_what_to_do_about_a_close(
    client: httpx.AsyncClient, code: int, advice: str
) -> None:
    document = (await client.get("/asyncapi.json")).json()
    assert document["x-close-codes"][str(code)]["client"].startswith(advice)


async def test_asyncapi_knows_the_address_and_whether_the_query_key_is_on(world: World) -> None:
    services = world.services(ApiSettings(public_url="https://feed.example"))
    async with client_of(create_app(replace(services, query_key_allowed=False))) as client:
        document = (await client.get("/asyncapi.json")).json()
        assert document["servers"]["node"] == {"host": "feed.example", "protocol": "wss"}
        assert "bindings" not in document["channels"]["socket"]
    async with client_of(create_app(world.services())) as client:
        document = (await client.get("/asyncapi.json")).json()
    query = document["channels"]["socket"]["bindings"]["ws"]["query"]
    assert "older" in query["properties"]["api_key"]["description"]


async def test_pairs_data_says_what_it_holds(client: httpx.AsyncClient) -> None:
    schemas = (await client.get("/asyncapi.json")).json()["components"]["schemas"]
    assert schemas["PairsData"]["properties"]["data"]["anyOf"] == [
        {"$ref": "#/components/schemas/AllPairs"},
        {"$ref": "#/components/schemas/ExchangePairs"},
    ]


def test_the_schemas_of_routes_are_unique(app: FastAPI) -> None:
    names = [r.operation_id or r.unique_id for r in app.routes if isinstance(r, APIRoute)]
    assert len(names) == len(set(names))
