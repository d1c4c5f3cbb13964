"""Cancelling a wait does not end the iteration: the next one continues."""

import asyncio
import gc
import json
import subprocess
import sys
import threading
import time
from contextlib import aclosing, closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from websockets.asyncio.server import serve

from client.place import place
from client.test_watch import HOST, Scripted, update
from onebook.client import AsyncOnebook, Onebook, Refused, Unavailable, watch
from steady import PATIENCE_S

TYPES = ["deposits", "withdrawals", "trades", "transfers"]


async def abandoned(iterator):
    """Start to wait for the next value, and cancel."""
    waiting = asyncio.ensure_future(anext(iterator))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_view_may_be_waited_for_with_a_timeout():
    script = Scripted(["hear", "hear", update(1, 10), "seen", update(2, 11), "stay"])
    async with serve(script, HOST, 0) as server, asyncio.timeout(PATIENCE_S):
        url = f"ws://{HOST}:{server.sockets[0].getsockname()[1]}/"
        async with aclosing(watch(url, "the key", "BTC/USDT")) as views:
            await abandoned(views)  # while it connects
            assert (await anext(views)).update_number == 1
            await abandoned(views)
            script.seen.release()
            assert (await anext(views)).update_number == 2
        assert [view async for view in views] == []
    assert (len(script.heard), script.close_code) == (2, 1000)


async def test_closing_ends_the_wait_of_another_task():
    script = Scripted(["hear", "hear", update(1, 10), "stay"])
    async with serve(script, HOST, 0) as server, asyncio.timeout(PATIENCE_S):
        url = f"ws://{HOST}:{server.sockets[0].getsockname()[1]}/"
        views = watch(url, "the key", "BTC/USDT")
        await anext(views)
        waiting = asyncio.ensure_future(anext(views, "ended"))
        await asyncio.sleep(0)
        await views.aclose()
        assert await waiting == "ended"
    assert script.close_code == 1000


async def test_a_page_of_transactions_may_be_waited_for_with_a_timeout(tmp_path):
    async with (
        asyncio.timeout(PATIENCE_S * 3),
        place(tmp_path) as rig,
        AsyncOnebook(rig.url, rig.key) as client,
    ):
        asked = {"start": datetime.now(UTC) - timedelta(days=20), "page_records": 40}
        whole = [
            record["transactionId"] async for record in client.transactions("bybit", TYPES, **asked)
        ]
        assert len(whole) > 100
        records = client.transactions("bybit", TYPES, **asked)
        await abandoned(records)
        found = [(await anext(records))["transactionId"] for _ in range(40)]
        await abandoned(records)
        assert found + [record["transactionId"] async for record in records] == whole


async def test_an_iteration_that_the_client_s_own_thread_collects_stops_nothing(tmp_path):
    """The collector runs in any thread: waiting for that same thread would deadlock."""

    class Strategy:
        def __init__(self, views):
            self.views, self.me = views, self

    def use(url, key):
        with Onebook(url, key) as client:
            strategy = Strategy(client.watch("BTC/USDT"))
            assert next(strategy.views).symbol == "BTC/USDT"
            collected = threading.Event()
            gc.disable()
            try:
                del strategy
                client._thread._loop.call_soon_threadsafe(lambda: (gc.collect(), collected.set()))
                assert collected.wait(PATIENCE_S)
            finally:
                gc.enable()
            return client.snapshot("BTC/USDT").symbol

    async with asyncio.timeout(PATIENCE_S * 3), place(tmp_path) as rig:
        assert await asyncio.to_thread(use, rig.url, rig.key) == "BTC/USDT"


