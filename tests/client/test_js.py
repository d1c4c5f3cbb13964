"""The JavaScript client: its own tests, in Node and in Chromium against a real node."""

import asyncio
import json
import os
import re
import shutil
import socket
from decimal import Decimal
from itertools import chain, count
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from msgspec import UnsetType
from websockets.asyncio.server import serve

from archive.world import EPOCH_US, closed_hours
from client.place import KEEP_DAYS, place
from client.test_watch import GAP, HOST, Scripted, update
from onebook.archive.format import HOUR_US
from onebook.gateway.commands import SubscribeAggregated
from onebook.gateway.replies import MarketStats, TransactionStatus
from onebook.transactions.adapter import ErrorEntry
from onebook.transactions.record import Record
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.run import Coverage
from steady import PATIENCE_S
from web.browser import CHROMIUM
from web.scripted import serving

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "src/onebook/web/client/onebook.js"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

FOLLOW = """
import { Onebook } from "MODULE";
const client = new Onebook(process.env.ONEBOOK_URL, "the key", { random: () => 0 });
const seen = [];
try {
  for await (const view of client.watch("BTC/USDT")) {
    seen.push([view.live, view.bids[0]?.price ?? view.problem.code]);
    process.stdout.write("seen\\n");
  }
} catch (error) {
  seen.push([error.constructor.name, error.code]);
}
console.log(JSON.stringify(seen));
"""


async def run(source, *arguments, on_line=lambda line: None, **environment):
    """Run an ES module in Node; return the last line of its output, parsed as JSON."""
    assert NODE is not None
    program = source.replace("MODULE", MODULE.as_uri())
    process = await asyncio.create_subprocess_exec(
        NODE, "--no-warnings", "--experimental-websocket", "--input-type=module", "-e", program,
        env={"PATH": os.environ["PATH"], **environment}, limit=1 << 24,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    line = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for line in process.stdout:
                on_line(line)
            errors = (await process.stderr.read()).decode()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors
    return json.loads(line)


@needs_node
async def test_its_own_tests_pass_and_the_package_is_whole(tmp_path):
    package = tmp_path / "clients/js"
    shutil.copytree(ROOT / "clients/js", package, ignore=shutil.ignore_patterns("onebook.js"))
    (tmp_path / "src/onebook/web/client").mkdir(parents=True)
    shutil.copy(MODULE, tmp_path / "src/onebook/web/client")
    shutil.copy(MODULE, package)
    done = await asyncio.create_subprocess_exec(
        NODE, "--test", "test/", cwd=package,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        out, _ = await done.communicate()
    assert done.returncode == 0, out.decode()
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    (package / "onebook.js").unlink()
    packing = await asyncio.create_subprocess_exec(
        npm, "pack", "--dry-run", "--json", "--silent", cwd=package,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        out, _ = await packing.communicate()
    files = {each["path"] for each in json.loads(out)[0]["files"]}
    assert files == {"package.json", "README.md", "onebook.js", "onebook.d.ts"}


def test_every_export_has_its_type():
    exported = {
        line.split()[position].partition("(")[0]
        for line in MODULE.read_text().splitlines()
        if line.startswith("export ")
        for position in [2]
    }
    types = (ROOT / "clients/js/onebook.d.ts").read_text()
    assert {"Onebook", "View", "Refused", "Unavailable", "ServiceError"} <= exported
    assert [name for name in exported if f" {name}" not in types] == []


def members(value):
    """The names of all members, except those of the exchange's own row."""
    if isinstance(value, list):
        return [name for each in value for name in members(each)]
    if not isinstance(value, dict):
        return []
    kept = {name: each for name, each in value.items() if name != "raw"}
    return [*kept, *(name for each in kept.values() for name in members(each))]


def camel(name):
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def fields_of(kind):
    """The fields of a Struct and of its nested Structs."""
    types = {each for field in msgspec.structs.fields(kind) for each in structs_in(field.type)}
    own = {field.encode_name for field in msgspec.structs.fields(kind)}
    return own.union(*map(fields_of, types))


def structs_in(hint):
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    return [found for each in get_args(hint) for found in structs_in(each)]


def test_every_option_and_every_field_of_a_record_has_its_type():
    types = (ROOT / "clients/js/onebook.d.ts").read_text()
    stats = {field.name for field in msgspec.structs.fields(MarketStats)}
    options = {field.name for field in msgspec.structs.fields(SubscribeAggregated)}
    names = fields_of(Record) | fields_of(Coverage) | stats | options - {"symbol", "id"}
    assert len(names) > 100
    assert [name for name in names if not re.search(rf"\b{camel(name)}\b", types)] == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Record, "TransactionRecord"),
        (Coverage, "Coverage"),
        (ErrorEntry, "TransactionError"),
    ],
)
def test_a_type_has_each_field_of_its_own_and_no_other(kind, name):
    types = (ROOT / "clients/js/onebook.d.ts").read_text()
    (body,) = re.findall(
        rf"^export interface {name} \{{\n(.*?)^\}}", types, re.DOTALL | re.MULTILINE
    )
    declared = dict(re.findall(r"^  (\w+)(\??):", body, re.MULTILINE))
    fields = msgspec.structs.fields(kind)
    assert declared.keys() == {camel(each.encode_name) for each in fields}
    unset = {camel(each.encode_name) for each in fields if UnsetType in get_args(each.type)}
    assert {each for each, mark in declared.items() if mark} == unset


