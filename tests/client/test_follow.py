"""The Python clients and the command follow an account across lost connections."""

import asyncio
import json
import subprocess
import sys
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest
from websockets.asyncio.server import serve

from client.place import place
from client.test_js import needs_node, run
from client.test_watch import HOST, Scripted
from gateway.test_live_transactions import FAST, replace_key
from onebook.client import AsyncOnebook, Onebook, Refused
from onebook.transactions.live import LiveLimits
from steady import PATIENCE_S

TYPES = ["trades", "transfers"]


@pytest.fixture
async def rig(tmp_path):
    async with asyncio.timeout(PATIENCE_S * 3), place(tmp_path) as found:
        found.node.transactions.live.limits = LiveLimits(**FAST)
        yield found


async def fetched(client, **options):
    found = client.transactions("bybit", TYPES, **options)
    return {record["transactionId"] async for record in found}


async def test_each_record_comes_once_across_lost_connections(rig):
    start = datetime.now(UTC) - timedelta(days=5)
    async with (
        AsyncOnebook(rig.url, rig.key) as client,
        aclosing(client.follow_transactions("bybit", TYPES, start=start)) as events,
    ):
        before = await fetched(client, start=start)
        seen, states, lost = {}, [], False
        async for event in events:
            if event.change == "status":
                states.append(event.status["state"])
                if not lost:
                    (connection,) = rig.node.gateway.connections
                    connection.output.abort()
                    rig.bybit.act("transfer")
                    lost = True
                rig.bybit.act("spot")
                rig.bybit.act("transfer")
                continue
            seen.setdefault(event.record["transactionId"], []).append(event.change)
            assert event.account == "bybit"
            if lost and len(states) > 1 and seen.keys() == await fetched(client, start=start):
                break
    assert all(changes[0] in ("history", "new") for changes in seen.values())
    assert all(set(changes[1:]) <= {"updated"} for changes in seen.values())
    assert {name for name, changes in seen.items() if changes[0] == "history"} == before
    assert len(seen) > len(before)


async def test_without_a_start_only_what_happens_from_now_on_and_without_asyncio(rig):
    def followed():
        with Onebook(rig.url, rig.key) as client:
            for event in client.follow_transactions("bybit", TYPES):
                if event.record is not None:
                    return event
        return None

    waiting = asyncio.create_task(asyncio.to_thread(followed))
    while not waiting.done():
        rig.bybit.act("transfer")
        await asyncio.sleep(0.2)
    assert waiting.result().change == "new"
    async with (
        AsyncOnebook(rig.url, rig.key) as client,
        aclosing(client.follow_transactions("nowhere")) as events,
    ):
        with pytest.raises(Refused, match="nowhere"):
            await anext(events)


async def test_the_command_prints_lines(rig):
    command = (
        sys.executable, "-m", "onebook", "transactions", "follow", "--types", ",".join(TYPES),
        "--url", rig.url, "--key", rig.key, "--count", "2",
    )  # fmt: skip
    running = asyncio.create_task(
        asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    )
    while not running.done():
        rig.bybit.act("transfer")
        await asyncio.sleep(0.2)
    done = running.result()
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, len(lines)) == (0, 2)
    assert {line["change"] for line in lines} == {"new"}
    assert all(line["transaction"]["type"] == "transfers" for line in lines)


JAVASCRIPT = """
import { Onebook } from "MODULE";
const client = new Onebook(process.env.ONEBOOK_URL, process.env.ONEBOOK_KEY, { random: () => 0 });
const seen = [];
for await (const event of client.followTransactions("bybit", ["transfers"])) {
  const { change, account, record, status } = event;
  if (change === "status") {
    process.stdout.write("status\\n");
    if (seen.length) continue;
  }
  seen.push([change, account, change === "status" ? status.state : record.transactionId]);
  process.stdout.write("seen\\n");
  if (seen.length === 4) break;
}
const refused = await client.followTransactions("nowhere").next().catch((error) => error.code);
console.log(JSON.stringify([seen, refused]));
"""


@needs_node
async def test_the_javascript_client_follows_across_lost_connections(rig):
    statuses = []

    def on_line(line):
        rig.bybit.act("transfer")
        if line.strip() == b"status":
            statuses.append(line)
            if len(statuses) == 1:
                for connection in rig.node.gateway.connections:
                    connection.output.abort()

    seen, refused = await run(JAVASCRIPT, on_line=on_line, ONEBOOK_URL=rig.url, ONEBOOK_KEY=rig.key)
    assert seen[0] == ["status", "bybit", "live"]
    assert [(change, account) for change, account, _ in seen[1:]] == [("new", "bybit")] * 3
    ids = {each[2] for each in seen[1:]}
    assert len(ids) == 3
    assert refused == "invalid_exchange"


ENDED = "The credentials of bybit now belong to another account; subscribe again."


async def test_credentials_of_another_account_end_it(rig):
    states = []

    async def follow(client):
        async with aclosing(client.follow_transactions("bybit", TYPES)) as events:
            async for event in events:
                states.append(event.status["state"])
                if states == ["live"]:
                    await replace_key(rig, uid="999999")

    async with AsyncOnebook(rig.url, rig.key) as client:
        with pytest.raises(Refused, match=ENDED) as refused:
            await follow(client)
    assert refused.value.code == "account_changed"
    assert states[-1] == "ended"


ENDING = """
import { Onebook } from "MODULE";
const client = new Onebook(process.env.ONEBOOK_URL, process.env.ONEBOOK_KEY, { random: () => 0 });
const states = [];
let refused = null;
try {
  for await (const { status } of client.followTransactions("bybit", ["transfers"])) {
    states.push(status.state);
    process.stdout.write("status\\n");
  }
} catch (error) {
  refused = [error.name, error.code, error.message];
}
console.log(JSON.stringify([states.at(-1), refused]));
"""


@needs_node
async def test_credentials_of_another_account_end_it_in_javascript(rig):
    replacing = []

    def on_line(line):
        if line.strip() == b"status" and not replacing:
            replacing.append(asyncio.ensure_future(replace_key(rig, uid="999999")))

    state, refused = await run(ENDING, on_line=on_line, ONEBOOK_URL=rig.url, ONEBOOK_KEY=rig.key)
    assert (state, refused) == ("ended", ["Refused", "account_changed", ENDED])


async def test_a_service_that_keeps_sending_invalid_errors_is_given_up():
    script = Scripted(*[["hear", "hear", {"type": "error"}, "stay"]] * 3)
    async with serve(script, HOST, 0) as server, asyncio.timeout(PATIENCE_S):
        port = server.sockets[0].getsockname()[1]
        async with AsyncOnebook(f"http://{HOST}:{port}", "key") as client:
            with pytest.raises(Refused, match=r"invalid error: .* The versions of") as refused:
                await anext(client.follow_transactions("bybit", TYPES))
    assert refused.value.code == "protocol_error"
    assert script.conversations == []
