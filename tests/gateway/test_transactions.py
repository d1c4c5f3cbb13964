"""Transactions over the WebSocket: replies, progress, limits, metering, cancellation."""

import asyncio
import json
import re
from contextlib import asynccontextmanager

import msgspec

from client.place import ACCOUNT, place
from e2e.service import client_of
from onebook.gateway import GatewayLimits, replies
from onebook.transactions.credentials import Credentials, Vault, master_keys
from steady import PATIENCE_S

TYPES = ["deposits", "withdrawals", "trades"]
REPLIES = replies.TransactionProgress, replies.TransactionResponse, replies.TransactionComplete
SUBSCRIBE = {"action": "subscribe_transactions", "exchange": "bybit", "transaction_types": TYPES}


@asynccontextmanager
async def connected(folder, **limits):
    async with (
        asyncio.timeout(PATIENCE_S * 3),
        place(folder, gateway_limits=GatewayLimits(**limits)) as rig,
        client_of(rig.node, rig.key, max_size=None) as client,
    ):
        client.rig = rig
        yield client


async def seen(client, kind):
    """Read messages until one of a type."""
    found = []
    while not found or found[-1]["type"] != kind:
        found.append(await client.next())
    return found


async def test_progress_the_records_and_completion(tmp_path):
    async with connected(tmp_path, progress_s=0) as client:
        await client.say(**SUBSCRIBE, id="t1")
        *progress, answer, done = await seen(client, "transaction_complete")
    assert progress
    assert {each["type"] for each in progress} == {"transaction_progress"}
    counts = [each["total_transactions"] for each in progress]
    assert counts == sorted(counts)
    assert progress[-1]["start_time"] <= progress[-1]["came_to"] <= progress[-1]["end_time"]
    assert answer["type"] == "transaction_response"
    assert len(answer["transactions"]) == answer["total_transactions"] == counts[-1]
    assert (done["success"], done["partial"], done["next_cursor"]) == (True, False, None)
    assert done["total_transactions"] == counts[-1]
    assert {each["id"] for each in (*progress, answer, done)} == {"t1"}


async def test_every_reply_has_the_fields_that_the_documents_list(tmp_path):
    async with connected(tmp_path, progress_s=0) as client:
        await client.say(action="get_exchanges")
        found = await seen(client, "exchanges_response")
        await client.say(action="validate_credentials", exchange="bybit")
        found += await seen(client, "validation_response")
        await client.say(**SUBSCRIBE)
        found += await seen(client, "transaction_complete")
        client.rig.bybit.act("deposit")
        client.rig.bybit.act("spot")
        found += await seen(client, "transaction_status")
        found += await seen(client, "transaction")
        await client.say(action="unsubscribe_transactions")
        found += await seen(client, "transaction_unsubscribe_response")
    bodies = {
        each.__struct_config__.tag: each
        for each in vars(replies).values()
        if isinstance(each, type)
        and issubclass(each, msgspec.Struct)
        and each.__struct_config__.forbid_unknown_fields
        and each.__struct_config__.tag
    }
    assert {each["type"] for each in found} == set(bodies)
    for each in found:
        body = bodies[each["type"]]
        msgspec.convert(each, body)  # refuses fields that are not listed
        if "timestamp" in each:
            (example,) = json_schema_of(body)["properties"]["timestamp"]["examples"]
            assert re.sub(r"\d", "0", each["timestamp"]) == re.sub(r"\d", "0", example)


async def test_replies_about_several_accounts_repeat_the_request(tmp_path):
    async with connected(tmp_path, progress_s=0) as client:
        vault = Vault(
            client.rig.node.store.credentials, master_keys(client.rig.node.settings.transactions)
        )
        key = Credentials(ACCOUNT.api_key, ACCOUNT.secret)
        await vault.put("bybit:treasury", "mainnet", key, now_ms=0)
        for asked in (["bybit", "bybit:treasury"], "all"):
            await client.say(**SUBSCRIBE | {"exchange": asked}, live=False)
            *progress, answer, done = await seen(client, "transaction_complete")
            assert {json.dumps(each["exchange"]) for each in progress} == {json.dumps(asked)}
            assert (answer["exchange"], done["exchange"]) == (asked, asked)
            assert answer["accounts"] == ["bybit", "bybit:treasury"]
            assert "from 3 transaction types of 2 accounts" in answer["message"]
            assert answer["own_transfers"]["count"] == 0
            for each, body in zip((progress[-1], answer, done), REPLIES, strict=True):
                msgspec.convert(each, body)


def json_schema_of(body):
    """The schema of one struct."""
    _, definitions = msgspec.json.schema_components([body])
    return definitions[body.__name__]