def test_every_field_of_a_request_and_of_a_state_has_its_type():
    types = (ROOT / "clients/js/onebook.d.ts").read_text()

    def members_of(name):
        block = re.search(rf"export interface {name}\b.*?^}}", types, re.MULTILINE | re.DOTALL)
        return set(re.findall(r"^ +(\w+)\??:", block[0], re.MULTILINE))

    ours = {"start_time": "start", "end_time": "end", "limit": "pageRecords"}
    others = {"exchange", "transaction_types", "cursor"}  # arguments, and what it does by itself
    asked = {ours.get(each, camel(each)) for each in TransactionsRequest.model_fields}
    assert members_of("TransactionOptions") == asked - {camel(each) for each in others}
    assert members_of("TransactionError") == {camel(each) for each in fields_of(ErrorEntry)}
    event = {"type", "exchange", "id", "timestamp"}  # `account` is beside the status
    told = {field.encode_name for field in msgspec.structs.fields(TransactionStatus)} - event
    assert {camel(each) for each in told} <= members_of("LiveTransaction")


@needs_node
async def test_in_node_it_does_everything_against_a_real_node(tmp_path):
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        dead = f"http://{HOST}:{unused.getsockname()[1]}"
        async with place(tmp_path) as rig:
            source = (Path(__file__).parent / "use.js").read_text()
            seen = await run(source, ONEBOOK_URL=rig.url, ONEBOOK_KEY=rig.key, DEAD_URL=dead)
    assert seen["problems"] == []
    assert 0 < len(seen["view"]["bids"]) <= 5
    assert [each["exchanges"] for each in seen["book"]["bids"]] == [["okx"]] * 3
    assert [each["size"] for each in seen["fill"]["buy"]] == ["0.5"]
    assert {"okx", "kraken"} <= set(seen["exchanges"])
    assert "BTC/USDT" in seen["pairs"]
    assert seen["usage"]["tier"] == "premium"
    assert seen["valid"] is True
    assert seen["health"]["unifiedApi"] == "operational"
    assert {"unifiedType", "relatedType", "raw"} <= set(seen["record"])
    assert not [name for name in members(seen["record"]) if "_" in name]
    assert seen["page"]["summary"]["byType"]
    assert {each["transactionType"] for each in seen["page"]["coverage"]} == {"deposits"}
    assert len(seen["records"]) == len(set(seen["records"])) > 80
    errors = seen["errors"]
    assert errors["exchange"][:2] == ["Refused", "invalid_exchange"]
    assert errors["symbol"][:2] == ["Refused", "invalid_symbol"]
    assert errors["option"][:2] == ["Refused", "invalid_parameters"]
    assert errors["key"][:2] == ["Refused", "api_key_not_found"]
    assert errors["keyOfBooks"][:2] == ["Refused", "invalid_api_key"]
    nothing = ["Unavailable", "unreachable", f"Connection refused by {dead[7:]}."]
    assert errors["dead"] == errors["deadBooks"] == nothing
    assert errors["path"][:2] == ["Refused", "http_404"]


