"""The OpenAPI document matches the service, checked in both directions."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings

from api.conftest import NOW_MS, bearer, client_of
from onebook.api import create_app
from onebook.config import TransactionSettings
from onebook.model import Tier
from onebook.simulator.accounts.serving import serving
from onebook.store import Store
from transactions.conftest import CREDENTIALS, make_node

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis, a judge, is not installed")
requests = pytest.importorskip("requests")  # it is what schemathesis sends with

EXAMPLES = 20
START_S = 30.0
BASE_URL = "http://books.example"
# Cuts a range of decades, which would keep the judge waiting for thousands of requests to Bybit.
BRIEF = TransactionSettings(deadline_s=1.0, stream_deadline_s=1.0)


class Node:
    """The API on a socket in its own thread, for a fuzzer that sends anything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listening: Future[str] = Future()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        self.url = self._listening.result(START_S)
        self.operations = operations(self.app)
        self._session = requests.Session()  # its connection is kept

    async def _serve(self) -> None:
        try:
            async with Store(f"sqlite+aiosqlite:///{self._folder / 'onebook.db'}") as store:
                await store.database.upgrade()
                # With a Bybit that answers: what is right succeeds.
                self.world = make_node(store, BRIEF)
                await self.world.vault.put("bybit", "mainnet", CREDENTIALS, now_ms=NOW_MS)
                self.app = create_app(self.world.services())
                change = self.world.change()
                await self.world.admin.create_account("judge", change)
                made = await self.world.admin.create_key("judge", Tier.ENTERPRISE, change)
                async with client_of(self.app) as client:
                    self.bearer = await bearer(client, made.text)
                async with serving(self.app) as url:
                    self._listening.set_result(url)
                    await self._stop.wait()
                await self.world.transactions.close()
        except BaseException as error:
            if not self._listening.done():
                self._listening.set_exception(error)
            raise

    def ask(self, case: Any, headers: dict[str, str]) -> Any:
        """Send the requests that schemathesis generated."""
        self.world.clock.pass_ms(60_000)  # no limit is reached: 429 has tests of its own
        return case.call(base_url=self.url, headers=headers, session=self._session)

    def close(self) -> None:
        self._session.close()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


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
    "GET /api/v1/fees",
    "GET /api/v1/fees/published",
    "PUT /api/v1/fees",
    "GET /api/v1/orderbooks/{base}/{quote}",
    "GET /api/v1/exchanges/quality",
    "GET /api/v1/history/{base}/{quote}",
]


MEANINGFUL = {
    "POST /api/v1/transactions",
    "POST /api/v1/transactions/validate-credentials",
    "PUT /api/v1/fees",
    "GET /api/v1/orderbooks/{base}/{quote}",
    "GET /api/v1/exchanges/quality",
    "GET /api/v1/history/{base}/{quote}",
}
POSITIVE, NEGATIVE = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
# Only a body can be wrong: any text is a key, though perhaps an unknown one.
JUDGED = [(label, POSITIVE) for label in LABELS] + [
    (label, NEGATIVE) for label in LABELS if label.startswith(("POST", "PUT"))
]


@pytest.mark.parametrize(("label", "kind"), JUDGED)
def test_schemathesis_finds_no_answer_that_the_document_does_not_have(
    node: Node, label: str, kind: Any
) -> None:
    operation = node.operations[label]

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
            answer = node.ask(case, headers)
            case.validate_response(answer, headers=headers, excluded_checks=_beyond(label))

    judged()


def _beyond(label: str) -> list[Any]:
    """The one schemathesis check that does not apply, and only where types cannot tell.

    Positive data must be accepted: of a body for endpoints 6 and 10 a schema cannot say that
    `exchange` is one that is supported, that `start_time` is before `end_time` and not older than
    the exchange remembers, or that `cursor` was signed by this service. Each is 400 with an error
    code of its own (`tests/transactions/test_api.py`).
    """
    from schemathesis.specs.openapi import checks

    return [checks.positive_data_acceptance] if label in MEANINGFUL else []


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


def test_the_schemas_of_routes_are_unique(app: FastAPI) -> None:
    names = [r.operation_id or r.unique_id for r in app.routes if isinstance(r, APIRoute)]
    assert len(names) == len(set(names))
