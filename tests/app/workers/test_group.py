"""`onebook serve --workers`: processes behind one port, ended, killed and misconfigured."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from nodes.servers import binary
from onebook import config
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.app.workers import serve
from onebook.archive.folder import HistoryFolder
from onebook.errors import ConfigError
from onebook.model import Tier
from onebook.simulator import SimulatedExchanges
from onebook.store import AuditedChange, Store
from steady import PATIENCE_S

CLIENTS = 12  # that all of them land on one of two gateways happens once in 2,048 runs


class Service:
    """A running `onebook serve --workers 2` and its log."""

    def __init__(self, process):
        self.process = process
        self.lines = []
        self.reading = asyncio.create_task(self._read())

    async def _read(self):
        async for line in self.process.stderr:
            self.lines.append(json.loads(line))

    async def logged(self, pattern, times=1):
        """The last N matching lines."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = [re.search(pattern, line["message"]) for line in self.lines]
                found = [each for each in found if each]
                if len(found) >= times:
                    return found[-1]
                assert not self.reading.done(), self.lines
                await asyncio.sleep(0.02)

    def pids(self):
        """The newest process of each name."""
        found = {}
        for line in self.lines:
            match = re.match(r"(\S+) is ready (?:again )?\(process (\d+)\)", line["message"])
            if match:
                found[match[1]] = int(match[2])
        return found

    def metrics_ports(self):
        ports = [re.match(r"Metrics are at \S+ port (\d+)", each["message"]) for each in self.lines]
        return [int(each[1]) for each in ports if each]


def written(folder, urls, **tables):
    """A settings file."""
    lines = [
        "[server]\nport = 0\nmetrics_port = 0",
        f"[store]\nurl = 'sqlite+aiosqlite:///{folder}/onebook.db'",
        f"pepper_file = '{folder}/pepper'",
        f"[transactions]\nmaster_key_file = '{folder}/master_key'",
        "[gateway]\ndrain_s = 1\nconnects_per_minute = 0",
        f"[feeds]\nexchanges = {list(urls)}",
    ]
    for name, each in urls.items():
        lines += [f"[feeds.overrides.{name}]", f"ws_url = '{each.ws}'\nrest_url = '{each.rest}'"]
    file = folder / "onebook.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


async def key_in(file):
    """A key in a new database."""
    settings = config.load(file)
    async with Store(settings.store.url) as store:
        await store.database.upgrade(create=True)
        admin = Admin(store, load_pepper(settings.store.pepper_file))
        change = AuditedChange(time.time_ns() // 1_000_000, "tests", "a test's key")
        await admin.create_account("alice", change)
        return (await admin.create_key("alice", Tier.ENTERPRISE, change)).text


@asynccontextmanager
async def started(file):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "onebook", "serve", "--config", str(file), "--workers", "2"),
        stderr=asyncio.subprocess.PIPE,
    )
    service = Service(process)
    try:
        yield service
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        service.reading.cancel()
        await asyncio.gather(service.reading, return_exceptions=True)
        for line in service.lines:
            print(line)


async def live_book(stack, url, key):
    """A connection that has received a live book."""
    connecting = connect(url, compression=None, close_timeout=1)
    socket = await stack.enter_async_context(connecting)
    await socket.send(json.dumps({"type": "authenticate", "api_key": key}))
    await socket.send(json.dumps({"type": "subscribe_aggregated", "symbol": "BTC/USDT"}))
    async with asyncio.timeout(PATIENCE_S):
        while True:
            message = json.loads(await socket.recv())
            assert "error" not in message, message
            if message["type"] == "aggregated_orderbook_update" and message["data"]["bids"]:
                return socket