@needs_node
async def test_one_connection_has_several_views_of_a_symbol_which_change_while_it_runs(tmp_path):
    async with place(tmp_path) as rig:
        source = (Path(__file__).parent / "views.js").read_text()
        seen = await run(source, ONEBOOK_URL=rig.url, ONEBOOK_KEY=rig.key)
    assert seen == {
        "own": True,
        "first": [5, 1, ["okx"], None, "top"],
        "book": 3,
        "refused": [["wrong", "invalid_parameters", "wrong"]],
        "has": [True, True, False],
        "left": [["BTC/USDT", None]],
        "watched": {"BTC/USDT null": 1, "BTC/USDT deep": 4, "ETH/USDT null": 2},
    }


APART = """
import { Onebook } from "MODULE";
const client = new Onebook(process.env.ONEBOOK_URL, process.env.ONEBOOK_KEY);
const seen = [];
for (const exchanges of [["okx", "kraken"], "all", ["all", "-okx"], undefined]) {
  const found = {};
  const count = exchanges?.[1] === "-okx" ? 3 : 5;
  const symbols = ["BTC/USDT", "ETH/USDT", "BTC/USTD"];
  for await (const view of client.watch(symbols, { exchanges, merged: false, depth: 2 })) {
    const names = view.bids.flatMap((level) => level.exchanges);
    const shown = view.live ? [...new Set(names)].join() : view.problem.code;
    found[`${view.symbol} ${view.view}`] = shown;
    if (Object.keys(found).length >= count + (count === 5)) break;
  }
  seen.push(found);
}
try {
  const exchanges = ["all", "-okx", "-kraken"];
  for await (const view of client.watch("BTC/USDT", { exchanges, merged: false })) seen.push(view);
} catch (error) {
  seen.push(error.code);
}
try {
  for await (const view of client.watch("BTC/USTD")) seen.push(view);
} catch (error) {
  seen.push(error.code);
}
console.log(JSON.stringify(seen));
"""


@needs_node
async def test_each_exchange_may_be_a_view_of_its_own(tmp_path):
    async with place(tmp_path) as rig:
        seen = await run(APART, ONEBOOK_URL=rig.url, ONEBOOK_KEY=rig.key)
    both = {
        f"{symbol} {name}": name if symbol in ("BTC/USDT", "ETH/USDT") else "invalid_symbol"
        for symbol in ("BTC/USDT", "ETH/USDT", "BTC/USTD")
        for name in ("okx", "kraken")
    }
    kraken = {name: value for name, value in both.items() if name.endswith("kraken")}
    assert seen == [both, both, kraken, both, "invalid_parameters", "invalid_symbol"]


