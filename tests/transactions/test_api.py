"""Endpoints 6 and 10 over HTTP: documented answers and errors, no unnecessary request."""

import asyncio
from datetime import datetime
from itertools import pairwise
from math import ceil
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from msgspec import json

from api.conftest import NOW_MS, bearer, client_of
from onebook.api.transactions import PIECE_BYTES, BodyInPieces, inlined
from onebook.model import DAY_MS, Tier
from onebook.simulator.accounts.bybit import SimulatedKey
from onebook.transactions.collected import Collection
from onebook.transactions.credentials import Credentials
from transactions.conftest import CREDENTIALS, PATH, Node

VALIDATE = "/api/v1/transactions/validate-credentials"


async def test_endpoint_10_answers_the_documented_body(client: httpx.AsyncClient) -> None:
    body = {"exchange": "bybit", "transaction_types": ["deposits", "withdrawals", "trades"]}
    answer = await client.post(PATH, json=body)
    assert answer.status_code == 200
    found = answer.json()
    count = len(found["transactions"])
    assert found["success"] is True
    assert found["message"] == (
        f"Successfully parsed {count} transactions from 3 transaction types"
    )
    assert found["exchange"] == "bybit"
    assert found["total_transactions"] == found["summary"]["total_count"] == count
    assert sum(found["summary"]["by_type"].values()) == count
    assert set(found["summary"]["by_type"]) == {"deposit", "withdrawal", "trade"}
    assert found["filters_applied"] == {
        "start_time": None,
        "end_time": None,
        "transaction_types": ["deposits", "withdrawals", "trades"],
        "limit": 1_000,
    }
    assert found["partial"] is False
    assert found["errors"] == []
    assert found["next_cursor"] is None
    times = [(-r["timestamp"], r["transactionId"]) for r in found["transactions"]]
    assert times == sorted(times)