async def test_pages_go_on_with_the_cursor(tmp_path):
    async with connected(tmp_path) as client:
        ids, cursor, pages = [], None, 0
        while pages == 0 or cursor:
            await client.say(**SUBSCRIBE, limit=40, **({"cursor": cursor} if cursor else {}))
            answer = await client.kind("transaction_response")
            ids += [record["transactionId"] for record in answer["transactions"]]
            cursor = (await client.kind("transaction_complete"))["next_cursor"]
            pages += 1
    assert pages > 1
    assert len(ids) == len(set(ids)) > 40


async def test_what_is_sent_is_counted(tmp_path):
    async with connected(tmp_path) as client:
        connections = client.rig.node.gateway.connections
        await client.say(**SUBSCRIBE)
        await client.kind("transaction_complete")
        async with asyncio.timeout(PATIENCE_S):
            while (
                counted := sum(each.output.total for each in connections)
            ) < client.received_bytes:
                await asyncio.sleep(0.02)
        assert counted >= client.received_bytes > 10_000


ERRORS = [
    ({"action": "steal"}, "invalid_action", 4002),
    ({"action": "subscribe_transactions"}, "missing_parameters", 4003),
    ({"action": "validate_credentials", "testnet": True}, "missing_parameters", 4003),
    ({**SUBSCRIBE, "exchange": "gemini"}, "invalid_exchange", None),
    ({**SUBSCRIBE, "transaction_types": ["staking"]}, "invalid_transaction_types", None),
    ({**SUBSCRIBE, "limit": 0}, "invalid_parameters", None),
    ({**SUBSCRIBE, "limit": 1_001}, "invalid_parameters", None),
    ({**SUBSCRIBE, "testnet": True}, "invalid_request", None),
    ({**SUBSCRIBE, "credentials": {"api_key": "a", "secret": "b"}}, "invalid_parameters", None),
    ({**SUBSCRIBE, "start_time": 2, "end_time": 1}, "invalid_date_range", None),
]


async def test_every_refusal_has_its_code(tmp_path):
    async with connected(tmp_path) as client:
        for message, code, number in ERRORS:
            await client.say(**message, id=code)
            error = await client.kind("error")
            assert (error["error"], error.get("code"), error["id"]) == (code, number, code), message
            assert error["message"].endswith(".")


async def test_an_exchange_that_fails_is_exchange_error(tmp_path):
    async with connected(tmp_path) as client:
        client.rig.bybit.faults.queue("/v5/user/query-api", *["403"] * 50)
        client.rig.bybit.faults.queue("/v5/account/info", *["403"] * 50)
        await client.say(action="validate_credentials", exchange="bybit")
        error = await client.kind("error")
    assert (error["error"], error["code"]) == ("exchange_error", 4004)


async def test_too_many_at_one_time_are_refused_and_leave_the_others(tmp_path):
    async with connected(tmp_path, actions_max=1) as client:
        await client.say(**SUBSCRIBE, id=1)
        await client.say(**SUBSCRIBE, id=2)
        error = await client.kind("error")
        assert (error["error"], error["code"], error["id"]) == ("rate_limit_exceeded", 4005, 2)
        assert (await client.kind("transaction_complete"))["id"] == 1


async def test_it_can_be_stopped_and_a_lost_connection_stops_it(tmp_path):
    async with connected(tmp_path) as client:
        service = client.rig.node.transactions
        client.rig.bybit.faults.slow_s = 2.0  # the simulated exchange ends when it has answered
        client.rig.bybit.faults.queue("/v5/execution/list", *["slow"] * 50)
        await client.say(**SUBSCRIBE)
        await waited(lambda: service.running == 1)
        await client.say(action="unsubscribe_transactions", exchange="bybit", id="u")
        answer = await client.kind("transaction_unsubscribe_response")
        assert (answer["success"], answer["id"]) == (True, "u")
        await waited(lambda: service.running == 0)
        await client.say(**SUBSCRIBE)
        await waited(lambda: service.running == 1)
        await client.socket.close()
        await waited(lambda: service.running == 0)


async def waited(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_before_authentication_nothing_is_done(tmp_path):
    async with place(tmp_path) as rig, asyncio.timeout(PATIENCE_S):
        from websockets.asyncio.client import connect

        from e2e.service import ws_url

        async with connect(ws_url(rig.node)) as socket:
            await socket.recv()
            await socket.send(json.dumps({"action": "get_exchanges"}))
            error = json.loads(await socket.recv())
    assert (error["error"], error["code"]) == ("authentication_failed", 4001)
