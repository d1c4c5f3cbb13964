"""The AsyncAPI document has all messages of the gateway, and all its references resolve."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from api.conftest import World, client_of
from onebook.api import create_app
from onebook.config import ApiSettings
from onebook.gateway import codes, messages


async def test_asyncapi_has_every_message_of_the_gateway(client: httpx.AsyncClient) -> None:
    document = (await client.get("/asyncapi.json")).json()
    assert document["asyncapi"] == "3.0.0"
    assert document["channels"]["socket"]["address"] == "/api/v1/ws"
    found = document["components"]["messages"]
    assert {message["name"] for message in found.values()} == {m.name for m in messages.MESSAGES}
    assert len(found) == len(messages.MESSAGES)
    received = {n for n, o in document["operations"].items() if o["action"] == "receive"}
    taken = {f"{name}.{body.__name__}" for name, body in messages.ACTIONS.items()}
    assert received == set(messages.CLIENT_MESSAGES) | taken
    assert set(document["x-action-errors"]) == set(codes.ACTION_ERRORS)
    assert set(document["x-errors"]) == set(codes.ERRORS)
    assert {int(code) for code in document["x-close-codes"]} == set(codes.CLOSE_CODES)


async def test_asyncapi_replies_and_references_lead_somewhere(client: httpx.AsyncClient) -> None:
    document = (await client.get("/asyncapi.json")).json()
    assert list(_dangling(document, document)) == []
    reply = document["operations"]["authenticate"]["reply"]["messages"]
    names = {each["$ref"].rpartition("/")[2] for each in reply}
    assert names == {"welcome.Welcome", "welcome.WelcomeSession", "authentication_error", "error"}
    action = "subscribe_transactions.SubscribeTransactionsAction"
    reply = document["operations"][action]["reply"]["messages"]
    assert {each["$ref"].rpartition("/")[2] for each in reply} == {
        "transaction_progress", "transaction_response", "transaction_complete", "error",
    }  # fmt: skip
    schema = document["components"]["schemas"]["SubscribeTransactionsAction"]
    assert schema["properties"]["action"]["enum"] == ["subscribe_transactions"]


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
    [
        (1009, "Fix"),
        (4002, "Do not reconnect"),
        (4108, "Reconnect with backoff"),
        (4200, "Reconnect at the given time"),
    ],
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
        openapi = (await client.get("/openapi.json")).json()
        assert openapi["servers"] == [{"url": "https://feed.example"}]
        assert "bindings" not in document["channels"]["socket"]
    async with client_of(create_app(world.services())) as client:
        document = (await client.get("/asyncapi.json")).json()
        assert document["servers"]["node"] == {"host": "books.example", "protocol": "ws"}
    query = document["channels"]["socket"]["bindings"]["ws"]["query"]
    assert "older" in query["properties"]["api_key"]["description"]


async def test_pairs_data_says_what_it_holds(client: httpx.AsyncClient) -> None:
    schemas = (await client.get("/asyncapi.json")).json()["components"]["schemas"]
    assert schemas["PairsData"]["properties"]["data"]["anyOf"] == [
        {"$ref": "#/components/schemas/AllPairs"},
        {"$ref": "#/components/schemas/ExchangePairs"},
    ]