async def test_a_client_may_be_closed_from_its_own_thread(tmp_path):
    """Called like a program's `__del__` that closes the client in the garbage collector."""

    def use(url, key):
        client = Onebook(url, key)
        views = client.watch("BTC/USDT")
        assert next(views).symbol == "BTC/USDT"
        client._thread._loop.call_soon_threadsafe(client.close)
        client._thread._thread.join(PATIENCE_S)
        assert not client._thread._thread.is_alive()
        with pytest.raises(RuntimeError, match="closed"):
            client.snapshot("BTC/USDT")
        client.close()

    async with asyncio.timeout(PATIENCE_S * 3), place(tmp_path) as rig:
        await asyncio.to_thread(use, rig.url, rig.key)


async def test_a_client_that_another_thread_closes_says_so(tmp_path):
    def use(client):
        with pytest.raises(RuntimeError, match="closed"):
            for _ in client.watch("NO/UPDATE"):
                pass

    script = Scripted(["hear", "hear", "stay"])
    async with serve(script, HOST, 0) as server, asyncio.timeout(PATIENCE_S):
        with Onebook(f"ws://{HOST}:{server.sockets[0].getsockname()[1]}", "the key") as client:
            using = asyncio.create_task(asyncio.to_thread(use, client))
            while len(script.heard) < 2:
                await asyncio.sleep(0)
            await asyncio.to_thread(client.close)
            await using


async def test_a_refusal_that_nobody_waits_for_is_no_error_of_the_event_loop():
    failed = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(context))
    script = Scripted(["hear", "hear", update(1, 10), "seen", 4002])
    async with serve(script, HOST, 0) as server, asyncio.timeout(PATIENCE_S):
        views = watch(f"ws://{HOST}:{server.sockets[0].getsockname()[1]}", "the key", "BTC/USDT")
        await anext(views)
        running = views._link._running
        script.seen.release()
        await asyncio.wait([running])
        del views, running
        gc.collect()
    assert failed == []


def test_without_asyncio_an_iteration_goes_on_after_an_exception(unavailable_once):
    """A generator ends at its first error, so a list of transactions would look complete."""
    with Onebook(unavailable_once, "the key", attempts_max=1) as client:
        records = client.transactions("bybit")
        assert next(records)["transactionId"] == "1"
        with pytest.raises(Unavailable, match="Not now"):
            next(records)
        assert [each["transactionId"] for each in records] == ["2"]
        views = client.watch("BTC/USDT", attempts_max=1)
        for _ in range(2):
            with pytest.raises(Refused, match="check the path"):
                next(views)
        with closing(client.transactions("bybit")) as left:
            next(left)
        assert list(left) == []


def test_without_asyncio_a_wait_that_ctrl_c_ends_loses_nothing(unavailable_once):
    """The signal interrupts the main thread's wait; a later wait gets its result."""
    program = (
        "import signal, sys, threading; from onebook.client import Onebook\n"
        "with Onebook(sys.argv[1], 'slow', attempts_max=1) as client:\n"
        "    records = client.transactions('bybit')\n"
        "    threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()\n"
        "    try:\n"
        "        next(records)\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', next(records)['transactionId'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, unavailable_once], capture_output=True, text=True
    )
    assert done.stdout == "interrupted 1\n", done.stderr


class UnavailableOnce(BaseHTTPRequestHandler):
    """The first page has a record; the second page is available at the next request."""

    protocol_version = "HTTP/1.1"
    asked: list[str | None]

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/authenticate"):
            if body["api_key"] == "slow":
                time.sleep(0.5)
            return self.answer(200, {"session_token": "t"})
        self.asked.append(body.get("cursor"))
        if self.asked == [None, "a"]:
            return self.answer(503, {"error": "service_unavailable", "message": "Not now."})
        first = body.get("cursor") is None
        page = {"coverage": [], "errors": [], "partial": False, "summary": {}}
        page |= {"transactions": [{"transactionId": "1" if first else "2"}]}
        return self.answer(200, page | {"next_cursor": "a" if first else None})

    def do_GET(self):
        self.answer(404, {})

    def answer(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def unavailable_once():
    UnavailableOnce.asked = []
    with ThreadingHTTPServer((HOST, 0), UnavailableOnce) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://{HOST}:{server.server_port}"
        server.shutdown()