async def test_a_stream_is_records_and_a_summary_line(client: httpx.AsyncClient) -> None:
    body = {"exchange": "bybit", "transaction_types": ["ledger"], "verify": True}
    whole = (await client.post(PATH, json=body | {"limit": 10_000})).json()
    answer = await client.post(PATH, json=body, headers={"Accept": "application/x-ndjson"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    *records, summary = [json.decode(line) for line in answer.content.splitlines()]
    assert records == whole["transactions"]
    assert summary["type"] == "summary"
    assert summary["filters_applied"]["limit"] is None
    assert summary["verification"]["holds"] is True
    assert summary["coverage"] == whole["coverage"]


async def test_bodies_are_counted_in_the_meter(node: Node, client: httpx.AsyncClient) -> None:
    """Contract 3: body bytes of endpoint 10."""
    before = node.accounts.meter.pending_bytes()
    answer = await client.post(PATH, json={"exchange": "bybit"})
    assert node.accounts.meter.pending_bytes() - before == len(answer.content)
    lines = await client.post(
        PATH, json={"exchange": "bybit"}, headers={"Accept": "application/x-ndjson"}
    )
    counted = len(answer.content) + len(lines.content)
    assert node.accounts.meter.pending_bytes() - before == counted


async def test_over_the_allowance_nothing_is_asked(node: Node, client: httpx.AsyncClient) -> None:
    """Contract 3: 429 data_limit_exceeded."""
    await client.post(PATH, json={"exchange": "bybit", "transaction_types": ["transfers"]})
    (key_id,) = {cell.key_id for cell in node.accounts.meter._pending}
    node.accounts.meter.add(key_id, node.accounts.meter.allowance_bytes)
    asked = node.transport.requests
    answer = await client.post(PATH, json={"exchange": "bybit"})
    assert answer.status_code == 429
    assert answer.json()["error"] == "data_limit_exceeded"
    assert answer.json()["success"] is False
    resets_at_ms = datetime.fromisoformat(answer.json()["reset_date"]).timestamp() * 1_000
    assert resets_at_ms - node.clock.ms > 20 * DAY_MS, "the key was made now"
    assert int(answer.headers["retry-after"]) == ceil((resets_at_ms - node.clock.ms) / 1_000)
    assert "ratelimit" in answer.headers
    assert node.transport.requests == asked


async def test_a_stream_ends_when_the_allowance_does(node: Node, client: httpx.AsyncClient) -> None:
    await client.post(PATH, json={"exchange": "bybit", "transaction_types": ["transfers"]})
    meter = node.accounts.meter
    (key_id,) = {cell.key_id for cell in meter._pending}
    meter.add(key_id, meter.allowance_bytes - meter.used(key_id, NOW_MS) - 1)
    answer = await client.post(
        PATH,
        json={"exchange": "bybit", "transaction_types": ["ledger"]},
        headers={"Accept": "text/html, application/x-ndjson;q=0.5"},
    )
    summary = json.decode(answer.content.splitlines()[-1])
    assert summary["success"] is False
    assert summary["error"] == "data_limit_exceeded"


BAD = [
    ({}, "invalid_request"),
    ({"exchange": "kraken"}, "invalid_exchange"),
    ({"exchange": 5}, "invalid_request"),
    ({"exchange": "bybit", "credentials": {"api_key": "a", "secret": "b"}}, "invalid_request"),
    ({"exchange": "bybit", "unknown": 1}, "invalid_request"),
    ({"exchange": "bybit", "transaction_types": "trades"}, "invalid_request"),
    ({"exchange": "bybit", "transaction_types": [1]}, "invalid_request"),
    ({"exchange": "bybit", "transaction_types": ["staking"]}, "invalid_transaction_types"),
    ({"exchange": "bybit", "limit": 0}, "invalid_request"),
    ({"exchange": "bybit", "limit": 10_001}, "invalid_request"),
    ({"exchange": "bybit", "limit": "5"}, "invalid_request"),
    ({"exchange": "bybit", "limit": True}, "invalid_request"),
    ({"exchange": "bybit", "start_time": "2024-01-01"}, "invalid_request"),
    ({"exchange": "bybit", "start_time": 1.5}, "invalid_request"),
    ({"exchange": "bybit", "start_time": -1}, "invalid_request"),
    ({"exchange": "bybit", "end_time": 10**15}, "invalid_request"),
    ({"exchange": "bybit", "start_time": NOW_MS, "end_time": NOW_MS - 1}, "invalid_date_range"),
    ({"exchange": "bybit", "start_time": NOW_MS + 1}, "invalid_date_range"),
    ({"exchange": "bybit", "start_time": 5, "end_time": 1_000_000}, "invalid_date_range"),
    (
        {"exchange": "bybit", "transaction_types": ["trades"], "end_time": NOW_MS - 731 * DAY_MS},
        "invalid_date_range",
    ),
    ({"exchange": "bybit", "cursor": "not a cursor"}, "invalid_request"),
    ({"exchange": "bybit", "cursor": "A" * 5_000}, "invalid_request"),
    ({"exchange": "bybit", "testnet": True}, "invalid_request"),
    ({"exchange": "bybit", "testnet": "yes"}, "invalid_request"),
    ([], "invalid_request"),
]


@pytest.mark.parametrize(("body", "error"), BAD)
async def test_bad_input_touches_no_upstream(
    node: Node, client: httpx.AsyncClient, body: Any, error: str
) -> None:
    answer = await client.post(PATH, json=body)
    found = answer.json()
    assert (answer.status_code, found["error"]) == (400, error)
    assert found["success"] is False
    assert node.transport.requests == 0


@pytest.mark.parametrize("field", ["start_time", "end_time"])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("2024-01-01T00:00:00Z", "Unix milliseconds"),
        ("1700000000000", "Unix milliseconds"),
        (1.5e12 + 0.5, "Unix milliseconds"),
        (NOW_MS // 1_000, f"looks like seconds, which would be {NOW_MS // 1_000 * 1_000}"),
    ],
)
async def test_a_time_that_is_not_in_milliseconds_is_reported_so(
    client: httpx.AsyncClient, field: str, value: Any, said: str
) -> None:
    answer = await client.post(PATH, json={"exchange": "bybit", field: value})
    found = answer.json()
    assert (answer.status_code, found["error"]) == (400, "invalid_request")
    assert said in found["message"]
    assert field in found["message"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"exchange":', b"null"])
async def test_a_body_that_is_no_json_touches_no_upstream(
    node: Node, client: httpx.AsyncClient, content: bytes
) -> None:
    answer = await client.post(PATH, content=content)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert node.transport.requests == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"exchange": None}, "Field exchange must be text, or a list of texts."),
        ({"exchange": {"name": "bybit"}}, "Field exchange must be text, or a list of texts."),
        ({"exchange": ["bybit", 5]}, "Field exchange must be text, or a list of texts."),
        (
            {"exchange": ["bybit", "ALL"]},
            'Field exchange must be "all" alone, or a list of accounts without it.',
        ),
        ({"source": "both"}, 'Field source must be "exchange" or "collected".'),
        ({"transaction_types": [1]}, "Field transaction_types.0 must be text."),
    ],
)
async def test_an_error_names_the_field_and_its_values(
    client: httpx.AsyncClient, fields: dict[str, Any], message: str
) -> None:
    found = (await client.post(PATH, json={"exchange": "bybit"} | fields)).json()
    assert (found["error"], found["message"]) == ("invalid_request", message)


