"""The programs, subscriptions and commands of the page about fees run as written."""

import asyncio
import json
import re
import sys
import time

import httpx
from websockets.asyncio.client import connect

from client.place import place
from docs.examples import ROOT, blocks, environment, finished, kinds, printed
from e2e.service import ws_url
from library.test_examples import NAMES, Run
from onebook import exchanges
from onebook.simulator import SimulatedExchanges
from steady import PATIENCE_S

PAGE = "explanation/net.md"
TEXT = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")


def test_every_block_is_run_here():
    assert kinds(PAGE) == {("python", "client"), ("python", "library"), ("json", "subscribe")}
    assert TEXT.count("\n```") == 2 * sum(len(blocks(PAGE, *kind)) for kind in kinds(PAGE))


def commands():
    """The commands in the text, without those whose arguments are left out."""
    found = re.findall(r"`onebook ([^`]+)`", TEXT)
    return [each for each in found if "..." not in each]


async def subscribed(url, key, message):
    """The reply to a subscription, and its first update."""
    async with connect(url) as socket:
        await socket.send(json.dumps({"type": "authenticate", "api_key": key}))
        await socket.send(json.dumps(message))
        reply = None
        async with asyncio.timeout(PATIENCE_S):
            async for text in socket:
                found = json.loads(text)
                assert found["type"] != "error", found
                if found["type"] == "aggregated_subscription_response":
                    reply = found
                elif found["type"] == "aggregated_orderbook_update":
                    return reply, found["data"]


async def test_the_page_over_a_service(tmp_path):
    (program,) = blocks(PAGE, "python", "client")
    async with place(tmp_path) as rig:
        given = environment(rig.url, rig.key) | {
            "ONEBOOK_STORE__URL": f"sqlite:///{tmp_path}/onebook.db",
            "ONEBOOK_STORE__PEPPER_FILE": str(tmp_path / "pepper"),
        }
        bridge = r"(?m)^0\.05\d+ .*\w:USDT\b.*\n(.*\n)*BTC/USDT on \w.* \d+ ms old\n"
        shown = await printed(sys.executable, "-u", "-c", program, pattern=bridge, **given)
        assert "None" not in shown

        table, stated, watch = commands()
        (row,) = await rig.node.store.accounts.list_keys()
        table = f"onebook {table.replace('KEY_ID', row.key_id)} --reason docs"
        watch = f"onebook {watch.replace('watch', 'watch BTC/USDT')} --updates 1 --url {rig.url}"
        for command, pattern in (
            (table, r"okx +0\.08"),
            (f"onebook {stated}", r"kucoin.*2026-03-26"),
            (watch, r"not served: okx \(unknown_fee\)"),
        ):
            status, out, errors = await finished("bash", "-ec", command, cwd=tmp_path, **given)
            assert status == 0, errors
            assert re.search(pattern, out), (command, out, errors)
        path = re.search(r"GET\s+(/api/v1/fees/published\S+?)`", TEXT)[1]
        async with httpx.AsyncClient(base_url=rig.url) as http:
            answer = await http.post("/api/v1/authenticate", json={"api_key": rig.key})
            session = {"Authorization": f"Bearer {answer.json()['session_token']}"}
            answer = await http.get(path, headers=session)
        assert answer.json()["unknown_fee"] == ["okx"]

        await rig.node.accounts.poll(time.time_ns() // 1_000_000)
        for text in blocks(PAGE, "json", "subscribe"):
            message = json.loads(text)
            reply, data = await subscribed(ws_url(rig.node), rig.key, message)
            assert reply["success"]
            assert {*message} - {"type"} <= {*reply["options"], "symbol"}
            assert data["bids"], text
            assert "gross" in data["bids"][0] or "net" not in message


async def test_the_route_of_the_library(monkeypatch):
    (program,) = blocks(PAGE, "python", "library")
    async with SimulatedExchanges(NAMES, seed=2, rate_hz=20) as sim:
        for name, exchange in sim.exchanges().items():
            monkeypatch.setitem(exchanges.EXCHANGES, name, exchange)
            sim[name].admit_all()
        run = Run(program)
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "run", run.start)
            run.load()
        await run.ended()
    assert run.lines[0].endswith("whole: True"), run.lines
    assert all(re.fullmatch(r"\w+( [0-9.]+){3}", line) for line in run.lines[1:]), run.lines
    assert len(run.lines) > 1


def test_the_names_that_the_page_states_exist():
    for name in re.findall(r"`(tests/[\w/]+\.py|bench/[\w/]+\.py)`", TEXT):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`(exchanges/[\w/]+\.toml)`", TEXT):
        assert (ROOT / "src/onebook" / name).exists(), name