async def closed(socket):
    """The close code of a connection; None if it broke."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while True:
                await socket.recv()
        except ConnectionClosed as end:
            return end.rcvd and end.rcvd.code


async def gone(pids):
    """Wait until none of these processes runs."""
    async with asyncio.timeout(PATIENCE_S):
        for pid in pids:
            with suppress(ProcessLookupError):
                while True:
                    os.kill(pid, 0)
                    await asyncio.sleep(0.02)


async def metric(port, name):
    async with httpx.AsyncClient() as http:
        page = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
    return float(re.search(rf"^{name} (\S+)$", page, re.MULTILINE)[1])


async def test_all_gateways_serve_one_port_and_one_that_dies_is_started_again(tmp_path):
    binary()
    async with SimulatedExchanges(["okx"], rate_hz=5) as simulated:
        simulated["okx"].admit_all()
        file = written(tmp_path, simulated.urls)
        key = await key_in(file)
        async with started(file) as service, AsyncExitStack() as stack:
            port = (await service.logged(r"All gateways listen on port (\d+)"))[1]
            url = f"ws://127.0.0.1:{port}/api/v1/ws"
            sockets = [await live_book(stack, url, key) for _ in range(CLIENTS)]
            ports = service.metrics_ports()
            opened = [await metric(each, "onebook_sockets") - 1 for each in ports]  # - the scrape
            assert len(opened) == 2
            assert min(opened) >= 1
            assert sum(opened) == CLIENTS
            assert [await metric(each, "onebook_worker_restarts_total") for each in ports] == [0, 0]

            before = service.pids()
            os.kill(before["gateway-1"], signal.SIGKILL)
            await service.logged(r"gateway-1 is ready again")
            line = await service.logged(r"gateway-1 \(process \d+\) ended with signal 9 and is")
            assert line
            third = service.metrics_ports()[2]
            assert await metric(third, "onebook_worker_restarts_total") == 1
            after = service.pids()
            assert after["gateway-1"] != before["gateway-1"]
            assert {**after, "gateway-1": 0} == {**before, "gateway-1": 0}
            sockets += [await live_book(stack, url, key) for _ in range(2)]

            service.process.send_signal(signal.SIGTERM)
            codes = await asyncio.gather(*map(closed, sockets))
            async with asyncio.timeout(PATIENCE_S):
                assert await service.process.wait() == 0
            assert codes.count(4200) == 2 + CLIENTS - codes.count(None)
            assert 1 <= codes.count(None) < CLIENTS  # those of the gateway that was killed
            await gone(after.values())


async def answered(socket, **question):
    """The reply to a question about the book, between updates."""
    await socket.send(
        json.dumps({"type": "get_aggregated_orderbook", "symbol": "BTC/USDT", "id": 7, **question})
    )
    async with asyncio.timeout(PATIENCE_S):
        while (reply := json.loads(await socket.recv())).get("id") != 7:
            pass
    return reply


async def test_one_process_records_and_every_gateway_answers_from_the_history(tmp_path):
    binary()
    pytest.importorskip("pyarrow")
    async with SimulatedExchanges(["okx"], rate_hz=5) as simulated:
        simulated["okx"].admit_all()
        file = written(tmp_path, simulated.urls)
        history = f"[history]\ndir = '{tmp_path}/history'\nsymbols = "
        settings = file.read_text()
        file.write_text(f"{settings}{history}['BTC/USDT']\n")
        key = await key_in(file)
        async with started(file) as service, AsyncExitStack() as stack:
            port = (await service.logged(r"All gateways listen on port (\d+)"))[1]
            url = f"ws://127.0.0.1:{port}/api/v1/ws"
            sockets = [await live_book(stack, url, key) for _ in range(CLIENTS)]
            opened = [await metric(each, "onebook_sockets") for each in service.metrics_ports()]
            assert min(opened) > 1  # each gateway has clients, beside the scrape
            at_us = time.time_ns() // 1_000
            async with asyncio.timeout(PATIENCE_S):  # until the recorder has written it
                while (past := await answered(sockets[0], as_of=at_us)).get("error"):
                    assert past["error"] == "history_not_found", past
                    await asyncio.sleep(0.1)
            assert past["data"]["bids"]
            for socket in sockets[1:]:
                again = await answered(socket, as_of=at_us)
                assert (again["checksum"], again["data"]) == (past["checksum"], past["data"])
            assert "recorder" in service.pids()
            assert not [each for each in service.lines if "not recorded" in each["message"]]
            folder = HistoryFolder(tmp_path / "history")
            assert not folder.lock()  # the recorder has it
            rows = folder.rows(folder.hours(), "BTC/USDT", 0, 2 * at_us, ("okx",))["okx"]
            assert len({*rows["run"].to_pylist()}) == 1

            file.write_text(f"{settings}{history}['BTC/USDT', 'ETH/USDT']\n")
            service.process.send_signal(signal.SIGHUP)
            await service.logged(r"SIGHUP: these settings need a restart: history\.symbols\.$", 2)
            await service.logged(r"SIGHUP: a node without clients .* need a restart\.$", 2)
            service.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_S):
                assert await service.process.wait() == 0


async def test_no_process_outlives_the_one_that_started_it(tmp_path):
    binary()
    async with SimulatedExchanges(["okx"], rate_hz=0) as simulated:
        file = written(tmp_path, simulated.urls)
        async with started(file) as service:
            await service.logged(r"gateway-1 is ready")
            service.process.kill()
            await service.process.wait()
            assert {"nats-server", "feeds", "gateway-1"} <= service.pids().keys()
            await gone(service.pids().values())


async def test_a_gateway_that_cannot_start_ends_all_with_its_exit_code(tmp_path):
    binary()
    load_pepper(tmp_path / "pepper")  # without its database
    async with SimulatedExchanges(["okx"], rate_hz=0) as simulated:
        file = written(tmp_path, simulated.urls)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "onebook", "serve", "--config", str(file), "--workers", "1"),
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE_S):
            _, err = await process.communicate()
    assert process.returncode == 2
    assert b"gateway-1 could not start. All processes are stopped." in err
    assert b"error:" in err


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"node": {"workers": 2, "role": "feeds"}}, "node.role must be all"),
        ({"node": {"workers": 2}, "server": {"metrics_port": 65_535}}, "must not exceed 65535"),
        (
            {"node": {"workers": 2}, "server": {"metrics_port": 9_000, "port": 9_002}},
            "or include server.port",
        ),
        ({"node": {"workers": 2}, "nats": {"user": "me"}}, "nats.user is set, but nats.servers"),
    ],
)
async def test_settings_that_do_not_go_together_are_refused(tmp_path, tables, words):
    store = {"url": f"sqlite+aiosqlite:///{tmp_path}/a.db", "pepper_file": str(tmp_path / "pepper")}
    keys = {"master_key_file": str(tmp_path / "master_key")}
    settings = config.load(overrides={"store": store, "transactions": keys, **tables})
    with pytest.raises(ConfigError, match=words):
        await serve(settings, file=None, flags={})