async def test_errors_say_what_would_be_right(client: httpx.AsyncClient) -> None:
    exchange = (await client.post(PATH, json={"exchange": "mtgox"})).json()
    assert exchange["supported_exchanges"] == ["bybit"]
    body = {"exchange": "bybit", "transaction_types": ["trades", "nfts"]}
    types = (await client.post(PATH, json=body)).json()
    assert types["message"].startswith("Bybit has no transaction type 'nfts'; its types: holdings,")
    assert {"trades", "ledger", "spot_orders"} <= set(types["supported_types"])
    old = (await client.post(PATH, json={"exchange": "bybit", "end_time": 5})).json()
    assert "earliest_start_time" in old


async def test_a_cursor_belongs_to_its_query_and_key(node: Node, client: httpx.AsyncClient) -> None:
    body = {"exchange": "bybit", "transaction_types": ["trades"], "limit": 5}
    cursor = (await client.post(PATH, json=body)).json()["next_cursor"]
    asked = node.transport.requests
    other_query = body | {"transaction_types": ["deposits"], "cursor": cursor}
    assert (await client.post(PATH, json=other_query)).status_code == 400
    forged = body | {"cursor": cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")}
    assert (await client.post(PATH, json=forged)).status_code == 400
    second = (await node.admin.create_key("someone", Tier.BASIC, node.change())).text
    async with client_of(node.app) as other:
        other.headers.update(await bearer(other, second))
        answer = await other.post(PATH, json=body | {"cursor": cursor})
    assert "another API key" in answer.json()["message"]
    assert node.transport.requests == asked
    assert (await client.post(PATH, json=body | {"cursor": cursor})).status_code == 200


async def test_a_session_is_needed(node: Node) -> None:
    async with client_of(node.app) as client:
        for path in (PATH, VALIDATE):
            answer = await client.post(path, json={"exchange": "bybit"})
            assert (answer.status_code, answer.json()["error"]) == (401, "missing_authorization")
    assert node.transport.requests == 0


async def test_a_cursor_belongs_to_the_credentials_of_its_first_page(
    node: Node, client: httpx.AsyncClient
) -> None:
    """Another account has other records: going on there would mix the two."""
    body = {"exchange": "bybit", "transaction_types": ["ledger"], "limit": 5}
    body["cursor"] = (await client.post(PATH, json=body)).json()["next_cursor"]
    other = SimulatedKey("otherkey000000000000", "othersecret0000000000000000000000000")
    await node.vault.put(
        "bybit", "mainnet", Credentials(other.api_key, other.secret), now_ms=NOW_MS
    )
    asked = node.transport.requests
    answer = await client.post(PATH, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_request"
    assert "cursor belongs to other Bybit credentials" in answer.json()["message"]
    assert node.transport.requests == asked
    await node.vault.put("bybit", "mainnet", CREDENTIALS, now_ms=NOW_MS)
    assert (await client.post(PATH, json=body)).status_code == 200


async def test_before_the_first_collection_its_answer_is_empty_and_says_why(
    node: Node, client: httpx.AsyncClient
) -> None:
    node.transactions.collection = Collection(node.store.collected, node.vault)
    body = {"exchange": "bybit", "source": "collected", "transaction_types": ["deposits"]}
    answer = await client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["success"], found["partial"], found["transactions"]) == (True, True, [])
    sentence = "Nothing has been collected yet for these transaction types"
    assert (found["message"], found["next_cursor"]) == (sentence, None)
    (entry,) = found["coverage"]
    assert (entry["from"], entry["complete"], entry["reason"]) == (None, False, "not_collected")
    (error,) = found["errors"]
    assert (error["error"], error["retryable"]) == ("not_collected", False)
    answer = await client.post(PATH, json=body, headers={"Accept": "application/x-ndjson"})
    assert answer.status_code == 200, answer.text
    (summary,) = [json.decode(line) for line in answer.content.splitlines()]
    assert (summary["success"], summary["message"]) == (True, sentence)
    joint = (await client.post(PATH, json=body | {"exchange": ["bybit"]})).json()
    assert (joint["success"], joint["message"]) == (True, sentence)
    assert node.transport.requests == 0


async def test_endpoint_6_says_the_credentials_are_valid(client: httpx.AsyncClient) -> None:
    answer = await client.post(VALIDATE, json={"exchange": "bybit"})
    assert answer.status_code == 200
    found = answer.json()
    assert (found["account_info"].pop("expires_at") - NOW_MS) // DAY_MS == 80
    assert found == {
        "success": True,
        "message": "The internal credentials are valid.",
        "exchange": "bybit",
        "credentials_source": "internal",
        "account_info": {
            "account_type": "UNIFIED",
            "status": "active",
            "read_only": True,
            "unavailable_types": [],
            "warnings": [],
        },
    }


async def test_endpoint_6_without_testnet_credentials_never_asks_mainnet(
    node: Node, client: httpx.AsyncClient
) -> None:
    answer = await client.post(VALIDATE, json={"exchange": "bybit", "testnet": True})
    assert answer.status_code == 200
    assert answer.json() == {
        "success": False,
        "message": "The operator has set no Bybit testnet credentials "
        "(onebook credentials set bybit --testnet).",
        "exchange": "bybit",
        "error": "authentication_failed",
    }
    assert node.transport.requests == 0


async def test_endpoint_6_with_a_wrong_key(node: Node, client: httpx.AsyncClient) -> None:
    wrong = SimulatedKey("anotherkey0000000000", "anothersecret")
    credentials = Credentials(wrong.api_key, wrong.secret)
    await node.vault.put("bybit", "mainnet", credentials, now_ms=NOW_MS)
    answer = await client.post(VALIDATE, json={"exchange": "bybit"})
    assert answer.status_code == 200
    assert answer.json()["error"] == "authentication_failed"
    assert wrong.api_key not in answer.text


async def test_endpoint_6_of_an_unknown_exchange(client: httpx.AsyncClient) -> None:
    answer = await client.post(VALIDATE, json={"exchange": "kraken"})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_exchange")


async def test_a_misspelt_exchange_is_told_which_was_meant(client: httpx.AsyncClient) -> None:
    for path in (PATH, VALIDATE):
        answer = await client.post(path, json={"exchange": "bybti"})
        body = answer.json()
        assert body["message"] == (
            "Exchange 'bybti' is not supported; supported: bybit. Did you mean bybit?"
        )
        assert body["supported_exchanges"] == ["bybit"]


async def test_endpoint_6_when_the_exchange_is_down(node: Node, client: httpx.AsyncClient) -> None:
    node.exchange.faults.rate, node.exchange.faults.kinds = 1.0, ("502",)
    answer = await client.post(VALIDATE, json={"exchange": "bybit"})
    assert (answer.status_code, answer.json()["error"]) == (500, "exchange_error")


async def test_without_credentials_endpoint_10_is_unavailable(
    node: Node, client: httpx.AsyncClient
) -> None:
    await node.vault.remove("bybit", "mainnet")
    answer = await client.post(PATH, json={"exchange": "bybit"})
    assert (answer.status_code, answer.json()["error"]) == (503, "service_unavailable")


async def test_a_stream_that_cannot_begin_is_an_error_status(
    node: Node, client: httpx.AsyncClient
) -> None:
    node.exchange.faults.rate, node.exchange.faults.kinds = 1.0, ("502",)
    headers = {"Accept": "application/x-ndjson"}
    answer = await client.post(PATH, json={"exchange": "bybit"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (500, "exchange_error")


class Leaving:
    """A client that sends its request and disconnects on command."""

    def __init__(self, app: FastAPI, headers: dict[str, str], body: dict[str, Any]) -> None:
        self.gone = asyncio.Event()
        self.sent: list[Any] = []
        self._app = app
        self._body = json.encode(body)
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": PATH,
            "raw_path": PATH.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
            "client": ("203.0.113.9", 50_000),
            "server": ("books.example", 80),
        }

    async def run(self) -> None:
        async def receive() -> dict[str, Any]:
            if self._body:
                body, self._body = self._body, b""
                return {"type": "http.request", "body": body, "more_body": False}
            await self.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            self.sent.append(message)

        await self._app(self._scope, receive, send)


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
async def test_when_the_client_leaves_the_exchange_is_left_in_peace(
    node: Node, client: httpx.AsyncClient, accept: str
) -> None:
    """Issue 4: cancellation of the upstream calls when the client goes away."""
    held = asyncio.Event()

    async def sleep(seconds: float) -> None:
        held.set()
        await asyncio.Event().wait()

    node.exchange.faults.rate, node.exchange.faults.kinds = 1.0, ("slow",)
    node.exchange._sleep = sleep
    headers = {"authorization": client.headers["authorization"], "accept": accept}
    leaving = Leaving(node.app, headers, {"exchange": "bybit"})
    task = asyncio.create_task(leaving.run())
    await held.wait()
    assert node.transport.in_flight > 0
    leaving.gone.set()
    await task
    assert node.transport.in_flight == 0
    assert leaving.sent == []


async def test_a_client_that_leaves_in_the_middle_of_a_stream(
    node: Node, client: httpx.AsyncClient
) -> None:
    headers = {
        "authorization": client.headers["authorization"],
        "accept": "application/x-ndjson",
    }
    leaving = Leaving(node.app, headers, {"exchange": "bybit", "transaction_types": ["ledger"]})
    send = leaving.sent.append

    class Sent(list[Any]):
        def append(self, message: Any) -> None:
            send(message)
            leaving.gone.set()

    leaving.sent = Sent()
    await leaving.run()
    assert node.transport.in_flight == 0


def test_schema_references_are_written_out() -> None:
    definitions = {"One": {"type": "object", "properties": {"two": {"$ref": "#/x/Two"}}}, "Two": {}}
    assert inlined([{"$ref": "#/x/One"}], definitions) == [
        {"type": "object", "properties": {"two": {}}}
    ]


async def test_a_large_body_is_sent_in_pieces_and_others_have_turns_between() -> None:
    turns = 0
    sent: list[tuple[int, Any]] = []

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def send(message: Any) -> None:
        sent.append((turns, message))

    async def receive() -> Any:
        raise AssertionError("nothing is read while a body is sent")

    body = bytes(range(256)) * 10_000
    task = asyncio.create_task(other())
    await BodyInPieces(body, media_type="application/json")({}, receive, send)
    task.cancel()
    (_, start), *pieces = sent
    assert dict(start["headers"])[b"content-length"] == str(len(body)).encode()
    assert b"".join(each["body"] for _, each in pieces) == body
    assert [each["more_body"] for _, each in pieces] == [True] * (len(pieces) - 1) + [False]
    assert max(len(each["body"]) for _, each in pieces) == PIECE_BYTES
    assert all(later > earlier for (earlier, _), (later, _) in pairwise(pieces))