@needs_node
async def test_in_node_it_reconnects_resyncs_and_ends_at_a_final_code():
    wrong = {**GAP, "previous_update_number": 5, "checksum": 1}
    script = Scripted(
        [
            "hear",
            "hear",
            update(1, 10),
            "seen",
            GAP,
            "seen",
            "hear",
            update(5, 12),
            "seen",
            1011,
        ],
        ["hear", "hear", update(5, 13), "seen", wrong, "seen", 1011],
        ["hear", "hear", 4002],
    )
    async with serve(script, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        seen = await run(
            FOLLOW,
            on_line=lambda line: script.seen.release(),
            ONEBOOK_URL=f"http://{HOST}:{port}",
        )
    assert seen == [
        [True, "10"], [False, "gap"], [True, "12"], [False, "1011"],
        [True, "13"], [False, "gap"], [False, "1011"], ["Refused", "4002"],
    ]  # fmt: skip
    heard = [message["type"] for message in script.heard]
    assert heard[:3] == ["authenticate", "subscribe_aggregated", "resync"]


@needs_node
async def test_in_node_a_service_that_keeps_sending_invalid_messages_is_given_up():
    invalid = update(1, 10)
    del invalid["data"]["bids"]
    script = Scripted(*[["hear", "hear", invalid, "stay"]] * 3)
    async with serve(script, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        seen = await run(FOLLOW, ONEBOOK_URL=f"http://{HOST}:{port}")
    assert seen == [*[[False, "protocol_error"]] * 2, ["Refused", "protocol_error"]]
    assert len(script.heard) == 6


CHANGE = """
import { Onebook } from "MODULE";
const seen = [];
const session = new Onebook(process.env.ONEBOOK_URL, "the key", { random: () => 0 }).session({
  state: ({ name }) => seen.push(name),
  view: ({ symbol, live }, message) => seen.push([symbol, live, message?.type ?? null]),
  accepted: (view) => (seen.push(["accepted", view.symbol]), acts.shift()?.()),
  refused: (view, error) => (seen.push(["refused", view.symbol, error.code]), acts.shift()()),
  notice: (message) => seen.push(message.type),
});
const acts = [
  () => session.subscribe("NO/PE"),
  () => session.subscribe("BTC/USDT", { depth: 9 }),
  () => session.subscribe("ETH/USDT"),
  () => (session.unsubscribe("BTC/USDT"), session.pairs().then((data) => seen.push(data))),
  async () => {
    seen.push((await session.ping()) >= 0, session.has("BTC/USDT"));
    await session.ask({ type: "nonsense" }).catch((error) => seen.push(error.code));
    session.stop();
  },
];
session.subscribe("BTC/USDT", { depth: 5 });
await session.run();
console.log(JSON.stringify(seen));
"""


REJECTED = """
import { Onebook } from "MODULE";
const client = new Onebook(process.env.ONEBOOK_URL, "the key");
for await (const view of client.watch("BTC/USDT", { exchanges: ["okx", "krakne"] })) {
  console.log(JSON.stringify([view.rejected, view.publishedFees]));
  break;
}
"""


@needs_node
async def test_the_exchanges_that_the_service_does_not_serve_are_named():
    rejected = [{"exchange": "krakne", "reason": "unknown_exchange"}]
    fee = {
        "exchange": "okx", "symbol": "BTC/USDT", "percent": "0.1", "source": "instruments",
        "date": "2026-11-27",
    }  # fmt: skip
    accepted = answer(1, "BTC/USDT") | {"rejected": rejected, "published_fees": [fee]}
    script = Scripted(["hear", "hear", accepted, update(1, 10), "stay"])
    async with serve(script, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        shown = await run(REJECTED, ONEBOOK_URL=f"http://{HOST}:{port}")
    assert shown == [{"krakne": "unknown_exchange"}, [fee]]


CROSSED = """
import { Onebook } from "MODULE";
const client = new Onebook(process.env.ONEBOOK_URL, "the key");
const options = { fees: { "*": "0" }, crossings: "0" };
for await (const view of client.watch("BTC/USDT", options)) {
  console.log(JSON.stringify(view.crossings));
  break;
}
"""


@needs_node
async def test_a_crossing_states_whether_the_coin_can_be_moved():
    network = {"network": "BTC", "deposit": True, "withdraw": None, "withdraw_fee": 0.00005}
    sell = {
        "via": "ccxt", "read_at_ms": 7, "deposit": True, "withdraw": None, "networks": [network],
    }  # fmt: skip
    moved = {"coin": "BTC", "possible": None, "buy": None, "sell": sell}
    entry = {"phase": "ended", "buy": "okx", "sell": "gate", "lasted_ms": 5, "transferable": moved}
    message = update(1, 10)
    message["data"]["crossings"] = [entry]
    script = Scripted(["hear", "hear", answer(1, "BTC/USDT"), message, "stay"])
    async with serve(script, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        (shown,) = await run(CROSSED, ONEBOOK_URL=f"http://{HOST}:{port}")
    found = shown["transferable"]
    assert (found["coin"], found["possible"], found["buy"]) == ("BTC", None, None)
    assert (found["sell"]["via"], found["sell"]["readAtMs"]) == ("ccxt", 7)
    (network,) = found["sell"]["networks"]
    assert (network["withdraw"], Decimal(network["withdrawFee"])) == (None, Decimal("0.00005"))


def answer(number, symbol):
    return {
        "type": "aggregated_subscription_response",
        "id": str(number),
        "symbol": symbol,
        "exchanges": [],
    }


def refusal(number, code):
    return {"type": "subscription_error", "id": str(number), "error": code, "message": "No."}


@needs_node
async def test_the_subscriptions_of_a_session_change_and_outlive_its_connection():
    """After a refused change the old options remain; unanswered requests are sent again."""
    script = Scripted(
        [
            "hear", "hear", {"type": "welcome", "session_id": "s"}, answer(1, "BTC/USDT"),
            update(1, 10), "hear", refusal(2, "invalid_symbol"),
            "hear", refusal(3, "invalid_parameters"), "hear", answer(4, "ETH/USDT"),
            {"type": "data_limit_warning"}, "hear", "hear", 1011,
        ],
        [
            "hear", "hear", "hear", {"type": "welcome", "session_id": "s"},
            {"type": "pairs_data", "id": "5", "data": {"okx": []}}, answer(6, "ETH/USDT"),
            "hear", {"type": "pong", "client_time": "7"},
            "hear", {"type": "error", "id": "8", "error": "unknown_message", "message": "What?"},
            "stay",
        ],
    )  # fmt: skip
    async with serve(script, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        seen = await run(CHANGE, ONEBOOK_URL=f"http://{HOST}:{port}")
    assert seen == [
        "connecting", "live", ["accepted", "BTC/USDT"],
        ["BTC/USDT", True, "aggregated_orderbook_update"],
        ["refused", "NO/PE", "invalid_symbol"], ["refused", "BTC/USDT", "invalid_parameters"],
        ["accepted", "ETH/USDT"], "data_limit_warning",
        "waiting", ["ETH/USDT", False, None], "connecting", "live", {"okx": []},
        ["accepted", "ETH/USDT"], True, False, "unknown_message",
    ]  # fmt: skip
    heard = [(each["type"], each.get("symbol"), each.get("depth")) for each in script.heard]
    assert heard == [
        ("authenticate", None, None),
        ("subscribe_aggregated", "BTC/USDT", 5),
        ("subscribe_aggregated", "NO/PE", None),
        ("subscribe_aggregated", "BTC/USDT", 9),
        ("subscribe_aggregated", "ETH/USDT", None),
        ("unsubscribe_aggregated", "BTC/USDT", None),
        ("get_pairs", None, None),
        ("authenticate", None, None),
        ("subscribe_aggregated", "ETH/USDT", None),
        ("get_pairs", None, None),
        ("ping", None, None),
        ("nonsense", None, None),
    ]


PLAY = """
import { Onebook } from "MODULE";
const seen = [];
const client = new Onebook(process.env.ONEBOOK_URL, "the key", { random: () => 0 });
const session = client.session({
  view: (view, message) => {
    if (view.live) seen.push([view.past, view.updateNumber]);
    if (view.updateNumber === 9) session.stop();
  },
});
session.subscribe("BTC/USDT", { start: "2026-11-20T09:00:00", speed: 10, depth: 5 });
await session.run();
console.log(JSON.stringify(seen));
"""


def played(number, second):
    return {**update(number, 10), "timestamp": f"2026-11-20T09:00:0{second}.000000Z"}


@needs_node
async def test_a_play_continues_at_its_last_update_after_a_lost_connection():
    """In the past with its speed, and in the present without both."""
    hello = ["hear", "hear", {"type": "welcome", "session_id": "s"}]
    script = Scripted(
        [*hello, answer(1, "BTC/USDT"), played(1, 0), played(2, 7), 1011],
        [*hello, answer(2, "BTC/USDT"), 1011],  # without an update
        [
            *hello, answer(3, "BTC/USDT"), played(1, 7),
            {"type": "history_end", "symbol": "BTC/USDT"}, played(5, 8), 1011,
        ],
        [*hello, answer(4, "BTC/USDT"), played(9, 9), "stay"],
    )  # fmt: skip
    async with serve(script, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        seen = await run(PLAY, ONEBOOK_URL=f"http://{HOST}:{port}")
    assert seen == [[True, 1], [True, 2], [True, 1], [False, 5], [False, 9]]
    asked = [each for each in script.heard if each["type"] == "subscribe_aggregated"]
    last = "2026-11-20T09:00:07.000000Z"
    assert [(each.get("start"), each.get("speed"), each["depth"]) for each in asked] == [
        ("2026-11-20T09:00:00", 10, 5), (last, 10, 5), (last, 10, 5), (None, None, 5),
    ]  # fmt: skip


HISTORY = """
import { Onebook } from "MODULE";
const { ONEBOOK_URL: url, ONEBOOK_KEY: key, START, END } = process.env;
const client = new Onebook(url, key);
const range = { start: Number(START), end: Number(END) };
const quality = await client.quality({ ...range, exchanges: ["okx", "kraken"], by: "exchange" });
const recorded = await client.recorded("BTC/USDT", range);
const later = await client.recorded("BTC/USDT", { ...range, start: recorded.recorded.at(-1).to });
console.log(JSON.stringify({ quality, recorded, later }));
"""


@needs_node
async def test_the_quality_and_the_recorded_times_are_those_of_the_history(tmp_path):
    await closed_hours(tmp_path / "history", 4)
    history = {"dir": str(tmp_path / "history"), "keep_days": KEEP_DAYS}
    start, end = str(EPOCH_US - HOUR_US), str(EPOCH_US + 2 * HOUR_US)
    async with place(tmp_path, history=history) as rig:
        given = {"ONEBOOK_URL": rig.url, "ONEBOOK_KEY": rig.key, "START": start, "END": end}
        seen = await run(HISTORY, **given)
    rows = {each["exchange"]: each for each in seen["quality"]["rows"]}
    assert rows.keys() == {"kraken", "okx"}
    assert all(each["messages"] and each["observedS"] for each in rows.values())
    assert not [name for name in members(seen["quality"]) if "_" in name]
    times = seen["recorded"]
    assert times["first"] == times["recorded"][0]["from"]
    assert times["exchanges"].keys() == {"binance", "kraken", "okx"}
    assert seen["later"]["recorded"] == []


SET_BACK = """
import { Onebook } from "MODULE";
const client = new Onebook(process.env.ONEBOOK_URL, "the key");
const seen = [];
for await (const view of client.watch("BTC/USDT", { silenceMaxS: 0.2 })) {
  seen.push(view.problem?.code ?? "live");
  if (seen.length === 2) break;
  const now = Date.now;
  Date.now = () => now() - 3_600_000;
}
console.log(JSON.stringify(seen));
"""


@needs_node
async def test_a_clock_that_is_set_back_does_not_delay_finding_a_dead_connection():
    script = Scripted(["hear", "hear", update(1, 10), "stay"])
    async with serve(script, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        seen = await run(SET_BACK, ONEBOOK_URL=f"http://{HOST}:{port}")
    assert seen == ["live", "silent"]


PINGS = """
import { Onebook } from "MODULE";
const seen = [];
const limits = { silenceMaxS: 60, pingTimeoutS: 0.4 };
const session = new Onebook(process.env.ONEBOOK_URL, "the key", { random: () => 0 }).session({
  ...limits,
  view: (view) => process.stdout.write("seen\\n"),
  state: ({ name, problem }) => seen.push(problem ? problem.code : name),
  accepted: () => session.ping().then(
    () => seen.push("pong"),
    ({ code }) => seen.push(code)).then(() => seen.length > 4 && session.stop()) && BLOCK,
});
session.subscribe("BTC/USDT");
await session.run();
console.log(JSON.stringify(seen));
"""
BLOCKED_S = "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000)"


@needs_node
async def test_a_ping_without_an_answer_ends_the_connection_while_updates_still_come():
    updates = (step for number in count(1) for step in (update(number, 10), "seen"))
    script = Scripted(
        chain(["hear", "hear", answer(1, "BTC/USDT"), "hear"], updates),
        [
            "hear",
            "hear",
            answer(3, "BTC/USDT"),
            "hear",
            {"type": "pong", "client_time": "4"},
            "stay",
        ],
    )
    async with serve(script, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        seen = await run(
            PINGS.replace("BLOCK", "0"),
            on_line=lambda line: script.seen.release(),
            ONEBOOK_URL=f"http://{HOST}:{port}",
        )
        script.seen.release()  # the first conversation meets the closed connection
    assert seen == ["connecting", "no_answer", "not_connected", "connecting", "pong"]


@needs_node
async def test_a_ping_is_not_judged_by_time_in_which_the_runtime_was_suspended():
    pong = {"type": "pong", "client_time": "2"}
    script = Scripted(["hear", "hear", answer(1, "BTC/USDT"), "hear", pong, 4002])
    async with serve(script, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        source = PINGS.replace("BLOCK", BLOCKED_S).replace("await session.run()", ENDING)
        seen = await run(source, ONEBOOK_URL=f"http://{HOST}:{port}")
    assert seen == ["connecting", "pong", "4002"]


ENDING = "await session.run().catch((error) => seen.push(error.code))"


async def another_site(scope, receive, send):
    """A developer's web page with the client beside it."""
    kind, body = b"text/html", b"<!doctype html><title>Mine</title>"
    if scope["path"] == "/onebook.js":
        kind, body = b"text/javascript", MODULE.read_bytes()
    headers = [(b"content-type", kind)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@needs_chromium
async def test_in_chromium_a_page_of_another_origin_has_books_and_rest(tmp_path, chromium):
    api = {"cors_origins": ["*"]}  # as in the demo
    async with (
        place(tmp_path, api=api) as rig,
        serving(another_site) as port,
        chromium.page() as page,
    ):
        await page.open(f"http://{HOST}:{port}/")
        seen = await page.run(
            f"""(async () => {{
              const {{ Onebook }} = await import("/onebook.js");
              const client = new Onebook("{rig.url}", "{rig.key}");
              const seen = [(await client.usage()).tier, (await client.health()).status];
              for await (const {{ exchange }} of client.transactions("bybit", "deposits")) {{
                seen.push(exchange);
                break;
              }}
              seen.push(await client.changeFees({{ okx: "0.080" }}), await client.fees());
              await client.quality({{ exchanges: ["okx"] }}).catch(({{ code }}) => seen.push(code));
              const stranger = new Onebook("{rig.url}", "wrong");
              await stranger.usage().catch(({{ code }}) => seen.push(code));
              for await (const view of client.watch("BTC/USDT", {{ depth: 1 }})) {{
                return [...seen, view.live];
              }}
            }})()"""
        )
    fees = {"okx": "0.08"}
    assert seen == ["premium", "healthy", "bybit", fees, fees, "history_unavailable",
                    "api_key_not_found", True]  # fmt: skip


@needs_chromium
async def test_in_chromium_it_follows_deltas_of_the_node_that_serves_it(tmp_path, chromium):
    async with place(tmp_path) as rig, chromium.page() as page:
        await page.open(f"{rig.url}/docs")
        seen = await page.run(
            f"""(async () => {{
              const {{ Onebook }} = await import("/web/client/onebook.js");
              const client = new Onebook(location.origin, "{rig.key}");
              let count = 0;
              const options = {{ depth: 5, mode: "delta", intervalMs: 10 }};
              for await (const view of client.watch("BTC/USDT", options)) {{
                if (view.problem) return [view.problem.message];
                if (view.live && ++count === 20) {{
                  const usage = await client.usage();
                  return [view.bids.length, usage.tier, view.checksum()];
                }}
              }}
            }})()"""
        )
        assert seen[:2] == [5, "premium"], seen
        assert page.complaints == []
